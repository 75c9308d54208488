"""Kinds of numbers: integers, YEAR, BIT, FLOAT, DOUBLE, DECIMAL. Exact: what can't be held is an error, never rounded."""

from __future__ import annotations

import math
import re
import struct
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any, Final

from headrace.simple.faults import Misfit
from headrace.simple.kind import AsNumber, AsText, digits
from headrace.simple.message import Float32, Raw, UnsignedBigint
from headrace.simple.mysql_types import integer_range
from headrace.simple.schema import DataType

_YEAR_LEAST: Final = 1901
_YEAR_GREATEST: Final = 2155
_DECIMAL_DIGITS_MAX: Final = 65
"""What MySQL and TiDB allow; the context has room for a scale beside it."""
_EXACT: Final = Context(prec=2 * _DECIMAL_DIGITS_MAX, traps=[InvalidOperation, Inexact])
_FIXED: Final = re.compile(r"-?[0-9]{1,100}(?:\.([0-9]{1,100}))?", re.ASCII)
_FLOATING: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,1100})?(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_SINGLE: Final = struct.Struct("<f")
_SINGLE_BITS: Final = struct.Struct("<I")
_SINGLE_DIGITS_MAX: Final = 9


class Integer(AsNumber):
    """TINYINT to INT, signed or not, and signed BIGINT."""

    def __init__(self, data_type: DataType) -> None:
        self.least, self.greatest = integer_range(data_type)
        self.expected = f"an integer from {self.least} to {self.greatest}"


class UnsignedBig(Integer):
    """BIGINT UNSIGNED: in Avro a record of its own. Read as a long or as digits too, as the public document has it."""

    def read_avro(self, raw: Raw) -> Any:
        """Return the number."""
        if type(raw) is UnsignedBigint:
            return self._bounded(raw.value)
        if type(raw) is str:
            return self._bounded(digits(raw))
        if type(raw) is int:
            return self._bounded(raw)
        raise Misfit

    def write_avro(self, value: Any) -> Raw:
        """Return the record."""
        return UnsignedBigint(self._bounded(self.to_number(value)))


class Year(AsNumber):
    """YEAR: 0, or 1901 to 2155."""

    least = 0
    greatest = _YEAR_GREATEST
    expected = f"a year: 0, or {_YEAR_LEAST} to {_YEAR_GREATEST}"

    def _bounded(self, number: int) -> int:
        if number and number < _YEAR_LEAST:
            raise Misfit
        return super()._bounded(number)


class Bit(AsNumber):
    """BIT(n) as its number. In Avro digits, which every reader takes; older writers have a long there, perhaps wrapped."""

    least = 0

    def __init__(self, data_type: DataType) -> None:
        bits = data_type.length if 0 < data_type.length < 64 else 64
        self.greatest = (1 << bits) - 1
        self.expected = f"a number of {bits} bits"

    def read_avro(self, raw: Raw) -> Any:
        """Return the number."""
        if type(raw) is str:
            return self._bounded(digits(raw))
        if type(raw) is int:
            return self._bounded(raw + (1 << 64) if raw < 0 else raw)
        raise Misfit

    def write_avro(self, value: Any) -> Raw:
        """Return the digits."""
        return self.write_json(value)


class Double:
    """DOUBLE: in JSON the shortest digits that give the same number, never with an exponent."""

    expected = "a finite number of double precision"

    def read_json(self, raw: Raw) -> Any:
        """Return the float."""
        if type(raw) is not str or not _FLOATING.fullmatch(raw):
            raise Misfit
        return self._finite(float(raw))

    def write_json(self, value: Any) -> Raw:
        """Return the digits."""
        return fixed_notation(repr(float(self._finite(value))))

    def read_avro(self, raw: Raw) -> Any:
        """Return the float."""
        return float(self._finite(raw))

    def write_avro(self, value: Any) -> Raw:
        """Return the float."""
        return float(self._finite(value))

    @staticmethod
    def _finite(value: Any) -> float:
        if not isinstance(value, float) or not math.isfinite(value):
            raise Misfit
        return value


class Single:
    """FLOAT: Python values are floats that single precision holds exactly."""

    expected = "a finite number of single precision"

    def read_json(self, raw: Raw) -> Any:
        """Return the float nearest to the digits that single precision has."""
        if type(raw) is not str:
            raise Misfit
        return single_of(raw)

    def write_json(self, value: Any) -> Raw:
        """Return the shortest digits that give the same number of single precision."""
        return single_text(self.write_avro(value))

    def read_avro(self, raw: Raw) -> Any:
        """Return the float."""
        return float(self.write_avro(raw))

    def write_avro(self, value: Any) -> Float32:
        """Return the float, marked as one of single precision."""
        if not isinstance(value, float) or not math.isfinite(value) or rounded_to_single(value) != value:
            raise Misfit
        return Float32(value)


class Fixed(AsText):
    """DECIMAL(p, s): exact, with all digits of its scale."""

    def __init__(self, data_type: DataType) -> None:
        known = data_type.length > 0
        self.precision = data_type.length if known else _DECIMAL_DIGITS_MAX
        self.scale = data_type.decimal
        # A scale that makes no sense (negative, above the precision) fits no value.
        self.unit = Decimal((0, (1,), -self.scale))
        self.expected = f"a decimal({self.precision},{self.scale})"

    def read(self, text: str) -> Any:
        """Return the Decimal."""
        parts = _FIXED.fullmatch(text)
        if parts is None or len(parts[1] or "") > max(self.scale, 0):
            raise Misfit
        value = Decimal(text)
        if value.adjusted() >= self.precision - self.scale and value:
            raise Misfit
        return value

    def write(self, value: Any) -> str:
        """Return the digits, as many behind the point as the scale has."""
        if type(value) is not Decimal or not value.is_finite():
            raise Misfit
        try:
            exact = value.quantize(self.unit, context=_EXACT)
        except (InvalidOperation, Inexact):
            raise Misfit from None
        if exact and exact.adjusted() >= self.precision - self.scale:
            raise Misfit
        return format(exact, "f")


def fixed_notation(text: str) -> str:
    """Return what ``repr`` writes of a float without an exponent, and without a fraction that is zero."""
    if "e" in text:
        text = format(Decimal(text), "f")
    return text.removesuffix(".0")


def rounded_to_single(value: float) -> float:
    """Return the number of single precision nearest to ``value``; Misfit where that is too large."""
    try:
        single: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        raise Misfit from None
    return single


def single_of(text: str) -> float:
    """Return the number of single precision nearest to the digits, perhaps with an exponent; Misfit for anything else.

    Going through double precision rounds twice. That matters where the double lies exactly between two singles and the
    digits do not: they decide then.
    """
    if not _FLOATING.fullmatch(text):
        raise Misfit
    double = float(text)
    if not math.isfinite(double):
        raise Misfit
    single = rounded_to_single(double)
    if single == double:
        return single
    other = _neighbour(single, upward=double > single)
    if math.isfinite(other) and (single + other) / 2 == double:
        exact, middle = Decimal(text), Decimal(double)
        if exact != middle:
            return max(single, other) if exact > middle else min(single, other)
    return single


def single_text(value: float) -> str:
    """Return the shortest digits, without an exponent, that read as ``value`` of single precision (as Go prints them)."""
    if not value:
        return "-0" if math.copysign(1, value) < 0 else "0"
    for size in range(1, _SINGLE_DIGITS_MAX + 1):
        text = f"{value:.{size - 1}e}"
        for candidate in (text, *(_beside(text) if abs(math.frexp(value)[0]) == 0.5 else ())):
            if _reads_as(candidate, value):
                return format(Decimal(candidate).normalize(_EXACT), "f")
    raise Misfit


def _reads_as(text: str, value: float) -> bool:
    try:
        return single_of(text) == value
    except Misfit:
        return False


def _beside(text: str) -> tuple[str, str]:
    """The numbers of as many digits next to ``text``.

    Below a power of two numbers stand closer than above it: the nearest of so few digits may read as another number where
    the next one does not.
    """
    mantissa, _, exponent = text.partition("e")
    unit = Decimal((0, (1,), int(exponent) - (len(mantissa.partition(".")[2]))))
    value = Decimal(text)
    return str(value - unit), str(value + unit)


def _neighbour(single: float, *, upward: bool) -> float:
    """The next number of single precision, away from or towards zero; infinity behind the last."""
    if single == 0:
        return math.copysign(_SINGLE.unpack(_SINGLE_BITS.pack(1))[0], 1 if upward else -1)
    bits = _SINGLE_BITS.unpack(_SINGLE.pack(single))[0]
    found: float = _SINGLE.unpack(_SINGLE_BITS.pack(bits + 1 if upward == (single > 0) else bits - 1))[0]
    return found
