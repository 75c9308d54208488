"""What one batch sends, in which order; which schemas go out; which topics there are. Without Kafka and without Spark."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pyspark.errors import PySparkException

from headrace.errors import BrokerUnavailable, ConfigInvalid, TopicGone, TopicUnfit
from headrace.pipeline.kafka.announcing import Announcer, Now
from headrace.pipeline.kafka.brokers import error_of_write
from headrace.pipeline.kafka.sink import parse_sink
from headrace.pipeline.kafka.steps import Control, Rows, Step, plan_steps
from headrace.pipeline.kafka.topics import TopicFacts, Topics
from headrace.simple.bootstrap import BootstrapSettings
from headrace.simple.message import Ddl, MessageType
from headrace.simple.schema import TableSchema
from tests.simple_tables import table

A = table("shop.a", "id", version=1, table_id=1, key=("id",))
A2 = table("shop.a", "id", "more", version=2, table_id=1, key=("id",))
B = table("shop.b", "id", version=1, table_id=2, key=("id",))
SCHEMAS = {one.key: one for one in (A, A2, B)}


def rows(schema: TableSchema, *, step: int = 0, first: int = 1, count: int = 1) -> Rows:
    return Rows(step, schema.schema, schema.table, schema.version, first, count)


def schema_of(found: Rows) -> TableSchema:
    return SCHEMAS[found.database, found.table, found.version]


def ddl(schema: TableSchema, kind: str = "ALTER", before: TableSchema | None = None) -> Ddl:
    return Ddl(MessageType(kind), "sql", 5, 6, schema, before)


def test_a_batch_without_statements_is_one_step() -> None:
    mark = Control(9, b"w")
    found = plan_steps([], [rows(B, first=4), rows(A, first=2)], [(0, mark)])
    assert found == [Step(0, None, (rows(A, first=2), rows(B, first=4)), mark, None)]


def test_statements_cut_a_batch() -> None:
    one, two = Control(3, b"x"), Control(7, b"y")
    found = plan_steps([one, two], [rows(A, first=1), rows(A, step=2, first=8)], [(1, Control(5, b"w"))])
    assert found == [
        Step(0, 3, (rows(A, first=1),), None, one),
        Step(3, 7, (), Control(5, b"w"), two),
        Step(7, None, (rows(A, step=2, first=8),), None, None),
    ]


def test_an_empty_batch_has_no_steps() -> None:
    assert plan_steps([], [], []) == []


class Told:
    """An announcer of topics with four partitions, and what it has sent."""

    def __init__(self, settings: BootstrapSettings | None = None) -> None:
        self.topics = {"a": "one", "b": "two"}
        self.announcer = Announcer(
            settings or BootstrapSettings(), lambda _, name: self.topics[name], lambda _: 4
        )

    def before(self, *found: Rows, ms: int = 0) -> list[tuple[str, int, int]]:
        due = self.announcer.before_rows(found, schema_of, Now(ms, ms))
        return [(one.topic, one.message.table_schema.version, len(one.partitions)) for one in due]

    def again(self, ms: int) -> list[tuple[str, int]]:
        due = self.announcer.again(Now(ms, ms))
        return [(one.message.table_schema.table, len(one.partitions)) for one in due]


def test_a_schema_goes_out_before_the_first_row_of_each_version() -> None:
    told = Told()
    assert told.before(rows(A), rows(B)) == [("one", 1, 4), ("two", 1, 4)]
    assert told.before(rows(A), rows(B)) == []
    assert told.before(rows(A), rows(A2)) == [("one", 2, 4)]


def test_a_statement_brings_its_schema() -> None:
    told = Told()
    told.before(rows(A))
    told.announcer.statement(ddl(A2), "one", Now(0, 0))
    assert told.before(rows(A2)) == []


def test_another_topic_has_not_seen_the_schema() -> None:
    told = Told()
    told.before(rows(A))
    told.topics["a"] = "three"
    assert told.before(rows(A)) == [("three", 1, 4)]


def test_schemas_are_sent_again_by_time_and_by_rows() -> None:
    told = Told(BootstrapSettings(interval_s=60, messages=100, to_all_partitions=False))
    told.before(rows(A), rows(B))
    assert told.again(0) == []
    told.before(rows(A, count=100), ms=1_000)
    assert told.again(6_000) == [("a", 1)]
    assert told.again(66_000) == [("a", 1), ("b", 1)]


def test_switched_off_nothing_is_sent() -> None:
    told = Told(BootstrapSettings(interval_s=0))
    assert told.before(rows(A, count=1_000_000)) == []
    assert told.again(10**9) == []


class Cluster:
    """Topics in memory."""

    def __init__(self, **topics: TopicFacts) -> None:
        self.topics = topics

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        return {topic: self.topics[topic] for topic in topics if topic in self.topics}

    describe_known = describe

    def create(self, topic: str, partitions: int, replication: int) -> None:
        self.topics[topic] = TopicFacts(partitions, 1_000 * replication)


def topics(cluster: Cluster, words: str = "", config: str = "") -> Topics:
    return Topics(cluster, parse_sink(f"kafka://h:1/all?kafka-client-id=x{words}", config))


BY_TABLE = (
    "[filter]\nrules = ['*.*', '!shop.b']\n[sink]\ndispatchers = [{matcher = ['*.a'], topic = '{table}'}]"
)


def test_topics_are_made_for_the_tables_that_go_out() -> None:
    cluster = Cluster(all=TopicFacts(2, 2_000_000))
    found = topics(cluster, "&replication-factor=2&max-message-bytes=1000000", BY_TABLE)
    found.learn([("shop", "a"), ("shop", "b"), ("mysql", "user")])
    assert cluster.topics["a"] == TopicFacts(3, 2_000)
    assert {name: place.partitions for name, place in found.places.items()} == {"a": 3, "all": 2}
    assert sorted(place.first_slot for place in found.places.values()) == [0, 3]
    assert found.places["all"].message_bytes_max == 1_000_000
    assert found.places["a"].message_bytes_max == 2_000 - 128
    assert found.slots == 5


def test_a_statement_goes_to_the_topic_of_its_table_by_the_name_before() -> None:
    found = topics(Cluster(), "", BY_TABLE)
    found.learn([])
    assert found.topic_of_statement(ddl(A), ("shop", "a")) == "a"
    assert found.topic_of_statement(ddl(B, "RENAME", A), ("shop", "a")) == "a"
    assert found.topic_of_statement(ddl(A, "RENAME", B), ("shop", "b")) == "all"
    assert found.topic_of_statement(ddl(B), ("shop", "b")) is None
    assert found.topic_of_statement(Ddl(MessageType.QUERY, "sql", 5, 6), ("shop", "")) == "all"


def test_a_topic_with_too_few_partitions_is_unfit() -> None:
    with pytest.raises(TopicUnfit, match="has 2 partitions, partition-num is 3"):
        topics(Cluster(all=TopicFacts(2, 1_000)), "&partition-num=3").learn([])


def test_a_topic_that_is_not_to_be_made_is_unfit() -> None:
    with pytest.raises(TopicUnfit, match="no topic all"):
        topics(Cluster(), "&auto-create-topic=false").learn([])


def test_what_can_surprise_is_told() -> None:
    found = topics(
        Cluster(all=TopicFacts(4, 1_000)), "&partition-num=3", "[sink]\nsend-bootstrap-in-msg-count = 0"
    )
    found.learn([])
    assert found.places["all"].partitions == 3
    assert "BOOTSTRAP" in found.warnings[0]
    assert "only the first 3" in found.warnings[1]


def test_a_topic_that_is_gone_ends_the_job() -> None:
    cluster = Cluster(all=TopicFacts(2, 1_000, "first"))
    found = topics(cluster)
    found.renew()
    found.learn([])
    found.renew()
    del cluster.topics["all"]
    with pytest.raises(TopicGone, match="the topic all was deleted while this job ran"):
        found.renew()


@pytest.mark.parametrize("now", [TopicFacts(2, 1_000, "second"), TopicFacts(1, 1_000, "first")])
def test_a_topic_that_somebody_else_made_anew_ends_the_job(now: TopicFacts) -> None:
    cluster = Cluster(all=TopicFacts(2, 1_000, "first"))
    found = topics(cluster)
    found.learn([])
    cluster.topics["all"] = now
    with pytest.raises(TopicGone, match=f"made anew by somebody else: it has {now.partitions} partitions"):
        found.renew()


def test_what_else_becomes_of_a_topic_is_taken_over_or_told_once() -> None:
    cluster = Cluster(all=TopicFacts(2, 1_000, "first"))
    found = topics(cluster)
    found.learn([])
    cluster.topics["all"] = TopicFacts(3, 2_000, "first")
    for _ in range(2):
        found.renew()
    assert found.places["all"].partitions == 2
    assert found.places["all"].message_bytes_max == 2_000 - 128
    assert len(found.warnings) == 1
    assert "has 3 partitions now, and this job goes on with the first 2" in found.warnings[0]


def test_errors_of_a_write_are_told_apart() -> None:
    def of(text: str) -> BaseException | None:
        return error_of_write(PySparkException(text))

    away = of("Job aborted.\norg.apache.kafka.common.errors.TimeoutException: Expiring 3 record(s)\n\tat x")
    assert isinstance(away, BrokerUnavailable)
    assert "Expiring 3 record(s)" in away.detail
    refused = of(
        "org.apache.kafka.common.KafkaException: x\norg.apache.kafka.common.errors.SaslAuthenticationException: no"
    )
    assert isinstance(refused, ConfigInvalid)
    without_words = of("Job aborted.\nCaused by: org.apache.kafka.common.errors.NetworkException\n\tat x.Y")
    assert isinstance(without_words, BrokerUnavailable)
    assert without_words.detail == "rows were not acknowledged: NetworkException"
    assert (
        of("java.lang.OutOfMemoryError: heap\n\tat org.apache.kafka.x.FooException.<init>(Foo.java:1)")
        is None
    )
