"""Decimals and floats of rows -> their digits, exact and without an exponent."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Final

from headrace.simple.numeric import fixed_notation, single_text

_GROUP_DIGITS, _GROUP_BYTES = 9, 4
_BYTES_OF_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4)
_PRECISION_MAX, _SCALE_MAX = 65, 38
_SINGLE: Final = struct.Struct("<f")
_SINGLE_NORMAL_MIN: Final = 2.0**-126
_SINGLE_DIGITS: Final = (6, 7, 8, 9)
"""Six digits always tell what fewer could; nine tell every number apart."""


def decimal_bytes(precision: int, scale: int) -> int:
    """Return how many bytes a DECIMAL takes."""
    return sum(size for size, _ in _groups(precision, scale))


def decimal_reader(precision: int, scale: int) -> Callable[[bytes], str]:
    """Return what reads DECIMAL(``precision``, ``scale``), with all digits of the scale.

    ValueError here if there is no such type, and in the reader if a group of digits is too large.
    """
    if not 0 <= scale <= precision <= _PRECISION_MAX or scale > _SCALE_MAX or not precision:
        raise ValueError
    shift = 8 * decimal_bytes(precision, scale)
    sign, every = 1 << shift - 1, (1 << shift) - 1
    steps = []
    for size, digits in _groups(precision, scale):
        shift -= 8 * size
        steps.append((shift, (1 << 8 * size) - 1, 10**digits))

    def read(data: bytes) -> str:
        # Positive numbers have the first bit set; of negative ones all bits are inverted.
        number = int.from_bytes(data, "big") ^ sign
        minus = ""
        if number & sign:
            number, minus = number ^ every, "-"
        unscaled = 0
        for shift, mask, limit in steps:
            group = number >> shift & mask
            if group >= limit:
                raise ValueError
            unscaled = unscaled * limit + group
        if not scale:
            return f"{minus}{unscaled}"
        text = f"{unscaled:0{scale + 1}}"
        return f"{minus}{text[:-scale]}.{text[-scale:]}"

    return read


def _groups(precision: int, scale: int) -> list[tuple[int, int]]:
    """Bytes and digits of each group: nine digits are four bytes; those left over stand outermost."""
    whole, over = divmod(precision - scale, _GROUP_DIGITS)
    fraction, under = divmod(scale, _GROUP_DIGITS)
    full = [(_GROUP_BYTES, _GROUP_DIGITS)]
    groups = [(_BYTES_OF_DIGITS[over], over), *full * (whole + fraction), (_BYTES_OF_DIGITS[under], under)]
    return [group for group in groups if group[1]]


def double_text(value: float) -> str:
    """Return the fewest digits that read as ``value``. ValueError: it is no number, which no column holds."""
    if not math.isfinite(value):
        raise ValueError
    return fixed_notation(repr(value))


def float_text(value: float) -> str:
    """Return the fewest digits that read as ``value`` of single precision. ValueError: it is no number."""
    if not math.isfinite(value):
        raise ValueError
    if abs(value) < _SINGLE_NORMAL_MIN or abs(math.frexp(value)[0]) == 0.5:
        # Fewer than six digits tell the smallest apart; below a power of two the nearest digits may not be the fewest.
        return single_text(value)
    for digits in _SINGLE_DIGITS:
        text = f"{value:.{digits}g}"
        near = float(text)
        if _reads_as(near, value):
            return fixed_notation(repr(near))
    return single_text(value)


def _reads_as(near: float, value: float) -> bool:
    """Does a number nearest to some digits round to ``value``? False too where it lies just between two numbers."""
    try:
        if _SINGLE.unpack(_SINGLE.pack(near))[0] != value:
            return False
        mirrored = 2 * near - value
        return near == value or _SINGLE.unpack(_SINGLE.pack(mirrored))[0] != mirrored
    except OverflowError:
        return False
