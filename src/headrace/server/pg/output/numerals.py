"""Numbers as text, many at once: what each line names of its place. Pure."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final

_GROUP: Final = 1_000
_GROUPS: Final = [b"%03d" % number for number in range(_GROUP)]
"""The last three digits of numbers; those in front of them are written once a thousand."""
_U32: Final = 1 << 32


def decimals(first: int, count: int, *, width: int = 0) -> list[bytes]:
    """Return ``count`` numbers from ``first`` on in decimal, with zeros in front up to ``width`` (0, or 4 and up)."""
    found: list[bytes] = []
    while count > 0:
        thousands, at = divmod(first, _GROUP)
        size = min(count, _GROUP - at)
        if thousands or width:
            head = b"%0*d" % (width - 3, thousands) if width else b"%d" % thousands
            found += [head + group for group in _GROUPS[at : at + size]]
        else:
            found += [b"%d" % number for number in range(first, first + size)]
        first += size
        count -= size
    return found


def lsn_texts(positions: Sequence[int]) -> list[bytes]:
    """Return journal positions, ascending, as PostgreSQL writes an LSN: two hexadecimal numbers, such as ``0/16B3748``."""
    if not positions:
        return []
    high, low = divmod(positions[0], _U32)
    last = positions[-1] - high * _U32
    width = len(f"{last:X}")
    if last >= _U32 or len(f"{low:X}") != width:
        return [b"%X/%X" % divmod(position, _U32) for position in positions]
    lows = array("I", [position & _U32 - 1 for position in positions])
    if sys.byteorder == "little":
        lows.byteswap()
    digits = lows.tobytes().hex().upper().encode()
    head = b"%X/" % high
    return [head + text for (text,) in Struct(f"{8 - width}x{width}s").iter_unpack(digits)]
