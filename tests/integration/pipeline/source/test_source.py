"""``format("headrace")`` over a real server: exact bytes, resumable, never silently past an entry."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import FeedNotFound, FeedRecreated, InvalidRequest
from headrace.wire import columns
from tests.integration.pipeline.source.queries import Query, batch, failing, options, post
from tests.servers import Feed, serving


def test_a_batch_read_gives_every_entry_byte_for_byte(spark: SparkSession, feed: Feed) -> None:
    answer = feed.post(
        {
            "change-feed-id": feed.name,
            "key": "k0",
            "changes": {"text": "ä☃"},
            "table": ["main", "t"],
            "tx": "tx-1",
            "tx-last": True,
            "copy": True,
            "source-time": "2026-01-02T03:04:05.678Z",
        }
    )
    assert answer.status_code == 200, answer.text
    post(feed, 2, 30)
    frame = batch(spark, feed, partition_entries=10)
    assert to_arrow_schema(frame.schema, timezone="UTC").equals(columns.SCHEMA)
    rows = sorted(frame.collect(), key=lambda row: int(row["sequence_id"]))
    assert [row["sequence_id"] for row in rows] == list(range(1, 32))
    assert frame.rdd.getNumPartitions() == 4
    first = rows[0].asDict()
    stored = feed.entries(1, 1)[0]
    assert first["feed"] == feed.name
    assert first["lsn"] == stored["lsn"]
    raw = feed.read(1, 1).content
    assert b'"changes":' + bytes(first["value"]) in raw
    assert bytes(first["key"]) == b"k0"
    assert (first["op"], first["table"], bytes(first["source_tx"])) == ("put", ["main", "t"], b"tx-1")
    assert (first["tx_last"], first["append_end"], first["copy"], first["control"]) == (
        True,
        True,
        True,
        None,
    )
    assert first["source_time"].isoformat() == "2026-01-02T03:04:05.678000"
    assert rows[1]["table"] is None
    assert rows[1]["source_tx"] is None
    assert rows[30]["append_end"]


def test_a_batch_read_takes_a_range_and_the_columns_asked_for(spark: SparkSession, feed: Feed) -> None:
    post(feed, 1, 20)
    given = options(feed, start=5, end=12)
    reader = spark.read.format("headrace").options(**given).schema("value BINARY, sequence_id BIGINT")
    rows = reader.load().collect()
    assert [row["sequence_id"] for row in rows] == list(range(5, 13))
    assert bytes(rows[0]["value"]) == b'{"n":5}'
    assert list(rows[0].asDict()) == ["value", "sequence_id"]


def test_what_can_not_be_read_is_named(spark: SparkSession, feed: Feed) -> None:
    post(feed, 1, 1)
    assert isinstance(failing(lambda: batch(spark, feed, feeed="x").count()), InvalidRequest)
    absent = Feed(feed.server, "no::such")
    assert isinstance(failing(lambda: batch(spark, absent).count()), FeedNotFound)
    assert isinstance(failing(lambda: batch(spark, feed, incarnation="another").count()), FeedRecreated)


def test_a_stream_goes_on_exactly_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path / "server") as server:
        feed = Feed(server, "f::1")
        assert feed.register().status_code == 200
        for first in (1, 5):
            post(feed, first, 4)
        query = Query(spark, feed, tmp_path, max_entries=6)
        with pytest.raises(PySparkException, match="the sink failed"):
            query.run(fail=True)
        post(feed, 9, 2)
        # The batch that failed comes again as it was, although there is more by now.
        query.run()
        assert query.ids == [[1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8, 9, 10]]
        server.restart()
        assert feed.register().status_code == 200
        post(feed, 11, 1)
        query.run()
        assert query.ids[3:] == [[11]]
    with serving(tmp_path / "another") as server:
        feed = Feed(server, "f::1")
        assert feed.register().status_code == 200
        post(feed, 1, 20)
        other = Query(spark, feed, tmp_path)
        assert isinstance(failing(other.run), FeedRecreated)
        assert other.batches == []


def test_head_stays_where_it_was_when_the_query_began(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    post(feed, 1, 3)
    query = Query(spark, feed, tmp_path, start="head")
    query.run()
    post(feed, 4, 2)
    query.run()
    assert query.ids == [[4, 5]]
