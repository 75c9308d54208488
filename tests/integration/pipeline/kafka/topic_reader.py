"""Reads topics to their end with confluent-kafka, and what a consumer of Simple messages makes of them."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.simple import avro_codec, json_codec
from headrace.simple.assembler import Assembler
from headrace.simple.cache import SchemaKey
from headrace.simple.delivery import Checkpoint, Delivery, SchemaNeeded, Statement, Transaction
from headrace.simple.message import Ddl, Dml, Message, Watermark
from headrace.simple.schema import TableSchema
from headrace.simple.values import Encoding
from tests.simple_topic import Tables, apply, execute

READ_S_MAX = 60.0
LOOK_S = 0.2
"""So long a read waits for more messages than there are."""


class Record(NamedTuple):
    """A message of a partition: its offset, its bytes, and what they say."""

    offset: int
    value: bytes
    message: Message


def read_topic(address: str, topic: str, encoding: Encoding = Encoding.JSON) -> list[list[Record]]:
    """Every partition's messages, from the first to the last that is there now. Keys must be null."""
    decode = json_codec.decode if encoding is Encoding.JSON else avro_codec.decode
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=READ_S_MAX).topics[topic].partitions)
        found: list[list[Record]] = [[] for _ in partitions]
        ends = {
            place: consumer.get_watermark_offsets(TopicPartition(topic, place), timeout=READ_S_MAX)[1]
            for place in partitions
        }
        consumer.assign([TopicPartition(topic, place, 0) for place in partitions])
        deadline = time.monotonic() + READ_S_MAX
        while any(len(found[place]) < ends[place] for place in partitions):
            assert time.monotonic() < deadline, f"the topic {topic} could not be read to its end"
            for one in consumer.consume(5_000, timeout=LOOK_S):
                assert one.error() is None, one.error()
                assert one.key() is None
                value, place = one.value(), one.partition()
                assert value is not None
                assert place is not None
                offset = one.offset()
                assert offset is not None
                found[place].append(Record(offset, value, decode(value)))
        return found
    finally:
        consumer.close()


def messages_in(address: str, topic: str) -> int:
    """How many messages the topic has; 0 while it is not there, or its partitions have no leader yet."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "look", "log_level": 0})
    try:
        found = consumer.list_topics(timeout=READ_S_MAX).topics.get(topic)
        places = [TopicPartition(topic, at) for at in (found.partitions if found is not None else ())]
        return sum(consumer.get_watermark_offsets(place, timeout=READ_S_MAX)[1] for place in places)
    except KafkaException:
        return 0
    finally:
        consumer.close()


def check_first_sendings(partitions: Sequence[Sequence[Record]]) -> int:
    """What comes for the first time is in order, above the WATERMARKs before it; returns how many messages came again."""
    again = 0
    for records in partitions:
        seen: set[bytes] = set()
        mark = commit_ts = 0
        for record in records:
            message = record.message
            if isinstance(message, Watermark):
                mark = max(mark, message.commit_ts)
            elif isinstance(message, Dml | Ddl) and record.value in seen:
                again += 1
            elif isinstance(message, Dml | Ddl):
                seen.add(record.value)
                assert message.commit_ts > mark, f"{message} comes behind the WATERMARK {mark}"
                assert message.commit_ts >= commit_ts, f"{message} comes behind {commit_ts}"
                commit_ts = message.commit_ts
    return again


class Rebuilt:
    """A consumer that knows ``headrace.simple`` alone: tables and statements as its topic tells them.

    ``tables`` are those that it has at ``checkpoint``. ``needed``: the schemas that rows waited for. One that begins in the
    middle may have such; ``missing`` are those that never came.
    """

    def __init__(
        self,
        tables: Tables | None = None,
        checkpoint: Checkpoint = Checkpoint(),  # noqa: B008  # it is frozen
    ) -> None:
        self.tables: Tables = tables if tables is not None else defaultdict(dict)
        self.statements: list[str] = []
        self.waiting = 0
        self.dropped = 0
        self.needed: list[SchemaKey] = []
        self.missing: list[SchemaKey] = []
        self._checkpoint = checkpoint
        self._in_the_middle = tables is not None

    def read(self, partitions: Sequence[Sequence[Record]], chance: random.Random) -> Rebuilt:
        """Read the partitions in any interleaving."""
        machine = Assembler(len(partitions), self._checkpoint)
        places = [0] * len(partitions)
        while unread := [at for at in machine.readable if places[at] < len(partitions[at])]:
            at = chance.choice(unread)
            record = partitions[at][places[at]]
            places[at] += 1
            self._do(machine.take(at, record.message, size=len(record.value), position=record.offset))
        self.waiting, self.dropped, self.missing = machine.rows, machine.dropped, machine.missing
        self._machine = machine
        return self

    def supply(self, schema: TableSchema) -> None:
        """Take a schema from elsewhere."""
        self._do(self._machine.supply(schema))
        self.waiting = self._machine.rows

    def _do(self, deliveries: Sequence[Delivery]) -> None:
        for one in deliveries:
            match one:
                case Transaction(_, rows):
                    for row in rows:
                        apply(self.tables, row.message)
                case Statement(message):
                    execute(self.tables, message)
                    assert message.table_schema is not None
                    text = f"{message.sql} {message.table_schema.table} {message.commit_ts}"
                    self.statements.append(text)
                case SchemaNeeded():
                    assert self._in_the_middle, f"{one}: its rows stand before it"
                    self.needed.append(one.key)
                case _:
                    pass
