"""A column of another type: how the values of rows that are there follow, or that they can't.

The rule: exact, or the table stops. What MySQL may change on the way without an error (it rounds decimals, cuts fractions of
seconds, and spaces at the end) is looked for by a check. What hangs on settings that no message carries, such as a session's
time zone, is not followed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from headrace.pipeline.tables.simple.charsets import is_within, sql_held
from headrace.pipeline.tables.simple.dates import days_of
from headrace.pipeline.tables.simple.expressions import (
    Cast,
    Constant,
    Encoded,
    Expression,
    Ordered,
    Padded,
    label_array,
    literal,
)
from headrace.pipeline.tables.simple.spark_types import contains, decimal_sizes, spark_kind, widens
from headrace.simple.mysql_types import Family, default_length, family_of, fraction_digits, integer_range
from headrace.simple.schema import DataType


class Conversion(NamedTuple):
    """``kind``: the column's Spark type now; ``value``: what becomes of its value.

    ``conditions``: Spark SQL over the value before; each must be true of every value that is not NULL.
    """

    kind: str
    value: Expression
    conditions: tuple[str, ...] = ()


_YEARS: Final = (1901, 2155)
_CHARACTERS: Final = frozenset({"char", "varchar"})
_TEXT_BYTES: Final = {"tinytext": 0xFF, "text": 0xFFFF, "mediumtext": 0xFFFFFF, "longtext": 0xFFFFFFFF}
_BLOB_BYTES: Final = {"tinyblob": 0xFF, "blob": 0xFFFF, "mediumblob": 0xFFFFFF, "longblob": 0xFFFFFFFF}
_CHARACTER_BYTES_MAX: Final = 4
_UTF8: Final = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii"})
_OWN_TEXTS: Final = frozenset({("char", 36), ("varchar", 15), ("varchar", 39)})
"""UUID, INET4 and INET6, which messages tell as ASCII text: other text becomes one in a form of the server's own."""

_DAY_ONE: Final = "DATE'0001-01-01'"
_ZERO: Final = Constant(days_of("0000-00-00"), "date").sql()

_NUMBERS: Final = frozenset({Family.INTEGER, Family.BIT, Family.YEAR})
_FLOATS: Final = frozenset({Family.FLOAT, Family.DOUBLE})


def converted(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """Return how a column goes on whose type ``old`` becomes ``new``; None if nobody can tell from the statement.

    ``value`` and ``kind``: what the column's value is before, and its Spark type, which contains that of ``old``.
    """
    if old == new:
        return Conversion(kind, value)
    before, after = family_of(old), family_of(new)
    if before is None or after is None:
        return None
    if before in _NUMBERS and after in _NUMBERS:
        return _kept_or_cast(value, kind, new, _in_range(value.sql(), old, new))
    follow = _FOLLOWED.get((before, after))
    return follow(value, kind, old, new) if follow else None


def _kept_or_cast(value: Expression, kind: str, new: DataType, conditions: tuple[str, ...]) -> Conversion:
    """A column that is wide enough stays; one that Delta can widen does; else each value is cast."""
    wanted = spark_kind(new) or kind
    if contains(kind, wanted):
        return Conversion(kind, value, conditions)
    return Conversion(wanted, Cast(value, wanted), conditions)


def _in_range(sql: str, old: DataType | None, new: DataType) -> tuple[str, ...]:
    """``old`` None: values may be any numbers."""
    least, greatest = values_range(new)
    had = values_range(old) if old is not None else (least - 1, greatest + 1)
    conditions = [] if least <= had[0] and had[1] <= greatest else [f"{sql} BETWEEN {least} AND {greatest}"]
    if family_of(new) is Family.YEAR and (old is None or family_of(old) is not Family.YEAR):
        # MySQL makes 2001 of 1: what is between 0 and the first year is not a year.
        conditions.append(f"({sql} = 0 OR {sql} >= {_YEARS[0]})")
    return tuple(conditions)


def values_range(data_type: DataType) -> tuple[int, int]:
    """Return the least and the greatest number of a type of whole numbers."""
    match family_of(data_type):
        case Family.YEAR:
            return 0, _YEARS[1]
        case Family.BIT:
            return 0, (1 << data_type.length) - 1 if 0 < data_type.length < 64 else (1 << 64) - 1
        case _:
            return integer_range(data_type)


def _same_number(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """Numbers of which one side is a decimal: the same number on the other side, or none."""
    wanted = spark_kind(new)
    if wanted is None:
        return None
    if "string" in {kind, wanted}:  # decimals of more digits than Spark has
        return _long_decimal(value, kind, old, new)
    sql = value.sql()
    conditions = []
    natural = spark_kind(old) or kind
    if not contains(wanted, natural):
        conditions.append(f"try_cast({sql} AS {wanted}) = {sql}")
    if new.unsigned and not old.unsigned:
        conditions.append(f"{sql} >= 0")
    if family_of(new) in _NUMBERS:
        conditions += _in_range(sql, None, new)
    return _kept_or_cast(value, kind, new, tuple(conditions))


def _long_decimal(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """A decimal that is held as text: the text has as many digits behind the point as the scale."""
    same_scale = family_of(old) is Family.DECIMAL and old.decimal == new.decimal
    if kind == "string" == spark_kind(new) and same_scale and new.length >= old.length:
        return Conversion(kind, value)
    sizes = decimal_sizes(kind)
    whole = (
        sizes[0] - sizes[1] if sizes else {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}.get(kind, 99)
    )
    scale = new.decimal
    if (
        spark_kind(new) != "string"
        or whole + scale > 38
        or (sizes and sizes[1] > scale)
        or whole > new.length - scale
    ):
        return None
    return Conversion("string", Cast(Cast(value, f"decimal(38,{scale})"), "string"))


def _as_float(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """Integers and floats as floats; (M,D) of the new type rounds."""
    wanted = spark_kind(new) or kind
    natural = spark_kind(old) or kind
    if family_of(old) is Family.DECIMAL and wanted == "float":
        return None  # by way of a double it would be rounded twice
    sql = value.sql()
    conditions = list(_digits_kept(sql, wanted, old, new))
    if (
        family_of(old) in _NUMBERS
        and natural in {"int", "bigint", "decimal(20,0)"}
        and not contains(wanted, natural)
    ):
        conditions.append(f"try_cast(CAST({sql} AS {wanted}) AS decimal(38,0)) = {sql}")
    if natural == "double" and wanted == "float":
        conditions.append(f"CAST(CAST({sql} AS float) AS double) = {sql}")
    if new.unsigned and not old.unsigned:
        conditions.append(f"{sql} >= 0")
    return _kept_or_cast(value, kind, new, tuple(conditions))


def _digits_kept(sql: str, wanted: str, old: DataType, new: DataType) -> tuple[str, ...]:
    """(M,D) cuts digits before the point and behind it."""
    if new.length in {0, default_length(new.mysql_type)}:
        return ()
    whole = new.length - new.decimal
    if family_of(old) is family_of(new) and old.decimal == new.decimal and 0 < old.length <= new.length:
        return ()
    # Looked at in this order: within the range the cast is never too long.
    least = f"abs({sql}) < 1e{whole}"
    same = f"CAST(try_cast({sql} AS decimal(38,{min(new.decimal, 38 - min(whole, 38))})) AS {wanted}) = {sql}"
    return (f"({least} AND {same})",)


def _from_float(value: Expression, kind: str, _: DataType, new: DataType) -> Conversion | None:
    """Whole numbers only."""
    sql, wanted = value.sql(), spark_kind(new)
    if wanted is None or kind not in {"float", "double"}:
        return None
    least, greatest = values_range(new)
    conditions = (
        f"{sql} = floor({sql})",
        f"{sql} BETWEEN {least} AND {greatest}",
        f"abs({sql}) < 9007199254740992",
    )
    return Conversion(wanted, Cast(value, wanted), conditions)


def _as_text(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """Numbers and dates as the text that MySQL prints."""
    if new.charset == "binary" or old.zerofill or is_own_text(new):
        return None
    sql, before, natural = value.sql(), family_of(old), spark_kind(old) or kind
    if before in {Family.DATETIME, Family.TIME} and fraction_digits(old):
        return None  # the text would have other digits than MySQL's
    conditions = [f"{sql} >= {_DAY_ONE}"] if before in {Family.DATE, Family.DATETIME} else []
    if before is Family.YEAR:
        conditions.append(f"{sql} <> 0")  # which MySQL prints as 0000
    if kind != natural:
        value = Cast(value, natural)
    text = value if natural == "string" else Cast(value, "string")
    return Conversion("string", text, (*conditions, *_fits_text(text.sql(), new)))


def _number_of_text(value: Expression, kind: str, _: DataType, new: DataType) -> Conversion | None:
    """Text that is written as the number is."""
    sql, wanted = value.sql(), spark_kind(new)
    if wanted is None or wanted == "string" or kind != "string":
        return None
    number = f"try_cast({sql} AS {wanted})"
    same = f"CAST({number} AS string) = {sql}"
    ranged = _in_range(number, None, new) if family_of(new) is not Family.DECIMAL else ()
    if family_of(new) is Family.DECIMAL and new.unsigned:
        ranged = (f"{number} >= 0",)
    return Conversion(wanted, Cast(value, wanted), (same, *ranged))


def _text(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """Text as text, if the new character set has its letters: else they are an error in strict mode alone."""
    if is_own_text(new) and (old.mysql_type, old.length, old.charset) != (
        new.mysql_type,
        new.length,
        new.charset,
    ):
        return None
    sql = value.sql()
    conditions = list(_fits_text(sql, new)) if not _holds_text(new, old) else []
    if new.mysql_type == "char" and old.mysql_type != "char":
        conditions.append(f"rtrim({sql}) = {sql}")
    conditions += _letters_kept(sql, old, new)
    return Conversion(kind, value, tuple(conditions))


def is_own_text(data_type: DataType) -> bool:
    """Tell whether a column of text may be a UUID, INET4 or INET6, which messages don't tell from text."""
    return data_type.charset == "ascii" and (data_type.mysql_type, data_type.length) in _OWN_TEXTS


def _holds_text(new: DataType, old: DataType) -> bool:
    """Whether ``new`` has room for every text of ``old``."""
    if new.mysql_type in _CHARACTERS:
        return old.mysql_type in _CHARACTERS and 0 < old.length <= new.length
    room = _TEXT_BYTES.get(new.mysql_type, 0)
    if old.mysql_type in _CHARACTERS:
        return 0 < old.length * _CHARACTER_BYTES_MAX <= room
    return _TEXT_BYTES.get(old.mysql_type, room + 1) <= room


def _letters_kept(sql: str, old: DataType, new: DataType) -> tuple[str, ...]:
    return () if is_within(old.charset, new.charset) else (sql_held(sql, new.charset),)


def _fits_text(sql: str, new: DataType) -> tuple[str, ...]:
    if new.mysql_type in _CHARACTERS:
        return (f"char_length({sql}) <= {new.length}",)
    return (f"octet_length({sql}) <= {_TEXT_BYTES[new.mysql_type]}",) if new.mysql_type in _TEXT_BYTES else ()


def _bytes(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    sql = value.sql()
    grows = old.mysql_type in {"binary", "varbinary"} and 0 < old.length <= new.length
    room = _BLOB_BYTES.get(new.mysql_type, new.length)
    if _BLOB_BYTES.get(old.mysql_type, old.length) > room or (
        new.mysql_type in {"binary", "varbinary"} and not grows
    ):
        conditions: tuple[str, ...] = (f"octet_length({sql}) <= {room}",)
    else:
        conditions = ()
    if new.mysql_type == "binary" and (old.mysql_type, old.length) != ("binary", new.length):
        value = Padded(value, new.length)
    return Conversion(kind, value, conditions)


def _encoded(value: Expression, _: str, old: DataType, new: DataType) -> Conversion | None:
    """Text as its bytes, where they are those of UTF-8."""
    if old.charset not in _UTF8 or old.mysql_type == "char" or is_own_text(old):
        return None
    encoded = Encoded(value)
    room = _BLOB_BYTES.get(new.mysql_type, new.length)
    conditions = (f"octet_length({value.sql()}) <= {room}",)
    return Conversion(
        "binary", Padded(encoded, new.length) if new.mysql_type == "binary" else encoded, conditions
    )


def _labels_as_text(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    sql = value.sql()
    conditions = (*_fits_text(sql, new), *_letters_kept(sql, old, new))
    return None if is_own_text(new) else Conversion(kind, value, conditions)


def _label_letters(sql: str, old: DataType, new: DataType) -> tuple[str, ...]:
    """Labels in another character set may be other labels to MariaDB: CONVERT TO makes '' of the latin1 label 'é'."""
    if not old.elements:
        return _letters_kept(sql, old, new)
    return () if old.charset and old.charset == new.charset else (sql_held(sql, "ascii"),)


def _one_label(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """ENUM, from ENUM or text: labels stay what they are, whatever their numbers."""
    letters = _label_letters(value.sql(), old, new)
    if set(old.elements) and set(old.elements) <= set(new.elements):
        return Conversion(kind, value, letters)
    labels = ", ".join(map(literal, ("", *new.elements)))
    return Conversion(kind, value, (f"{value.sql()} IN ({labels})", *letters))


def _labels(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """SET from SET: in the order of the new labels, as MySQL prints them."""
    sql = value.sql()
    letters = _label_letters(sql, old, new)
    if [label for label in new.elements if label in old.elements] == list(old.elements):
        return Conversion(kind, value, letters)
    known = f"size(array_except(split({sql}, ','), {label_array(new.elements)})) = 0"
    conditions = () if set(old.elements) <= set(new.elements) else (f"({sql} = '' OR {known})",)
    return Conversion(kind, Ordered(value, new.elements), (*conditions, *letters))


def _moment(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """DATETIME, or TIMESTAMP, of other digits: those that go have to be 0."""
    digits, sql = fraction_digits(new), value.sql()
    if digits == fraction_digits(old):
        return Conversion(kind, value)
    real = () if family_of(old) is Family.TIMESTAMP else (_is_real(sql),)
    if digits > fraction_digits(old):
        return Conversion(kind, value, real)
    second = f"extract(SECOND FROM {sql})"
    return Conversion(kind, value, (f"CAST({second} AS decimal(8,{digits})) = {second}", *real))


def _time(value: Expression, kind: str, old: DataType, new: DataType) -> Conversion | None:
    """TIME is text here, without zeros at its end."""
    digits = fraction_digits(new)
    if digits >= fraction_digits(old):
        return Conversion(kind, value)
    sql = value.sql()
    return Conversion(
        kind, value, (f"(instr({sql}, '.') = 0 OR length(substring_index({sql}, '.', -1)) <= {digits})",)
    )


def _date_to_moment(value: Expression, kind: str, _: DataType, new: DataType) -> Conversion | None:
    return _kept_or_cast(value, kind, new, (_is_real(value.sql()),))


def _moment_to_date(value: Expression, kind: str, _: DataType, new: DataType) -> Conversion | None:
    sql = value.sql()
    whole = f"CAST(CAST({sql} AS date) AS timestamp_ntz) = {sql}"
    return _kept_or_cast(value, kind, new, (whole, _is_real(sql)))


def _is_real(sql: str) -> str:
    """A date that there is, or ``0000-00-00``: of others ``NO_ZERO_IN_DATE`` and ``ALLOW_INVALID_DATES`` decide."""
    return f"({sql} >= {_DAY_ONE} OR {sql} = {_ZERO})"


_Follow = Callable[[Expression, str, DataType, DataType], Conversion | None]
_FOLLOWED: Final[dict[tuple[Family, Family], _Follow]] = {
    **{(Family.DECIMAL, one): _same_number for one in (Family.DECIMAL, *_NUMBERS)},
    **{(one, Family.DECIMAL): _same_number for one in _NUMBERS},
    **{(one, other): _as_float for one in (Family.DECIMAL, *_NUMBERS, *_FLOATS) for other in _FLOATS},
    **{(one, other): _from_float for one in _FLOATS for other in (Family.INTEGER, Family.BIT)},
    **{
        (one, Family.TEXT): _as_text
        for one in (Family.DECIMAL, Family.INTEGER, Family.YEAR, Family.DATE, Family.DATETIME, Family.TIME)
    },
    **{(Family.TEXT, one): _number_of_text for one in (Family.INTEGER, Family.DECIMAL)},
    (Family.TEXT, Family.TEXT): _text,
    (Family.JSON, Family.JSON): lambda value, kind, _, __: Conversion(kind, value),
    (Family.JSON, Family.TEXT): _labels_as_text,
    (Family.BINARY, Family.BINARY): _bytes,
    (Family.TEXT, Family.BINARY): _encoded,
    (Family.ENUM, Family.TEXT): _labels_as_text,
    (Family.SET, Family.TEXT): _labels_as_text,
    (Family.ENUM, Family.ENUM): _one_label,
    (Family.TEXT, Family.ENUM): _one_label,
    (Family.SET, Family.SET): _labels,
    (Family.DATETIME, Family.DATETIME): _moment,
    (Family.TIMESTAMP, Family.TIMESTAMP): _moment,
    (Family.TIME, Family.TIME): _time,
    (Family.DATE, Family.DATE): lambda value, kind, _, __: Conversion(kind, value),
    (Family.DATE, Family.DATETIME): _date_to_moment,
    (Family.DATETIME, Family.DATE): _moment_to_date,
}
"""What is followed; everything else stops the table."""


def is_widening(value: Expression, name: str, kind: str, kind_before: str) -> bool:
    """Tell whether ``value`` is the column ``name`` of ``kind_before``, made ``kind`` in a way that Delta has in place."""
    while isinstance(value, Cast):
        value = value.value
    return getattr(value, "name", None) == name and (kind == kind_before or widens(kind_before, kind))
