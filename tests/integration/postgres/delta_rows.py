"""Keeps a feed's Delta tables, and reads every published row as Spark shows it.

A value is null or a text that loses nothing: timestamps in microseconds and dates in days since 1970, floats and bytes in
hex.
"""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
from pyspark.sql import SparkSession

from headrace.pipeline.tables.job import read_tables, run_tables


class DeltaTable(NamedTuple):
    """One table as Spark shows it: the type of each column, and its rows."""

    types: dict[str, str]
    rows: list[dict[str, str | None]]


def keep_delta(spark: SparkSession, folder: Path, feed: str, server: str) -> dict[str, DeltaTable]:
    """Have the job of ``headrace pipeline tables`` bring the tables in ``folder`` up to the feed's head.

    Returns them by their name in the source.
    """
    run_tables(spark, feed=feed, to=str(folder), server=server, once=True)
    found: dict[str, DeltaTable] = {}
    for name, frame in read_tables(spark, str(folder)).items():
        types = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        columns = [_texts(column) for column in frame.toArrow().columns]
        rows = [dict(zip(types, row, strict=True)) for row in zip(*columns, strict=True)]
        found[name[-1]] = DeltaTable(types, rows)
    return found


def _texts(column: Any) -> list[str | None]:
    """The column's values; those of moments and days as numbers, because Python has no such dates."""
    if pyarrow.types.is_timestamp(column.type):
        column = column.cast("int64")
    elif pyarrow.types.is_date(column.type):
        column = column.cast("int32")
    return [_text(value) for value in column.to_pylist()]


def _text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case float() | bytes():
            return value.hex()
        case bool():
            return str(value).lower()
        case Decimal():
            return format(value, "f")
    return str(value)
