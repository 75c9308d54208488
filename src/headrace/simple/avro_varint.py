"""Avro's integers: zig-zag, then 7 bits a byte, the least first.

Tables (3 MB, made at import) turn 14 bits into two bytes and back; that is what makes a codec in Python fast enough.
"""

from __future__ import annotations

from typing import Final

from headrace.simple.bounds import I64_MAX, I64_MIN, U64_MAX

_LOW: Final = 0x3FFF

SHORT: Final = [bytes([z]) for z in range(128)] + [
    bytes([z & 127 | 128, z >> 7]) for z in range(128, 1 << 14)
]
"""The bytes of each zig-zagged number below 2**14."""

SIZES: Final = SHORT[::2]
"""The bytes of each length below 2**13."""

_PAIRS: Final = [bytes([z & 127 | 128, z >> 7 | 128]) for z in range(1 << 14)]
"""The bytes of 14 bits that more bits follow."""

PAIR_OF: Final = {int.from_bytes(pair, "little"): z for z, pair in enumerate(_PAIRS)}
"""The 14 bits of two bytes that more bits follow, by those bytes as a number, the least first."""


def long_bytes(value: int) -> bytes:
    """Return the bytes of a ``long``, 1 to 10. OverflowError if it isn't one."""
    if 0 <= value < 1 << 13:
        return SIZES[value]
    if not I64_MIN <= value <= I64_MAX:
        raise OverflowError(f"{value} does not fit into 64 bits with a sign")
    rest = (value << 1) ^ (value >> 63)
    out = b""
    while rest >= 1 << 14:
        out += _PAIRS[rest & _LOW]
        rest >>= 14
    return out + SHORT[rest]


def u64_bytes(value: int) -> bytes:
    """Return the bytes of a number of 64 bits without a sign: of the ``long`` that has the same bits. OverflowError."""
    if not 0 <= value <= U64_MAX:
        raise OverflowError(f"{value} does not fit into 64 bits without a sign")
    return long_bytes(value if value <= I64_MAX else value - U64_MAX - 1)
