"""The places that an append names: are they the next ones, or those of a repeat of what stands there already?

KAFKA-2260's ``expected-offset`` and RFD 5's ``sequence-id`` name the same places. Only the first makes a repeat harmless.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.entries.lsn import lsn_of
from headrace.errors import (
    DuplicateEntry,
    ExpectedOffsetRequired,
    InvalidRequest,
    JournalCorrupt,
    OffsetMismatch,
    SequenceGap,
    SequenceLost,
    SequenceNotAvailable,
    SideEffects,
)
from headrace.log.requests import NEXT, Append, Appended
from headrace.log.tail import FeedTail, ProducerPlace
from headrace.wire.frame import FrameHeader


class StoredEntry(NamedTuple):
    """An entry as a retry is compared with it: who sent it, what was sent, and its append's timestamp and place.

    ``producer`` is empty where nobody knows: the frame was rebuilt from a backup, which does not have it.
    """

    producer: str
    half: bytes
    frame: FrameHeader


History = Callable[[FeedTail, int, int, Sequence[bytes]], Iterable[StoredEntry | None]]
"""``history(tail, first, last, wanted)`` yields the stored entries of that range, oldest first; None for one that can't be
the one ``wanted`` at its place. It reads as it goes along, so that who has seen enough may stop."""
COMPARED_BYTES_MAX: Final = 64 << 20
"""Frames that are read of what stands in an append's place once a part of it is known to be another's."""


def begin_where_named(ask: Append, tail: FeedTail) -> FeedTail:
    """A feed's first sequence id is 1, unless its first entry names another by ``sequence-id`` (design rule 5)."""
    if tail.first_sequence_id or not ask.sequence_ids or ask.sequence_ids[0] == NEXT:
        return tail
    return msgspec.structs.replace(tail, next_sequence_id=ask.sequence_ids[0])


def check_sequence_ids(ask: Append, tail: FeedTail) -> None:
    """Raise unless each ``sequence-id`` that is named is the entry's next place.

    InvalidRequest on a shared feed, which counts by itself; DuplicateEntry for a place that is taken, whatever stands there
    (the publisher is to be quarantined); SequenceGap beyond.
    """
    for index, number in enumerate(ask.sequence_ids):
        expected = tail.next_sequence_id + index
        if number == NEXT:
            continue
        if tail.shared:
            raise InvalidRequest(
                f"sequence-id: the feed {tail.name} is shared; its producers name places by expected-offset alone",
                hint="Leave sequence-id out.",
                member="sequence-id",
                index=index,
            )
        if number == expected:
            continue
        if number < tail.next_sequence_id and tail.first_sequence_id:
            raise DuplicateEntry(
                f"sequence-id {number} is already in the feed {tail.name}; the publisher {ask.producer} is quarantined",
                index=index,
                expected=expected,
                received=number,
            )
        starts = _starts(ask.sequence_ids)
        raise SequenceGap(
            f"the feed {tail.name} expects sequence-id {expected}, entry {index} of this post names {number}",
            index=index,
            expected=expected,
            received=number,
            retryable=len(starts) == 1 and min(starts) > tail.next_sequence_id,
        )


def check_named(ask: Append, tail: FeedTail) -> None:
    """Raise ExpectedOffsetRequired if the feed asks that every entry names its place, and one does not."""
    if tail.settings.expected_offset != "required":
        return
    count = len(ask.halves)
    named = zip(ask.expected_offsets or (NEXT,) * count, ask.sequence_ids or (NEXT,) * count, strict=True)
    missing = next((index for index, places in enumerate(named) if places == (NEXT, NEXT)), None)
    if missing is not None:
        raise ExpectedOffsetRequired(
            f"the feed {tail.name} requires expected-offset; entry {missing} of this append names no place",
            index=missing,
        )


def check_offsets(ask: Append, tail: FeedTail, history: History) -> Appended | None:
    """Return None if the append may go to the tail, the original places if it is a repeat; else raise OffsetMismatch.

    A repeat is an append whose named range is stored, by this producer, equal entry by entry, whatever the frame
    boundaries. Where retention took the range away, the kept digest of the producer's last frame still answers for that.
    The refusal says ``side-effects: none`` only where not one entry of the append stands at its place.
    """
    offsets = ask.expected_offsets
    if not offsets or offsets == range(tail.next_sequence_id, tail.next_sequence_id + len(offsets)):
        return None
    expected = enumerate(offsets, tail.next_sequence_id)
    wrong = next(
        (place - tail.next_sequence_id for place, offset in expected if offset not in (NEXT, place)), None
    )
    if wrong is None:
        return None
    starts = _starts(offsets)
    start, agree = min(starts), len(starts) == 1
    found: Appended | SideEffects = "none"
    if agree and start < tail.next_sequence_id:
        found = _compared(ask, tail, history, start)
    elif not agree and min(place for place in offsets if place != NEXT) < tail.next_sequence_id:
        found = "possible"  # nobody can have taken it as it is, but perhaps a part of it by itself
    if isinstance(found, Appended):
        return found
    raise OffsetMismatch(
        f"the feed {tail.name} is at {tail.next_sequence_id}; entry {wrong} of this append expects {offsets[wrong]}",
        index=wrong,
        expected=offsets[wrong],
        # Entries before it may still come (a pipeline whose first append failed); what stands there never changes.
        retryable=agree and start > tail.next_sequence_id,
        side_effects=found,
    )


def may_stand(ask: Append, tail: FeedTail) -> bool:
    """Tell whether an earlier try of an append that was compared with nothing may stand in the feed: not beyond its end."""
    starts = _starts(ask.expected_offsets) | _starts(ask.sequence_ids)
    compared = tail.settings.expected_offset != "ignored"
    return not (compared and starts and min(starts) >= tail.next_sequence_id)


def _starts(places: Sequence[int]) -> set[int]:
    """Where the append's first entry would stand by each of the places named; more than one: they contradict each other."""
    if isinstance(places, range) and places.step == 1:
        return set(places[:1])
    return {place - index for index, place in enumerate(places) if place != NEXT}


def _compared(ask: Append, tail: FeedTail, history: History, start: int) -> Appended | SideEffects:
    """Compare an append that names places from ``start`` on, below next, with what stands there.

    Returns the original places if all of it does, else whether any entry of it does, or may.
    """
    place = tail.producers.get(ask.producer)
    if place is not None and _same_frame(place, start, ask) and not _is_hurt(tail, place):
        return _original(tail, place)
    last = start + len(ask.halves) - 1
    if max(start, tail.first_sequence_id, 1) <= min(last, tail.dropped_sequence_id):
        return "possible"
    readable, end = max(start, tail.oldest), min(last, tail.head)
    if readable > end:
        return "none"
    seen = _Seen(may_repeat=(readable, end) == (start, last))
    try:
        halves = ask.halves[readable - start : end - start + 1]
        seen.compare(ask.producer, halves, history(tail, readable, end, halves))
    except (SequenceNotAvailable, SequenceLost):  # another server dropped it, or a repair skipped it
        return "possible"
    except JournalCorrupt:
        if seen.may_repeat:  # so that nothing can be said
            raise
        return "possible"
    if seen.may_repeat:
        return _repeated(tail, seen.frames[0], seen.frames[-1], start, last)
    return "possible" if seen.has_equal or not seen.is_complete else "none"


class _Seen:
    """What comparing an append with the entries at its places has shown so far; it goes no further than it must.

    ``may_repeat``: no entry is another than the append's, so that all of it may stand there. ``has_equal``: one does.
    ``is_complete``: each was compared. ``frames``: the first and the newest of the frames with equal entries.
    """

    def __init__(self, *, may_repeat: bool) -> None:
        self.may_repeat = may_repeat
        self.has_equal = self.is_complete = False
        self.frames: list[FrameHeader] = []

    def compare(self, producer: str, halves: Sequence[bytes], stored: Iterable[StoredEntry | None]) -> None:
        """Compare until all is compared, until more could change nothing, or until enough was read for a refusal."""
        read, position = 0, -1
        count = 0
        for entry, half in zip(stored, halves, strict=False):
            count += 1
            if entry is None:
                self.may_repeat = False
            else:
                if entry.frame.position != position:
                    read, position = read + entry.frame.size, entry.frame.position
                if entry.half == half and entry.producer in {producer, ""}:
                    self.has_equal = True
                    self.frames[1:] = [entry.frame]
                if entry.half != half or entry.producer != producer:
                    self.may_repeat = False
            if not self.may_repeat and (self.has_equal or read > COMPARED_BYTES_MAX):
                return
        self.is_complete = count == len(halves)
        self.may_repeat &= self.is_complete


def _repeated(
    tail: FeedTail, first_frame: FrameHeader, last_frame: FrameHeader, start: int, last: int
) -> Appended:
    return Appended(
        incarnation=tail.incarnation,
        first_sequence_id=start,
        last_sequence_id=last,
        first_lsn=first_frame.lsn(start - first_frame.first_sequence_id),
        last_lsn=last_frame.lsn(last - last_frame.first_sequence_id),
        duplicate=True,
    )


def _same_frame(place: ProducerPlace, start: int, ask: Append) -> bool:
    """Is this append the producer's last frame, sent again as it was? Answers even where retention dropped the frame."""
    same_range = place.first_sequence_id == start and place.count == len(ask.halves)
    return same_range and place.digest == ask.digest.hex()


def _is_hurt(tail: FeedTail, place: ProducerPlace) -> bool:
    """Was the frame damaged, or skipped by a repair? The kept digest must not vouch for entries that nobody can read."""
    last = place.first_sequence_id + place.count - 1
    skipped = any(
        lost.first_sequence_id <= last and place.first_sequence_id <= lost.last_sequence_id
        for lost in tail.lost
    )
    return skipped or place.first_sequence_id <= tail.damaged_sequence_id <= last


def _original(tail: FeedTail, place: ProducerPlace) -> Appended:
    first = place.first_sequence_id
    return Appended(
        incarnation=tail.incarnation,
        first_sequence_id=first,
        last_sequence_id=first + place.count - 1,
        first_lsn=lsn_of(place.global_ts, tail.region_id, first, 0),
        last_lsn=lsn_of(place.global_ts, tail.region_id, first, place.count - 1),
        duplicate=True,
    )
