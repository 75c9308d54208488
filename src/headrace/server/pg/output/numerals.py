"""Numbers as text, many at once: what each line names of its place. Pure."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

GROUP: Final = 1_000
GROUPS: Final = [b"%03d" % number for number in range(GROUP)]
"""The last three digits of numbers; those in front of them are written once a thousand."""
_U32: Final = 1 << 32


def lsn_texts(positions: Sequence[int]) -> tuple[bytes, list[bytes]]:
    """Return journal positions, ascending, as PostgreSQL writes an LSN: two hexadecimal numbers, such as ``0/16B3748``.

    What all have in common in front is apart: the first number and the stroke, or nothing.
    """
    if not positions:
        return b"", []
    high, low = divmod(positions[0], _U32)
    last = positions[-1] - high * _U32
    width = len(f"{last:X}")
    if last >= _U32 or len(f"{low:X}") != width:
        return b"", [b"%X/%X" % divmod(position, _U32) for position in positions]
    lows = array("I", [position - high * _U32 for position in positions] if high else positions)
    if sys.byteorder == "little":
        lows.byteswap()
    digits = lows.tobytes().hex().upper().encode()
    return b"%X/" % high, [text for (text,) in Struct(f"{8 - width}x{width}s").iter_unpack(digits)]
