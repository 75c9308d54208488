"""A supervised query: it outlives a server that is away for longer than its retries, and ends where no start helps."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import FeedRecreated, HeadraceError, QueryFailed, ServerUnreachable
from headrace.pipeline.source.offset import Offset, read_offset
from headrace.pipeline.supervision import FOLLOWING, Restart, Seen, Terms, start_query, supervise
from headrace.pipeline.tables.job import run_tables
from headrace.pipeline.tables.ledger import read_published
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that the test may stop."""
    with serving(tmp_path / "server") as running:
        yield running


class Job:
    """A supervised query that keeps the sequence ids it was handed; a batch with one of ``poison`` fails."""

    def __init__(self, spark: SparkSession, feed: Feed, checkpoint: str, *, terms: Terms = FOLLOWING) -> None:
        self.spark, self.feed, self.checkpoint, self.terms = spark, feed, checkpoint, terms
        self.seen: list[Seen] = []
        self.restarts: list[Restart] = []
        self.handed: list[int] = []
        self.stop = threading.Event()
        self.poison: set[int] = set()
        self.before_restart: Callable[[int], None] = lambda number: None

    def start(self) -> StreamingQuery:
        options = {"endpoint": self.feed.server.url, "feeds": self.feed.name}
        entries = self.spark.readStream.format("headrace").options(**options).load()
        return start_query(self.spark, entries.writeStream.foreachBatch(self.batch), self.checkpoint)

    def batch(self, entries: DataFrame, batch_id: int) -> None:
        found = [row["sequence_id"] for row in entries.select("sequence_id").collect()]
        if self.poison & set(found):
            raise ZeroDivisionError("a batch that fails for a reason of its own")
        self.handed += found

    def run(self) -> Seen:
        return supervise(
            self.start,
            stop=self.stop,
            look=self.seen.append,
            restarting=self.restarting,
            terms=self.terms,
        )

    def restarting(self, restart: Restart) -> None:
        self.restarts.append(restart)
        self.before_restart(restart.number)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def put(feed: Feed, *numbers: int) -> None:
    for number in numbers:
        assert feed.post({"sequence-id": number, "changes": {"n": number}}).status_code == 200


def wait_for(job: Job, running: Future[Seen], *wanted: int) -> None:
    wait_until(lambda: job.handed == list(wanted) or running.done(), 120, what=f"{wanted} to be handed over")
    if running.done():
        running.result()


def test_a_job_outlives_a_server_that_is_away_for_long(
    spark: SparkSession, own_server: ServerProcess, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    feed = Feed(own_server, "supervised::feed")
    assert feed.register().status_code == 200
    put(feed, 1, 2)
    stop, restarts, to = threading.Event(), list[Restart](), tmp_path / "tables"
    # The source asks for a second and gives up: the supervision is what waits.
    place: dict[str, Any] = {"feed": feed.name, "to": str(to), "server": own_server.url, "retry_s": 1.0}
    running = pool.submit(lambda: run_tables(spark, **place, restarting=restarts.append, stop=stop))

    def wait_for(sequence_id: int) -> None:
        def there() -> bool:
            found = read_published(to)
            return found is not None and found.sequence_id == sequence_id

        wait_until(lambda: there() or running.done(), 120, what=f"{sequence_id} to be published")

    try:
        wait_for(2)
        own_server.stop()
        wait_until(lambda: len(restarts) >= 2 or running.done(), 120, what="two starts in vain")
        own_server.start()
        put(feed, 3)
        wait_for(3)
    finally:
        stop.set()
    assert running.result(120).entries == 3
    assert {type(one.error) for one in restarts} == {ServerUnreachable}
    assert [one.number for one in restarts] == list(range(1, len(restarts) + 1))


def test_a_feed_that_was_made_anew_ends_the_query_at_once(
    spark: SparkSession, own_server: ServerProcess, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    feed = Feed(own_server, "supervised::feed")
    assert feed.register().status_code == 200
    put(feed, 1)
    job = Job(spark, feed, str(tmp_path / "checkpoint"))
    running = pool.submit(job.run)
    try:
        wait_for(job, running, 1)
    finally:
        job.stop.set()
    running.result(120)
    own_server.stop()
    shutil.rmtree(own_server.data_dir)
    own_server.start()
    assert feed.register().status_code == 200
    put(feed, 1)
    again = Job(spark, feed, str(tmp_path / "checkpoint"))
    with pytest.raises(FeedRecreated) as caught:
        again.run()
    assert caught.value.exit_code == 3
    assert "Start the job anew" in caught.value.advice
    assert again.restarts == []


def test_a_batch_that_always_fails_ends_after_a_few_tries_and_says_which_entries(
    spark: SparkSession, feed: Feed, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    put(feed, 1)
    job = Job(spark, feed, str(tmp_path / "checkpoint"), terms=Terms(failures_max=1))
    job.poison = {2, 3}
    running = pool.submit(job.run)
    wait_for(job, running, 1)
    put(feed, 2)
    error = running.exception(120)
    assert isinstance(error, QueryFailed)
    assert error.detail.startswith("ZeroDivisionError: a batch that fails for a reason of its own")
    assert f"(feed {feed.name}, entries 2 to 2, up to LSN 0" in error.detail
    assert [type(one.error) for one in job.restarts] == [QueryFailed]
    again = Job(spark, feed, str(tmp_path / "checkpoint"), terms=Terms(failures_max=1))
    again.poison = {3}
    running = pool.submit(again.run)
    try:
        wait_for(again, running, 2)
        put(feed, 3)
        wait_until(lambda: again.restarts or running.done(), 120, what="a start after a failure")
        again.poison = set()
        wait_for(again, running, 2, 3)
        wait_until(lambda: again.seen[-1].batch_id == 2, 30, what="Spark to tell of the batch")
    finally:
        again.stop.set()
    last = running.result(120)
    assert (last.batch_id, last.restarts) == (2, 1)
    offset = read_offset(last.ends[0])
    assert isinstance(offset, Offset)
    assert offset.feeds[feed.name].sequence_id == 3


def test_a_start_that_fails_on_a_store_that_is_away_is_tried_again(
    spark: SparkSession, feed: Feed, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    """A checkpoint's store that goes away takes the query with it, and then the start again."""
    put(feed, 1)
    checkpoint, aside = tmp_path / "checkpoint", tmp_path / "aside"
    job = Job(spark, feed, str(checkpoint), terms=Terms(failures_max=3))
    job.poison = {2}

    def store(number: int) -> None:
        if number == 1:
            checkpoint.rename(aside)
            checkpoint.write_text("no folder")
        else:
            checkpoint.unlink(missing_ok=True)
            aside.rename(checkpoint)
            job.poison = set()

    job.before_restart = store
    running = pool.submit(job.run)
    try:
        wait_for(job, running, 1)
        put(feed, 2)
        wait_for(job, running, 1, 2)
    finally:
        job.stop.set()
    running.result(120)
    assert [type(one.error) for one in job.restarts] == [QueryFailed, QueryFailed]
    assert str(checkpoint) in job.restarts[1].error.detail


def test_a_query_that_can_not_be_planned_is_not_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    restarts: list[Restart] = []

    def start() -> StreamingQuery:
        stream = spark.readStream.format("rate").load().select("no_such_column")
        return start_query(spark, stream.writeStream.format("noop"), str(tmp_path / "checkpoint"))

    with pytest.raises(HeadraceError, match="no_such_column"):
        supervise(start, restarting=restarts.append)
    assert restarts == []
