"""``format("headrace")`` over a real server: exact bytes, resumable, never silently past an entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.errors import FeedNotFound, FeedRecreated, InvalidRequest
from headrace.pipeline.failures import error_of
from headrace.wire import columns
from tests.servers import Feed, serving


def post(feed: Feed, first: int, count: int, **members: Any) -> None:
    """One append of ``count`` entries numbered from ``first``."""
    entries = [
        {"change-feed-id": feed.name, "key": f"k{number}", "changes": {"n": number}, **members}
        for number in range(first, first + count)
    ]
    answer = feed.post(*entries)
    assert answer.status_code == 200, answer.text


def options(feed: Feed, **more: object) -> dict[str, str]:
    given = {"server": feed.server.url, "feed": feed.name, "retry-seconds": 20}
    return {name.replace("_", "-"): str(value) for name, value in (given | more).items()}


def batch(spark: SparkSession, feed: Feed, **more: object) -> DataFrame:
    return spark.read.format("headrace").options(**options(feed, **more)).load()


class Query:
    """A streaming query that drains the feed; ``batches`` holds the numbers of each batch, in order."""

    def __init__(self, spark: SparkSession, feed: Feed, folder: Path, **more: object) -> None:
        self._spark, self._feed, self._folder, self._more = spark, feed, folder, more
        self.batches: list[list[int]] = []

    def run(self, *, fail: bool = False) -> None:
        def take(frame: DataFrame, number: int) -> None:
            rows = sorted(row["sequence_id"] for row in frame.select("sequence_id").collect())
            self.batches.append(rows)
            if fail:
                raise RuntimeError("the sink failed")

        stream = self._spark.readStream.format("headrace").options(**options(self._feed, **self._more)).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self._folder / "cp"))
        writer.trigger(availableNow=True).start().awaitTermination(120)


def failing(action: Callable[[], Any]) -> Exception:
    """Our own error that the action failed with."""
    with pytest.raises(PySparkException) as caught:
        action()
    return error_of(caught.value)


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
    given = options(feed, to=12) | {"from": "5"}
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
        assert query.batches == [[1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8, 9, 10]]
        server.restart()
        assert feed.register().status_code == 200
        post(feed, 11, 1)
        query.run()
        assert query.batches[3:] == [[11]]
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
    query = Query(spark, feed, tmp_path, **{"from": "head"})
    query.run()
    post(feed, 4, 2)
    query.run()
    assert [rows for rows in query.batches if rows] == [[4, 5]]
