"""A consumer written on ``headrace.simple`` alone rebuilds the tables of a feed from eight partitions, or begins anywhere.

One that begins in the middle has the tables as they were then. It comes to the source's tables once BOOTSTRAPs and DDL have
told it the schemas. Rows whose schema is not told any more, since their table was altered meanwhile, are kept until somebody
supplies it: none is guessed at, none is skipped.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.kafka.job import run_kafka
from headrace.pipeline.kafka.sink import parse_sink
from headrace.simple.cache import SchemaKey
from headrace.simple.delivery import Checkpoint, digest_of
from headrace.simple.message import Bootstrap, Ddl, Dml, Watermark
from headrace.simple.partition import PartitionRule, placer_of
from headrace.simple.values import Encoding
from tests.integration.pipeline.kafka.captured_feed import CapturedFeed, History
from tests.integration.pipeline.kafka.topic_reader import Rebuilt, Record, read_topic
from tests.kafka import Broker
from tests.scale import SEED, scaled
from tests.servers import Feed, ServerProcess
from tests.simple_topic import Tables, apply, execute

pytestmark = pytest.mark.usefixtures("several_tasks")

PARTITIONS = 8
BEGINNINGS = scaled(60)
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


class Sent(NamedTuple):
    """A history, and the topic that two runs have sent it to.

    ``written``: statements in the feed. ``counts``: those of each run. ``first``: what the first one sent.
    """

    source: History
    written: int
    counts: list[int]
    first: list[list[Record]]
    partitions: list[list[Record]]


@pytest.fixture(
    scope="module",
    params=[
        Encoding.JSON,
        pytest.param(
            Encoding.AVRO, marks=pytest.mark.soak(sibling="test_tables_are_rebuilt_from_eight_partitions")
        ),
    ],
)
def sent(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    server: ServerProcess,
    broker: Broker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Sent:
    encoding: Encoding = request.param
    feed = Feed(server, f"middle::{encoding}")
    assert feed.register().status_code == 200
    chance = random.Random(11)  # every kind of statement in few steps
    source = History(chance)
    captured = CapturedFeed(feed, source, chance)
    topic = f"middle-{encoding}"
    uri = f"kafka://{broker.address}/{topic}?partition-num={PARTITIONS}&encoding-format={encoding}"
    checkpoint = tmp_path_factory.mktemp("middle")
    counts: list[int] = []
    first: list[list[Record]] = []
    for steps, entries_max in ((30, 60), (10, 200_000)):
        for _ in range(steps):
            source.step()
        touch_every_table(source)
        captured.write()
        summary = run_kafka(
            spark,
            feed=feed.name,
            sink=parse_sink(uri, BY_KEY),
            checkpoint=str(checkpoint),
            server=feed.server.url,
            once=True,
            entries_max=entries_max,
            retry_s=20,
        )
        assert summary.topics == {topic: PARTITIONS}
        counts.append(summary.statements)
        first = first or read_topic(broker.address, topic, encoding)
    return Sent(source, captured.statements, counts, first, read_topic(broker.address, topic, encoding))


def test_tables_are_rebuilt_from_eight_partitions(sent: Sent) -> None:
    chance = random.Random(SEED)
    assert sum(sent.counts) == sent.written, "the second run goes on where the first one ended"
    rebuilt = Rebuilt().read(sent.partitions, chance)
    assert rebuilt.tables == sent.source.tables
    assert rebuilt.statements == sent.source.statements
    assert rebuilt.waiting == 0
    for place, records in enumerate(sent.partitions):
        check_partition(place, records, sent.source)
    later = [records[len(before) :] for before, records in zip(sent.first, sent.partitions, strict=True)]
    begun_there = Rebuilt().read(later, chance)
    assert begun_there.waiting == 0, "who begins with the second run finds the schema of each row there"
    assert begun_there.statements == rebuilt.statements[sent.counts[0] :]


def check_partition(place: int, records: list[Record], source: History) -> None:
    """Rows and statements are in order of commitTs, each in its place, behind their schema, none behind its WATERMARK."""
    commit_ts = mark = 0
    known = set()
    for record in records:
        match record.message:
            case Bootstrap(_, schema):
                known.add(schema.key)
            case Watermark(at, _):
                assert at >= mark
                mark = at
            case Ddl() as message:
                assert message.commit_ts >= commit_ts
                assert message.commit_ts > mark
                commit_ts = message.commit_ts
                if message.table_schema is not None:
                    known.add(message.table_schema.key)
            case Dml() as message:
                assert message.commit_ts >= commit_ts
                assert message.commit_ts > mark
                assert message.schema_key in known
                placer = placer_of(source.every_schema[message.schema_key], PartitionRule.INDEX_VALUE)
                assert placer.partition_of(message, 8) == place
                commit_ts = message.commit_ts


def test_a_consumer_begins_anywhere(sent: Sent) -> None:
    chance, source, partitions = random.Random(SEED), sent.source, sent.partitions
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
    assert waited > 0, "BOOTSTRAPs bring schemas to who begins in the middle"
