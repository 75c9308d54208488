"""From a place that a reader names to stored frames, after checking that it is a place of this history.

The checks are those of design §5's situation table: ``feed-recreated``, ``beyond-head``, ``sequence-not-available``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.entries.hlc import to_ms
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import BeyondHead, FeedRecreated, SequenceNotAvailable
from headrace.log.contract import Store
from headrace.log.log import Log
from headrace.log.tail import FeedTail
from headrace.wire.documents import rfc3339
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


@dataclass(frozen=True, slots=True)
class SinceTime:
    """A start by time: before the feed's first entry committed at ``ms`` (UTC milliseconds) or later."""

    ms: int


Start = int | SinceTime
"""Where a reader begins: after this sequence id, or at a time."""


async def resolve_start(log: Log, tail: FeedTail, start: Start, known: Known) -> tuple[FeedTail, int]:
    """Return the sequence id after which to begin, and the tail that it was found in. Raises as :func:`check_place` does.

    A time below the retained range is SequenceNotAvailable, one in the future the head.
    """
    if isinstance(start, int):
        return await check_place(log, tail, start, known), start
    await log.refresh()  # where a time falls depends on all that is there
    tail = await check_place(log, log.tail(tail.name), 0, Known(known.incarnation))
    return tail, await _place_before(log, tail, start.ms)


async def _place_before(log: Log, tail: FeedTail, ms: int) -> int:
    if tail.dropped_sequence_id and to_ms(Lsn.parse(tail.dropped_lsn).global_ts) >= ms:
        raise SequenceNotAvailable(
            f"entries of {tail.name} since {rfc3339(ms)} are no longer retained; the oldest is {tail.oldest}",
            oldest=tail.oldest,
            head=tail.head,
        )
    if to_ms(tail.newest.global_ts) < ms:
        return tail.head
    return await asyncio.to_thread(_first_since, log.store, tail, ms) - 1


def _first_since(store: Store, tail: FeedTail, ms: int) -> int:
    """The feed's first retained sequence id committed at ``ms`` or later, of which there is one: by bisection.

    A frame's entries share their time, so one frame is read for each halving.
    """
    low, high = tail.oldest, tail.head
    while low < high:
        middle = (low + high) // 2
        places = store.places(tail.region_id, middle, tail.head, frames_max=1)
        if not places:
            high = middle
            continue
        header = store.read(places)[0].header
        if to_ms(header.global_ts) < ms:
            low = header.last_sequence_id + 1
        else:
            high = min(middle, max(low, header.first_sequence_id))
    return low


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


async def read_piece(
    log: Log, tail: FeedTail, first: int, last: int, limit: int, *, bytes_max: int = STORED_BYTES_MAX
) -> Piece:
    """Return the whole frames of ``first`` … ``last``, about ``limit`` entries of them: at least one frame if there is any.

    A feed that began above 1 dropped nothing below its beginning, so a start there is the beginning. Raises
    SequenceNotAvailable with ``oldest`` and ``head``, and JournalCorrupt.
    """
    if not tail.dropped_sequence_id:
        first = max(first, tail.oldest)
    check_retained(tail, first)
    if last < first:
        return Piece(tail, (), first, last)
    frames = await log.read(tail.name, first, last, entries_max=limit, bytes_max=bytes_max)
    if not frames:  # retention came between
        raise _not_available(log.tail(tail.name), first)
    return Piece(tail, frames, first, last)


def check_retained(tail: FeedTail, first: int) -> None:
    """Raise SequenceNotAvailable, with ``oldest`` and ``head``, if the entry ``first`` was dropped."""
    if first <= tail.dropped_sequence_id:
        raise _not_available(tail, first)


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
