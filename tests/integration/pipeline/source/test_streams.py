"""Streams of several feeds, over TLS with a token, that hold retention; and one whose source process is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import Unauthenticated
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.source.acking import ack, ack_offset
from tests.identity import Issuer
from tests.integration.pipeline.source.queries import Query, failing, post
from tests.secured import secured
from tests.servers import Feed
from tests.waiting import wait_until

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


def listener(feed: Feed, name: str) -> Any:
    """What the server shows of a listener of the feed; None if there is no such listener."""
    return next((one for one in listeners(feed) if one["listener-id"] == name), None)


def listeners(feed: Feed) -> Any:
    """What the server shows of all listeners of the feed."""
    return feed.server.http.get(feed.path).json()["listeners"]


def source_processes() -> set[int]:
    """Processes of Spark's that plan streams, of this test run's session."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            grandparent = int(Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended meanwhile
            continue
        if RUNNER.encode() in words and grandparent == os.getpid():
            found.add(int(folder.name))
    return found


def test_several_feeds_in_one_stream_over_tls_hold_what_is_not_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    with secured(tmp_path / "server", Issuer(), tls=True) as server:
        feeds = [Feed(server, name) for name in ("f::1", "f::2")]
        for feed, count in zip(feeds, (3, 12), strict=True):
            assert feed.register().status_code == 200
            for number in range(1, count + 1):
                post(feed, number, 1)
        token, names = tmp_path / "token", {"feeds": "f::1, f::2", "listener": "job", "max_entries": 8}
        token.write_text(server.issuer.token(sub="job", roles=["listener"], feeds=["f::*"]))
        assert server.authority is not None
        access = {"ca_file": server.authority.file, "token_file": token}
        stranger = Query(spark, feeds[0], tmp_path / "other", ca_file=access["ca_file"])
        assert isinstance(failing(stranger.run), Unauthenticated)

        query = Query(spark, feeds[0], tmp_path, **access, **names)
        seen: list[Any] = []
        with pytest.raises(PySparkException, match="the sink failed"):
            query.run(fail=True)
        for feed in feeds:
            # It holds what it has read and not committed: from where it began on.
            assert (listener(feed, "job")["sequence-id"], listener(feed, "job")["hold"]) == (0, True)
        post(feeds[0], 4, 2)
        query.start(lambda _: seen.append(listener(feeds[1], "job")["sequence-id"])).awaitTermination(120)
        first = [("f::1", 1), ("f::1", 2), ("f::1", 3), *(("f::2", number) for number in range(1, 6))]
        assert query.batches[:2] == [first, first]
        everything = {entry for batch in query.batches[1:] for entry in batch}
        assert sum(map(len, query.batches[1:])) == len(everything) == 17
        # Never ahead of the batch at hand; and what was drained is committed to the last entry.
        assert seen == [0, 5, 11]
        assert [listener(feed, "job")["sequence-id"] for feed in feeds] == [5, 12]

        endpoint = Endpoint(server.url, str(token), str(access["ca_file"]))
        post(feeds[0], 6, 1)
        rows = spark.createDataFrame(
            [("f::1", 6, feeds[0].entries(6, 6)[0]["lsn"])], "feed STRING, sequence_id BIGINT, lsn STRING"
        )
        ack(rows, listener="job", endpoint=endpoint)
        assert listener(feeds[0], "job")["sequence-id"] == 6


def test_a_source_process_that_is_killed_in_a_batch_costs_no_entry(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    post(feed, 1, 5)
    query = Query(spark, feed, tmp_path)
    before = source_processes()
    killed: list[int] = []

    def kill(_: DataFrame) -> None:
        if query.ids == [[1, 2, 3, 4, 5], [6, 7]]:
            (process,) = source_processes() - before
            os.kill(process, signal.SIGKILL)
            killed.append(process)

    running = query.start(kill, drain=False)
    wait_until(lambda: query.ids, 60, what="the first batch")
    wait_until(lambda: listeners(feed), what="a long poll")
    post(feed, 6, 2)
    with pytest.raises(PySparkException):
        running.awaitTermination(120)
    assert killed
    (waiting,) = listeners(feed)
    assert not waiting["hold"]
    post(feed, 8, 1)
    again = query.start(drain=False)
    wait_until(lambda: query.ids[-1][-1] == 8, 60, what="the entry after the kill")

    def reached() -> str:
        progress = again.lastProgress
        offset = progress.sources[0].endOffset if progress is not None else ""
        return offset if '"sequence-id": 8' in offset else ""

    offset = wait_until(reached, what="the progress of the last batch")
    ack_offset(offset, listener="mine", endpoint=Endpoint(feed.server.url))
    (process,) = source_processes() - before
    again.stop()
    # The batch in which it was killed was done: the sink had it, Spark knew. Nothing comes twice, nothing is left out.
    assert query.ids == [[1, 2, 3, 4, 5], [6, 7], [8]]
    assert listener(feed, "mine")["sequence-id"] == 8
    wait_until(lambda: process not in source_processes(), 5, what="the stopped query's process to end")
