"""A consumer written on ``headrace.simple`` begins anywhere in a topic, with the tables as they were then.

It comes to the source's tables once BOOTSTRAPs and DDL have told it the schemas. Rows whose schema is not told any more,
since their table was altered meanwhile, are kept until somebody supplies it: none is guessed at, none is skipped.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.kafka.job import run_kafka
from headrace.pipeline.kafka.sink import parse_sink
from headrace.simple.cache import SchemaKey
from headrace.simple.delivery import Checkpoint, digest_of
from headrace.simple.message import Bootstrap, Ddl, Dml, Watermark
from headrace.simple.values import Encoding
from tests.integration.pipeline.kafka.captured_feed import CapturedFeed, History
from tests.integration.pipeline.kafka.topic_reader import Rebuilt, Record, read_topic
from tests.kafka import Broker
from tests.servers import Feed
from tests.simple_topic import Tables, apply, execute

PARTITIONS = 8
BEGINNINGS = 40
BY_KEY = "[sink]\ndispatchers = [{matcher = ['*.*'], partition = 'index-value'}]"


def touch_every_table(source: History) -> None:
    """Change something in every table that there is."""
    left = set(source.schemas)
    while left:
        source.commit_ts += 1
        source.transaction()
        rows = source.events[-1]
        assert isinstance(rows, list)
        left -= {row.table for row in rows}


def tables_at(source: History, commit_ts: int) -> Tables:
    """The source's tables at a moment."""
    tables: Tables = {}
    for event in source.events:
        if isinstance(event, Ddl):
            if event.commit_ts <= commit_ts:
                execute(tables, event)
        elif event[0].commit_ts <= commit_ts:
            for row in event:
                apply(tables, row)
    return tables


def checkpoint_before(cut: Sequence[Sequence[Record]]) -> Checkpoint:
    """The place of a consumer that has all that these beginnings of partitions have: no row behind them is older."""
    messages = [one.message for records in cut for one in records if isinstance(one.message, Dml | Ddl)]
    commit_ts = max((one.commit_ts for one in messages), default=0)
    statements = {digest_of(one) for one in messages if isinstance(one, Ddl) and one.commit_ts == commit_ts}
    return Checkpoint(commit_ts, commit_ts, tuple(statements)) if statements else Checkpoint(commit_ts)


def last_watermark(records: Sequence[Record]) -> int:
    """Where a partition's last WATERMARK stands: a consumer that begins behind it has nothing to go by."""
    return max(at for at, one in enumerate(records) if isinstance(one.message, Watermark))


def told(partitions: Sequence[Sequence[Record]]) -> set[SchemaKey]:
    """The schemas that BOOTSTRAP and DDL messages bring."""
    schemas = [
        one.message.table_schema
        for records in partitions
        for one in records
        if isinstance(one.message, Bootstrap | Ddl)
    ]
    return {schema.key for schema in schemas if schema is not None}


@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_consumer_begins_anywhere(
    spark: SparkSession, feed: Feed, broker: Broker, tmp_path: Path, encoding: Encoding
) -> None:
    chance = random.Random(11)  # repeatable
    source = History(chance)
    captured = CapturedFeed(feed, source, chance)
    topic = f"middle-{encoding}"
    words = f"partition-num={PARTITIONS}&encoding-format={encoding}"
    for steps in (30, 10):
        for _ in range(steps):
            source.step()
        touch_every_table(source)
        captured.write()
        run_kafka(
            spark,
            feed=feed.name,
            sink=parse_sink(f"kafka://{broker.address}/{topic}?{words}", BY_KEY),
            checkpoint=str(tmp_path / topic),
            server=feed.server.url,
            once=True,
            retry_s=20,
        )
    partitions = read_topic(broker.address, topic, encoding)
    statements = [event for event in source.events if isinstance(event, Ddl)]
    waited = 0
    for _ in range(BEGINNINGS):
        places = [chance.randint(0, last_watermark(records)) for records in partitions]
        at = checkpoint_before([records[:end] for records, end in zip(partitions, places, strict=True)])
        rest = [records[begin:] for records, begin in zip(partitions, places, strict=True)]
        consumer = Rebuilt(tables_at(source, at.commit_ts), at).read(rest, chance)
        assert not set(consumer.missing) & told(rest)
        waited += bool(set(consumer.needed) - set(consumer.missing))
        assert bool(consumer.missing) == bool(consumer.waiting), "they wait for a schema alone"
        for key in consumer.missing:
            consumer.supply(source.every_schema[key])
        assert consumer.waiting == 0
        assert consumer.tables == source.tables
        later = [one for one in statements if one.commit_ts > at.commit_ts]
        assert len(consumer.statements) in {len(later), len(later) + 1}
    assert waited > BEGINNINGS // 4, "BOOTSTRAPs bring schemas to who begins in the middle"
