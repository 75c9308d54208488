"""Feeds, reads and queries for the tests of the source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.failures import error_of
from headrace.wire.frame import frames_of
from tests.kwal import Stamped, manifest_of, sealed, write
from tests.servers import Feed


def post(feed: Feed, first: int, count: int, **members: Any) -> None:
    """One append of ``count`` entries numbered from ``first``."""
    entries = [
        {"change-feed-id": feed.name, "key": f"k{number}", "changes": {"n": number}, **members}
        for number in range(first, first + count)
    ]
    answer = feed.post(*entries)
    assert answer.status_code == 200, answer.text


def options(feed: Feed, **more: object) -> dict[str, str]:
    """Options of the source; underscores become hyphens."""
    given = {"endpoint": feed.server.url, "feeds": feed.name, "retry-seconds": 20}
    return {name.replace("_", "-"): str(value) for name, value in (given | more).items()}


def batch(spark: SparkSession, feed: Feed, **more: object) -> DataFrame:
    """A batch read."""
    return spark.read.format("headrace").options(**options(feed, **more)).load()


def archived(feed: Feed, folder: Path, first: int, last: int, endpoint: Endpoint | None = None) -> None:
    """Write the entries of these appends as one segment with its manifest, as a backup agent would."""
    with Connection(endpoint or Endpoint(feed.server.url)) as server:
        answer = server.frames(feed.name, first, last)
        region = server.feed(feed.name).region_id
    appends = [
        Stamped(
            bytes(frame.body),
            list(frame.lengths),
            frame.header.lsn(0),
            frame.header.lsn(frame.header.count - 1),
        )
        for frame in frames_of(answer.data)
    ]
    segment = sealed(appends)
    write(folder, segment, manifest_of(segment, incarnations={region: answer.incarnation}, near=first))


def oldest(feed: Feed) -> int:
    """The oldest entry that the server retains."""
    return int(feed.server.http.get(feed.path).json()["oldest-sequence-id"])


class Query:
    """A streaming query; ``batches`` holds the (feed, sequence id) of each batch's entries, in order."""

    def __init__(self, spark: SparkSession, feed: Feed, folder: Path, **more: object) -> None:
        self._spark, self._feed, self._folder, self._more = spark, feed, folder, more
        self.batches: list[list[tuple[str, int]]] = []

    @property
    def ids(self) -> list[list[int]]:
        """The sequence ids of each batch that was not empty."""
        return [[number for _, number in batch] for batch in self.batches if batch]

    def start(
        self, during: Callable[[DataFrame], None] = lambda _: None, *, drain: bool = True
    ) -> StreamingQuery:
        """Start it; ``during`` is called in each batch, after its entries were noted."""

        def take(frame: DataFrame, _: int) -> None:
            rows = frame.select("feed", "sequence_id").collect()
            self.batches.append(sorted((row["feed"], row["sequence_id"]) for row in rows))
            during(frame)

        given = options(self._feed, **self._more)
        stream = self._spark.readStream.format("headrace").options(**given).load()
        writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(self._folder / "cp"))
        trigger = writer.trigger(availableNow=True) if drain else writer
        return trigger.start()

    def run(self, *, fail: bool = False) -> None:
        """Drain the feeds; with ``fail`` the sink fails in the first batch."""

        def during(_: DataFrame) -> None:
            if fail:
                raise RuntimeError("the sink failed")

        self.start(during).awaitTermination(120)


def failing(action: Callable[[], Any]) -> Exception:
    """Our own error that the action failed with."""
    with pytest.raises(PySparkException) as caught:
        action()
    return error_of(caught.value)
