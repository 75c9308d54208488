"""From a place that a reader names to stored frames, after checking that it is a place of this history.

The checks are those of design §5's situation table: ``feed-recreated``, ``beyond-head``, ``sequence-not-available``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import BeyondHead, FeedRecreated, SequenceNotAvailable
from headrace.log.log import Log
from headrace.log.tail import FeedTail
from headrace.wire.frame import Frame

STORED_BYTES_MAX: Final = 8 << 20
"""Stored bytes fetched for one answer, save that it is always one frame: bounds what a reader costs at once."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a reader knows of the feed beside the sequence id: ``lsn`` is that of the entry at the place it names."""

    incarnation: str | None = None
    lsn: Lsn | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Whole stored frames that overlap sequence ids ``first`` … ``last`` (empty where last < first), and the bounds then.

    The frames may end before ``last``: the reader asks again.
    """

    tail: FeedTail
    frames: Sequence[Frame]
    first: int
    last: int


async def check_place(log: Log, tail: FeedTail, sequence_id: int, known: Known) -> FeedTail:
    """Check that "everything up to ``sequence_id`` is done" can be said of this feed; returns the tail that it was said of.

    What another server of the same store has appended meanwhile counts: it is asked for before anything is refused.

    Raises FeedRecreated (another incarnation, or another LSN at that place: an old copy of a data folder was put back)
    and BeyondHead (the reader has seen more than the feed holds). A place below the retained range passes: reading it is
    what fails.
    """
    try:
        await _check_against(log, tail, sequence_id, known)
    except (FeedRecreated, BeyondHead):
        await log.refresh()
        fresh = log.tail(tail.name)
        if fresh is tail:
            raise
        await _check_against(log, fresh, sequence_id, known)
        return fresh
    return tail


async def _check_against(log: Log, tail: FeedTail, sequence_id: int, known: Known) -> None:
    if known.incarnation is not None and known.incarnation != tail.incarnation:
        raise FeedRecreated(
            f"the feed {tail.name} has the incarnation {tail.incarnation}, not {known.incarnation[:80]!r}",
            incarnation=tail.incarnation,
            head=tail.head,
            oldest=tail.oldest,
        )
    if sequence_id > tail.head:
        raise BeyondHead(
            f"sequence id {sequence_id} lies above the head of {tail.name}, {tail.head}",
            head=tail.head,
            oldest=tail.oldest,
        )
    if known.lsn is None:
        return
    stored = await _lsn_at(log, tail, sequence_id)
    if stored is not None and stored != known.lsn:
        raise FeedRecreated(
            f"the entry {sequence_id} of {tail.name} has the LSN {stored}, not {known.lsn}",
            incarnation=tail.incarnation,
            head=tail.head,
            oldest=tail.oldest,
        )


async def read_piece(log: Log, tail: FeedTail, first: int, last: int, limit: int) -> Piece:
    """Return the whole frames of ``first`` … ``last``, about ``limit`` entries of them: at least one frame if there is any.

    A feed that began above 1 dropped nothing below its beginning, so a start there is the beginning. Raises
    SequenceNotAvailable with ``oldest`` and ``head``, and JournalCorrupt.
    """
    if not tail.dropped_sequence_id:
        first = max(first, tail.oldest)
    if first <= tail.dropped_sequence_id:
        raise _not_available(tail, first)
    if last < first:
        return Piece(tail, (), first, last)
    frames = await log.read(tail.name, first, last, entries_max=limit, bytes_max=STORED_BYTES_MAX)
    if not frames:  # retention came between
        raise _not_available(log.tail(tail.name), first)
    return Piece(tail, frames, first, last)


def _not_available(tail: FeedTail, first: int) -> SequenceNotAvailable:
    return SequenceNotAvailable(
        f"the entries of {tail.name} from {first} on are no longer retained; the oldest is {tail.oldest}",
        oldest=tail.oldest,
        head=tail.head,
    )


async def _lsn_at(log: Log, tail: FeedTail, sequence_id: int) -> Lsn | None:
    """The LSN at a place: ZERO where the feed never had an entry there, None where it is no longer known."""
    if sequence_id < (tail.first_sequence_id or tail.next_sequence_id):
        return ZERO
    if sequence_id == tail.head:
        return tail.newest
    return await log.lsn_at(tail.name, sequence_id)
