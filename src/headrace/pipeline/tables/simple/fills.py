"""What rows that are there have in a column that a statement adds: NULL, its default, or what MySQL puts for want of one.

docs/howto/consume-simple.md, "Statements". What only the source knows is not guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from math import isfinite
from typing import Final

from headrace.capture.ddl.columns import ColumnDefinition, Default, DefaultKind
from headrace.pipeline.tables.simple.charsets import has_own_bytes, is_held
from headrace.pipeline.tables.simple.conversions import is_own_text, values_range
from headrace.pipeline.tables.simple.dates import days_of, micros_of
from headrace.pipeline.tables.simple.expressions import Constant, Scalar
from headrace.pipeline.tables.simple.spark_types import reader, spark_kind
from headrace.simple.faults import Misfit
from headrace.simple.message import Timestamp
from headrace.simple.mysql_types import Family, default_length, family_of, fraction_digits
from headrace.simple.numeric import rounded_to_single
from headrace.simple.schema import Column, DataType

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # of columns without zones
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_QUARTER: Final = timedelta(minutes=15)
_ZONE_MAX: Final = timedelta(hours=14)
_EXACT: Final = Context(prec=80, traps=[InvalidOperation, Inexact])
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,80}(?:\.\d{0,80})?|\.\d{1,80})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_YEAR: Final = re.compile(r"\d{4}", re.ASCII)
_PLAIN: Final = re.compile(r"0|-?[1-9]\d{0,64}", re.ASCII)
_ZERO_DATE: Final = "0000-00-00"
_INTEGERS: Final = frozenset({Family.INTEGER, Family.BIT, Family.YEAR})
_MOMENTS: Final = frozenset({Family.DATETIME, Family.TIMESTAMP})
_BLOBS: Final = frozenset({"tinyblob", "blob", "mediumblob", "longblob"})


class Unknowable(Exception):
    """Nobody but the source knows the value; the argument says why, in words."""


def fill(
    definition: ColumnDefinition, data_type: DataType, shown: Column | None, began_s: int | None
) -> Constant:
    """Return what old rows have in the column that ``definition`` adds, of the type ``data_type``.

    ``shown``: the same column in the schema that came with the statement, None if that has none of its name and type.
    ``began_s``: when the source began the statement, in seconds since 1970, if that is known. Raises Unknowable.
    """
    kind = spark_kind(data_type)
    if kind is None:
        raise Unknowable("its type has no values in messages")
    if definition.generated:
        raise Unknowable("it is generated")
    if definition.auto_increment:
        raise Unknowable("AUTO_INCREMENT numbers the rows")
    default = definition.default
    if default is None and data_type.mysql_type == "timestamp" and definition.nullable is not True:
        return Constant(_unsaid(shown, began_s, data_type), kind)
    if default is None or default.kind is DefaultKind.NULL:
        return Constant(_implicit(data_type) if definition.nullable is False else None, kind)
    return Constant(_value(default, data_type, shown, began_s), kind)


def _value(default: Default, data_type: DataType, shown: Column | None, began_s: int | None) -> Scalar:
    family = family_of(data_type)
    if default.kind is DefaultKind.EXPRESSION:
        raise Unknowable("its default is an expression")
    if default.kind is DefaultKind.NOW:
        return _now(data_type, began_s)
    try:
        if family in _INTEGERS:
            return _integer(default, data_type)
        match family:
            case Family.DECIMAL:
                return _decimal(default, data_type)
            case Family.DOUBLE | Family.FLOAT:
                return _float(default, data_type)
            case Family.TEXT:
                return _letters(default, data_type)
            case Family.ENUM | Family.SET:
                return _labels(default, data_type)
            case Family.BINARY:
                return _bytes(default, data_type)
            case Family.DATE | Family.DATETIME | Family.TIMESTAMP | Family.TIME:
                return _moment(default, data_type, shown)
    except (Misfit, ValueError, InvalidOperation, Inexact):
        pass
    raise Unknowable(f"what its default {default.text!r} is as {data_type.mysql_type} is not known here")


def _unsaid(shown: Column | None, began_s: int | None, data_type: DataType) -> Scalar:
    """A TIMESTAMP of which the statement does not say whether it may be NULL: a setting of the server does."""
    if shown is None:
        raise Unknowable("whether it may be NULL hangs on the server's settings")
    if shown.nullable or shown.default is None:
        return None if shown.nullable else _implicit(data_type)
    if shown.default == "CURRENT_TIMESTAMP":
        return _now(data_type, began_s)
    return _number_of(data_type, str(shown.default))


def _implicit(data_type: DataType) -> Scalar:
    """What MySQL puts into a NOT NULL column for want of a default."""
    family = family_of(data_type)
    if family in _INTEGERS:
        return 0
    match family:
        case Family.DECIMAL:
            return str(Decimal((0, (0,), -data_type.decimal)))
        case Family.FLOAT | Family.DOUBLE:
            return 0.0
        case Family.TEXT if is_own_text(data_type):
            raise Unknowable("UUID, INET4 and INET6 have zeros there, text has nothing")
        case Family.TEXT | Family.SET:
            return ""
        case Family.BINARY:
            return bytes(data_type.length) if data_type.mysql_type == "binary" else b""
        case Family.ENUM:
            return data_type.elements[0]
        case Family.DATE:
            return days_of(_ZERO_DATE)
        case Family.DATETIME | Family.TIMESTAMP:
            return micros_of(f"{_ZERO_DATE} 00:00:00")
        case Family.TIME:
            return "00:00:00"
    raise Unknowable(f"what NOT NULL puts into a column of {data_type.mysql_type} is not known here")


def _now(data_type: DataType, began_s: int | None) -> Scalar:
    if family_of(data_type) is not Family.TIMESTAMP:
        raise Unknowable("what time it was hangs on the session's time zone")
    if began_s is None or fraction_digits(data_type):
        raise Unknowable("messages tell the time of a statement in whole seconds")
    return began_s * 1_000_000


def _number(default: Default, data_type: DataType) -> Decimal:
    """A number that the type has as it is, but for digits that it may not have room for."""
    if default.kind is DefaultKind.BYTES:
        found = Decimal(int(default.text or "0", 16))
    elif _NUMBER.fullmatch(default.text):
        found = Decimal(default.text)
    else:
        raise Misfit
    if found < 0 and data_type.unsigned:
        raise Misfit
    return found


def _integer(default: Default, data_type: DataType) -> int:
    family, is_text = family_of(data_type), default.kind is DefaultKind.TEXT
    if family is Family.BIT and is_text:  # its bytes
        number = int.from_bytes(default.text.encode("ascii"))
    elif family is Family.YEAR and is_text and not _YEAR.fullmatch(default.text):
        raise Misfit  # '0' is the year 2000
    else:
        number = int(_EXACT.quantize(_number(default, data_type), Decimal(1)))
    least, greatest = values_range(data_type)
    if not least <= number <= greatest or (family is Family.YEAR and 0 < number < 1901):
        raise Misfit
    return number


def _decimal(default: Default, data_type: DataType) -> str:
    exact = _EXACT.quantize(_number(default, data_type), Decimal((0, (1,), -data_type.decimal)))
    if exact.adjusted() >= data_type.length - data_type.decimal and exact:
        raise Misfit
    return format(exact or abs(exact), "f")


def _float(default: Default, data_type: DataType) -> float:
    exact = _number(default, data_type)
    if data_type.length not in {0, default_length(data_type.mysql_type)}:  # (M,D)
        _decimal(default, data_type)
    value = float(exact)
    value = rounded_to_single(value) if family_of(data_type) is Family.FLOAT else value
    if not isfinite(value) or (exact and not value):
        raise Misfit
    return value


def _letters(default: Default, data_type: DataType) -> str:
    charset = data_type.charset
    if is_own_text(data_type):
        raise Misfit  # UUID, INET4 or INET6, which have a form of their own
    if default.kind is DefaultKind.BYTES and not has_own_bytes(charset):
        raise Misfit
    text = _text(default)
    if data_type.mysql_type == "char":
        text = text.rstrip(" ")
    if not is_held(text, charset) or not _has_room(text, data_type):
        raise Misfit
    return text


def _has_room(text: str, data_type: DataType) -> bool:
    if data_type.mysql_type in {"char", "varchar"}:
        return len(text) <= data_type.length
    # A server's letters have four bytes at most; spaces that have no room go without an error.
    return len(text) * 4 <= default_length(data_type.mysql_type)


def _text(default: Default) -> str:
    if default.kind is DefaultKind.BYTES:
        return bytes.fromhex(default.text).decode("ascii")
    if default.kind is DefaultKind.NUMBER and not _PLAIN.fullmatch(default.text):
        raise Misfit
    return default.text


def _labels(default: Default, data_type: DataType) -> str:
    if default.kind is not DefaultKind.TEXT:
        raise Misfit
    if family_of(data_type) is Family.ENUM:
        chosen = [default.text]
    else:
        chosen = default.text.split(",") if default.text else []
    if not set(chosen) <= set(data_type.elements):
        raise Misfit
    return ",".join(label for label in data_type.elements if label in chosen)


def _bytes(default: Default, data_type: DataType) -> bytes:
    if default.kind is DefaultKind.BYTES:
        found = bytes.fromhex(default.text)
    elif data_type.mysql_type in _BLOBS and default.text:
        raise Misfit  # its bytes are those of the table's own character set
    else:
        found = _text(default).encode("ascii")
    if len(found) > default_length(data_type.mysql_type) > 1 or len(found) > data_type.length >= 0:
        raise Misfit
    return found.ljust(data_type.length, b"\0") if data_type.mysql_type == "binary" else found


def _moment(default: Default, data_type: DataType, shown: Column | None) -> Scalar:
    if default.kind is not DefaultKind.TEXT:
        raise Misfit
    text = default.text
    if family_of(data_type) in _MOMENTS and len(text) == len(_ZERO_DATE):
        text += " 00:00:00"
    if family_of(data_type) is Family.TIMESTAMP:
        return _zoned(text, data_type, shown)
    if len(text.rpartition(".")[2].rstrip("0") if "." in text else "") > _digits(data_type):
        raise Misfit
    return _number_of(data_type, text)


def _digits(data_type: DataType) -> int:
    return 0 if family_of(data_type) is Family.DATE else fraction_digits(data_type)


def _zoned(text: str, data_type: DataType, shown: Column | None) -> Scalar:
    """A TIMESTAMP in the session's zone: the schema has the same one in UTC, if a zone can lie between the two."""
    if text.startswith(_ZERO_DATE):
        return _number_of(data_type, text)
    if shown is None or not isinstance(shown.default, str):
        raise Unknowable("its default hangs on the session's time zone")
    there, here = _number_of(data_type, shown.default), _number_of(data_type, text)
    if not (isinstance(there, int) and isinstance(here, int)):
        raise Misfit
    apart = abs(there - here) * _MICROSECOND
    if apart % _QUARTER or apart > _ZONE_MAX:
        raise Unknowable("its default hangs on the session's time zone, and the schema has another one")
    return there


def _number_of(data_type: DataType, text: str) -> Scalar:
    """Return a date or a moment in UTC as its number, a TIME as its text."""
    kind = spark_kind(data_type) or ""
    zoned = family_of(data_type) is Family.TIMESTAMP
    value = reader(data_type, kind)(Timestamp("UTC", text) if zoned else text)
    if isinstance(value, datetime):
        return (value - (_EPOCH_UTC if zoned else _EPOCH)) // _MICROSECOND
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, int | str):
        return value
    raise Misfit
