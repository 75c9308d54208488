"""``writeStream.format("headrace")`` and ``write.format("headrace")`` with real Spark and a real server."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions

from headrace.errors import (
    BatchChanged,
    BatchMissing,
    BatchSplit,
    BatchStale,
    BatchTooLarge,
    InvalidRequest,
    QueryFailed,
    RowUnfit,
    SinkTaken,
)
from headrace.pipeline.failures import error_of
from headrace.pipeline.sink import by_feed, one_task
from tests.integration.pipeline.sink.folder_job import COLUMNS, DyingSource, FolderJob
from tests.servers import Feed, serving


@pytest.fixture
def job(feed: Feed, tmp_path: Path) -> FolderJob:
    return FolderJob(tmp_path, feed.server.url, feed.server.grpc_address, feed.name)


def numbers(feed: Feed) -> list[int]:
    return [entry["changes"]["n"] for entry in feed.entries()]


def test_each_batch_is_appended_once_in_its_order(spark: SparkSession, job: FolderJob, feed: Feed) -> None:
    job.batch(5, 1, 3)
    job.batch(4, 2)
    # 300 rows in another order each time they are read: what comes again has to be recognised all the same.
    job.batch(*range(10, 310))
    shuffled = one_task(job.read(spark).withColumn("_", functions.rand()).repartition(3, "_").drop("_"))
    assert job.run(spark, shuffled) is None
    expected = [1, 3, 5, 2, 4, *range(10, 310)]
    assert numbers(feed) == expected
    appends = [
        entry["sequence-id"] for entry in feed.entries() if entry["lsn"] > feed.entries(1, 1)[0]["lsn"]
    ]
    assert appends[0] == 2

    assert job.forget_last_commit() == 2
    job.batch(400)
    assert job.run(spark, shuffled) is None
    assert numbers(feed) == [*expected, 400]


def test_a_batch_that_lost_its_plan_is_refused(spark: SparkSession, job: FolderJob, feed: Feed) -> None:
    """After a power cut the checkpoint may know less than the feed: the batch's number now means other rows."""
    job.batch(1, 2)
    assert job.run(spark) is None
    job.forget_last_commit()
    (planned,) = (job.folder / "checkpoint" / "sources" / "0").glob("0")
    planned.write_text(planned.read_text().replace("0000.json", "0001.json"))
    for checksum in planned.parent.glob(".0.crc"):
        checksum.unlink()
    job.batch(3, 4)
    error = job.run(spark)
    assert isinstance(error, BatchChanged), error
    assert f"the feed {feed.name} holds batch 0" in error.detail
    assert numbers(feed) == [1, 2]


def test_rows_in_several_tasks_are_refused(spark: SparkSession, job: FolderJob, feed: Feed) -> None:
    job.batch(*range(20))
    split = job.read(spark).repartition(2, "n")
    error = job.run(spark, split)
    assert isinstance(error, BatchSplit), error
    assert f"the feed {feed.name}, entries 1 to" in error.detail
    written = numbers(feed)
    assert written == sorted(written)
    assert 0 < len(written) < 20
    # One task has been written already: that is told until somebody decides.
    assert isinstance(job.run(spark), BatchChanged)
    assert job.run(spark, repeat_batch="0") is None
    assert numbers(feed) == [*written, *range(20)]


def test_equal_rows_in_several_tasks_are_refused_when_the_batch_runs_again(
    spark: SparkSession, job: FolderJob, feed: Feed
) -> None:
    """Each task finds its rows in the feed then, but one append is not there."""
    job.batch(7, 7)
    split = job.read(spark).repartition(2)
    assert isinstance(job.run(spark, split), BatchSplit)
    assert numbers(feed) == [7]
    again = job.run(spark, split)
    assert isinstance(again, BatchSplit), again
    assert f"the feed {feed.name}, entries 1 to 1: two tasks of batch 0 had rows" in again.detail
    assert numbers(feed) == [7]
    assert job.run(spark, repeat_batch="0") is None
    assert numbers(feed) == [7, 7, 7]


def test_a_feed_that_lost_batches_is_not_written_on(spark: SparkSession, tmp_path: Path) -> None:
    """An older copy of the server is put back, then one without the feed; the feed alone would look well."""
    with serving(tmp_path / "server", grpc=True) as server:
        feed = Feed(server, "f")
        job = FolderJob(tmp_path / "job", server.url, server.grpc_address, feed.name)
        job.batch(1)
        assert job.run(spark) is None
        server.stop()
        shutil.copytree(server.data_dir, tmp_path / "older")
        server.start()
        job.batch(2, 3)
        assert job.run(spark) is None
        server.stop()
        shutil.rmtree(server.data_dir)
        shutil.copytree(tmp_path / "older", server.data_dir)
        server.start()
        job.batch(4)
        error = job.run(spark)
        assert isinstance(error, BatchMissing), error
        assert "the feed f has lost batch 1 of the query " in error.detail
        assert "as the entries 2 to 3: its newest append of this agent id is batch 0" in error.detail
        assert numbers(feed) == [1]
        server.stop()
        shutil.rmtree(server.data_dir)
        server.start()
        error = job.run(spark)
        assert isinstance(error, BatchMissing), error
        assert "the feed knows no append of this agent id" in error.detail
        # An operator gives up what is lost.
        (job.folder / "checkpoint" / "headrace-appends.json").unlink()
        assert job.run(spark) is None
        assert numbers(feed) == [4]


def test_rows_name_their_feed(spark: SparkSession, job: FolderJob, feed: Feed) -> None:
    job.batch(*range(30))
    to = functions.concat(functions.lit(f"{feed.name}-"), functions.col("n") % 3)
    rows = by_feed(job.read(spark).withColumn("to", to), "to")
    given = {"feed": "", "feed_column": "to"}
    assert job.run(spark, rows, **given) is None
    job.forget_last_commit()
    assert job.run(spark, rows, **given) is None
    for part in range(3):
        assert numbers(Feed(feed.server, f"{feed.name}-{part}")) == list(range(part, 30, 3))


def test_a_task_that_dies_after_its_append_leaves_no_duplicate(
    spark: SparkSession, job: FolderJob, feed: Feed
) -> None:
    spark.dataSource.register(DyingSource)
    job.batch(1, 2)
    job.batch(3)
    for _ in range(2):
        # A local session tries a task once, so the query ends with it.
        assert isinstance(job.run(spark, name="dying"), QueryFailed)
        assert numbers(feed) == [1, 2]
    assert job.run(spark) is None
    assert numbers(feed) == [1, 2, 3]


def test_what_is_too_large_or_wrong_is_named_and_not_written(
    spark: SparkSession, job: FolderJob, feed: Feed
) -> None:
    job.batch(1, 2)
    assert job.run(spark) is None
    many = one_task(
        job.read(spark).withColumn("n", functions.explode(functions.sequence(functions.lit(1), "n")))
    )
    job.batch(50_001)
    error = job.run(spark, many)
    assert isinstance(error, BatchTooLarge), error
    assert f"the feed {feed.name}, batch 1: 50001 rows; one append takes 50000" in error.detail
    error = job.run(spark, one_task(job.read(spark).withColumn("value", functions.lit("no json"))))
    assert isinstance(error, RowUnfit), error
    assert f"the feed {feed.name}, batch 1, key k50001: the value is not a JSON object" in error.detail
    assert numbers(feed) == [1, 2]
    for frame, options, message in (
        (job.read(spark, COLUMNS + ", more INT"), {}, "does not know the column 'more'"),
        (job.read(spark), {"nonsense": "1"}, "has no option 'nonsense'"),
        (job.read(spark), {"order_by": ""}, "needs the order"),
    ):
        wrong = job.run(spark, one_task(frame), **options)
        assert isinstance(wrong, InvalidRequest)
        assert message in wrong.detail
    assert job.run(spark) is None
    assert numbers(feed) == [1, 2, 50_001]


def test_two_queries_with_one_agent_id(
    spark: SparkSession, job: FolderJob, feed: Feed, tmp_path: Path
) -> None:
    job.batch(1)
    assert job.run(spark) is None
    (older,) = (
        line for line in (tmp_path / "checkpoint" / "metadata").read_text().split('"') if len(line) == 36
    )
    newer = FolderJob(tmp_path / "newer", feed.server.url, feed.server.grpc_address, feed.name)
    newer.batch(2)
    error = newer.run(spark)
    assert isinstance(error, SinkTaken)
    assert f"batch 0 of the query {older}" in error.detail
    assert newer.run(spark, replaces=older) is None
    job.batch(3)
    assert isinstance(job.run(spark), SinkTaken)
    assert numbers(feed) == [1, 2]


def test_a_batch_write_has_a_number_of_its_own(spark: SparkSession, job: FolderJob, feed: Feed) -> None:
    columns = {"id": "n", "key": "CAST(id AS STRING)", "value": "to_json(struct(id AS n))"}

    def write(count: int, mode: str = "append", **options: Any) -> None:
        rows = spark.range(count).selectExpr(
            "id AS n", columns["key"] + " AS key", columns["value"] + " AS value"
        )
        given = job.options | {name.replace("_", "-"): str(value) for name, value in options.items()}
        one_task(rows).write.format("headrace").mode(mode).options(**given).save()

    def failing(*args: Any, **options: Any) -> Exception:
        with pytest.raises(PySparkException) as caught:
            write(*args, **options)
        return error_of(caught.value)

    write(3, batch_id=20261121)
    write(3, batch_id=20261121)
    assert numbers(feed) == [0, 1, 2]
    assert isinstance(failing(4, batch_id=20261121), BatchChanged)
    write(2, batch_id=20261122)
    assert isinstance(failing(3, batch_id=20261121), BatchStale)
    assert numbers(feed) == [0, 1, 2, 0, 1]
    without = failing(3)
    assert isinstance(without, InvalidRequest)
    assert "needs the option batch-id" in without.detail
    overwritten = failing(3, "overwrite", batch_id=20261123)
    assert isinstance(overwritten, InvalidRequest)
    assert "can't be overwritten" in overwritten.detail
