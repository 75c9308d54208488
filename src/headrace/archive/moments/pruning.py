"""The prune plan, pure: segments + bases + holds + terms -> what goes, what stays, and why.

Whatever goes, every moment of the last ``retention_days`` that could be reached before can be reached afterwards. All such
moments are at or behind the *anchor*, the newest usable base that is older than that. What goes lies below the anchor and
below every base that stays, so that no base stands there without its segments. Without an anchor nothing goes, nor while
something is missing behind it that nobody has accepted.

Time is the archive's own, not the machine's: the retention counts back from the newest archived entry, or from now if that
is earlier. So a clock that is wrong, or a log that stands still, can only make more stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.gaps import AcceptedGap
from headrace.archive.files.segments import Stored
from headrace.archive.moments.chain import Chain
from headrace.entries.lsn import Lsn
from headrace.wire.kwal_manifest import Manifest

_DAY_MS: Final = 86_400_000


class Terms(NamedTuple):
    """How long moments must stay reachable, and how much longer bases stay, in days."""

    retention_days: float = 7
    buffer_days: float = 1


class Base(NamedTuple):
    """A base as the plan sees it. ``stored``: None if it can't be used; then ``problem`` says why."""

    lsn: Lsn
    path: str
    stored: StoredBase | None
    problem: str = ""


class Held(NamedTuple):
    """Somebody reads the archive from ``lsn_from`` on, such as a restore that runs: ``who`` in words."""

    who: str
    lsn_from: Lsn


class Contents(NamedTuple):
    """What is in an archive: segments, bases and accepted gaps in LSN order, manifests by segment's file, who holds it.

    A manifest that can't be read is left out, and is a gap then.
    """

    segments: Sequence[Stored]
    manifests: Mapping[str, Manifest]
    bases: Sequence[Base] = ()
    accepted: Sequence[AcceptedGap] = ()
    holds: Sequence[Held] = ()


class Fate(Enum):
    """Why a segment or a base goes or stays; the values are those of ``headrace wal prune --json``."""

    AGED = "older-than-retention"
    YOUNG = "too-young"
    NEEDED = "needed"
    BUFFERED = "within-buffer"
    NEWEST = "newest-segment"
    HELD = "held"
    BLOCKED = "blocked"

    @property
    def goes(self) -> bool:
        """Whether it goes."""
        return self is Fate.AGED


class SegmentFate(NamedTuple):
    """One segment's fate."""

    segment: Stored
    fate: Fate


class BaseFate(NamedTuple):
    """One base's fate."""

    base: Base
    fate: Fate


class PrunePlan(NamedTuple):
    """What a prune would do at ``now_ms``. ``horizon_ms``: moments from then on stay reachable. Both in UTC milliseconds.

    ``anchor``: the base from which they are. ``keep_from``: nothing at or behind this LSN goes; None if nothing goes at all.
    ``accepted``: records of accepted gaps that lie wholly below, and go, too. ``refused``: why nothing goes though something
    is old enough; else empty.
    """

    now_ms: int
    horizon_ms: int
    anchor: Base | None
    keep_from: Lsn | None
    segments: tuple[SegmentFate, ...]
    bases: tuple[BaseFate, ...]
    accepted: tuple[AcceptedGap, ...]
    refused: str

    @property
    def segments_going(self) -> list[Stored]:
        """The segments that go, oldest first."""
        return [one.segment for one in self.segments if one.fate.goes]

    @property
    def bases_going(self) -> list[Base]:
        """The bases that go, oldest first."""
        return [one.base for one in self.bases if one.fate.goes]


class _Bounds(NamedTuple):
    """``anchor``: see above. ``free``: what is below may go but for holds; None if nothing may, as ``blocked`` says."""

    anchor: Base | None
    free: Lsn | None
    blocked: str
    holds: Sequence[Held]

    @property
    def limit(self) -> Lsn | None:
        return min([self.free, *(one.lsn_from for one in self.holds)]) if self.free is not None else None


def plan_prune(contents: Contents, terms: Terms, now_ms: int) -> PrunePlan:
    """Return what goes now and why everything else stays."""
    horizon_ms = _reference(contents, now_ms) - round(terms.retention_days * _DAY_MS)
    oldest_ms = horizon_ms - round(terms.buffer_days * _DAY_MS)
    contents = contents._replace(bases=list(_judged(contents)))
    bounds = _bounds(contents, horizon_ms, oldest_ms)
    segments = tuple(_segments(contents.segments, horizon_ms, bounds))
    bases = tuple(BaseFate(one, _base_fate(one, horizon_ms, oldest_ms, bounds)) for one in contents.bases)
    limit = bounds.limit
    return PrunePlan(
        now_ms,
        horizon_ms,
        bounds.anchor,
        limit,
        segments,
        bases,
        tuple(one for one in contents.accepted if limit is not None and one.span[1] <= limit),
        _refusal(segments, bases, bounds),
    )


def _reference(contents: Contents, now_ms: int) -> int:
    """Now, as far as the archive bears it out."""
    newest = contents.segments[-1].name.last if contents.segments else None
    if newest is None:
        newest = max((one.lsn for one in contents.bases), default=None)
    return now_ms if newest is None else min(now_ms, newest.committed_at_ms)


def _bounds(contents: Contents, horizon_ms: int, oldest_ms: int) -> _Bounds:
    """Find the newest base that reaches every moment from the horizon on."""
    candidates = [one for one in contents.bases if one.stored and one.lsn.committed_at_ms <= horizon_ms]
    for anchor in reversed(candidates):
        kept = [one for one in contents.segments if one.name.last >= anchor.lsn]
        if not kept:
            blocked = f"no segment reaches {anchor.path}: nobody can tell what was written behind it"
            return _Bounds(anchor, None, blocked, contents.holds)
        if not kept[-1].told and len(kept) > 1:
            kept.pop()  # its agent is about to write the manifest
        chain = Chain(kept, contents.manifests, [anchor.stored] if anchor.stored else (), contents.accepted)
        if chain.reach(anchor.lsn) < kept[-1].name.last:
            why = next(one.why for one in chain.gaps() if not one.accepted)
            blocked = f"behind {anchor.path} something is missing that nobody has accepted: {why}"
            return _Bounds(anchor, None, blocked, contents.holds)
        staying = [one.lsn for one in contents.bases if one.lsn.committed_at_ms >= oldest_ms]
        return _Bounds(anchor, min([anchor.lsn, *staying]), "", contents.holds)
    return _Bounds(None, None, "", contents.holds)


def _judged(contents: Contents) -> Iterator[Base]:
    """Yield the bases; one that the segments do not go on from can't be used."""
    stored = [one.stored for one in contents.bases if one.stored]
    chain = Chain(contents.segments, contents.manifests, stored, contents.accepted)
    for base in contents.bases:
        if base.stored and (why := chain.why_not(base.stored)):
            problem = f"it is of another log, or of another history: {why}"
            yield base._replace(stored=None, problem=problem)
        else:
            yield base


def _segments(segments: Sequence[Stored], horizon_ms: int, bounds: _Bounds) -> list[SegmentFate]:
    found = []
    for at, one in enumerate(segments):
        last = one.name.last
        if at == len(segments) - 1:
            fate = Fate.NEWEST  # the agent goes on behind it
        elif last.committed_at_ms >= horizon_ms:
            fate = Fate.YOUNG
        elif bounds.anchor is None or last >= bounds.anchor.lsn:
            # The one that holds the anchor's own entry stays, too: that entry is a moment's last one.
            fate = Fate.NEEDED
        else:
            fate = _below(last, bounds)
        found.append(SegmentFate(one, fate))
    return found


def _base_fate(base: Base, horizon_ms: int, oldest_ms: int, bounds: _Bounds) -> Fate:
    if base.lsn.committed_at_ms > horizon_ms:
        return Fate.YOUNG
    if bounds.anchor is None or base.lsn >= bounds.anchor.lsn:
        return Fate.NEEDED
    if base.lsn.committed_at_ms >= oldest_ms:
        return Fate.BUFFERED
    return _below(base.lsn, bounds)


def _below(lsn: Lsn, bounds: _Bounds) -> Fate:
    """Return the fate of what is old enough."""
    if bounds.free is None or bounds.limit is None:
        return Fate.BLOCKED
    if lsn >= bounds.free:
        return Fate.BUFFERED
    return Fate.AGED if lsn < bounds.limit else Fate.HELD


def _refusal(segments: Sequence[SegmentFate], bases: Sequence[BaseFate], bounds: _Bounds) -> str:
    fates = {one.fate for one in segments} | {one.fate for one in bases}
    if not any(one.base.stored for one in bases):
        aged = [one.segment.file for one in segments if one.fate is Fate.NEEDED]
        return f"{aged[-1]} is older than the retention, but no base snapshot can be used" if aged else ""
    if Fate.BLOCKED in fates:
        return bounds.blocked
    if Fate.HELD in fates and Fate.AGED not in fates:
        first = min(bounds.holds, key=lambda one: one.lsn_from)
        return f"{first.who} needs everything from lsn={first.lsn_from} on"
    return ""
