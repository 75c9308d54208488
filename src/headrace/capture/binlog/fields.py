"""Reads the fields of an event one after the other, each checked: what does not fit names the field."""

from __future__ import annotations

import zlib
from typing import Final

UNPACKED_BYTES_MAX: Final = 1 << 30
"""The most that a compressed part may say it unpacks to: the most that MariaDB puts into one event."""
_ZLIB: Final = 0
"""The one algorithm of compressed events."""
_PACKED_SIZES: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}


class Malformed(Exception):
    """Bytes are not what their format says; the reader of the event knows which event it is."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field} {why}")


class Fields:
    """A cursor over ``data``. Numbers are little-endian and unsigned; each method raises Malformed naming its ``field``."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.end = len(data)

    def take(self, size: int, field: str) -> bytes:
        """Return the next ``size`` bytes."""
        begin, self.at = self.at, self.at + size
        if self.at > self.end:
            raise Malformed(field, f"needs {size} bytes where {self.end - begin} are left")
        return self.data[begin : self.at]

    def number(self, size: int, field: str) -> int:
        """Return a number of ``size`` bytes."""
        return int.from_bytes(self.take(size, field), "little")

    def packed(self, field: str) -> int:
        """Return a number in MySQL's packed form: one byte up to 250, else a mark and 2, 3 or 8 bytes."""
        first = self.number(1, field)
        if first <= 0xFA:
            return first
        if first not in _PACKED_SIZES:
            raise Malformed(field, f"begins with {first:#x}, which no packed number does")
        return self.number(_PACKED_SIZES[first], field)

    def sized(self, field: str) -> bytes:
        """Return bytes that stand behind their packed length."""
        return self.take(self.packed(field), field)

    def name(self, field: str) -> str:
        """Return UTF-8 that stands behind one byte with its length, and before a NUL."""
        name = self.take(self.number(1, field), field)
        if self.number(1, field):
            raise Malformed(field, "does not end with NUL")
        return utf8(name, field)

    def rest(self) -> bytes:
        """Return all that is left."""
        begin, self.at = self.at, self.end
        return self.data[begin:]


def utf8(data: bytes, field: str) -> str:
    """Return the text of ``data``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed(field, "is no UTF-8") from None


def unpacked(data: bytes, field: str) -> bytes:
    """Return what a compressed part of an event holds (``log_bin_compress``).

    One byte with the algorithm and the size of the length, the length (big-endian), a stream of zlib.
    """
    head = data[0] if data else 0
    size = head & 0x07
    if not head & 0x80 or not 1 <= size <= 4 or len(data) < 1 + size:
        raise Malformed(field, "has no header of a compressed part")
    if (head & 0x70) >> 4 != _ZLIB:
        raise Malformed(
            field, f"is compressed by algorithm {(head & 0x70) >> 4}, which this version does not know"
        )
    return inflated(data[1 + size :], int.from_bytes(data[1 : 1 + size], "big"), zlib.MAX_WBITS, field)


def inflated(data: bytes, length: int, window_bits: int, field: str) -> bytes:
    """Return the ``length`` bytes that a stream of zlib holds, no more and no less; ``window_bits`` as zlib has them."""
    if not 0 < length <= UNPACKED_BYTES_MAX:
        raise Malformed(field, f"says that it unpacks to {length} bytes")
    stream = zlib.decompressobj(window_bits)
    try:
        plain = stream.decompress(data, length + 1)
    except zlib.error as error:
        raise Malformed(field, f"does not unpack: {error}") from None
    if len(plain) != length or not stream.eof or stream.unused_data:
        raise Malformed(field, f"does not unpack to the {length} bytes that it says")
    return plain
