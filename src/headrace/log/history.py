"""What stands in a feed, read back: stored frames of a range, the entries that a retry is compared with, and places.

Everything here blocks: call it from a worker thread. Where a position can't be found exactly, one further back is answered.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import Final

from headrace.entries.hlc import to_ms
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError, JournalCorrupt, SequenceLost, SequenceNotAvailable
from headrace.log.contract import Store
from headrace.log.rules import StoredEntry
from headrace.log.tail import FeedTail
from headrace.wire.entry import half_of
from headrace.wire.frame import Area, Frame, FrameKind, decode_area
from headrace.wire.segment import FramePlace

FRAMES_AT_ONCE: Final = 256
"""Frame places looked up at a time; bounds what one look-up holds."""
WALK_BYTES: Final = 1 << 16
"""Read at a time to find where the frame behind an LSN begins."""
STEP_BYTES: Final = 4 << 20
"""Read at a time where a retry is compared with what is stored."""
AROUND_BYTES_MAX: Final = 64 << 10
"""More than a frame of one entry takes beside what its producer sent: headers, names, the producer's source position."""
SIZED_FRAMES_MAX: Final = 256
"""Frames counted exactly for a size in bytes; beyond them it is reckoned from these."""


def frames_of_range(
    store: Store, tail: FeedTail, first: int, last: int, *, entries_max: int, bytes_max: int
) -> list[Frame]:
    """Return the stored frames of a feed that overlap sequence ids ``first`` … ``last``, oldest first, without a hole.

    Stops at the first frame that reaches ``entries_max`` entries of the range, before one that exceeds ``bytes_max``
    bytes, and before a damaged or missing one; at least one frame if there is any. Raises SequenceNotAvailable if
    ``first`` was dropped, SequenceLost (with ``lost_first`` and ``lost_last``) if a repair skipped it, JournalCorrupt if the
    frame that should hold ``first`` is damaged or missing.
    """
    frames: list[Frame] = []
    size, at = 0, first
    while at <= last and at - first < entries_max:
        places = store.places(tail.region_id, at, last, frames_max=FRAMES_AT_ONCE)
        taken: list[FramePlace] = []
        for place in places:
            full = at - first >= entries_max or ((frames or taken) and size + place.size > bytes_max)
            if full or place.first_sequence_id > at:
                break
            taken.append(place)
            size += place.size
            at = place.first_sequence_id + place.count
        found = _intact(store, taken, first_needed=not frames)
        frames += found
        if not taken or len(found) < len(places):
            break
    if not frames and first <= min(last, tail.head):
        raise _absent(store, tail, first)
    return frames


def _intact(store: Store, places: Sequence[FramePlace], *, first_needed: bool) -> Sequence[Frame]:
    """Return the frames up to the first damaged one; JournalCorrupt if that is the very first, which is needed."""
    try:
        return store.read(places)
    except JournalCorrupt:
        found: list[Frame] = []
        for place in places:
            try:
                found += store.read([place])
            except JournalCorrupt:
                if found or not first_needed:
                    break
                raise
        return found


def _absent(store: Store, tail: FeedTail, sequence_id: int) -> HeadraceError:
    now = store.tail(tail.name) or tail
    lost = next(
        (gap for gap in now.lost if gap.first_sequence_id <= sequence_id <= gap.last_sequence_id), None
    )
    if lost is not None:
        return SequenceLost(
            f"the entries {lost.first_sequence_id} to {lost.last_sequence_id} of {tail.name} were damaged, and a repair "
            "skipped them",
            lost_first=lost.first_sequence_id,
            lost_last=lost.last_sequence_id,
            oldest=now.oldest,
            head=now.head,
        )
    if sequence_id < now.oldest:
        return SequenceNotAvailable(
            f"the entries of {tail.name} from {sequence_id} on are no longer there; the oldest is {now.oldest}",
            oldest=now.oldest,
            head=now.head,
        )
    return JournalCorrupt(
        f"the entry {sequence_id} of {tail.name} (region {tail.region_id}) is missing in the journal",
        change_feed_id=tail.name,
        sequence_id=sequence_id,
    )


def entries_in_steps(
    store: Store, tail: FeedTail, first: int, last: int, halves: Sequence[bytes] | None = None
) -> Iterator[StoredEntry | None]:
    """Yield the entries ``first`` … ``last``, all of them, as a retry is compared with them; read as they are asked for.

    What is in memory at once is :data:`STEP_BYTES`, or one frame if that is larger. ``halves``: what is to be at these
    places. Of a frame that by its size alone can hold none of it nothing is read, and None stands for its entries.

    Raises as :func:`frames_of_range` does: what can't be read can't be called equal or different.
    """
    at = first
    while at <= last:
        places = store.places(tail.region_id, at, last, frames_max=FRAMES_AT_ONCE)
        if not places or places[0].first_sequence_id > at:
            raise _absent(store, tail, at)
        while places and places[0].first_sequence_id <= at <= last:
            end = min(last, places[0].first_sequence_id + places[0].count - 1)
            if halves is not None and not _may_hold(places[0], halves[at - first : end - first + 1]):
                yield from repeat(None, end - at + 1)
                at, places = end + 1, places[1:]
                continue
            for frame in _intact(store, _step(places), first_needed=True):
                end = min(last, frame.header.last_sequence_id)
                yield from _entries_of(frame, at, end)
                at, places = end + 1, places[1:]


def _step(places: Sequence[FramePlace]) -> Sequence[FramePlace]:
    """Return the first of these, and as many as follow it without a hole and fit into a step."""
    size, count = places[0].size, 1
    for before, place in pairwise(places):
        size += place.size
        if size > STEP_BYTES or place.first_sequence_id != before.first_sequence_id + before.count:
            break
        count += 1
    return places[:count]


def _may_hold(place: FramePlace, halves: Sequence[bytes]) -> bool:
    """Return whether one of ``halves`` may be an entry of the frame, by what the frame takes."""
    if place.count == 1:
        return len(halves[0]) <= place.size <= len(halves[0]) + AROUND_BYTES_MAX
    return place.size >= min(map(len, halves))


def _entries_of(frame: Frame, first: int, last: int) -> Iterator[StoredEntry]:
    producer = decode_area(frame.area).get(Area.PRODUCER, b"").decode()
    for sequence_id, stored in enumerate(frame.entries(), frame.header.first_sequence_id):
        if first <= sequence_id <= last:
            yield StoredEntry(producer, bytes(half_of(stored)), frame.header)


def lsn_at(store: Store, tail: FeedTail, sequence_id: int) -> Lsn | None:
    """Return the LSN of a retained entry or of the newest dropped one; None where the feed has none to tell."""
    if sequence_id == tail.head:
        return tail.newest if tail.first_sequence_id else None
    if sequence_id and sequence_id == tail.dropped_sequence_id:
        return Lsn.parse(tail.dropped_lsn)
    if not tail.oldest <= sequence_id <= tail.head:
        return None
    places = store.places(tail.region_id, sequence_id, sequence_id, frames_max=1)
    if not places:
        return None
    header = store.read(places)[0].header
    return header.lsn(sequence_id - header.first_sequence_id)


def position_after(store: Store, tail: FeedTail, sequence_id: int, end: int) -> int:
    """Return the position of the frame with the entry after ``sequence_id``; ``end`` if there is no such entry yet.

    The oldest position where that frame is damaged or was dropped meanwhile: damage must not stop the byte cap.
    """
    first = max(sequence_id + 1, tail.oldest)
    if first > tail.head:
        return end
    with contextlib.suppress(JournalCorrupt):
        places = store.places(tail.region_id, first, tail.head, frames_max=1)
        if places and places[0].first_sequence_id <= first:
            return places[0].position
    return store.oldest_position()


def position_past(store: Store, place: Lsn) -> int:
    """Return the position of the first retained frame with an entry above ``place``; the end if there is none."""
    end, position = store.end(), store.oldest_position()
    try:
        position = store.seek(place.global_ts)
        while position < end:
            for frame in store.walk(position, bytes_max=WALK_BYTES):
                header = frame.header
                if header.kind == FrameKind.ENTRIES and header.lsn(header.count - 1) > place:
                    return header.position
                position = header.end
    except (JournalCorrupt, SequenceLost, SequenceNotAvailable):
        pass  # what is damaged is held; what was dropped meanwhile can't be
    return position


def first_sequence_at(store: Store, tail: FeedTail, position: int) -> int:
    """Return the first sequence id of the feed's first frame at ``position`` or above; the next one if there is none.

    By bisection over sequence ids: frames of a feed stand in the order of their ids.
    """
    low, high = tail.oldest, tail.next_sequence_id
    while low < high:
        middle = (low + high) // 2
        places = store.places(tail.region_id, middle, tail.head, frames_max=1)
        if not places:
            high = middle
        elif places[0].position < position:
            low = max(middle, places[0].first_sequence_id + places[0].count - 1) + 1
        else:
            high = min(middle, max(low, places[0].first_sequence_id))
    return low


def bytes_behind(store: Store, tail: FeedTail, sequence_id: int) -> int:
    """Return how many stored bytes the feed has after ``sequence_id``: exact for a few hundred frames, then reckoned."""
    first = max(sequence_id + 1, tail.oldest)
    if first > tail.head:
        return 0
    places = store.places(tail.region_id, first, tail.head, frames_max=SIZED_FRAMES_MAX)
    size = sum(place.size for place in places)
    counted = places[-1].first_sequence_id + places[-1].count - first if places else 0
    entries = tail.next_sequence_id - first
    return size * entries // counted if 0 < counted < entries else size


def written_at_ms(store: Store, position: int) -> int | None:
    """Return when the frame at ``position`` was written; None if there is none, or if it can't be read."""
    try:
        frames = store.walk(position, bytes_max=1)
    except (JournalCorrupt, SequenceLost, SequenceNotAvailable):
        return None
    return to_ms(frames[0].header.global_ts) if frames else None
