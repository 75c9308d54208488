"""Reads topics to their end with confluent-kafka, and what a consumer of Simple messages makes of them."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from headrace.simple import avro_codec, json_codec
from headrace.simple.assembler import Assembler
from headrace.simple.delivery import Delivery, SchemaNeeded, Statement, Transaction
from headrace.simple.message import Message
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


class Rebuilt:
    """A consumer that knows ``headrace.simple`` alone: tables and statements as its topic tells them."""

    def __init__(self) -> None:
        self.tables: Tables = defaultdict(dict)
        self.statements: list[str] = []
        self.waiting = 0
        self.dropped = 0

    def read(self, partitions: Sequence[Sequence[Record]], chance: random.Random) -> Rebuilt:
        """Read the partitions in any interleaving."""
        machine = Assembler(len(partitions))
        places = [0] * len(partitions)
        while unread := [at for at in machine.readable if places[at] < len(partitions[at])]:
            at = chance.choice(unread)
            record = partitions[at][places[at]]
            places[at] += 1
            self._do(machine.take(at, record.message, size=len(record.value), position=record.offset))
        self.waiting, self.dropped = machine.rows, machine.dropped
        return self

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
                    raise AssertionError(f"{one}: its rows stand before it")
                case _:
                    pass
