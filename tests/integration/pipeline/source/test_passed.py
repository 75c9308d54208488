"""Retention that has passed a query: it says so, and goes on from an archive of KWAL segments if it is given one."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.entries.lsn import Lsn
from headrace.errors import SequenceNotAvailable
from tests.integration.pipeline.source.queries import Query, archived, batch, failing, oldest, post
from tests.servers import Feed, serving
from tests.waiting import wait_until

ARGS = ("--retention", "1ms", "--retention-every", "100ms", "--segment-size", "4k")


def test_a_query_that_retention_has_passed_says_so_or_reads_the_archive(
    spark: SparkSession, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    with serving(tmp_path / "server", args=("--segment-size", "4k")) as server:
        feed = Feed(server, "f::1")
        assert feed.register().status_code == 200
        post(feed, 1, 4)
        query = Query(spark, feed, tmp_path, max_entries=8)
        query.run()
        for first in range(5, 45, 4):
            post(feed, first, 4)
        archived(feed, archive, 1, 20)
        archived(feed, archive, 21, 44)
        server.args = list(ARGS)
        server.restart()
        assert feed.register().status_code == 200
        wait_until(lambda: oldest(feed) > 20, what="retention to pass the query")

        error = failing(query.run)
        assert isinstance(error, SequenceNotAvailable)
        assert f"Entries 5 to {oldest(feed) - 1} are missing. Go on with option archive" in str(error)
        assert query.ids == [[1, 2, 3, 4]]
        error = failing(batch(spark, feed, start=2, end=5).collect)
        assert isinstance(error, SequenceNotAvailable)

        onward = Query(spark, feed, tmp_path, max_entries=8, archive=archive)
        onward.run()
        assert onward.ids == [list(range(first, first + 8)) for first in range(5, 45, 8)]
        rows = batch(spark, feed, start=2, end=40, partition_entries=10, archive=archive).collect()
        assert [row["sequence_id"] for row in rows] == list(range(2, 41))
        assert bytes(rows[0]["value"]) == b'{"n":2}'
        for file in archive.glob("*" + str(Lsn.parse(rows[-1]["lsn"]).raft_index + 4) + ".*"):
            file.unlink()
        lost = failing(batch(spark, feed, start=2, end=30, archive=archive).collect)
        assert isinstance(lost, SequenceNotAvailable)
        assert "archive" in str(lost)
