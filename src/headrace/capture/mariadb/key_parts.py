"""One column of a handle key: how its raw values are compared, and what they are in SQL. Pure."""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from headrace.simple.faults import Misfit
from headrace.simple.message import Raw, Timestamp
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.numeric import single_of
from headrace.simple.schema import Column

SERVER_FORMS: Final = frozenset({"uuid", "inet6", "inet4"})
"""MariaDB's types whose values messages carry as text, and which it does not order as text."""

_NAMES_ITS_BYTES: Final = frozenset(
    {
        *("ascii", "utf8", "utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32"),
        *("latin1", "latin2", "latin5", "latin7", "koi8r", "koi8u", "cp850", "cp852", "cp866"),
        *("cp1250", "cp1251", "cp1256", "cp1257"),
    }
)
"""Character sets in which a text is found again by its characters. Others have several codes for some: backslash in sjis."""

_BY_CODE_POINT: Final = frozenset({"ascii", "utf8", "utf8mb3", "utf8mb4"})
_WORDS: Final = re.compile(r"[-0-9A-Za-z]*", re.ASCII)
_ORDERS_WORDS: Final = frozenset(
    {
        "latin1_swedish_ci",
        *(
            f"{charset}_{order}_ci"
            for charset in ("utf8mb3", "utf8mb4")
            for order in ("general", "unicode", "unicode_520", "uca1400_ai")
        ),
    }
)
"""Collations in which hyphens stand before digits and these before letters, in either case; no two letters count as one."""

_SURE: Final = re.compile(r"[0-9A-Za-z .,:;/@_+-]*", re.ASCII)
"""Text that has one form in every character set."""

_DIGITS: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
_FIXED: Final = re.compile(r"-?[0-9]{1,65}(?:\.[0-9]{1,65})?", re.ASCII)
_FLOATING: Final = re.compile(r"-?[0-9]{1,400}(?:\.[0-9]{1,1100})?", re.ASCII)
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}( [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?)?", re.ASCII
)
_TIME: Final = re.compile(r"(-?)([0-9]{2,3}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?", re.ASCII)
_WORD: Final = re.compile(r"\w+", re.ASCII)
_FRACTION_DIGITS: Final = 6
_PAD: Final = " "


def quoted(name: str) -> str:
    """Return the name of a table, a column or an index as SQL."""
    return f"`{name.replace('`', '``')}`"


class Part:
    """A column whose values are compared here. Values are what :meth:`read` returns; it raises Misfit for anything else."""

    def __init__(
        self, name: str, expected: str, read: Callable[[Raw], Any], literal: Callable[[Any], str]
    ) -> None:
        self.name = quoted(name)
        self.expected = expected
        self.read = read
        self.literal = literal

    def behind(self, value: Any) -> str:
        """Return the condition for what is greater."""
        return f"{self.name} > {self.literal(value)}"

    def equal(self, value: Any) -> str:
        """Return the condition for what is equal."""
        return f"{self.name} = {self.literal(value)}"

    def sign(self, value: Any, other: Any) -> int | None:
        """Return -1, 0 or 1 as ``value`` is less than, equal to or greater than ``other``; None if the server must say."""
        return bool(value > other) - bool(value < other)

    def question(self, value: Any, other: Any) -> str:
        """Return the same as SQL."""
        own, others = self.literal(value), self.literal(other)
        return f"(({own}) > ({others})) - (({own}) < ({others}))"


class _Asked(Part):
    """Values whose order the server knows."""

    def sign(self, value: Any, other: Any) -> int | None:
        return 0 if value == other else None


class _Padded(Part):
    """Text that is ordered by code points, as if the shorter one ended in spaces."""

    def sign(self, value: str, other: str) -> int | None:
        size = max(len(value), len(other))
        return super().sign(value.ljust(size, _PAD), other.ljust(size, _PAD))


class _Words(_Asked):
    """Text of whose collation it is known how it orders plain letters, digits and hyphens: codes, UUIDs as text."""

    def sign(self, value: str, other: str) -> int | None:
        if _WORDS.fullmatch(value) and _WORDS.fullmatch(other):
            return Part.sign(self, value.lower(), other.lower())
        return super().sign(value, other)


class _Label(Part):
    """ENUM: ordered by number. The server finds numbers greater than one in an index by their labels alone."""

    def __init__(self, column: Column) -> None:
        super().__init__(column.name, "the number of a label", _number, str)
        self._texts = [_text_literal(column)(label) for label in column.data_type.elements]

    def behind(self, value: int) -> str:
        greater = self._texts[value:]
        return f"({self.name} IN ({', '.join(greater)}) AND {self.name} > {value})" if greater else "FALSE"

    def equal(self, value: int) -> str:
        label = self._texts[value - 1] if 0 < value <= len(self._texts) else "''"
        return f"({self.name} = {label} AND {self.name} = {value})"


def part_of(column: Column, form: str | None = None) -> Part:
    """Return how the values of ``column`` are compared; ``form``: its own type, if that is one of :data:`SERVER_FORMS`.

    Misfit if it has none that is known.
    """
    if form in SERVER_FORMS:
        return _Asked(column.name, "ASCII text", _ascii, lambda text: f"CAST({_plain(text)} AS {form})")
    family = family_of(column.data_type)
    if family is Family.ENUM and _finds_labels(column):
        return _Label(column)
    if family is Family.TEXT:
        return _text_part(column)
    if family is None or family not in _OF_FAMILY:
        raise Misfit
    return Part(column.name, *_OF_FAMILY[family])


def _finds_labels(column: Column) -> bool:
    data_type = column.data_type
    return data_type.charset in _NAMES_ITS_BYTES or all(map(_SURE.fullmatch, data_type.elements))


def _text_part(column: Column) -> Part:
    charset, collate = column.data_type.charset, column.data_type.collate
    literal = _text_literal(column)
    if charset not in _NAMES_ITS_BYTES:
        expected = f"letters, digits or .,:;/@_+- in the character set {charset}"
        return _Asked(column.name, expected, _sure_text, literal)
    kind: type[Part] = _Asked
    if charset in _BY_CODE_POINT and collate == f"{charset}_bin":
        kind = _Padded
    elif charset in _BY_CODE_POINT and collate == f"{charset}_nopad_bin":
        kind = Part
    elif collate in _ORDERS_WORDS:
        kind = _Words
    return kind(column.name, "text", _text, literal)


def _text_literal(column: Column) -> Callable[[str], str]:
    """Return what makes a text a literal in the column's character set and collation; Misfit if these have no names."""
    charset, collate = column.data_type.charset, column.data_type.collate
    if not (_WORD.fullmatch(charset) and _WORD.fullmatch(collate)):
        raise Misfit
    return lambda text: f"CONVERT(_utf8mb4 X'{text.encode().hex()}' USING {charset}) COLLATE {collate}"


def _plain(text: str) -> str:
    return f"'{text}'"


def _matched(raw: Raw, form: re.Pattern[str]) -> str:
    if type(raw) is not str or not form.fullmatch(raw):
        raise Misfit
    return raw


def _text(raw: Raw) -> str:
    if type(raw) is not str:
        raise Misfit
    try:
        raw.encode()
    except UnicodeEncodeError:
        raise Misfit from None
    return raw


def _sure_text(raw: Raw) -> str:
    return _matched(raw, _SURE)


def _ascii(raw: Raw) -> str:
    return _matched(raw, _SURE)


def _number(raw: Raw) -> int:
    return int(_matched(raw, _DIGITS))


def _single(raw: Raw) -> float:
    return single_of(_matched(raw, _FLOATING))


def _double(raw: Raw) -> float:
    return float(_matched(raw, _FLOATING))


def _floating_literal(value: float) -> str:
    text = repr(value)
    return text if "e" in text else f"{text}e0"


def _fixed(raw: Raw) -> Decimal:
    return Decimal(_matched(raw, _FIXED))


def _moment(raw: Raw) -> str:
    return _matched(raw, _MOMENT)


def _zoned_moment(raw: Raw) -> str:
    if type(raw) is not Timestamp or raw.location != "UTC":
        raise Misfit
    return _matched(raw.value, _MOMENT)


def _span(raw: Raw) -> int:
    """The microseconds of a TIME."""
    parts = _TIME.fullmatch(raw) if type(raw) is str else None
    if parts is None:
        raise Misfit
    seconds = (int(parts[2]) * 60 + int(parts[3])) * 60 + int(parts[4])
    microseconds = seconds * 10**_FRACTION_DIGITS + int((parts[5] or "").ljust(_FRACTION_DIGITS, "0"))
    return -microseconds if parts[1] else microseconds


def _span_literal(microseconds: int) -> str:
    seconds, fraction = divmod(abs(microseconds), 10**_FRACTION_DIGITS)
    sign = "-" if microseconds < 0 else ""
    return f"'{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{fraction:06}'"


def _bytes(raw: Raw) -> bytes:
    if type(raw) is not str:
        raise Misfit
    try:
        return binascii.a2b_base64(raw, strict_mode=True)
    except ValueError:
        raise Misfit from None


def _bytes_literal(value: bytes) -> str:
    return f"X'{value.hex()}'"


_INTEGER: Final = ("an integer", _number, str)
_OF_FAMILY: Final[dict[Family, tuple[str, Callable[[Raw], Any], Callable[[Any], str]]]] = {
    Family.INTEGER: _INTEGER,
    Family.YEAR: _INTEGER,
    Family.BIT: _INTEGER,
    Family.ENUM: _INTEGER,
    Family.SET: _INTEGER,
    Family.FLOAT: ("a number", _single, _floating_literal),
    Family.DOUBLE: ("a number", _double, _floating_literal),
    Family.DECIMAL: ("a decimal number", _fixed, lambda value: format(value, "f")),
    Family.DATE: ("a date", _moment, _plain),
    Family.DATETIME: ("a date and time", _moment, _plain),
    Family.TIMESTAMP: ("a date and time in UTC", _zoned_moment, _plain),
    Family.TIME: ("a time", _span, _span_literal),
    Family.BINARY: ("base64 with padding", _bytes, _bytes_literal),
}
