"""What stands in a feed, read back: stored frames of a range, and the entries that a retry is compared with."""

from __future__ import annotations

from typing import Final

from headrace.entries.lsn import Lsn
from headrace.errors import SequenceNotAvailable
from headrace.log.contract import Store
from headrace.log.rules import StoredEntry
from headrace.log.tail import FeedTail
from headrace.wire.entry import half_of
from headrace.wire.frame import Area, Frame, decode_area
from headrace.wire.segment import FramePlace

FRAMES_AT_ONCE: Final = 256
"""Frame places looked up at a time; bounds what one look-up holds."""


def frames_of_range(
    store: Store, tail: FeedTail, first: int, last: int, *, entries_max: int, bytes_max: int
) -> list[Frame]:
    """Return the stored frames of a feed that overlap sequence ids ``first`` … ``last``, oldest first.

    Stops at the first frame that reaches ``entries_max`` entries of the range, and before one that exceeds ``bytes_max``
    bytes; at least one frame if there is any. Raises SequenceNotAvailable if ``first`` was dropped, JournalCorrupt if a
    frame is damaged.
    """
    frames: list[Frame] = []
    size, at = 0, first
    while at <= last:
        places = store.places(tail.region_id, at, last, frames_max=FRAMES_AT_ONCE)
        if not places:
            break
        taken: list[FramePlace] = []
        for place in places:
            if (frames or taken) and size + place.size > bytes_max:
                break
            taken.append(place)
            size += place.size
            at = place.first_sequence_id + place.count
            if at - first >= entries_max:
                break
        frames += store.read(taken)
        if len(taken) < len(places) or at - first >= entries_max:
            break
    if frames and frames[0].header.first_sequence_id > first:
        oldest = frames[0].header.first_sequence_id
        raise SequenceNotAvailable(
            f"the entries of {tail.name} from {first} on are no longer there; the oldest is {oldest}",
            oldest=oldest,
            head=tail.head,
        )
    return frames


def stored_entries(store: Store, tail: FeedTail, first: int, last: int) -> list[StoredEntry]:
    """Return the entries ``first`` … ``last`` as a retry is compared with them."""
    found: list[StoredEntry] = []
    frames = frames_of_range(store, tail, first, last, entries_max=last - first + 1, bytes_max=1 << 62)
    for frame in frames:
        producer = decode_area(frame.area).get(Area.PRODUCER, b"").decode()
        for index, stored in enumerate(frame.entries()):
            if first <= frame.header.first_sequence_id + index <= last:
                found.append(StoredEntry(producer, bytes(half_of(stored)), frame.header))
    return found


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
