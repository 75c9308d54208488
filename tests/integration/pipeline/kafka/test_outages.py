"""The broker is away for longer than a write waits, or a topic goes, while the job runs."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from headrace.errors import BrokerUnavailable, HeadraceError, TopicGone
from headrace.pipeline.kafka.client import producer_properties, row_properties
from headrace.pipeline.kafka.job import Progress, Summary, run_kafka
from headrace.pipeline.kafka.sink import parse_sink
from headrace.pipeline.supervision import Restart, Terms
from headrace.simple import json_codec
from tests.integration.pipeline.kafka.captured_feed import append, row_entry, schema_entry, watermark
from tests.integration.pipeline.kafka.topic_reader import (
    Rebuilt,
    check_first_sendings,
    messages_in,
    read_topic,
)
from tests.kafka import Broker
from tests.scale import SEED, sized
from tests.servers import Feed
from tests.simple_tables import column, insert, table
from tests.waiting import wait_until

PARTITIONS = 8
ROWS = sized(5_000, soak=15_000)
ROW_BYTES = 2_000
LARGE = 200_000
"""Bytes of a row that fills a batch of Kafka's alone."""
LARGE_ROWS = 21
PATIENCE_S = 5.0
"""Two minutes, but for the tests' sake."""
BY_KEY = "[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value'}]"
A = table("shop.a", "id", column("name", "varchar"), version=1, table_id=1, key=("id",))


class FollowingJob:
    """``headrace pipeline kafka`` on a thread, started again after failures as a command would be."""

    def __init__(self, spark: SparkSession, feed: Feed, broker: Broker, folder: Path, topic: str) -> None:
        self.restarts: list[Restart] = []
        self.watermark: int | None = None
        self.summary: Summary | None = None
        self.error: HeadraceError | None = None
        self._stop = threading.Event()
        sink = parse_sink(f"kafka://{broker.address}/{topic}?partition-num={PARTITIONS}", BY_KEY)

        def run() -> None:
            try:
                self.summary = run_kafka(
                    spark,
                    feed=feed.name,
                    sink=sink,
                    checkpoint=str(folder / "checkpoint"),
                    server=feed.server.url,
                    patience_s=PATIENCE_S,
                    progress=self._note,
                    restarting=self.restarts.append,
                    stop=self._stop,
                    terms=Terms(delay_s_max=1.0),
                )
            except HeadraceError as error:
                self.error = error

        self._thread = threading.Thread(target=run)

    @property
    def ended(self) -> bool:
        """Whether it has ended by itself."""
        return not self._thread.is_alive()

    @contextmanager
    def running(self) -> Iterator[FollowingJob]:
        """Let it run."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(120)

    def _note(self, now: Progress) -> None:
        self.watermark = now.watermark

    def wait_for_watermark(self, commit_ts: int) -> None:
        """Wait until this WATERMARK is sent."""
        wait_until(lambda: self.ended or self.watermark == commit_ts, 120, what=f"the WATERMARK {commit_ts}")
        assert self.error is None, self.error

    def wait_for(self, broker: Broker, topic: str, messages: int) -> None:
        """Wait until the topic has so many messages."""
        wait_until(lambda: self.ended or messages_in(broker.address, topic) >= messages, 120, what="messages")
        assert self.error is None, self.error


def test_rows_keep_their_order_when_the_broker_is_away_for_longer_than_a_write_waits(
    spark: SparkSession, feed: Feed, broker: Broker, tmp_path: Path
) -> None:
    rows = [insert(A, 10 + at // 10, id=str(at), name="x" * ROW_BYTES) for at in range(ROWS)]
    last = 10 + ROWS
    append(feed, [schema_entry(A), *(row_entry(one) for one in rows), watermark(last)])
    with FollowingJob(spark, feed, broker, tmp_path, "outage").running() as job:
        job.wait_for(broker, "outage", 3 * PARTITIONS)
        broker.pause()
        try:
            wait_until(lambda: job.restarts or job.ended, 120, what="the write to be given up")
        finally:
            broker.resume()
        job.wait_for_watermark(last)
        append(feed, [row_entry(insert(A, last + 1, id=str(ROWS), name="y")), watermark(last + 2)])
        job.wait_for_watermark(last + 2)
    assert job.error is None, job.error
    assert isinstance(job.restarts[0].error, BrokerUnavailable)
    partitions = read_topic(broker.address, "outage")
    assert check_first_sendings(partitions) > 0, "the batch was begun again"
    rebuilt = Rebuilt().read(partitions, random.Random(SEED))
    assert rebuilt.waiting == 0
    assert sorted(rebuilt.tables["a"]) == sorted(str(at) for at in range(ROWS + 1))


def test_a_writer_of_rows_gives_none_up_while_later_ones_arrive(spark: SparkSession, broker: Broker) -> None:
    rows = [insert(A, 10 + at, id=str(at), name="x" * LARGE) for at in range(LARGE_ROWS)]
    values = [json_codec.encode(one) for one in rows]
    kafka = spark._jvm.org.apache.kafka  # type: ignore[union-attr]  # not None in a classic session
    serializer = kafka.common.serialization.ByteArraySerializer
    sinks = {
        name: parse_sink(f"kafka://{broker.address}/{name}?partition-num=1") for name in ("plain", "rows")
    }
    properties = {
        "plain": producer_properties(sinks["plain"], PATIENCE_S),
        "rows": row_properties(sinks["rows"], PATIENCE_S),
    }
    writers = {
        name: kafka.clients.producer.KafkaProducer(told, serializer(), serializer())
        for name, told in properties.items()
    }

    def send(name: str, value: bytes) -> Any:
        return writers[name].send(kafka.clients.producer.ProducerRecord(name, 0, None, value))

    admin = AdminClient({"bootstrap.servers": broker.address})
    for name, made in admin.create_topics([NewTopic(name, 1, 1) for name in writers]).items():
        made.result()
        send(name, values[0]).get()
    broker.pause()
    try:
        sent = {name: [send(name, value) for value in values[1:-5]] for name in writers}
        wait_until(sent["plain"][-1].isDone, what="rows to be given up")
        for name in writers:
            for value in values[-5:]:
                send(name, value)  # these have all of their time before them
    finally:
        broker.resume()
    for writer in writers.values():
        writer.flush()
        writer.close()
    found = {
        name: [one.message for one in records]
        for name in writers
        for records in read_topic(broker.address, name)
    }
    assert found["rows"] == rows
    assert found["plain"][-5:] == rows[-5:], "who gives rows up ..."
    assert found["plain"] != rows, "... lets later ones pass them"


def test_a_topic_that_is_made_anew_while_the_job_runs_ends_it(
    spark: SparkSession, feed: Feed, broker: Broker, tmp_path: Path
) -> None:
    append(feed, [schema_entry(A), row_entry(insert(A, 10, id="1", name="x")), watermark(11)])
    admin = AdminClient({"bootstrap.servers": broker.address})
    with FollowingJob(spark, feed, broker, tmp_path, "gone").running() as job:
        job.wait_for(broker, "gone", 1 + 2 * PARTITIONS)
        admin.delete_topics(["gone"])["gone"].result()
        wait_until(lambda: "gone" not in admin.list_topics(timeout=30).topics, what="the topic to go")
        admin.create_topics([NewTopic("gone", 3, 1)])["gone"].result()
        append(feed, [row_entry(insert(A, 12, id="2", name="x")), watermark(13)])
        wait_until(lambda: job.ended, 120, what="the job to end")
    assert isinstance(job.error, TopicGone)
    assert job.error.exit_code == 3
    assert "gone was deleted while this job ran, and made anew by somebody else: it has 3 partitions" in str(
        job.error
    )
    assert messages_in(broker.address, "gone") == 0, "nothing was placed by a number that is no more"
    admin.delete_topics(["gone"])["gone"].result()
    wait_until(lambda: "gone" not in admin.list_topics(timeout=30).topics, what="the topic to go")
    with FollowingJob(spark, feed, broker, tmp_path, "gone").running() as again:
        again.wait_for(broker, "gone", 1 + 2 * PARTITIONS)
    assert again.summary is not None
    assert again.summary.topics == {"gone": PARTITIONS}, "started again, the job makes it as it is told"
