"""MySQL's types as messages name them: a column's family, the range of its integers, the length that it has by default."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from headrace.simple.schema import DataType


class Family(StrEnum):
    """Types that are written alike."""

    INTEGER = "integer"
    YEAR = "year"
    BIT = "bit"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TIME = "time"
    TEXT = "text"
    BINARY = "binary"
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    VECTOR = "vector"


INTEGER_BITS: Final = {
    "tinyint": 8,
    "smallint": 16,
    "mediumint": 24,
    "int": 32,
    "bigint": 64,
    "bool": 8,
}
"""``bool`` is in the public document; real writers say ``tinyint``."""

_TEXT: Final = ("char", "varchar", "var_string", "tinytext", "text", "mediumtext", "longtext")
_BINARY: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")

_FAMILIES: Final = {
    **dict.fromkeys(INTEGER_BITS, Family.INTEGER),
    **dict.fromkeys(_TEXT, Family.TEXT),
    **dict.fromkeys(_BINARY, Family.BINARY),
    **{
        family.value: family
        for family in Family
        if family not in {Family.INTEGER, Family.TEXT, Family.BINARY}
    },
}

_INTEGER_LENGTHS: Final = {"tinyint": 4, "smallint": 6, "mediumint": 9, "int": 11, "bigint": 20}
_LENGTHS: Final = {
    "bit": 1,
    "float": 12,
    "double": 22,
    "decimal": 10,
    "year": 4,
    "date": 10,
    "char": 1,
    "binary": 1,
    "tinytext": 255,
    "tinyblob": 255,
    "text": 65_535,
    "blob": 65_535,
    "mediumtext": 16_777_215,
    "mediumblob": 16_777_215,
    "longtext": 4_294_967_295,
    "longblob": 4_294_967_295,
    "json": 4_294_967_295,
}
_WHOLE_SECONDS_LENGTHS: Final = {"datetime": 19, "timestamp": 19, "time": 10}
FSP_MAX: Final = 6
"""Most digits of a second's fraction."""


def family_of(data_type: DataType) -> Family | None:
    """Return the family of a column's type; None for types whose values no reader knows (geometry, a view's columns).

    None too where the name and the character set contradict each other: readers go by the one (``blob``) or by the other
    (``binary``), so they would read different values.
    """
    family = _FAMILIES.get(data_type.mysql_type)
    if family is Family.TEXT and data_type.charset == "binary":
        return None
    if family is Family.BINARY and data_type.charset != "binary":
        return None
    return family


def integer_range(data_type: DataType) -> tuple[int, int]:
    """Return the least and the greatest number that a column of an integer type holds."""
    bits = INTEGER_BITS[data_type.mysql_type]
    return (0, (1 << bits) - 1) if data_type.unsigned else (-1 << bits - 1, (1 << bits - 1) - 1)


def fraction_digits(data_type: DataType) -> int:
    """Return how many digits of a second's fraction a DATETIME, TIMESTAMP or TIME has.

    Some writers leave ``decimal`` out of the Avro form; ``length`` then says it: a point and the digits behind 19 or 10
    characters.
    """
    if 0 < data_type.decimal <= FSP_MAX:
        return data_type.decimal
    beyond = data_type.length - _WHOLE_SECONDS_LENGTHS[data_type.mysql_type] - 1
    return beyond if 0 < beyond <= FSP_MAX else 0


def default_length(
    mysql_type: str, *, unsigned: bool = False, fraction: int = 0, elements: tuple[str, ...] = ()
) -> int:
    """Return the ``length`` of a column whose declaration gives none; -1 where the type has no such length.

    ``fraction``: digits of the second's fraction. ``elements``: of ENUM the longest counts, of SET all and their commas.
    """
    if mysql_type in _INTEGER_LENGTHS:
        # An unsigned one needs no sign, but a BIGINT needs a 20th digit then.
        return _INTEGER_LENGTHS[mysql_type] - (unsigned and mysql_type != "bigint")
    if mysql_type in _WHOLE_SECONDS_LENGTHS:
        return _WHOLE_SECONDS_LENGTHS[mysql_type] + (1 + fraction if fraction else 0)
    if mysql_type == "enum":
        return max(map(len, elements), default=0)
    if mysql_type == "set":
        return sum(map(len, elements)) + max(len(elements) - 1, 0)
    return _LENGTHS.get(mysql_type, -1)
