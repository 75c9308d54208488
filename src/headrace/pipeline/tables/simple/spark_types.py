"""Simple's column types as Spark's: which type a column gets, how a message's value becomes one, what contains what.

docs/formats/tables.md, "Simple feeds", has the table. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from headrace.pipeline.tables.rows import DECIMAL_DIGITS_MAX
from headrace.pipeline.tables.simple.dates import days_of, micros_of
from headrace.simple.faults import Misfit
from headrace.simple.mysql_types import Family, family_of, integer_range
from headrace.simple.schema import DataType
from headrace.simple.temporal import IrregularDate
from headrace.simple.values import kind_of as conversions_of

Read = Callable[[Any], Any]
"""A raw value of a message in JSON, not null -> what :func:`headrace.wire.arrays.array_of` takes. Misfit."""

ReadAll = Callable[[Sequence[Any]], list[Any]]
"""The same for many raw values at once; Misfit, TypeError or ValueError where one of them does not fit."""

INTEGERS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Spark's integers and their bits."""

_SIGNED: Final = {"tinyint": "tinyint", "bool": "tinyint", "smallint": "smallint", "mediumint": "int"}
_UNSIGNED: Final = {
    "tinyint": "smallint",
    "bool": "smallint",
    "smallint": "int",
    "mediumint": "int",
    "int": "bigint",
}
_UNSIGNED_BIG: Final = "decimal(20,0)"
_BITS_MAX: Final = 63
_SAME: Final = {
    Family.YEAR: "int",
    Family.FLOAT: "float",
    Family.DOUBLE: "double",
    Family.DATE: "date",
    Family.DATETIME: "timestamp_ntz",
    Family.TIMESTAMP: "timestamp",
    Family.BINARY: "binary",
    **dict.fromkeys(
        (Family.TIME, Family.TEXT, Family.JSON, Family.ENUM, Family.SET, Family.VECTOR), "string"
    ),
}
_ARROW: Final = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_INTEGER_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDENED_DIGITS: Final = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
"""Digits before the point that a decimal must have so that Delta widens an integer to it in place."""
_DAY_MICROS: Final = 86_400_000_000


def spark_kind(data_type: DataType) -> str | None:
    """Return the Spark type of a column, in Spark's words; None for a type whose values no reader knows (geometry)."""
    family = family_of(data_type)
    if family is None:
        return None
    if family is Family.INTEGER:
        if data_type.unsigned:
            return _UNSIGNED.get(data_type.mysql_type, _UNSIGNED_BIG)
        return _SIGNED.get(data_type.mysql_type, data_type.mysql_type)
    if family is Family.BIT:
        return "bigint" if 0 < data_type.length <= _BITS_MAX else _UNSIGNED_BIG
    if family is Family.DECIMAL:
        precision, scale = data_type.length, data_type.decimal
        fits = 0 < precision <= DECIMAL_DIGITS_MAX and 0 <= scale <= precision
        return f"decimal({precision},{scale})" if fits else "string"
    return _SAME[family]


def arrow_type(kind: str) -> Any:
    """Return the Arrow type of a Spark type that :func:`spark_kind` gives."""
    sizes = decimal_sizes(kind)
    return _ARROW[kind] if sizes is None else pa.decimal128(*sizes)


def decimal_sizes(kind: str) -> tuple[int, int] | None:
    """Return precision and scale of a Spark decimal; None for another type."""
    found = _DECIMAL.fullmatch(kind)
    return (int(found[1]), int(found[2])) if found else None


def contains(wide: str, narrow: str) -> bool:
    """Tell whether a column of the Spark type ``wide`` holds every value of ``narrow`` as what it is."""
    if wide == narrow:
        return True
    bits, sizes, narrow_sizes = INTEGERS.get(narrow), decimal_sizes(wide), decimal_sizes(narrow)
    if bits is not None:
        if sizes is not None:
            return sizes[0] - sizes[1] >= _INTEGER_DIGITS[narrow]
        return bits <= INTEGERS.get(wide, 0) or (wide == "double" and bits <= 32)
    if narrow_sizes is not None and sizes is not None:
        return sizes[1] >= narrow_sizes[1] and sizes[0] - sizes[1] >= narrow_sizes[0] - narrow_sizes[1]
    return (narrow, wide) in {("float", "double"), ("date", "timestamp_ntz")}


def widens(old: str, new: str) -> bool:
    """Tell whether Delta turns a column of the Spark type ``old`` into ``new`` in place (its feature type widening)."""
    digits, sizes = _WIDENED_DIGITS.get(old), decimal_sizes(new)
    if old != new and digits is not None and sizes is not None:
        return sizes[0] - sizes[1] >= digits
    return old != new and contains(new, old)


def reader(data_type: DataType, kind: str) -> Read:
    """Return what reads values of messages for a column of the Spark type ``kind``, which contains that of ``data_type``."""
    natural = spark_kind(data_type)
    read = _plain_reader(data_type)
    if natural is None or natural == kind:
        return read
    if decimal_sizes(kind) is not None:
        return lambda raw: Decimal(read(raw))
    if kind == "timestamp_ntz":
        return lambda raw: _at_midnight(read(raw))
    return read  # integers and floats are Python's, whatever their width


def bulk_reader(data_type: DataType, kind: str) -> ReadAll | None:
    """Return what reads many values of a column at once, as :func:`reader` would; None where nothing is quicker."""
    natural = spark_kind(data_type)
    if natural is None or not (natural == kind or (natural in INTEGERS and kind in INTEGERS)):
        return None
    match family_of(data_type):
        case Family.INTEGER if natural in INTEGERS:
            least, greatest = integer_range(data_type)
            return lambda raws: _integers(raws, least, greatest)
        case Family.TEXT:
            return _texts
        case Family.ENUM:
            labels = {str(number): label for number, label in enumerate(data_type.elements, 1)}
            return lambda raws: _labels(raws, labels)
        case _:
            return None


def _integers(raws: Sequence[str], least: int, greatest: int) -> list[int]:
    digits = "".join(raws).replace("-", "")
    if raws and not (digits.isascii() and digits.isdigit()):
        raise Misfit  # which int() might take, such as a space
    numbers = [int(raw) for raw in raws]
    if raws and not (least <= min(numbers) and max(numbers) <= greatest):
        raise Misfit
    return numbers


def _texts(raws: Sequence[str]) -> list[str]:
    "".join(raws)  # a TypeError if one is no text
    return list(raws)


def _labels(raws: Sequence[str], labels: dict[str, str]) -> list[str]:
    try:
        return [labels[raw] for raw in raws]
    except KeyError:
        raise Misfit from None


def _plain_reader(data_type: DataType) -> Read:
    conversions = conversions_of(data_type)
    read: Read = conversions.read_json
    match family_of(data_type):
        case Family.INTEGER | Family.BIT if spark_kind(data_type) == _UNSIGNED_BIG:
            return lambda raw: Decimal(read(raw))
        case Family.DECIMAL if spark_kind(data_type) == "string":
            write = conversions.write_json
            return lambda raw: write(read(raw))
        case Family.DATE:
            return lambda raw: _number_if_irregular(read(raw), days_of)
        case Family.DATETIME | Family.TIMESTAMP:
            return lambda raw: _number_if_irregular(read(raw), micros_of)
        case Family.TIME:
            return lambda raw: time_text(read(raw))
        case Family.SET:
            labels = data_type.elements
            return lambda raw: _joined(labels, read(raw))
        case Family.VECTOR:
            return lambda raw: _checked(read, raw)
        case _:
            return read


def time_text(span: timedelta) -> str:
    """Return a TIME as ``[-]HH:MM:SS[.f]``, its fraction without zeros at the end."""
    seconds, micros = divmod(abs(span) // timedelta(microseconds=1), 1_000_000)
    text = (
        f"{'-' if span < timedelta(0) else ''}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    )
    return f"{text}.{micros:06}".rstrip("0") if micros else text


def _number_if_irregular(value: Any, number_of: Callable[[str], int]) -> Any:
    return number_of(value.text) if isinstance(value, IrregularDate) else value


def _at_midnight(day: date | int) -> datetime | int:
    return day * _DAY_MICROS if isinstance(day, int) else datetime(day.year, day.month, day.day)  # noqa: DTZ001  # a column without zones


def _joined(labels: tuple[str, ...], found: frozenset[str]) -> str:
    return ",".join([label for label in labels if label in found])


def _checked(read: Read, raw: Any) -> Any:
    read(raw)
    return raw
