"""What of a feed a batch read fetches: by LSN, by time, and by the filters that Spark pushes down."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.errors import InvalidRequest
from tests.integration.pipeline.source.queries import batch, failing, post
from tests.servers import Feed

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def twenty(feed: Feed) -> Feed:
    """The feed, with twenty entries in four appends, each in another millisecond at least."""
    for first in (1, 6, 11, 16):
        post(feed, first, 5)
    return feed


def column_of(feed: Feed, name: str, number: int) -> str:
    """What the server says of an entry."""
    return str(feed.entries(number, number)[0][name])


def fetched(spark: SparkSession, feed: Feed, condition: Column) -> tuple[list[int], int]:
    """The sequence ids that a filter leaves, and how many entries were planned to be fetched for them."""
    found = batch(spark, feed, partition_entries=1, pushdown="once").where(condition)
    return sorted(row["sequence_id"] for row in found.collect()), found.rdd.getNumPartitions()


def test_a_range_is_named_by_lsn_or_by_time(spark: SparkSession, twenty: Feed) -> None:
    ends = [
        (column_of(twenty, "lsn", 7), column_of(twenty, "lsn", 12), range(7, 13)),
        (column_of(twenty, "committed-at", 6), column_of(twenty, "committed-at", 13), range(6, 16)),
        ("17", "2036-01-01T00:00:00+02:00", range(17, 21)),
    ]
    for start, end, expected in ends:
        rows = batch(spark, twenty, start=start, end=end).select("sequence_id").collect()
        assert [row["sequence_id"] for row in rows] == list(expected)


def test_a_filter_is_pushed_down_to_what_is_fetched(spark: SparkSession, twenty: Feed) -> None:
    sequence_id, key = F.col("sequence_id"), F.col("key")
    assert fetched(spark, twenty, (sequence_id > 4) & (sequence_id <= 8)) == ([5, 6, 7, 8], 5)
    assert fetched(spark, twenty, sequence_id.isin(3, 5)) == ([3, 5], 3)
    assert fetched(spark, twenty, F.col("lsn") >= column_of(twenty, "lsn", 18)) == ([18, 19, 20], 3)
    since = datetime.fromisoformat(column_of(twenty, "committed-at", 16)).astimezone(UTC)
    assert fetched(spark, twenty, F.col("committed_at") >= since) == (list(range(16, 21)), 5)
    assert fetched(spark, twenty, F.col("feed") == "another") == ([], 1)
    # Of keys the server knows nothing: all is fetched, and what no filter wants is left out by the worker.
    assert fetched(spark, twenty, (key >= F.lit(b"k18")) & (key < F.lit(b"k2"))) == ([18, 19], 20)
    assert fetched(spark, twenty, key.isin(b"k3", b"k4") & (sequence_id < 4)) == ([3], 4)


def test_a_data_frame_that_was_filtered_once_still_has_all_rows(spark: SparkSession, twenty: Feed) -> None:
    read = batch(spark, twenty)
    few = read.where("sequence_id <= 5")
    assert [few.count(), read.count(), few.union(read).count()] == [5, 20, 25]


def test_filters_hold_where_spark_pushes_none(spark: SparkSession, twenty: Feed) -> None:
    spark.conf.set(PUSHDOWN, "false")
    try:
        assert fetched(spark, twenty, F.col("sequence_id") > 18) == ([19, 20], 20)
    finally:
        spark.conf.set(PUSHDOWN, "true")


def test_spark_finds_the_source_by_itself(spark: SparkSession, twenty: Feed) -> None:
    fresh = spark.newSession()  # nothing was registered with it
    fresh.sql(
        f"CREATE TEMPORARY VIEW twenty USING headrace OPTIONS (endpoint '{twenty.server.url}', feeds '{twenty.name}')"
    )
    assert fresh.sql("SELECT count(*) AS found FROM twenty").collect()[0]["found"] == 20
    for name in ("headrace.tables", "headrace.wal"):
        error = failing(partial(_load, fresh, name))
        assert isinstance(error, InvalidRequest)
        assert f"{name} needs" in str(error)


def _load(spark: SparkSession, name: str) -> int:
    return spark.read.format(name).load().count()
