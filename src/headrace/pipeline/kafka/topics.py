"""The topics of a job: which there are, made if need be, how many partitions each has. Lives on the driver.

Every table of the feed that the filter takes has a topic, and all of them get WATERMARKs. Which tables there are, the server
knows: it keeps a schema of each, so nothing need be remembered over a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from headrace.capture.selection import Selection
from headrace.errors import TopicGone, TopicUnfit
from headrace.pipeline.kafka.client import BATCH_OVERHEAD_BYTES
from headrace.pipeline.kafka.routing import TopicPlace, dispatcher_of
from headrace.pipeline.kafka.sink import PARTITIONS_NEW, KafkaSink
from headrace.runtime.logs import get_logger
from headrace.simple.message import Ddl

log = get_logger("pipeline")


class TopicFacts(NamedTuple):
    """What the cluster says of a topic. ``topic_id``: another one if it is made anew under its name."""

    partitions: int
    message_bytes_max: int
    topic_id: str = ""


class Cluster(Protocol):
    """What is asked of the brokers."""

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """Return those of the topics that are there."""

    def describe_known(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """Return those of topics that were there before."""

    def create(self, topic: str, partitions: int, replication: int) -> None:
        """Make a topic; nothing if it is there."""


class Topics:
    """The topics of one job. Their numbers of partitions are those of the moment in which each was first seen."""

    def __init__(self, cluster: Cluster, sink: KafkaSink) -> None:
        self._cluster = cluster
        self._sink = sink
        self._dispatcher = dispatcher_of(sink.changefeed, sink.topic)
        self._selection = Selection(sink.changefeed.rules, case_sensitive=sink.changefeed.case_sensitive)
        self._facts: dict[str, TopicFacts] = {}
        self.places: dict[str, TopicPlace] = {}
        self.warnings: list[str] = []
        if not sink.changefeed.bootstrap.enabled:
            self._warn(
                "BOOTSTRAP messages are switched off: who reads rows of a table without having read a DDL of it waits for "
                "its schema for ever"
            )

    def learn(self, tables: Iterable[tuple[str, str]]) -> None:
        """Have a topic for each of ``tables`` (database, table) that goes out, and the default one.

        TopicUnfit if one is not there and is not to be made, or has fewer partitions than asked for.
        """
        taken = [table for table in tables if self._selection.captures(*table)]
        new = [topic for topic in self._dispatcher.topics(taken) if topic not in self.places]
        if new:
            self._learn(new)

    def renew(self) -> None:
        """Look at all topics again, and take over what a message of each may have.

        TopicGone if one was deleted or made anew: what was sent to it is there no more. BrokerUnavailable.
        """
        there = self._cluster.describe_known(self.places) if self.places else {}
        for topic, place in self.places.items():
            self._compare(topic, there.get(topic))
            self.places[topic] = place._replace(message_bytes_max=self._limit(there[topic]))

    def _compare(self, topic: str, now: TopicFacts | None) -> None:
        place, before = self.places[topic], self._facts[topic]
        if now is None:
            raise TopicGone(f"the topic {topic} was deleted while this job ran")
        if now.topic_id != before.topic_id or now.partitions < place.partitions:
            raise TopicGone(
                f"the topic {topic} was deleted while this job ran, and made anew by somebody else: it has "
                f"{now.partitions} partitions, and none of what was sent before"
            )
        if now.partitions > before.partitions:
            self._warn(
                f"the topic {topic} has {now.partitions} partitions now, and this job goes on with the first "
                f"{place.partitions}: whoever waits for WATERMARKs of the others waits for ever"
            )
        self._facts[topic] = now

    def topic_of(self, database: str, table: str) -> str:
        """Return a table's topic."""
        return self._dispatcher.topic_of(database, table)

    def topic_of_statement(self, message: Ddl, named: tuple[str, str]) -> str | None:
        """Return the topic of a DDL, made if need be: its table's, by the name before; None if the filter leaves it out.

        ``named``: the database and table that its entry names; ``""`` for the table if it is about a whole database. A
        RENAME goes out if one of its names does.
        """
        schemas = [one for one in (message.pre_table_schema, message.table_schema) if one is not None]
        names = [(one.schema, one.table) for one in schemas if one.table]
        if not any(self._selection.captures(*name) for name in (*names, named)):
            return None
        topic = self._dispatcher.topic_of_ddl(message)
        if topic not in self.places:
            self._learn([topic])
        return topic

    def partitions_of(self, topic: str) -> int:
        """Return how many partitions of a known topic are used."""
        return self.places[topic].partitions

    @property
    def slots(self) -> int:
        """How many partitions all topics have together."""
        return sum(place.partitions for place in self.places.values())

    def _learn(self, topics: Sequence[str]) -> None:
        there = self._cluster.describe(topics)
        for topic in topics:
            if topic not in there:
                self._make(topic)
                there |= self._cluster.describe([topic])
            if topic not in there:
                raise TopicUnfit(f"the topic {topic} was made, and is not there")
            self._take(topic, there[topic])

    def _warn(self, text: str) -> None:
        self.warnings.append(text)
        log.warning("a topic may surprise", detail=text)

    def _make(self, topic: str) -> None:
        delivery = self._sink.delivery
        if not delivery.auto_create_topic:
            raise TopicUnfit(f"there is no topic {topic}, and auto-create-topic is false")
        self._cluster.create(topic, delivery.partition_num or PARTITIONS_NEW, delivery.replication_factor)

    def _take(self, topic: str, facts: TopicFacts) -> None:
        delivery = self._sink.delivery
        wanted = delivery.partition_num or facts.partitions
        if wanted > facts.partitions:
            raise TopicUnfit(
                f"the topic {topic} has {facts.partitions} partitions, partition-num is {wanted}"
            )
        if wanted < facts.partitions:
            self._warn(
                f"the topic {topic} has {facts.partitions} partitions, and only the first {wanted} are used: whoever "
                "waits for WATERMARKs of the others waits for ever"
            )
        self._facts[topic] = facts
        self.places[topic] = TopicPlace(self.slots, wanted, self._limit(facts))

    def _limit(self, facts: TopicFacts) -> int:
        """Return what a message may have."""
        return min(self._sink.delivery.max_message_bytes, facts.message_bytes_max - BATCH_OVERHEAD_BYTES)
