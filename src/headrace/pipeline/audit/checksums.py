"""A table's rows as counts and checksums that don't depend on order, and which keys differ. DataFrame in, figures out.

A row is compared by its values' exact texts: decimals with all their digits, moments as numbers, bytes in hex, each with its
length before it, so that no two rows have one text. No row comes to the driver but the keys that differ, up to a bound.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, VariantType

from headrace.pipeline.tables.moments import MOMENTS, sql_number
from headrace.pipeline.tables.rows import KEY, quoted
from headrace.pipeline.tables.schemas import OWN_PREFIX

_HEX_DIGITS: Final = 15
"""Of a row's SHA-256, two numbers of so many digits are summed up: 60 bits each, so that 10^20 rows fit a decimal(38)."""
_NESTED: Final = (ArrayType, MapType, StructType, VariantType)
_KEY_CHARS_MAX: Final = 500
"""Of a key that is told."""


class Figures(msgspec.Struct, frozen=True, rename="kebab"):
    """A table in figures: equal rows give equal ones, in whatever order. ``checksum``: 120 bits, and what carries over."""

    rows: int
    checksum: str


class Difference(msgspec.Struct, frozen=True, rename="kebab"):
    """A key whose rows differ. ``rows_in_feed`` and ``rows_in_table``: so many have it there that the other side has not."""

    key: str
    rows_in_feed: int
    rows_in_table: int


def own_columns(frame: DataFrame) -> dict[str, str]:
    """Return the source's columns of a table and their Spark types, by name in one order; not those that we add."""
    found = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    return {name: found[name] for name in sorted(found) if not name.startswith(OWN_PREFIX)}


def figures_of(frame: DataFrame) -> Figures:
    """Return a table's count and checksum, in one pass."""
    digests = frame.select(_digest(frame).alias("digest"))
    parts = [
        F.sum(F.conv(F.substring("digest", place, _HEX_DIGITS), 16, 10).cast("decimal(38,0)")).alias(name)
        for name, place in (("low", 1), ("high", 1 + _HEX_DIGITS))
    ]
    row: Any = digests.agg(F.count("*").alias("rows"), *parts).collect()[0]
    return Figures(int(row["rows"]), f"{int(row['high'] or 0):x}-{int(row['low'] or 0):x}")


def differences(feed: DataFrame, table: DataFrame, key: tuple[str, ...], limit: int) -> list[Difference]:
    """Return the first ``limit`` keys whose rows are not the same on both sides, by key.

    ``key``: the columns that a row is told by, where the table has no column of ours for that; () for all of them.
    """
    both = _signed(feed, key, 1).unionAll(_signed(table, key, -1))
    rows = both.groupBy("key", "digest").agg(F.sum("sign").alias("surplus")).where(F.col("surplus") != 0)
    surplus = F.col("surplus")
    keys = rows.groupBy("key").agg(
        F.sum(F.when(surplus > 0, surplus).otherwise(0)).alias("in_feed"),
        F.sum(F.when(surplus < 0, -surplus).otherwise(0)).alias("in_table"),
    )
    return [
        Difference(row["key"], int(row["in_feed"]), int(row["in_table"]))
        for row in keys.orderBy("key").limit(limit).collect()
    ]


def _signed(frame: DataFrame, key: tuple[str, ...], sign: int) -> DataFrame:
    return frame.select(
        F.substring(_key_text(frame, key), 1, _KEY_CHARS_MAX).alias("key"),
        _digest(frame).alias("digest"),
        F.lit(sign).alias("sign"),
    )


def _key_text(frame: DataFrame, key: tuple[str, ...]) -> Column:
    if KEY in frame.columns:
        return F.coalesce(F.expr(f"try_validate_utf8(cast({KEY} AS string))"), F.hex(KEY))
    names = [name for name in key if name in frame.columns] or list(own_columns(frame))
    texts = [F.col(quoted(name)).cast("string").alias(name) for name in names]
    return F.to_json(F.struct(*texts), {"ignoreNullFields": "false"})


def _digest(frame: DataFrame) -> Column:
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    # The constant stands for a table without columns, whose rows are all the same.
    texts = [F.lit("row"), *(_text(name, kinds[name]) for name in own_columns(frame))]
    return F.sha2(F.concat(*texts), 256)


def _text(name: str, kind: DataType) -> Column:
    """Return a value's exact text behind its length, ``-`` for null."""
    value = F.col(quoted(name))
    if kind.simpleString() in MOMENTS:
        text = F.expr(sql_number(quoted(name), kind.simpleString())).cast("string")
    elif isinstance(kind, BinaryType):
        text = F.hex(value)
    elif isinstance(kind, StringType):
        text = value
    elif isinstance(kind, _NESTED):
        text = F.to_json(value)
    else:
        text = value.cast("string")
    return F.when(value.isNull(), F.lit("-")).otherwise(
        F.concat(F.octet_length(text).cast("string"), F.lit(":"), text)
    )
