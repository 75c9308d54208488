"""LEB128 varints and protobuf tags, as far as entries are framed by hand."""

from __future__ import annotations

from typing import Final

from headrace.errors import JournalCorrupt


def encode(number: int) -> bytes:
    """Return ``number`` (0 or more, else ValueError) as a LEB128 varint."""
    if 0 <= number < _READY:
        return _SHORT[number]
    if number < 0:
        raise ValueError(f"{number} is no varint")
    out = b""
    while number >= _READY:
        out += _TWO_OF_MORE[number & _READY - 1]
        number >>= 14
    return out + _SHORT[number]


_READY: Final = 1 << 14
_SHORT: Final = [
    bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80, number >> 7))
    for number in range(_READY)
]
"""Every varint of one or two bytes: sizes of most entries are among them."""
_TWO_OF_MORE: Final = [bytes((number & 0x7F | 0x80, number >> 7 | 0x80)) for number in range(_READY)]
"""Every two bytes that more bytes follow."""


def decode(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return (number, offset after it); JournalCorrupt where the bytes end inside it or it is over 128 bits."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 126:
            raise JournalCorrupt(f"a varint at byte {at} has no end")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            if number >> 128:
                raise JournalCorrupt(f"the varint before byte {at} is over 128 bits")
            return number, at
        shift += 7


def tag(field_number: int, wire_type: int) -> bytes:
    """Return the protobuf tag of a field (wire type 0 = varint, 2 = length-delimited)."""
    return encode(field_number << 3 | wire_type)
