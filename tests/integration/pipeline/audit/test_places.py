"""Which place in the feed a GTID is: the whole entries below the first of a transaction that it does not cover."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from headrace.capture.binlog.event import GtidPosition
from headrace.capture.position import CopyProgress, SourcePosition
from headrace.errors import PlaceUnknown
from headrace.pipeline.audit.places import COLUMNS, FeedPlace, is_copied, place_of

Row = tuple[int, str | None, bytes | None, bool, bool]


def row(number: int, gtid: str | None = None, control: str | None = None, *, last: bool = True) -> Row:
    """An entry; ``last``: of its transaction, or of its append if it is of none."""
    return (number, control, None if gtid is None else gtid.encode(), gtid is not None and last, last)


def place(spark: SparkSession, rows: list[Row], moment: str, ended: str) -> FeedPlace:
    entries: DataFrame = spark.createDataFrame(rows, COLUMNS)
    return place_of(entries, GtidPosition.parse(moment), GtidPosition.parse(ended))


def test_the_place_is_the_last_whole_entry_below_what_is_not_covered(spark: SparkSession) -> None:
    rows = [
        row(1, None, "schema", last=False),
        row(2, "0-1-7", last=False),
        row(3, "0-1-7"),
        row(4, None, "watermark"),
        row(5, None, "schema", last=False),
        row(6, "0-1-9"),
        row(7, "3-1-1", "ddl"),
        row(8, "0-1-10", "ddl"),
    ]
    assert place(spark, rows[:4], "0-1-7", "0-1-7") == FeedPlace(3, 4, None)
    assert place(spark, rows, "0-1-7", "0-1-9") == FeedPlace(4, 4, None)
    assert place(spark, rows, "0-1-8", "0-1-9,3-1-1") == FeedPlace(4, 4, 7)
    assert place(spark, rows, "0-1-9", "0-1-10") == FeedPlace(6, 6, 8)
    assert place(spark, rows, "0-1-10,3-1-1", "0-1-10,3-1-1") == FeedPlace(8, 8, None)
    # Of a moment before everything the feed has what belongs to no transaction.
    assert place(spark, rows[3:], "", "0-1-7") == FeedPlace(4, 4, None)


def test_a_copy_that_ends_behind_the_place_is_told(spark: SparkSession) -> None:
    rows = [
        row(1, "0-1-7"),
        row(2, None, "copy-begin"),
        row(3),
        row(4, "0-1-8"),
        row(5),
        row(6, None, "copy-end"),
    ]
    assert place(spark, rows, "0-1-7", "0-1-8") == FeedPlace(3, 3, None, copy=6)
    assert place(spark, rows, "0-1-8", "0-1-8") == FeedPlace(6, 6, None)


def test_rows_are_copied_where_none_are_being_or_to_be() -> None:
    position = SourcePosition(gtid="0-1-7", file="b.1", offset=4, server_id=1, commit_ts=0, table_id=0)
    assert is_copied(position)
    table = ("shop", "a")
    assert not is_copied(replace(position, copies=(CopyProgress(table=table),)))
    assert not is_copied(replace(position, waiting=(table,)))
    assert not is_copied(replace(position, whole=False))


def test_a_place_that_is_not_known_is_refused(spark: SparkSession) -> None:
    with pytest.raises(PlaceUnknown, match="the feed's entry 1 is of a transaction behind 0-1-7"):
        place(spark, [row(1, "0-1-9"), row(2, "0-1-7")], "0-1-7", "0-1-9")
    with pytest.raises(PlaceUnknown, match="no transaction of the feed ends at 0-1-7"):
        place(spark, [row(1, "0-1-9")], "0-1-7", "0-1-9")
