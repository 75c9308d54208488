"""The retention plan, pure: segments + consumers + terms -> what goes, what stays, and why.

The journal drops whole segments, oldest first: those older than the retention *and* below the place of everyone who holds.
The byte cap wins over all of them. A segment's fate never jumps back: as time passes, more goes (if nobody moves back).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from headrace.entries.hlc import to_ms
from headrace.log.contract import SegmentView

BYTES_MAX: Final = 20 << 30
"""The byte cap where the volume does not set a smaller one."""
RETENTION_S_FLOOR: Final = 3600.0
"""RFC-010 retains at least 60 minutes. Less can be set, and is warned of."""
CROWDED_SHARE: Final = 0.7
"""From this share of the byte cap on an alarm stands: soon the cap decides what goes."""
ROLL_PARTS: Final = 8
"""A quiet log's open segment is sealed after an eighth of the retention, or it would never be old enough to go. A busy one
is sealed at an eighth of the byte cap at the latest, so that the cap takes little at a time."""
HYDRATION_S_MAX: Final = 6 * 3600.0
"""Longest hydration lease: what a listener that never comes back can cost."""
FORGET_MS: Final = 7 * 86_400_000
"""A subscriber that has held nothing for so long is removed: names that are used once must not stay for ever."""
RESTART_GRACE_MS: Final = 3_600_000
"""While a server is down nobody can be seen, so for this long after a start (at most ``subscriber-expiry``) nobody
expires."""


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The journal's retention, as a server is started with it.

    ``bytes_max`` None: the smaller of 20 GB and a quarter of the volume. ``hydration_s``: how long a hydration lease stands
    that is not renewed. ``every_s``: the pause between two passes; what
    is dropped is that much older at most, and the byte cap is looked at more often while the journal grows.
    """

    retention_s: float = 48 * 3600.0
    bytes_max: int | None = None
    subscriber_expiry_s: float = 24 * 3600.0
    hydration_s: float = 6 * 3600.0
    every_s: float = 60.0

    def for_volume(self, volume_bytes: int) -> RetentionSettings:
        """Return these settings with the byte cap filled in for a volume of this size."""
        if self.bytes_max is not None:
            return self
        return msgspec.structs.replace(self, bytes_max=min(BYTES_MAX, volume_bytes // 4))

    def terms(self, now_ms: int, started_ms: int) -> Terms:
        """Return what is in force at ``now_ms`` on a server that was started at ``started_ms``."""
        bytes_max = BYTES_MAX if self.bytes_max is None else self.bytes_max
        retention_ms, expiry_ms = round(self.retention_s * 1000), round(self.subscriber_expiry_s * 1000)
        return Terms(now_ms, retention_ms, expiry_ms, bytes_max, started_ms)


class ConsumerKind(Enum):
    """What keeps a place in the journal. One more kind is one more value here and one more provider in ``consumers``."""

    LISTENER = "listener"
    SUBSCRIBER = "subscriber"
    HYDRATION = "hydration"


ConsumerKey = tuple[ConsumerKind, str, str]
"""Kind, name and feed of a consumer."""


class Consumer(NamedTuple):
    """Someone with a place in the journal.

    ``feed`` is empty for a consumer of all feeds. ``place`` is its place in words. ``position`` is that of the first frame
    it still needs, the journal's end if it has everything, None if its place is not known. ``seen_at_ms``: when it was last
    heard of. ``hold_until_ms``: retention waits for it until then; None: it never asked for that. ``lost``: what it needs
    next was dropped, so it holds nothing any more. ``rank`` grows as its place moves forward: the LSN as a number, or the
    sequence id; -1 where it has reported none.
    """

    kind: ConsumerKind
    name: str
    feed: str
    place: str
    position: int | None
    seen_at_ms: int
    hold_until_ms: int | None
    lost: bool
    rank: int = -1

    @property
    def key(self) -> ConsumerKey:
        """What tells it from all others."""
        return self.kind, self.name, self.feed

    def holds(self, now_ms: int) -> bool:
        """Return whether retention waits for it at ``now_ms``."""
        wants = self.hold_until_ms is not None and now_ms < self.hold_until_ms
        return wants and self.position is not None and not self.lost

    def describe(self) -> str:
        """Return who and where it is, as people read it."""
        of_feed = f" of {self.feed}" if self.feed else ""
        return f"{self.kind.value} {self.name or '(unnamed)'}{of_feed} at {self.place}"


class Terms(NamedTuple):
    """What is in force: milliseconds (``now_ms`` and ``started_ms``, the server's start, since 1970) and bytes."""

    now_ms: int
    retention_ms: int
    expiry_ms: int
    bytes_max: int
    started_ms: int = 0

    def expires_at(self, seen_at_ms: int) -> int:
        """Return when somebody last seen at ``seen_at_ms`` holds nothing any more."""
        grace_ms = min(self.expiry_ms, RESTART_GRACE_MS)
        return max(seen_at_ms + self.expiry_ms, self.started_ms + grace_ms)

    @property
    def holds_if_seen_after_ms(self) -> int:
        """Whoever was seen later than this has not expired."""
        return -1 if self.expires_at(-self.expiry_ms) > self.now_ms else self.now_ms - self.expiry_ms

    def forgets_at(self, seen_at_ms: int) -> int:
        """Return when a subscriber last seen at ``seen_at_ms`` is removed: long after it has expired."""
        return max(self.expires_at(seen_at_ms), seen_at_ms + self.expiry_ms + FORGET_MS)


class Fate(Enum):
    """Why a segment goes or stays; the values are those of ``GET /retention``."""

    AGED = "older-than-retention"
    BYTE_CAP = "byte-cap"
    OPEN = "open"
    YOUNG = "too-young"
    HELD = "held"

    @property
    def goes(self) -> bool:
        """Whether the segment goes."""
        return self in {Fate.AGED, Fate.BYTE_CAP}


class SegmentFate(NamedTuple):
    """One segment's fate. ``old_at_ms``: when it is older than the retention. ``holders``: who holds it now, young or old.

    ``goes_at_ms``: when it goes if nobody moves or is seen again; None while it is open.
    """

    segment: SegmentView
    fate: Fate
    old_at_ms: int
    holders: tuple[Consumer, ...]
    goes_at_ms: int | None


class Losing(NamedTuple):
    """A consumer whose place goes with the plan, and why the segment at its place goes."""

    consumer: Consumer
    fate: Fate


class Plan(NamedTuple):
    """What retention would do now. ``position``: everything below it goes (the oldest position if nothing does).

    ``bytes_before`` and ``bytes_after``: what the journal takes. ``losing``: who loses its place by it; a holder can only be
    there because of the byte cap.
    """

    position: int
    fates: tuple[SegmentFate, ...]
    bytes_before: int
    bytes_after: int
    losing: tuple[Losing, ...]

    def crowded(self, terms: Terms) -> bool:
        """Return whether what stays takes so much of the byte cap that someone should know."""
        return self.bytes_after >= CROWDED_SHARE * terms.bytes_max


def plan_retention(segments: Sequence[SegmentView], consumers: Sequence[Consumer], terms: Terms) -> Plan:
    """Return what would be dropped now and why each segment goes or stays. ``segments``: oldest first, the last open."""
    holding = [one for one in consumers if one.holds(terms.now_ms)]
    fates = [_by_age(segment, holding, terms) for segment in segments]
    size = sum(one.segment.size for one in fates if not one.fate.goes)
    for index, one in enumerate(fates):
        if size <= terms.bytes_max or one.fate is Fate.OPEN:
            break
        if not one.fate.goes:
            fates[index] = one._replace(fate=Fate.BYTE_CAP, goes_at_ms=terms.now_ms)
            size -= one.segment.size
    going = [one for one in fates if one.fate.goes]
    position = going[-1].segment.end if going else segments[0].first_position
    return Plan(
        position,
        tuple(fates),
        sum(segment.size for segment in segments),
        size,
        tuple(_losing(going, consumers)),
    )


def _by_age(segment: SegmentView, holding: Sequence[Consumer], terms: Terms) -> SegmentFate:
    """What the byte cap leaves to decide. Holders of a segment hold all later ones, and later ones are younger."""
    holders = tuple(one for one in holding if one.position is not None and one.position < segment.end)
    old_at_ms = to_ms(segment.newest_global_ts) + terms.retention_ms
    goes_at_ms = max([old_at_ms, *(one.hold_until_ms or 0 for one in holders)])
    if segment.is_open:
        return SegmentFate(segment, Fate.OPEN, old_at_ms, holders, None)
    if terms.now_ms < old_at_ms:
        return SegmentFate(segment, Fate.YOUNG, old_at_ms, holders, goes_at_ms)
    if holders:
        return SegmentFate(segment, Fate.HELD, old_at_ms, holders, goes_at_ms)
    return SegmentFate(segment, Fate.AGED, old_at_ms, holders, old_at_ms)


def _losing(going: Sequence[SegmentFate], consumers: Sequence[Consumer]) -> list[Losing]:
    found: list[Losing] = []
    for consumer in consumers:
        if consumer.position is None or consumer.lost:
            continue
        own = next((one for one in going if consumer.position < one.segment.end), None)
        if own is not None:
            found.append(Losing(consumer, own.fate))
    return found


def should_roll(open_segment: SegmentView, first_frame_ms: int, terms: Terms) -> bool:
    """Return whether the open segment is to be sealed, so that it can go later.

    ``first_frame_ms``: when its first frame was written. Where it has none, there is nothing to seal.
    """
    if open_segment.end == open_segment.first_position:
        return False
    old = terms.now_ms - first_frame_ms >= terms.retention_ms // ROLL_PARTS
    return old or open_segment.size > max(1, terms.bytes_max // ROLL_PARTS)
