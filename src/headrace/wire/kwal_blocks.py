"""Neighbouring entries of a KWAL segment as arrays: where their fields stand, and their LSNs as numbers.

Called by :mod:`headrace.wire.kwal_columns`, which makes columns of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.entries.lsn import TEXT_SIZE, ZERO, Lsn
from headrace.errors import InvalidRequest, JournalCorrupt
from headrace.wire.batch_check import out_of_order
from headrace.wire.columns import byte_slices
from headrace.wire.entry import bare_message_of
from headrace.wire.walk import PADDING_BYTES, Flags, Found, Ints, Places, walk

BLOCK_BYTES: Final = 4 << 20
"""Bytes of entries that are looked at together: what is walked over again and again should stay in a processor's cache."""

Stamps = NDArray[np.uint64]
_TENS: Final = 10 ** np.arange(9, -1, -1, dtype=np.int64)
_U32_MAX: Final = (1 << 32) - 1


class Lsns(NamedTuple):
    """LSNs, one a row. ``low`` is ``region_id << 32 | raft_index``, as in the LSN's integer form."""

    global_ts: Stamps
    low: Stamps

    @property
    def regions(self) -> Ints:
        """The region id of each."""
        return (self.low >> np.uint64(32)).astype(np.int64)

    @property
    def raft_indexes(self) -> Ints:
        """The low half of each entry's sequence id."""
        return (self.low & np.uint64(_U32_MAX)).astype(np.int64)

    def at(self, row: int) -> Lsn:
        """Return one of them."""
        return Lsn.from_int(int(self.global_ts[row]) << 64 | int(self.low[row]))

    def between(self, first: Lsn, last: Lsn) -> Flags:
        """Tell which are ``first`` … ``last``, inclusive."""
        return self._reach(first) & ~self._pass(last)

    def check_order(self, above: Lsn) -> None:
        """Raise JournalCorrupt, naming two LSNs, unless each is above the one before, and the first ``above``."""
        if len(self.low) and self.at(0) <= above:
            raise out_of_order(self.at(0), above)
        same = self.global_ts[1:] == self.global_ts[:-1]
        grows = (self.global_ts[1:] > self.global_ts[:-1]) | (same & (self.low[1:] > self.low[:-1]))
        if not grows.all():
            at = int(np.argmin(grows))
            raise out_of_order(self.at(at + 1), self.at(at))

    def _reach(self, lsn: Lsn) -> Flags:
        stamp, low = np.uint64(lsn.global_ts), np.uint64(int(lsn) & (1 << 64) - 1)
        reach: Flags = (self.global_ts > stamp) | ((self.global_ts == stamp) & (self.low >= low))
        return reach

    def _pass(self, lsn: Lsn) -> Flags:
        stamp, low = np.uint64(lsn.global_ts), np.uint64(int(lsn) & (1 << 64) - 1)
        beyond: Flags = (self.global_ts > stamp) | ((self.global_ts == stamp) & (self.low > low))
        return beyond


class Block(NamedTuple):
    """Entries of a segment: their bytes, with others behind; where each stands in them, its fields, its LSN.

    ``places`` has neither sequence ids nor timestamps yet.
    """

    data: bytes | memoryview
    places: Places
    found: Found
    lsns: Lsns


def blocks_of(data: memoryview, starts: Ints, ends: Ints) -> Iterator[Block]:
    """Yield the WalEntry messages that stand at these bytes as blocks of some :data:`BLOCK_BYTES`.

    JournalCorrupt where one is no entry, and where LSNs don't grow.
    """
    at, last = 0, ZERO
    while at < len(ends):
        stop = max(at + 1, int(np.searchsorted(ends, starts[at] + BLOCK_BYTES, "right")))
        begin, end = int(starts[at]), int(ends[stop - 1])
        block: bytes | memoryview = data[begin : end + PADDING_BYTES]
        if len(block) < end + PADDING_BYTES - begin:  # the last one
            block = b"".join((block, bytes(PADDING_BYTES)))
        none = np.broadcast_to(np.int64(0), (stop - at,))
        places = Places(starts[at:stop] - begin, ends[at:stop] - begin, none, none)
        found = walk(np.frombuffer(block, np.uint8), places, bare=True)
        lsns = read_lsns(block, places, found)
        lsns.check_order(last)
        yield Block(block, places, found, lsns)
        at, last = stop, lsns.at(-1)


def read_lsns(data: bytes | memoryview, places: Places, found: Found) -> Lsns:
    """Return the LSNs of WalEntry messages, after the walk over them; JournalCorrupt where one is none."""
    starts, sizes = found.slices["lsn"]
    if not found.odd.any() and (sizes == TEXT_SIZE).all():
        texts = byte_slices(pa.py_buffer(data), starts, sizes, pa.binary()).buffers()[2]
        read = _canonical(np.frombuffer(texts, np.uint8).reshape(-1, TEXT_SIZE))
        if read is not None:
            return read
    return _one_by_one(data, places, found)


def _canonical(marks: NDArray[np.uint8]) -> Lsns | None:
    """Read LSNs that are written as we write them; None if one is not."""
    if (marks[:, 16] != ord(".")).any() or (marks[:, 27] != ord(".")).any():
        return None
    try:
        stamps = bytes.fromhex(str(np.ascontiguousarray(marks[:, :16]).data, "ascii"))
    except ValueError:
        return None
    figures = marks[:, 17:].copy()
    figures[:, 10] = ord("0")
    figures -= ord("0")
    if len(stamps) != 8 * len(marks) or (figures > 9).any():
        return None
    region, raft = figures[:, :10] @ _TENS, figures[:, 11:] @ _TENS
    if (region > _U32_MAX).any() or (raft > _U32_MAX).any():
        return None
    return Lsns(np.frombuffer(stamps, ">u8").astype(np.uint64), (region << 32 | raft).astype(np.uint64))


def _one_by_one(data: bytes | memoryview, places: Places, found: Found) -> Lsns:
    view = memoryview(data)
    lsn_at, lsn_size = found.slices["lsn"]
    read: list[int] = []
    for start, end, at, size, odd in zip(
        places.starts.tolist(),
        places.ends.tolist(),
        lsn_at.tolist(),
        lsn_size.tolist(),
        found.odd.tolist(),
        strict=True,
    ):
        text = bare_message_of(view[start:end]).lsn if odd else str(view[at : at + size], "latin-1")
        try:
            read.append(int(Lsn.parse(text)))
        except InvalidRequest:
            raise JournalCorrupt(f"an entry has the LSN {text[:80]!r}") from None
    low = np.asarray([number & (1 << 64) - 1 for number in read], np.uint64)
    return Lsns(np.asarray([number >> 64 for number in read], np.uint64), low)
