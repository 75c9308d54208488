"""What a repair works out from the frames that can be read: states, ends, lost ranges, and frames to put over damage.

Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headrace.errors import JournalCorrupt
from headrace.log.control import decode_control
from headrace.log.files.findings import Findings, Segment
from headrace.log.files.redo import Adopted, Damaged, Unjoined, redo
from headrace.log.files.scan import Hole, scan
from headrace.log.replay import Replay
from headrace.log.tail import FeedTail, JournalState, LostRange, decode_state
from headrace.wire.frame import (
    FIRST_POSITION,
    HEADER_SIZE,
    Frame,
    FrameHeader,
    FrameKind,
    encode_frame,
)
from headrace.wire.segment import SegmentStart

FILLER_BYTES_MAX: Final = 16 << 20
"""Largest frame put over a hole; bounds what is held in memory."""


@dataclass(slots=True)
class Rebuilt:
    """A journal's state from a segment's start and the frames that can be read.

    ``uncertain``: some frame told nothing at all, so any feed may have changed. ``unsure``: regions of damaged control
    frames. ``adopted``: regions whose making can't be read; their feed's name was taken from their entries. ``epochs``: the
    newest epoch seen of each region. ``hidden``: how many frames may have stood where none can be made out.
    """

    replay: Replay
    uncertain: bool = False
    unsure: set[int] = field(default_factory=set)
    adopted: set[int] = field(default_factory=set)
    epochs: dict[int, int] = field(default_factory=dict)
    hidden: int = 0

    def note(self, headers: Sequence[FrameHeader]) -> None:
        """Note what headers of frames say of epochs."""
        for header in headers:
            self.epochs[header.region_id] = max(header.epoch, self.epochs.get(header.region_id, 0))

    def fenced(self, tail: FeedTail, now_ms: int) -> FeedTail:
        """The tail with new epochs for all its producers: above all that were, or may have been, given.

        ``now_ms``: the journal's clock. What an earlier repair gave may be hidden too, and is no count of frames: so a
        repair gives its own time, in which no feed can have had as many registrations since the repair before it.
        """
        newest = max(tail.epoch + 1, self.epochs.get(tail.region_id, 0) + 1, now_ms) + self.hidden
        if tail.shared:
            agents = {agent: max(epoch + 1 + self.hidden, newest) for agent, epoch in tail.agents.items()}
            return msgspec.structs.replace(tail, agents=agents, instances={})
        return msgspec.structs.replace(
            tail, epoch=newest, instance="", agents=tail.agents | {tail.owner: newest}
        )


def rebuilt(segment: Segment, stop: int) -> Rebuilt:
    """Return the state at position ``stop`` of ``segment``, whose own state must be known.

    JournalCorrupt if an intact frame does not join on to what was before it.
    """
    found = Rebuilt(Replay(decode_state(segment.state.encode())))
    replay = found.replay
    for odd in redo(segment.read, segment.first_position, stop, replay, str(segment.path), found.note):
        match odd:
            case Hole():
                found.uncertain = replay.gaps_allowed = True
                hidden = (odd.end - odd.position) // (2 * HEADER_SIZE)
                found.hidden += hidden
                replay.state.next_region_id += hidden  # a number that was given must not be given again
            case Adopted():
                found.adopted.add(odd.header.region_id)
                found.unsure.add(odd.header.region_id)
            case Damaged():
                _over_damage(found, odd.header)
            case Unjoined():
                raise odd.error
    return found


def _over_damage(found: Rebuilt, header: FrameHeader) -> None:
    state = found.replay.state
    state.global_ts = max(state.global_ts, header.last_global_ts)
    if header.kind == FrameKind.CONTROL:
        found.unsure.add(header.region_id)
        found.replay.gaps_allowed = True
        state.next_region_id = max(state.next_region_id, header.region_id + 1)
    elif header.kind == FrameKind.SKIPPED or found.replay.knows(header.region_id):
        found.replay.apply_damaged(header)


def lost_ranges(findings: Findings) -> dict[int, list[LostRange]]:
    """Return, by region, the ranges of sequence ids that stand in frames which can't be read or were skipped."""
    lost: dict[int, list[LostRange]] = {}

    def add(region_id: int, first: int, last: int) -> None:
        if first <= last:
            lost.setdefault(region_id, []).append(LostRange(first, last))

    for segment, later in zip(findings.segments, [*findings.segments[1:], None], strict=True):
        next_ids = _next_ids(segment.state)
        begins = _begins(later.state) if later is not None else {}
        is_holed = False
        for item in scan(segment.read, segment.first_position, segment.end):
            is_holed = is_holed or isinstance(item, Hole)
            if isinstance(item, Hole):
                continue
            header, data = item
            if header.kind == FrameKind.CONTROL and (told := _told(header, data)) is not None:
                add(header.region_id, next_ids.get(header.region_id, told.first_sequence_id), told.head)
                next_ids[header.region_id] = told.next_sequence_id
            if header.kind == FrameKind.CONTROL or not header.count:
                continue
            region_id, first = header.region_id, header.first_sequence_id
            begin = begins.get(region_id, 1 if is_holed else first)
            add(region_id, next_ids.get(region_id, begin), first - 1)
            if header.kind == FrameKind.SKIPPED or not _reads(header, data):
                add(header.region_id, header.first_sequence_id, header.last_sequence_id)
            next_ids[header.region_id] = header.last_sequence_id + 1
        if later is not None:
            for region_id, wanted in _next_ids(later.state).items():
                add(region_id, next_ids.get(region_id, begins[region_id]), wanted - 1)
    return lost


def _next_ids(state: JournalState) -> dict[int, int]:
    return {tail.region_id: tail.next_sequence_id for tail in state.feeds.values() if tail.first_sequence_id}


def _begins(state: JournalState) -> dict[int, int]:
    return {tail.region_id: tail.first_sequence_id for tail in state.feeds.values() if tail.first_sequence_id}


def _told(header: FrameHeader, data: bytes) -> FeedTail | None:
    """The tail that an intact control frame tells of a feed with entries: what stands before it may be in a hole."""
    try:
        tail = decode_control(Frame(data, header=header).body).feed
    except JournalCorrupt:
        return None
    return tail if tail.first_sequence_id else None


def _reads(header: FrameHeader, data: bytes) -> bool:
    try:
        Frame(data, header=header)
    except JournalCorrupt:
        return False
    return True


def rebuilt_start(before: Segment | None, segment: Segment) -> SegmentStart:
    """Return a segment's start record, made again from the segment before it; JournalCorrupt if that can't be done."""
    if segment.start_size is None:
        raise JournalCorrupt(
            f"{segment.path}: neither its start nor its first frame can be read",
            hint="Put this file back from a backup of the data folder.",
        )
    if segment.first_position == FIRST_POSITION:
        return JournalState().start_at(FIRST_POSITION)
    if before is None or not before.is_start_intact or before.end != segment.first_position:
        raise JournalCorrupt(
            f"{segment.path}: its start is damaged, and the segment before it is not there to make it again",
            hint="Put this file back from a backup of the data folder.",
        )
    found = rebuilt(before, before.end)
    if found.uncertain or found.unsure:
        raise JournalCorrupt(
            f"{segment.path}: its start is damaged, and so are frames before it that it depends on",
            hint="Put this file back from a backup of the data folder.",
        )
    return found.replay.state.start_at(segment.first_position)


def left_of(tail: FeedTail, then: FeedTail | None) -> FeedTail:
    """Return the feed as it was at the cut, with all that was decided since about who may append to it."""
    if then is None:
        then = FeedTail(
            tail.name, tail.region_id, tail.tenant, tail.incarnation, tail.owner, tail.instance, tail.epoch
        )
    return msgspec.structs.replace(
        tail,
        next_sequence_id=then.next_sequence_id,
        newest_lsn=then.newest_lsn,
        first_sequence_id=then.first_sequence_id,
        dropped_sequence_id=then.dropped_sequence_id,
        dropped_lsn=then.dropped_lsn,
        producers=then.producers,
        lost=tuple(gap for gap in tail.lost if gap.last_sequence_id < then.next_sequence_id),
        damaged_sequence_id=then.damaged_sequence_id,
    )


def end_of_intact(segment: Segment) -> int:
    """Return the position behind the last frame of ``segment`` that can be made out: where a journal without a mark ends."""
    end = segment.first_position
    for item in scan(segment.read, segment.first_position, segment.end):
        if not isinstance(item, Hole) and item[0].end <= segment.end:
            end = item[0].end
    return end


def fillers(
    position: int, end: int, header: FrameHeader | None, global_ts: int
) -> Iterator[tuple[int, bytes]]:
    """Yield (position, frame) that fill ``position`` … ``end`` - 1 exactly: one that keeps ``header``, or blank ones."""
    if header is not None:
        kept = header._replace(kind=FrameKind.SKIPPED)
        lengths = bytes(4 * header.count)
        yield position, encode_frame(kept, bytes(header.area_size), bytes(header.body_size), lengths)
        return
    while position < end:
        size = min(FILLER_BYTES_MAX, end - position)
        if 0 < end - position - size < 2 * HEADER_SIZE:
            size -= 2 * HEADER_SIZE
        blank = FrameHeader(FrameKind.SKIPPED, position, 0, global_ts, 0, bytes(16), 0, 0, 0, 0, 0)
        yield position, encode_frame(blank, b"", bytes(size - 2 * HEADER_SIZE), b"")
        position += size
