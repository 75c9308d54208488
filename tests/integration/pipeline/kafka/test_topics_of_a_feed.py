"""A feed of Simple messages goes to topics of a real broker, as settings have it, or is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import BrokerUnavailable, MessageTooLarge, TopicUnfit
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.kafka.batches import Batches, BatchSent
from headrace.pipeline.kafka.brokers import Brokers, Sending
from headrace.pipeline.kafka.client import connection_properties, producer_properties
from headrace.pipeline.kafka.job import Summary, run_kafka
from headrace.pipeline.kafka.routing import READ_DDL
from headrace.pipeline.kafka.schemas import FeedSchemas
from headrace.pipeline.kafka.sink import parse_sink
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Dml, Watermark
from headrace.simple.partition import PartitionRule, placer_of
from headrace.simple.values import Encoding, Image, RowTypes
from tests.integration.pipeline.kafka.captured_feed import (
    append,
    row_entry,
    schema_entry,
    watermark,
)
from tests.integration.pipeline.kafka.topic_reader import read_topic
from tests.kafka import Broker
from tests.ports import free_port
from tests.servers import Feed
from tests.simple_tables import column, insert, table

pytestmark = pytest.mark.usefixtures("several_tasks")

FANNED_OUT = """
[filter]
rules = ["*.*", "!shop.hidden"]
[sink]
dispatchers = [
    {matcher = ["shop.a"], topic = "fan_{table}", partition = "ts"},
    {matcher = ["shop.b"], topic = "fan_{table}", partition = "columns", columns = ["name"]},
]
[sink.kafka-config.codec-config]
encoding-format = "avro"
"""


class Job:
    """``headrace pipeline kafka --once`` for one feed, in the tests' own session."""

    def __init__(self, spark: SparkSession, feed: Feed, broker: Broker, folder: Path) -> None:
        self.spark, self.feed, self.broker, self.folder = spark, feed, broker, folder

    def run(self, uri: str, config: str = "") -> Summary:
        return run_kafka(
            self.spark,
            feed=self.feed.name,
            sink=parse_sink(f"kafka://{self.broker.address}/{uri}", config),
            checkpoint=str(self.folder / "checkpoint"),
            server=self.feed.server.url,
            once=True,
            retry_s=20,
        )


@pytest.fixture
def job(spark: SparkSession, feed: Feed, broker: Broker, tmp_path: Path) -> Job:
    return Job(spark, feed, broker, tmp_path)


def test_avro_over_several_topics(job: Job) -> None:
    a = table("shop.a", "id", column("at", "timestamp"), version=1, table_id=1, key=("id",))
    b = table("shop.b", "id", column("name", "varchar", nullable=True), version=1, table_id=2, key=("id",))
    others = [
        table(f"shop.{name}", "id", version=1, table_id=at, key=("id",))
        for at, name in ((3, "c"), (4, "hidden"))
    ]
    rows = [insert(b, 10 + at, id=str(at), name=None if at % 3 == 0 else f"n{at % 5}") for at in range(40)]
    rows += [insert(one, 60 + at, id=str(at)) for at, one in enumerate(others)]
    schemas = [schema_entry(one) for one in (a, b, *others)]
    append(job.feed, [*schemas, *(row_entry(one) for one in rows), watermark(90)])
    summary = job.run("fan?partition-num=3", FANNED_OUT)
    assert summary.topics == {"fan_a": 3, "fan_b": 3, "fan": 3}
    assert (summary.rows, summary.watermark) == (41, 90), "the filter leaves one row out"
    found = {name: read_topic(job.broker.address, name, Encoding.AVRO) for name in summary.topics}
    assert all(
        [one.message for one in records][-1:] == [Watermark(90, rows[0].build_ts)]
        for partitions in found.values()
        for records in partitions
    ), "a WATERMARK goes to all partitions of all topics"
    placer = placer_of(b, PartitionRule.COLUMNS, columns=("name",))
    types = RowTypes(b, Encoding.AVRO)
    sent = 0
    for place, records in enumerate(found["fan_b"]):
        for message in [one.message for one in records if isinstance(one.message, Dml)]:
            assert placer.partition_of(message, 3) == place
            assert types.read(message, Image.DATA)["id"] == message.commit_ts - 10
            sent += 1
    assert sent == 40


def test_what_is_too_large_is_named_and_nothing_later_is_sent(job: Job) -> None:
    a = table("shop.a", "id", column("name", "varchar"), version=1, table_id=1, key=("id",))
    rows = [insert(a, 10, id="1", name="x"), insert(a, 11, id="2", name="x" * 2_000)]
    append(job.feed, [schema_entry(a), *(row_entry(one) for one in rows), watermark(20)])
    with pytest.raises(
        MessageTooLarge, match=rf"feed {job.feed.name}, sequence id 3, LSN \w+\.\d+\.\d+, table shop\.a: "
    ):
        job.run("small?max-message-bytes=1000&partition-num=1")
    (records,) = read_topic(job.broker.address, "small")
    assert not [one for one in records if isinstance(one.message, Watermark)]
    assert job.run("small?partition-num=1").rows == 2, "with more room the job goes on"
    (records,) = read_topic(job.broker.address, "small")
    assert records[-1].message == Watermark(20, rows[0].build_ts)


def test_topics_that_are_not_as_they_should_be(job: Job) -> None:
    with pytest.raises(TopicUnfit, match="no topic absent"):
        job.run("absent?auto-create-topic=false")
    with pytest.raises(TopicUnfit, match="replication factor 3"):
        job.run("lonely?replication-factor=3")


def test_a_broker_that_is_not_there(spark: SparkSession) -> None:
    sink = parse_sink(f"kafka://127.0.0.1:{free_port()}/t")
    impatient = {
        "max.block.ms": "1000",
        "delivery.timeout.ms": "2000",
        "request.timeout.ms": "1000",
        "linger.ms": "0",
    }
    with (
        Brokers(spark, connection_properties(sink), producer_properties(sink) | impatient) as brokers,
        pytest.raises(BrokerUnavailable, match="t was not acknowledged"),
    ):
        brokers.send([Sending("t", [0], b"x")])


class AwayOnce(Brokers):
    """Brokers that take nothing the first time."""

    away = True

    def send(self, messages: Sequence[Sending]) -> None:
        """Send, but not at first."""
        if messages and self.away:
            self.away = False
            raise BrokerUnavailable("away")
        super().send(messages)


def test_a_schema_that_was_not_acknowledged_is_sent_again(
    spark: SparkSession, feed: Feed, broker: Broker
) -> None:
    a = table("shop.a", "id", version=1, table_id=1, key=("id",))
    row = insert(a, 10, id="1")
    append(feed, [schema_entry(a)])
    sink = parse_sink(f"kafka://{broker.address}/again?partition-num=1")
    entries = spark.createDataFrame(
        [(2, "lsn", "put", json_codec.encode(row), None, ["shop", "a"])], READ_DDL
    )
    schemas = FeedSchemas(
        Endpoint(feed.server.url), feed.name, feed.server.http.get(feed.path).json()["incarnation"]
    )
    sent: list[BatchSent] = []
    with AwayOnce(spark, connection_properties(sink), producer_properties(sink)) as brokers:
        batches = Batches(schemas, sink, brokers, sent.append)
        with pytest.raises(BrokerUnavailable):
            batches(entries, 0)
        batches(entries, 0)
    assert [one.rows for one in sent] == [1]
    (records,) = read_topic(broker.address, "again")
    assert [type(one.message) for one in records] == [Bootstrap, Dml]
