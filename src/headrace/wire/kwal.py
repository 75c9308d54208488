"""KWAL segments: the files of a backup (RFC-010 §5.2). ``docs/formats/kwal.md`` is their byte table.

::

    "KWAL" | version u16 | first LSN | last LSN | number of entries | (size, WalEntry) each | CRC-32 of all before

An entry stands there as the journal has it, less its tag byte: nothing is encoded anew. :class:`SegmentWriter` makes
segments, :mod:`headrace.wire.kwal_columns` reads them as columns, :mod:`headrace.wire.kwal_damage` finds what is wrong with
one. This module needs no numpy.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Self

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, InvalidRequest, JournalCorrupt, SegmentCorrupt
from headrace.wire import varint
from headrace.wire.batch_check import out_of_order
from headrace.wire.versions import KWAL, check_readable

MAGIC: Final = b"KWAL"
FOOTER_SIZE: Final = 4
"""Bytes of the CRC-32 at the end."""
_FIXED_SIZE: Final = len(MAGIC) + 2

ENCRYPTED: Final = ".age"
"""What follows the name of a segment that is encrypted."""
_NAME: Final = re.compile(r"kdb-wal-([^-]+)-([^-]+)\.bin(?:\.age)?")


class SegmentName(NamedTuple):
    """A segment's name says which LSNs it holds, first and last. Names sort as their LSNs do."""

    first: Lsn
    last: Lsn

    def __str__(self) -> str:
        return f"kdb-wal-{self.first}-{self.last}.bin"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a file's name (without folder), encrypted or not; InvalidRequest if it is none.

        Parts of an LSN may be unpadded.
        """
        found = _NAME.fullmatch(text)
        if found is None:
            raise InvalidRequest(f"{text[:200]!r} is not the name of a KWAL segment")
        first, last = Lsn.parse(found[1]), Lsn.parse(found[2])
        if first > last:
            raise InvalidRequest(f"{text!r}: the first LSN is above the last one")
        return cls(first, last)

    @property
    def manifest(self) -> str:
        """The name of the segment's manifest (:mod:`headrace.wire.kwal_manifest`)."""
        return f"kdb-wal-{self.first}-{self.last}.manifest.json"

    @property
    def encrypted(self) -> str:
        """The name of the file if it is encrypted."""
        return f"{self}{ENCRYPTED}"

    @property
    def pending(self) -> str:
        """The name under which the manifest of an encrypted segment stands while that is being written."""
        return f"kdb-wal-{self.first}-{self.last}.pending.json"


class SegmentHead(NamedTuple):
    """What stands before the entries. ``size``: bytes of it, so the first entry's size begins there."""

    first: Lsn
    last: Lsn
    entries: int
    size: int


class Sealed(NamedTuple):
    """A whole segment as the pieces to write, one behind the other. ``size`` of all in bytes; ``crc`` is the last piece."""

    name: SegmentName
    entries: int
    size: int
    crc: int
    pieces: list[bytes]


class SegmentWriter:
    """Gathers the entries of one segment, batch by batch, until it is sealed.

    The head says how many entries follow, so nothing of a segment can be written before its last entry is known. Each batch
    is copied once when it comes, and held until then: a segment of 128 MB takes 128 MB. Sealing copies nothing.
    """

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._first = self._last = ZERO
        self.size = _FIXED_SIZE + FOOTER_SIZE
        """Bytes of the segment, but for the numbers in its head."""
        self.entries = 0

    def add(self, body: bytes | memoryview, sizes: Sequence[int], first: Lsn, last: Lsn) -> None:
        """Add the entries of a batch: ``entries`` fields in LSN order, ``sizes`` of each in bytes, first and last LSN.

        That is what :class:`headrace.wire.batch.ReceivedBatch` holds; its entries are not looked at again. JournalCorrupt if
        they don't come behind those before, or don't fit the sizes: then nothing was added.
        """
        if first <= self._last:
            raise out_of_order(first, self._last)
        parts: list[memoryview] = []
        view, at = memoryview(body), 0
        for size in sizes:
            if bytes(view[at : at + 1]) != b"\x0a":
                raise JournalCorrupt(f"behind lsn={self._last}: byte {at} of a batch begins no entry")
            parts.append(view[at + 1 : at + size])
            at += size
        if at != len(view) or last < first:
            raise JournalCorrupt(f"behind lsn={self._last}: a batch is not as long as its entries")
        if not parts:
            return
        self._parts.append(b"".join(parts))
        self._first = self._first if self.entries else first
        self._last = last
        self.size += len(self._parts[-1])
        self.entries += len(parts)

    def seal(self) -> Sealed:
        """Return the segment; ValueError if there is no entry. The writer must not be used any more."""
        if not self.entries:
            raise ValueError("a segment has an entry at least")
        numbers = (int(self._first), int(self._last), self.entries)
        head = MAGIC + KWAL.written_as.to_bytes(2, "big") + b"".join(map(varint.encode, numbers))
        crc = 0
        for piece in (head, *self._parts):
            crc = zlib.crc32(piece, crc)
        pieces = [head, *self._parts, crc.to_bytes(FOOTER_SIZE, "big")]
        name = SegmentName(self._first, self._last)
        return Sealed(name, self.entries, sum(map(len, pieces)), crc, pieces)


def decode_head(data: bytes | memoryview, where: str) -> SegmentHead:
    """Read what stands before the entries; SegmentCorrupt, naming ``where``, if it is no head; FormatTooNew."""
    if bytes(data[: len(MAGIC)]) != MAGIC or len(data) < _FIXED_SIZE:
        raise SegmentCorrupt(f"{where}: byte 0 begins no KWAL segment", byte=0)
    version = int.from_bytes(data[len(MAGIC) : _FIXED_SIZE], "big")
    check_readable(where, version, KWAL)
    if not version:
        raise SegmentCorrupt(
            f"{where}: byte {len(MAGIC)} names the version 0, which there is none of", byte=4
        )
    at = _FIXED_SIZE
    numbers = []
    for what in ("first LSN", "last LSN", "number of entries"):
        try:
            number, after = varint.decode(data, at)
        except JournalCorrupt:
            raise SegmentCorrupt(f"{where}: the {what} at byte {at} has no end", byte=at) from None
        numbers.append(number)
        at = after
    first, last = map(Lsn.from_int, numbers[:2])
    if first > last or not numbers[2]:
        raise SegmentCorrupt(
            f"{where}: the head names {numbers[2]} entries, from lsn={first} to lsn={last}", byte=_FIXED_SIZE
        )
    return SegmentHead(first, last, numbers[2], at)


class Place(NamedTuple):
    """Where an entry stands in a segment: byte of its size, of the WalEntry itself, and behind it."""

    head: int
    start: int
    end: int


def places_of(data: bytes | memoryview, head: SegmentHead, where: str) -> Iterator[Place]:
    """Yield where each entry stands, one by one; SegmentCorrupt, with the members byte and entry, where that breaks off.

    Needs no numpy; :func:`headrace.wire.kwal_columns.find_entries` is the fast way.
    """
    at, limit = head.size, len(data) - FOOTER_SIZE
    for number in range(1, head.entries + 1):
        try:
            size, start = varint.decode(data, at)
        except JournalCorrupt:
            size, start = 0, limit + 1
        if start + size > limit:
            raise SegmentCorrupt(
                f"{where}: entry {number} of {head.entries}, at byte {at}, goes beyond byte {limit}, where the entries end",
                byte=at,
                entry=number,
            )
        yield Place(at, start, start + size)
        at = start + size
    if at != limit:
        raise SegmentCorrupt(
            f"{where}: the {head.entries} entries end at byte {at}, and {limit - at} bytes more stand before the checksum",
            byte=at,
        )


def stored_crc(data: bytes | memoryview) -> int:
    """Return the CRC-32 at the end of a segment, as it is stored."""
    return int.from_bytes(data[-FOOTER_SIZE:], "big")


def check_name(head: SegmentHead, name: SegmentName | None, where: str) -> None:
    """Raise SegmentCorrupt if the segment is not the one that its name says."""
    if name is not None and (head.first, head.last) != (name.first, name.last):
        raise SegmentCorrupt(
            f"{where} holds lsn={head.first} to lsn={head.last}: it is another segment than its name says",
            byte=6,
        )


def fault(error: HeadraceError, where: str) -> SegmentCorrupt:
    """Return an error about a segment's entry as one about the segment."""
    return SegmentCorrupt(f"{where}: {error.detail}", **error.members)
