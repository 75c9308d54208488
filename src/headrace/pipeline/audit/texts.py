"""A value as a text that both sides can make for themselves: the source's server from its row, Spark from its column.

A source's text is what the server writes, and goes through none of our typing: it is only brought to one form, by rules that
see the text alone (zeros at a number's ends, of a fraction of a second, of a day's beginning). A column's text is made by
Spark SQL of what the Delta table holds. So a value that was typed wrongly anywhere on the way has another text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it
from pyspark.sql.types import BinaryType, DataType

from headrace.capture.catalogue_table import CatalogueColumn
from headrace.capture.mariadb.key_parts import quoted as sql_quoted
from headrace.pipeline.tables.moments import DATE, MOMENTS, sql_number
from headrace.pipeline.tables.rows import quoted


class TextKind(StrEnum):
    """How texts of one kind are brought to one form."""

    NUMBER = "number"
    FLOAT = "float"
    DOUBLE = "double"
    TEXT = "text"
    BYTES = "bytes"
    MOMENT = "moment"
    TIME = "time"


_KINDS: Final = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit"), TextKind.NUMBER),
    "decimal": TextKind.NUMBER,
    "float": TextKind.FLOAT,
    "double": TextKind.DOUBLE,
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), TextKind.BYTES),
    **dict.fromkeys(("date", "datetime", "timestamp"), TextKind.MOMENT),
    "time": TextKind.TIME,
}
_GEOMETRIES: Final = frozenset(
    {
        *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
        "geometrycollection",
    }
)
"""Messages have no values of them, and tables no columns."""

_DAY_MICROS: Final = 86_400_000_000
_IRREGULAR_FIRST: Final = -10_000_000
_IRREGULAR_LAST: Final = _IRREGULAR_FIRST + 10_000 * 13 * 32
"""Numbers of dates that no calendar has: docs/formats/tables.md, "Simple feeds"."""
_YEAR_ONE: Final = "0001-01-01"
_YEAR_ONE_DAYS: Final = -719_162
"""The source's dates begin here, and the calendar's numbers of them: what is before is irregular."""


def text_kind(column: CatalogueColumn) -> TextKind | None:
    """Return how a column of the source is compared; None for one that tables don't have."""
    if column.base_type in _GEOMETRIES:
        return None
    return _KINDS.get(column.base_type, TextKind.TEXT)


def server_text(column: CatalogueColumn) -> str:
    """Return SQL for MariaDB that gives a column's text; the session in UTC, texts as utf8mb4."""
    name = sql_quoted(column.name)
    match text_kind(column):
        case TextKind.BYTES:
            return f"HEX({name})"
        case TextKind.FLOAT | TextKind.DOUBLE:
            return f"CAST({name} AS DOUBLE)"  # with all its digits, whatever the column shows
        case TextKind.NUMBER if column.base_type == "bit":
            return f"CAST({name} + 0 AS CHAR)"
        case _ if column.base_type == "vector":
            return f"VEC_ToText({name})"
        case _:
            return f"CAST({name} AS CHAR CHARACTER SET utf8mb4)"


def source_text(value: Column, kind: TextKind) -> Column:
    """Return the one form of a text that the source's server wrote."""
    match kind:
        case TextKind.NUMBER:
            return _number(value)
        case TextKind.FLOAT | TextKind.DOUBLE:
            return value.cast(kind.value).cast("string")
        case TextKind.MOMENT:
            return F.regexp_replace(_without_zeros(value), " 00:00:00$", "")
        case TextKind.TIME:
            return _without_zeros(value)
        case _:
            return value


def table_text(name: str, stored: DataType, kind: TextKind) -> Column:
    """Return the same form of the column ``name`` of a Delta table, which holds it as ``stored``."""
    value = F.col(quoted(name))
    if isinstance(stored, BinaryType):
        return F.hex(value)
    if stored.simpleString() in MOMENTS:
        return _moment(name, stored.simpleString())
    match kind:
        case TextKind.NUMBER:
            return _number(value.cast("string"))
        case TextKind.FLOAT | TextKind.DOUBLE:
            return value.try_cast(kind.value).cast("string")
        case TextKind.TIME:
            return _without_zeros(value.cast("string"))
        case _:
            return value.cast("string")


def _number(text: Column) -> Column:
    """Without zeros that say nothing: those of ZEROFILL, and of a scale that is greater than it was."""
    plain = F.regexp_replace(text, r"^(-?)0+(?=[0-9])", "$1")
    plain = F.regexp_replace(F.regexp_replace(plain, r"(\.[0-9]*?)0+$", "$1"), r"\.$", "")
    return F.when(plain == "-0", F.lit("0")).otherwise(plain)


def _without_zeros(text: Column) -> Column:
    """Without the zeros at the end of a fraction of a second."""
    return F.regexp_replace(F.regexp_replace(text, r"(\.[0-9]*?)0+$", "$1"), r"\.$", "")


def _moment(name: str, stored: str) -> Column:
    number = F.expr(sql_number(quoted(name), stored)).cast("bigint")
    if stored == DATE:
        return _date(number)
    # Decimals divide exactly; a bigint's quotient would be rounded towards zero.
    days = F.floor(number.cast("decimal(20,0)") / F.lit(_DAY_MICROS).cast("decimal(20,0)")).cast("bigint")
    micros = (number - days * _DAY_MICROS).cast("bigint")
    seconds = F.floor(micros / 1_000_000).cast("bigint")
    clock = F.format_string(
        " %02d:%02d:%02d.%06d",
        F.floor(seconds / 3600).cast("bigint"),
        F.floor(seconds / 60).cast("bigint") % 60,
        seconds % 60,
        micros % 1_000_000,
    )
    shown = F.concat(_date(days), F.regexp_replace(_without_zeros(clock), "^ 00:00:00$", ""))
    return F.when(number.isNotNull(), shown)


def _date(days: Column) -> Column:
    from_first = (days - _IRREGULAR_FIRST).cast("bigint")
    irregular = F.format_string(
        "%04d-%02d-%02d",
        F.floor(from_first / 416).cast("bigint"),
        F.floor(from_first / 32).cast("bigint") % 13,
        from_first % 32,
    )
    is_irregular = days.between(_IRREGULAR_FIRST, _IRREGULAR_LAST - 1)
    regular = F.date_from_unix_date(days.cast("int")).cast("string")
    # One text has one number: a date that there is has the calendar's own, and one before the year 1 is irregular.
    known = F.when(is_irregular, irregular.try_cast("date").isNull() | (irregular < _YEAR_ONE))
    odd = F.concat(F.lit("day "), days.cast("string"))
    text = F.when(is_irregular, irregular).otherwise(regular)
    return F.when(F.coalesce(known, days >= _YEAR_ONE_DAYS), text).when(days.isNotNull(), odd)
