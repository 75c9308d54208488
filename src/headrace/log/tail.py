"""What the log knows of a feed's end: everything that appends are judged on, as a frozen value.

It is rebuilt from the journal (segment start + frames after it), and stands in every segment start.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import msgspec

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt
from headrace.runtime.typed_json import decode_json
from headrace.wire.frame import FrameHeader
from headrace.wire.lost_lsns import LostLsns
from headrace.wire.segment import SegmentStart
from headrace.wire.versions import SEGMENT, SEGMENT_REBUILT


class ProducerPlace(msgspec.Struct, frozen=True, rename="kebab"):
    """A producer's last frame in a feed: enough to recognise its retry after restart, takeover and retention.

    ``digest`` is hex, ``source_position`` base64; ``global_ts`` is the frame's, from which its LSNs follow.
    """

    first_sequence_id: int
    count: int
    digest: str
    global_ts: int
    source_position: str = ""


class Quarantine(msgspec.Struct, frozen=True, rename="kebab"):
    """A publisher that sent an entry twice: refused until an operator releases it (RFD 5)."""

    agent_id: str
    sequence_id: int
    at_ms: int


class FeedSettings(msgspec.Struct, frozen=True, rename="kebab"):
    """What a feed's entries are taken to mean, and how their named places are judged.

    ``key_field``: the member of ``changes`` that is the key of an entry that names none. ``changes``: what an entry
    without ``op`` carries, the full state or only the properties changed. ``expected_offset``: ``required`` refuses an
    append that does not name the place of each entry, ``ignored`` does not compare the offsets that are given.
    """

    key_field: str = "uuid"
    changes: Literal["full", "delta"] = "full"
    expected_offset: Literal["optional", "required", "ignored"] = "optional"


class LostRange(msgspec.Struct, frozen=True, rename="kebab"):
    """Sequence ids that a repair skipped because their frames were damaged: they stay taken, their entries are gone."""

    first_sequence_id: int
    last_sequence_id: int


class FeedTail(msgspec.Struct, frozen=True, rename="kebab"):
    """A feed's identity, who may append to it, and its end.

    ``next_sequence_id`` is the place of the next entry. ``first_sequence_id`` is where the feed began (0: nothing was ever
    appended). ``dropped_sequence_id`` is the newest one that retention dropped (0: none), ``dropped_lsn`` its LSN.
    ``agents`` maps every agent that ever registered to the epoch of its last registration. ``quarantines``: by agent id;
    a takeover lifts none, so there may be several.

    An owned feed has one ``owner``, whose ``instance`` and ``epoch`` are the feed's. A ``shared`` feed has none (``owner``
    and ``instance`` are empty): each producer has its own epoch in ``agents`` and its own instance in ``instances``. Its
    ``epoch`` is below all that it gives: 0, save where the journal was rebuilt from a backup, which does not know those that
    were given before. ``damaged_sequence_id`` is the newest entry whose frame's payload is damaged (0: none): what its
    producer's last frame said can't be told any more. ``lost``: the retained ranges that a repair skipped, oldest first.
    ``lost_lsns``: what rebuilding from a backup lost, in LSN order; not there in a journal that was never rebuilt.
    """

    name: str
    region_id: int
    tenant: str
    incarnation: str
    owner: str
    instance: str
    epoch: int
    next_sequence_id: int = 1
    newest_lsn: str = str(ZERO)
    first_sequence_id: int = 0
    dropped_sequence_id: int = 0
    dropped_lsn: str = str(ZERO)
    quarantines: dict[str, Quarantine] = {}
    agents: dict[str, int] = {}
    producers: dict[str, ProducerPlace] = {}
    settings: FeedSettings = FeedSettings()
    shared: bool = False
    instances: dict[str, str] = {}
    damaged_sequence_id: int = 0
    lost: tuple[LostRange, ...] = ()
    lost_lsns: tuple[LostLsns, ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def lost_by_rebuilds(self) -> tuple[LostLsns, ...]:
        """What rebuilding from a backup lost, in LSN order."""
        return () if self.lost_lsns is msgspec.UNSET else self.lost_lsns

    @property
    def quarantine(self) -> Quarantine | None:
        """The owner's quarantine, else that of an earlier owner that was never released; None if there is none."""
        return self.quarantines.get(self.owner) or next(iter(self.quarantines.values()), None)

    @property
    def head(self) -> int:
        """Sequence id of the newest entry; one below the next, 0 on a feed that begins at 1 and has none."""
        return self.next_sequence_id - 1

    @property
    def oldest(self) -> int:
        """Sequence id of the oldest retained entry; the next one where nothing is retained."""
        if self.dropped_sequence_id:
            return self.dropped_sequence_id + 1
        return self.first_sequence_id or self.next_sequence_id

    @property
    def newest(self) -> Lsn:
        """LSN of the newest entry; ZERO if there never was one."""
        return Lsn.parse(self.newest_lsn)

    def epoch_of(self, agent_id: str) -> int:
        """Return the epoch that appends of ``agent_id`` must carry; 0 if it never registered."""
        if self.shared or agent_id != self.owner:
            return self.agents.get(agent_id, 0)
        return self.epoch

    def last_frame(self, producer: str) -> ProducerPlace | None:
        """Return the producer's last frame, None if it never appended.

        Raises JournalCorrupt where a frame that may be this producer's is damaged and it has appended nothing since: it
        must not go on from an older source position, nor take itself for new.
        """
        place = self.producers.get(producer)
        newest = place.first_sequence_id + place.count - 1 if place is not None else 0
        if newest <= self.damaged_sequence_id and self.damaged_sequence_id and producer in self.agents:
            raise JournalCorrupt(
                f"the last append of {producer} to {self.name} can't be told: the frame that ends at sequence id "
                f"{self.damaged_sequence_id} is damaged",
                hint="Find out by the feed's entries how far this producer got; its next append makes the answer certain.",
                change_feed_id=self.name,
                sequence_id=self.damaged_sequence_id,
            )
        return place

    def after(
        self, header: FrameHeader, producer: str, source_position: str, *, in_place: bool = False
    ) -> FeedTail:
        """Return the tail once the entries frame ``header`` of ``producer`` stands at this feed's end.

        ``in_place``: this tail is the caller's alone and not used any more, so that its ``producers``, which may be many,
        are moved on and not copied.
        """
        place = ProducerPlace(
            header.first_sequence_id, header.count, header.digest.hex(), header.global_ts, source_position
        )
        producers = self.producers if in_place else dict(self.producers)
        producers[producer] = place
        return msgspec.structs.replace(
            self,
            next_sequence_id=header.last_sequence_id + 1,
            newest_lsn=str(header.lsn(header.count - 1)),
            first_sequence_id=self.first_sequence_id or header.first_sequence_id,
            producers=producers,
        )

    def after_damaged(self, header: FrameHeader) -> FeedTail:
        """Return the tail behind an entries frame of which only the header can be read.

        On an owned feed it was the owner's, so that its retry is recognised by the digest all the same. On a shared feed
        nobody can say whose it was: no last frame moves, and a retry of it meets the damage when it is compared.
        """
        moved = self.after(header, self.owner, "")
        return msgspec.structs.replace(
            moved,
            producers=self.producers if self.shared else moved.producers,
            damaged_sequence_id=header.last_sequence_id,
        )


class JournalState(msgspec.Struct, rename="kebab"):
    """What a segment continues from: clock, next free region id, newest dropped LSN, and every feed's tail."""

    global_ts: int = 0
    next_region_id: int = 1
    dropped_lsn: str = str(ZERO)
    feeds: dict[str, FeedTail] = {}

    def encode(self) -> bytes:
        """Return the state as the JSON document of a segment start."""
        return msgspec.json.encode(self)

    def start_at(self, first_position: int) -> SegmentStart:
        """Return the start of a segment that continues from here."""
        rebuilt = any(tail.lost_by_rebuilds for tail in self.feeds.values())
        readable_from = SEGMENT_REBUILT if rebuilt else SEGMENT.readable_from
        return SegmentStart(first_position, self.encode(), readable_from)


class _FeedBegin(msgspec.Struct, rename="kebab"):
    """The part of a feed's tail that finds its frames."""

    region_id: int
    next_sequence_id: int = 1
    first_sequence_id: int = 0


class StateBegins(msgspec.Struct, rename="kebab"):
    """The part of a :class:`JournalState` that finds frames: the clock, and where each feed goes on."""

    global_ts: int = 0
    feeds: dict[str, _FeedBegin] = {}


State = TypeVar("State", JournalState, StateBegins)


def decode_state(data: bytes) -> JournalState:
    """Read a segment start's JSON document; JournalCorrupt if it is not one."""
    return _decoded(data, JournalState)


def decode_begins(data: bytes) -> StateBegins:
    """Read the part of a segment start's JSON document that finds frames; JournalCorrupt if it is not one."""
    return _decoded(data, StateBegins)


def _decoded(data: bytes, kind: type[State]) -> State:
    try:
        return decode_json(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JournalCorrupt(f"a segment's start state can't be read: {error}") from None
