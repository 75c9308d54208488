"""Neighbouring entries of a KWAL segment as arrays: where their fields stand, and their LSNs as numbers.

Called by :mod:`headrace.wire.kwal_columns`, which makes columns of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.entries.lsn import TEXT_SIZE, ZERO, Lsn
from headrace.errors import InvalidRequest, JournalCorrupt
from headrace.wire.batch_check import out_of_order
from headrace.wire.entry import bare_message_of
from headrace.wire.walk import PADDING_BYTES, Flags, Found, Ints, Places, walk, words_of

BLOCK_BYTES: Final = 4 << 20
"""Bytes of entries that are looked at together: what is walked over again and again should stay in a processor's cache."""

Stamps = NDArray[np.uint64]
_U32_MAX: Final = (1 << 32) - 1


def _word(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


_FIGURES, _FIRST, _MIDDLE = map(_word, (b"00000000", b".0000000", b"000.0000"))
_SIX, _NO_FIGURE = map(_word, (b"\x06" * 8, b"\xf0" * 8))
_FIRST_DOT, _MIDDLE_DOT, _TWO_BYTES = map(_word, (b"\xff", b"\0\0\0\xff", b"\xff\xff"))
_FOUR_BYTES, _FIVE_BYTES, _SIX_BYTES = (np.uint64(8 * count) for count in (4, 5, 6))


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
        read = _canonical(words_of(np.frombuffer(data, np.uint8)), starts)
        if read is not None:
            return read
    return _one_by_one(data, places, found)


def _canonical(words: Stamps, at: Ints) -> Lsns | None:
    """Read LSNs that are written as we write them; None if one is not. ``words``: :func:`headrace.wire.walk.words_of`."""
    stamps = np.empty((len(at), 2), "<u8")
    stamps[:, 0], stamps[:, 1] = words[at], words[at + 8]
    try:
        read = bytes.fromhex(str(stamps.data.cast("B"), "ascii"))
    except ValueError:
        return None
    # The 22 characters behind are .RRRRRRRRRR.IIIIIIIIII; the words there overlap by two. Less what they begin with,
    # figures are numbers up to 9, one a byte, and dots are 0.
    first, middle, last = words[at + 16] ^ _FIRST, words[at + 24] ^ _MIDDLE, words[at + 30] ^ _FIGURES
    strange = (first | first + _SIX | middle | middle + _SIX | last | last + _SIX) & _NO_FIGURE
    strange |= (first & _FIRST_DOT) | (middle & _MIDDLE_DOT)
    if len(read) != 8 * len(at) or strange.any():
        return None
    region = _eight(first) * 1_000 + _eight(middle << _FIVE_BYTES)
    raft = _eight((middle >> _FOUR_BYTES & _TWO_BYTES) << _SIX_BYTES) * 100_000_000 + _eight(last)
    if (region > _U32_MAX).any() or (raft > _U32_MAX).any():
        return None
    return Lsns(np.frombuffer(read, ">u8").astype(np.uint64), region << np.uint64(32) | raft)


def _eight(figures: Stamps) -> Stamps:
    """Return the numbers that eight figures make, one a byte, the first lowest: pairs of them, pairs of those, and so on."""
    figures = figures * np.uint64(10 << 8 | 1) >> np.uint64(8) & np.uint64(0x00FF00FF00FF00FF)
    figures = figures * np.uint64(100 << 16 | 1) >> np.uint64(16) & np.uint64(0x0000FFFF0000FFFF)
    return figures * np.uint64(10_000 << 32 | 1) >> np.uint64(32)


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
