"""Journal segment files: start record and index. Byte tables: ``docs/formats/segment.md`` and ``index.md``.

::

    segment file = start record | frames | (sealed only) index

Positions count frame bytes only, so a frame stands at ``start size + (position - first position)`` in its file.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

import google_crc32c

from headrace.errors import JournalCorrupt
from headrace.wire.versions import INDEX, SEGMENT, check_readable

START_MAGIC: Final = b"HRSS"
START_SIZE: Final = 32
"""Bytes of the start record before its state document."""
INDEX_MAGIC: Final = b"HRIX"
INDEX_HEAD_SIZE: Final = 8
INDEX_FOOT_SIZE: Final = 40
STATE_BYTES_MAX: Final = 256 << 20

_START = struct.Struct("<4sBBHQII4xI")
_FOOT = struct.Struct("<4sBBHIIQQ4xI")
ROW: Final = struct.Struct("<IIQQI4x")
"""One frame in an index: region id, entry count, first sequence id, position, frame size."""


class FramePlace(NamedTuple):
    """Where a feed's frame stands. A control frame has count 0."""

    region_id: int
    count: int  # type: ignore[assignment]  # an entry count says more here than tuple.count
    first_sequence_id: int
    position: int
    size: int


class SegmentStart(NamedTuple):
    """The start record: the position of the segment's first frame, and the state (JSON) that it continues from.

    ``readable_from``: the oldest version of the format that can read that state.
    """

    first_position: int
    state: bytes
    readable_from: int = SEGMENT.readable_from

    @property
    def size(self) -> int:
        """Bytes of the whole record: where the frames begin in the file."""
        return START_SIZE + len(self.state)

    def encode(self) -> bytes:
        """Return the record's bytes, checksums included."""
        crc = int(google_crc32c.value(self.state))
        packed = _START.pack(
            START_MAGIC,
            SEGMENT.written_as,
            self.readable_from,
            0,
            self.first_position,
            len(self.state),
            crc,
            0,
        )
        return packed[:-4] + int(google_crc32c.value(packed[:-4])).to_bytes(4, "little") + self.state


def start_size_of(head: bytes, where: str) -> int:
    """Return the size of the start record whose first 32 bytes are ``head``; JournalCorrupt or FormatTooNew."""
    return START_SIZE + _start_fields(head, where)[1]


def decode_start(data: bytes, where: str) -> SegmentStart:
    """Read a start record from the beginning of a segment file named ``where``; JournalCorrupt if it is damaged."""
    first_position, size, crc, readable_from = _start_fields(data, where)
    state = data[START_SIZE : START_SIZE + size]
    if len(state) != size or google_crc32c.value(state) != crc:
        raise JournalCorrupt(f"{where}: the segment's start state fails its checksum")
    return SegmentStart(first_position, state, readable_from)


def _start_fields(data: bytes, where: str) -> tuple[int, int, int, int]:
    head = data[:START_SIZE]
    if len(head) < START_SIZE or head[:4] != START_MAGIC:
        raise JournalCorrupt(f"{where}: not a journal segment (no {START_MAGIC.decode()} at its start)")
    _, _, readable_from, _, first_position, size, crc, own = _START.unpack(head)
    if google_crc32c.value(head[:-4]) != own or size > STATE_BYTES_MAX:
        raise JournalCorrupt(f"{where}: the segment's start record fails its checksum")
    check_readable(where, readable_from, SEGMENT)
    return first_position, size, crc, readable_from


def encode_index(places: Iterable[FramePlace], first_position: int, end_position: int) -> bytes:
    """Return the index that ends a sealed segment: head, rows sorted by (region, first sequence id, position), footer."""
    rows = b"".join(
        ROW.pack(*place) for place in sorted(places, key=lambda place: (place[0], place[2], place[3]))
    )
    return index_of_rows(rows, first_position, end_position)


def rows_of_feed(
    region_id: int, firsts: array[int], positions: array[int], counts: array[int], sizes: array[int]
) -> bytes:
    """Return the rows of one feed, in the order given; ``firsts`` and ``positions`` are u64, the others u32.

    For little-endian machines: the columns' bytes are taken as they are.
    """
    rows = bytearray(ROW.size * len(firsts))
    halves, wholes = memoryview(rows).cast("I"), memoryview(rows).cast("Q")
    halves[0::8] = memoryview(array("I", (region_id,)) * len(firsts))
    halves[1::8], halves[6::8] = memoryview(counts), memoryview(sizes)
    wholes[1::4], wholes[2::4] = memoryview(firsts), memoryview(positions)
    return bytes(rows)


def index_of_rows(rows: bytes, first_position: int, end_position: int) -> bytes:
    """Return the index of sorted rows: with head and footer."""
    count = len(rows) // ROW.size
    foot = _FOOT.pack(
        INDEX_MAGIC, INDEX.written_as, INDEX.readable_from, 0, count, google_crc32c.value(rows), first_position,
        end_position, 0,
    )  # fmt: skip
    own = int(google_crc32c.value(foot[:-4])).to_bytes(4, "little")
    return b"".join((index_head(count), rows, foot[:-4], own))


def index_head(rows: int) -> bytes:
    """Return the 8 bytes that an index of so many rows begins with."""
    return INDEX_MAGIC + struct.pack("<I", rows)


class IndexFooter(NamedTuple):
    """What a sealed segment's last 40 bytes say."""

    rows: int
    rows_crc: int
    first_position: int
    end_position: int

    @property
    def bounds(self) -> tuple[int, int]:
        """The positions of the segment's first frame and after its last one."""
        return self.first_position, self.end_position

    @property
    def index_size(self) -> int:
        """Bytes of the whole index, from its head to the end of the file."""
        return INDEX_HEAD_SIZE + self.rows * ROW.size + INDEX_FOOT_SIZE


def index_fits(index: bytes, footer: IndexFooter) -> bool:
    """Tell whether the bytes of a whole index are those that its (intact) footer was written for."""
    rows = index[INDEX_HEAD_SIZE : len(index) - INDEX_FOOT_SIZE]
    is_whole = len(index) == footer.index_size and index[:INDEX_HEAD_SIZE] == index_head(footer.rows)
    return is_whole and rows_fit((rows,), footer)


def rows_fit(parts: Iterable[bytes], footer: IndexFooter) -> bool:
    """Tell whether the rows of an index, part by part, are those that its (intact) footer was written for."""
    crc = 0
    for part in parts:
        crc = google_crc32c.extend(crc, part)
    return crc == footer.rows_crc


def decode_footer(data: bytes, where: str) -> IndexFooter | None:
    """Return the footer that ``data`` ends with, or None if there is no intact one (the index is then rebuilt)."""
    foot = data[-INDEX_FOOT_SIZE:]
    if len(foot) < INDEX_FOOT_SIZE or foot[:4] != INDEX_MAGIC:
        return None
    _, _, readable_from, _, rows, crc, first_position, end_position, own = _FOOT.unpack(foot)
    if google_crc32c.value(foot[:-4]) != own:
        return None
    check_readable(f"{where} (index)", readable_from, INDEX)
    return IndexFooter(rows, crc, first_position, end_position)
