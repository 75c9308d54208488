"""A frame: one append as it stands in the journal. ``docs/formats/frame.md`` is its byte table.

::

    header (96) | area: tag-length-values | body: WalBatch.entries fields | lengths: u32 each | header again (96)

The header holds the frame's own position and its own checksum; its second copy at the end lets a reader step over
damage. One checksum covers area, body and lengths.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

import google_crc32c

from headrace.entries.lsn import Lsn, lsn_of
from headrace.errors import JournalCorrupt
from headrace.wire import entry as wal_entry
from headrace.wire.versions import FRAME, check_readable

MAGIC: Final = b"HRFR"
HEADER_SIZE: Final = 96
FIRST_POSITION: Final = 0x100
"""Position of a journal's first byte; PostgreSQL clients take 0 for invalid."""
FRAME_BYTES_MAX: Final = 64 << 20
"""Largest frame that is written or believed; bounds what a damaged size can make a reader fetch."""

_HEADER = struct.Struct("<4sBBBBQQQQ16sIIIII16xI")
_TAG = struct.Struct("<HI")


class FrameKind(IntEnum):
    """What a frame carries."""

    ENTRIES = 0
    CONTROL = 1
    SKIPPED = 2
    """Put by a repair over a damaged frame: its header tells what stood there if that is known, its payload is zeros."""


class Area(IntEnum):
    """Tags of the area. A reader passes over a tag it doesn't know."""

    PRODUCER = 1
    SOURCE_POSITION = 2
    TRANSACTION_ENDS = 3
    TRACEPARENT = 4
    MARKED_AT_MS = 5
    POSTED_AT_MS = 6


class FrameHeader(NamedTuple):
    """The fixed part of a frame. Sizes in bytes; ``position`` is the journal offset of its first byte."""

    kind: int
    position: int
    first_sequence_id: int
    global_ts: int
    epoch: int
    digest: bytes
    region_id: int
    count: int  # type: ignore[assignment]  # an entry count says more here than tuple.count
    area_size: int
    body_size: int
    payload_crc: int

    @property
    def size(self) -> int:
        """Bytes of the whole frame, both headers included."""
        return 2 * HEADER_SIZE + self.area_size + self.body_size + 4 * self.count

    @property
    def payload_size(self) -> int:
        """Bytes of area, body and lengths."""
        return self.area_size + self.body_size + 4 * self.count

    @property
    def end(self) -> int:
        """Position of the first byte after the frame."""
        return self.position + 2 * HEADER_SIZE + self.area_size + self.body_size + 4 * self.count

    @property
    def last_sequence_id(self) -> int:
        """Sequence id of the frame's last entry (of an empty or control frame: the one before its first)."""
        return self.first_sequence_id + self.count - 1

    def lsn(self, index: int) -> Lsn:
        """Return the LSN of the frame's entry ``index`` (0-based)."""
        return lsn_of(self.global_ts, self.region_id, self.first_sequence_id, index)

    @property
    def last_global_ts(self) -> int:
        """Greatest ``global_ts`` in the frame."""
        return self.lsn(self.count - 1).global_ts if self.count else self.global_ts

    def encode(self) -> bytes:
        """Return the 96 bytes of the header, checksum included."""
        return _encode_header(self, self.area_size, self.body_size, self.payload_crc)


def _encode_header(header: FrameHeader, area_size: int, body_size: int, payload_crc: int) -> bytes:
    """The header's 96 bytes with these sizes and checksum in place of its own; no second header is made for that."""
    packed = _HEADER.pack(
        MAGIC, FRAME.written_as, FRAME.readable_from, header[0], 0, *header[1:8], area_size, body_size, payload_crc, 0
    )  # fmt: skip
    unsealed = packed[:-4]
    return unsealed + int(google_crc32c.value(unsealed)).to_bytes(4, "little")


def parse_header(
    data: bytes | memoryview, at: int = 0, *, stands: Callable[[FrameHeader], bool] | None = None
) -> FrameHeader | None:
    """Return the header at ``data[at:]``, or None if there is no intact one.

    ``stands`` says whether a header belongs where it was found: who looks for headers among other bytes must ask, because an
    entry's value may look like one. FormatTooNew if it is intact, belongs there, and is of a newer format than is read here.
    """
    raw = data[at : at + HEADER_SIZE]
    if len(raw) < HEADER_SIZE or raw[:4] != MAGIC:
        return None
    fields = _HEADER.unpack(raw)
    if google_crc32c.value(bytes(raw[:-4])) != fields[-1]:
        return None
    # Opening a journal and reading it do this for each frame: made in one step, without the constructor's own Python.
    header = tuple.__new__(FrameHeader, (fields[3], *fields[5:-1]))
    if stands is not None and not stands(header):
        return None
    if fields[2] > FRAME.written_as:
        check_readable(f"the journal's frame at position {fields[5]:#x}", fields[2], FRAME)
    return header if header.size <= FRAME_BYTES_MAX else None


def encode_area(values: Mapping[Area, bytes]) -> bytes:
    """Return the tag-length-value area: u16 tag, u32 length, value, in tag order; empty values are left out."""
    return b"".join([_TAG.pack(tag, len(data)) + data for tag, data in sorted(values.items()) if data])


def decode_area(area: bytes | memoryview) -> dict[int, bytes]:
    """Return the area's values by tag, unknown tags included; JournalCorrupt if it does not add up."""
    found: dict[int, bytes] = {}
    at = 0
    while at < len(area):
        if at + 6 > len(area):
            raise JournalCorrupt("a frame's area ends inside a tag")
        tag, size = _TAG.unpack_from(area, at)
        if at + 6 + size > len(area):
            raise JournalCorrupt("a frame's area ends inside a value")
        found[tag] = bytes(area[at + 6 : at + 6 + size])
        at += 6 + size
    return found


def encode_frame(header: FrameHeader, area: bytes, body: bytes, lengths: bytes) -> bytes:
    """Return the whole frame; sizes and payload checksum of ``header`` are set here from the parts."""
    crc = google_crc32c.extend(google_crc32c.extend(google_crc32c.value(area), body), lengths)
    sealed = _encode_header(header, len(area), len(body), crc)
    return b"".join((sealed, area, body, lengths, sealed))


class Frame:
    """A whole frame, its checksums verified. The payload is copied at most once; everything else is a slice of it."""

    __slots__ = ("_lengths", "_payload", "header")

    def __init__(
        self,
        data: bytes | memoryview,
        at: int = 0,
        *,
        where: str = "",
        header: FrameHeader | None = None,
    ) -> None:
        """Verify and wrap the frame at ``data[at:]``; JournalCorrupt naming ``where`` and position if it is damaged.

        ``header``: what :func:`parse_header` found there, if the caller has looked already.
        """
        if header is None:
            header = parse_header(data, at)
        if header is None:
            raise JournalCorrupt(f"{where or 'a buffer'}: no intact frame header at byte {at}")
        begin, size = at + HEADER_SIZE, header.area_size + header.body_size + 4 * header.count
        payload = data[begin : begin + size]
        whole = begin + size + HEADER_SIZE <= len(data)
        if not whole or google_crc32c.value(bytes(payload)) != header.payload_crc:
            raise JournalCorrupt(
                f"{where or 'a buffer'}: the frame at position {header.position:#x} (region {header.region_id}, "
                f"sequence ids {header.first_sequence_id} to {header.last_sequence_id}) "
                f"{'fails its checksum' if whole else 'is cut off'}",
                position=header.position,
            )
        self.header = header
        self._payload = memoryview(payload)
        self._lengths: array[int] | None = None

    @classmethod
    def verified(cls, header: FrameHeader, payload: bytes) -> Frame:
        """Wrap a payload of which the caller has verified that it is what ``header`` was sealed over."""
        frame = cls.__new__(cls)
        frame.header = header
        frame._payload = memoryview(payload)
        frame._lengths = None
        return frame

    @property
    def area(self) -> memoryview:
        """The tag-length-value area."""
        return self._payload[: self.header.area_size]

    @property
    def body(self) -> memoryview:
        """The concatenated ``WalBatch.entries`` fields, or a control frame's JSON."""
        return self._payload[self.header.area_size : self.header.area_size + self.header.body_size]

    @property
    def lengths_bytes(self) -> memoryview:
        """The entry lengths as stored: u32 little-endian each."""
        return self._payload[self.header.area_size + self.header.body_size :]

    @property
    def lengths(self) -> array[int]:
        """The size of each entry in ``body``, tag and size bytes included."""
        if self._lengths is None:
            found = array("I")
            found.frombytes(self.lengths_bytes)
            if sys.byteorder == "big":
                found.byteswap()
            self._lengths = found
        return self._lengths

    def entries(self) -> Iterator[memoryview]:
        """Yield the stored bytes of each entry, in order; a control frame has none."""
        if self.header.kind == FrameKind.ENTRIES:
            yield from wal_entry.slices(self.body, self.lengths)


def frames_of(data: bytes | memoryview, *, where: str = "") -> Iterator[Frame]:
    """Yield the whole frames that stand one after another in ``data``; JournalCorrupt at the first that is damaged."""
    at = 0
    while at < len(data):
        frame = Frame(data, at, where=where)
        yield frame
        at += frame.header.size
