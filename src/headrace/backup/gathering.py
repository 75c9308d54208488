"""Received batches -> segments, cut where an append ends. Pure.

A segment ends with the last whole append that leaves it at most as large as it may be. It is larger only by the rest of an
append that it holds the beginning of. It ends inside an append only where a stream ends, or says of no entry that it is an
append's last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np

from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.batch import ReceivedBatch
from headrace.wire.batch_check import out_of_order
from headrace.wire.entry import message_of
from headrace.wire.kwal import Sealed, SegmentWriter
from headrace.wire.kwal_blocks import Block, blocks_of
from headrace.wire.walk import Ints

OVERRUN_BYTES_MAX: Final = 32 << 20
"""Most bytes by which a segment grows beyond its size to end with an append: twice the largest body that a server takes."""
_PART_BYTES: Final = 1 << 20
"""Small batches are joined up to that size: a segment of live entries would else consist of as many pieces."""
_NUMBERS_BYTES_MAX: Final = 19 + 19 + 10
"""Of the three numbers in a segment's head, which its writer does not count before they are known."""
_SIZES_MAX: Final = (2 + 127, 3 + 16_383, 4 + 2_097_151)
"""Largest entries, with tag and size, whose size takes one byte, two and three."""

_TAG: Final = b"\x0a"
"""What begins an entry in a batch; a segment is of entries without it."""


class Finished(NamedTuple):
    """A sealed segment, and of each piece between its head and its checksum the sizes of the entries in it, tag included."""

    sealed: Sealed
    sizes: list[array[int]]

    def blocks(self) -> Iterator[Block]:
        """Yield its entries as blocks, in order; JournalCorrupt where one is no entry."""
        for piece, sizes in zip(self.sealed.pieces[1:-1], self.sizes, strict=True):
            wide = np.frombuffer(sizes, np.uint32).astype(np.int64)
            ends: Ints = np.cumsum(wide - 1)
            heads: Ints = 1 + np.searchsorted(_SIZES_MAX, wide)
            yield from blocks_of(memoryview(piece), ends - (wide - 1) + heads, ends)


def front(finished: Finished, before: Lsn) -> Finished | None:
    """Return a segment of the entries below ``before``; None if there are none. Nothing is decided here of appends."""
    writer, kept = SegmentWriter(), []
    for piece, sizes in zip(finished.sealed.pieces[1:-1], finished.sizes, strict=True):
        ends = list(accumulate(size - 1 for size in sizes))
        entries = [memoryview(piece)[end - size + 1 : end] for size, end in zip(sizes, ends, strict=True)]
        count = bisect_left(entries, before, key=_lsn_of)
        if count:
            body = b"".join(_TAG + bytes(entry) for entry in entries[:count])
            writer.add(body, sizes[:count], _lsn_of(entries[0]), _lsn_of(entries[count - 1]))
            kept.append(sizes[:count])
        if count < len(entries):
            break
    return Finished(writer.seal(), kept) if kept else None


def _lsn_of(entry: memoryview) -> Lsn:
    return Lsn.parse(message_of(memoryview(_TAG + bytes(entry))).lsn)


class Gatherer:
    """Gathers the entries of one segment after the other, each of ``segment_bytes`` at most where appends permit."""

    def __init__(self, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes - _NUMBERS_BYTES_MAX
        self._writer = SegmentWriter()
        self._sizes: list[array[int]] = []
        self._waiting: list[ReceivedBatch] = []
        self._waiting_bytes = 0
        self._is_due = False
        self.entries = 0
        """Entries of the open segment."""
        self.first: Lsn | None = None
        """The first one of them; None where there is no open segment."""
        self.last: Lsn = ZERO
        """The last one of them, or of the segment before."""
        self.is_whole = True
        """Whether that one is its append's last."""

    @property
    def size(self) -> int:
        """Bytes of the open segment, but for the numbers in its head."""
        return self._writer.size + self._waiting_bytes

    def add(self, batch: ReceivedBatch) -> Iterator[Finished]:
        """Add a batch that follows the one before, and yield each segment that is full with it. Iterate to the end.

        JournalCorrupt if LSNs don't grow, or the batch does not fit its sizes.
        """
        if batch.first_lsn <= self.last:
            raise out_of_order(batch.first_lsn, self.last)
        rest: ReceivedBatch | None = batch
        while rest is not None:
            if not self._is_due and self.size + len(rest.body) <= self._segment_bytes:
                end = len(rest.body)
                self._take(rest, is_whole=_ends_append(rest, end - rest.sizes[-1], end))
                return
            count = self._count(rest)
            if count is None:
                self._take(rest, is_whole=False)
                self._is_due = True
                return
            taken, rest = split(rest, count)
            if taken is not None:
                self._take(taken, is_whole=True)
            yield self.seal()

    def rotate(self) -> Finished | None:
        """End the open segment: at once if it ends with an append, then it is returned; else as soon as the append does.

        None also if there is no open segment.
        """
        if not self.entries:
            return None
        if self.is_whole:
            return self.seal()
        self._is_due = True
        return None

    def seal(self) -> Finished:
        """End the open segment where it is; ValueError if it has no entry."""
        self._flush()
        finished = Finished(self._writer.seal(), self._sizes)
        self._writer, self._sizes = SegmentWriter(), []
        self.entries, self.first, self._is_due = 0, None, False
        return finished

    def _count(self, batch: ReceivedBatch) -> int | None:
        """How many entries of a batch the open segment still takes, so that it ends with an append; None: all, and more."""
        room = 0 if self._is_due else self._segment_bytes - self.size
        ends = list(accumulate(batch.sizes))
        fitting = bisect_right(ends, room)
        for index in range(fitting - 1, -1, -1):
            if _ends_append(batch, ends[index] - batch.sizes[index], ends[index]):
                return index + 1
        if self.entries and self.is_whole:
            return 0
        for index in range(fitting, len(ends)):
            if _ends_append(batch, ends[index] - batch.sizes[index], ends[index]):
                return index + 1
        over = self.size + ends[-1] - self._segment_bytes
        return len(ends) if over > OVERRUN_BYTES_MAX else None

    def _take(self, batch: ReceivedBatch, *, is_whole: bool) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += len(batch.body)
        if not self.entries:
            self.first = batch.first_lsn
        self.entries += len(batch.sizes)
        self.last, self.is_whole = batch.last_lsn, is_whole
        if self._waiting_bytes >= _PART_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batches, self._waiting, self._waiting_bytes = self._waiting, [], 0
        sizes = array("I")
        for batch in batches:
            sizes += batch.sizes
        body = batches[0].body if len(batches) == 1 else b"".join(batch.body for batch in batches)
        self._writer.add(body, sizes, batches[0].first_lsn, batches[-1].last_lsn)
        self._sizes.append(sizes)


def split(batch: ReceivedBatch, count: int) -> tuple[ReceivedBatch | None, ReceivedBatch | None]:
    """Return the batch's first ``count`` entries, and the others; None where there are none."""
    if not count:
        return None, batch
    if count == len(batch.sizes):
        return batch, None
    at = sum(batch.sizes[:count])
    before = batch._replace(body=batch.body[:at], sizes=batch.sizes[:count])
    behind = batch._replace(body=batch.body[at:], sizes=batch.sizes[count:])
    last, first = before.body[at - before.sizes[-1] :], behind.body[: behind.sizes[0]]
    return (
        before._replace(last_lsn=Lsn.parse(message_of(last).lsn)),
        behind._replace(first_lsn=Lsn.parse(message_of(first).lsn)),
    )


def _ends_append(batch: ReceivedBatch, start: int, end: int) -> bool:
    """Tell whether the entry between these bytes is its append's last."""
    return message_of(batch.body[start:end]).append_end
