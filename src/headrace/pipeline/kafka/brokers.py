"""The Kafka cluster as the driver sees it: topics, and the few messages that are no rows. Rows go by Spark's connector.

Kafka's own Java client does it, in the driver's JVM: the same one that the connector has, told the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import (
    BrokerUnavailable,
    ConfigInvalid,
    HeadraceError,
    MessageTooLarge,
    SetupMissing,
    TopicUnfit,
)
from headrace.pipeline.kafka.topics import TopicFacts

ANSWER_S_MAX: Final = 60
"""How long a question about topics may take, with all repetitions by the client."""
LOOK_S: Final = 0.1
"""Time between two looks whether a new topic is seen."""
GONE_S: Final = 10.0
"""How long a topic that was there is looked for: a broker may learn of a new one later than another."""
CLOSE_S_MAX: Final = 5
"""How long what is closed may take: everything that counts is acknowledged by then."""

_UNKNOWN: Final = "UnknownTopicOrPartitionException"
_THERE: Final = "TopicExistsException"
_TERMINAL: Final = {
    "InvalidReplicationFactorException": TopicUnfit,
    "InvalidPartitionsException": TopicUnfit,
    "InvalidTopicException": TopicUnfit,
    "PolicyViolationException": TopicUnfit,
    "TopicAuthorizationException": TopicUnfit,
    "ClusterAuthorizationException": TopicUnfit,
    "RecordTooLargeException": MessageTooLarge,
    "SaslAuthenticationException": ConfigInvalid,
    "SslAuthenticationException": ConfigInvalid,
    "ConfigException": ConfigInvalid,
    "InvalidConfigurationException": ConfigInvalid,
}
"""Kafka's exceptions that no repetition mends, and what they are here."""
# An exception without words of its own has no colon. What stands behind "at" is a place in the code.
_IN_TEXT: Final = re.compile(r"(?<!at )org\.apache\.kafka\.[a-z.]*([A-Z]\w*Exception)\b(?::? ?([^\n]*))")


class Sending(NamedTuple):
    """One message for some partitions of a topic."""

    topic: str
    partitions: Sequence[int]
    value: bytes


class Brokers:
    """A connection to the cluster, for one job. Close it, or use it as a ``with``."""

    def __init__(
        self,
        spark: SparkSession,
        connection: Mapping[str, str],
        producer: Mapping[str, str],
        *,
        answer_s: float = ANSWER_S_MAX,
    ) -> None:
        """``connection`` and ``producer`` are properties of Kafka's client (:mod:`headrace.pipeline.kafka.client`).

        ``answer_s``: how long a question about topics may take.
        """
        # PySpark has no public way to its JVM; Delta's Python side goes this one too.
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._kafka = jvm.org.apache.kafka
        self._producer_properties = dict(producer)
        self._producer: Any = None
        answer_ms = str(round(answer_s * 1000))
        times = {"default.api.timeout.ms": answer_ms, "request.timeout.ms": answer_ms}
        try:
            made = self._kafka.clients.admin.AdminClient.create({**connection, **times})
        except TypeError:
            raise SetupMissing(
                "this Spark session has no Kafka connector", hint="Open it with SessionSettings(kafka=True)."
            ) from None
        except Py4JJavaError as error:
            raise error_of_kafka(error, "Kafka's client can't be made") from None
        self._admin: Any = made

    def describe(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """Return those of the topics that are there.

        BrokerUnavailable if no broker answers; ConfigInvalid if it refuses us.
        """
        return self._facts(self._described(topics))

    def describe_known(self, topics: Iterable[str]) -> dict[str, TopicFacts]:
        """Return those of topics that were there before: one that is not seen is looked for again, for some seconds."""
        wanted = set(topics)
        deadline = time.monotonic() + GONE_S
        while len(found := self._described(wanted)) < len(wanted) and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        return self._facts(found)

    def check_writable(self, topics: Iterable[str]) -> None:
        """Raise BrokerUnavailable if a partition takes nothing at present, or no broker answers."""
        found = self._described(topics)
        for name, settings in self._settings(found).items():
            least = int(settings.get("min.insync.replicas").value())
            for partition in found[name].partitions():
                leader, in_sync = partition.leader(), partition.isr().size()
                if leader is None or leader.isEmpty():
                    why = "no leader"
                elif in_sync < least:
                    why = f"{in_sync} replicas in sync, and min.insync.replicas is {least}"
                else:
                    continue
                raise BrokerUnavailable(f"the partition {partition.partition()} of {name} has {why}")

    def create(self, topic: str, partitions: int, replication: int) -> None:
        """Make a topic, and wait until it is seen; nothing if it is there.

        TopicUnfit if the brokers refuse to, BrokerUnavailable if it is not seen in time.
        """
        new = self._kafka.clients.admin.NewTopic(topic, partitions, replication)
        what = (
            f"the topic {topic} with {partitions} partitions, replication factor {replication}, can't be made"
        )
        try:
            self._admin.createTopics([new]).all().get()
        except Py4JJavaError as error:
            if _kind(error) != _THERE:
                raise error_of_kafka(error, what) from None
        # Each broker learns of it at its own time, and any of them may be asked.
        deadline = time.monotonic() + ANSWER_S_MAX
        while not self.describe([topic]):
            if time.monotonic() >= deadline:
                raise BrokerUnavailable(f"the topic {topic} was made, and is not seen")
            time.sleep(LOOK_S)

    def send(self, messages: Sequence[Sending]) -> None:
        """Send messages without keys, in this order in each partition; all are acknowledged when it returns.

        BrokerUnavailable where brokers take nothing for as long as the properties say. What was sent until then may or may
        not be there.
        """
        if not messages:
            return
        try:
            if self._producer is None:
                serializer = self._kafka.common.serialization.ByteArraySerializer
                self._producer = self._kafka.clients.producer.KafkaProducer(
                    self._producer_properties, serializer(), serializer()
                )
            record = self._kafka.clients.producer.ProducerRecord
            under_way = [
                self._producer.send(record(one.topic, partition, None, one.value))
                for one in messages
                for partition in one.partitions
            ]
            self._producer.flush()
            for future in under_way:
                future.get()
        except Py4JJavaError as error:
            # A producer that failed may be of no use any more, whatever it failed by.
            self._close_producer()
            topics = ", ".join(sorted({one.topic for one in messages}))
            raise error_of_kafka(error, f"what was sent to {topics} was not acknowledged") from None

    def close(self) -> None:
        """Let the connections go. Where Spark's Java has ended, they are gone."""
        with suppress(OSError, Py4JError):
            self._close_producer()
            self._admin.close(self._jvm.java.time.Duration.ofSeconds(CLOSE_S_MAX))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(self._jvm.java.time.Duration.ofSeconds(CLOSE_S_MAX))

    def _described(self, topics: Iterable[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, future in dict(self._admin.describeTopics(list(topics)).topicNameValues()).items():
            try:
                found[str(name)] = future.get()
            except Py4JJavaError as error:
                if _kind(error) != _UNKNOWN:
                    raise error_of_kafka(error, f"the topic {name} can't be looked at") from None
        return found

    def _settings(self, topics: Iterable[str]) -> dict[str, Any]:
        """Return the settings of topics that are there."""
        resources = self._kafka.common.config.ConfigResource
        places = {topic: resources(resources.Type.TOPIC, topic) for topic in topics}
        if not places:
            return {}
        try:
            configs = self._admin.describeConfigs(list(places.values())).all().get()
        except Py4JJavaError as error:
            raise error_of_kafka(error, f"the settings of {', '.join(places)} can't be read") from None
        return {topic: configs.get(place) for topic, place in places.items()}

    def _facts(self, found: Mapping[str, Any]) -> dict[str, TopicFacts]:
        settings = self._settings(found)
        return {
            name: TopicFacts(
                topic.partitions().size(),
                int(settings[name].get("max.message.bytes").value()),
                str(topic.topicId().toString()),
            )
            for name, topic in found.items()
        }


def error_of_kafka(error: Py4JError, what: str) -> Exception:
    """Return an error of Kafka's client as one of ours; ``what`` failed."""
    detail = f"{what}: {_said(error)}"
    return _TERMINAL.get(_kind(error), BrokerUnavailable)(detail)


def error_of_write(failure: PySparkException | Py4JJavaError) -> HeadraceError | None:
    """Return why Spark's connector could not write, as one of ours; None if the reason is none of Kafka's."""
    found = _IN_TEXT.findall(str(failure))
    if not found:
        return None
    kind, said = found[-1]
    known = [_TERMINAL[name] for name, _ in found if name in _TERMINAL]
    detail = ": ".join(word for word in (kind, said.strip()) if word)
    return (known[0] if known else BrokerUnavailable)(f"rows were not acknowledged: {detail}"[:500])


def _root(error: Py4JError) -> Any:
    """Return the Java exception that is behind those that only say that another one came."""
    found = getattr(error, "java_exception", None)
    while found is not None and found.getCause() is not None:
        found = found.getCause()
    return found


def _kind(error: Py4JError) -> str:
    found = _root(error)
    return "" if found is None else str(found.getClass().getSimpleName())


def _said(error: Py4JError) -> str:
    found = _root(error)
    return str(error) if found is None else str(found.getMessage() or found.getClass().getSimpleName())
