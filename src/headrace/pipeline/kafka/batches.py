"""One micro-batch of a feed to Kafka: the body of the job's foreachBatch.

The entries are routed once, on workers, and kept for the length of the batch; then go out the steps of
:mod:`headrace.pipeline.kafka.steps`, one after the other. A batch that runs again sends the same again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.errors import BrokerUnavailable, MessageTooLarge, SimpleInvalid
from headrace.pipeline.connection import Connection
from headrace.pipeline.failures import failed_at
from headrace.pipeline.kafka.announcing import Announcer, Now
from headrace.pipeline.kafka.brokers import Brokers, Sending, error_of_write
from headrace.pipeline.kafka.client import PATIENCE_S, connector_options
from headrace.pipeline.kafka.routing import (
    DDL,
    ROUTED_DDL,
    WATERMARK,
    Routing,
    check_size,
    read_subject,
)
from headrace.pipeline.kafka.schemas import FeedSchemas
from headrace.pipeline.kafka.sink import KafkaSink
from headrace.pipeline.kafka.steps import Control, Rows, Step, plan_steps, send_steps
from headrace.pipeline.kafka.topics import Topics
from headrace.pipeline.kafka.watching import Watch, wait_writable
from headrace.simple import avro_codec, json_codec
from headrace.simple.bootstrap import BootstrapDue
from headrace.simple.message import Ddl, Message, Watermark
from headrace.simple.schema import TableSchema
from headrace.simple.values import Encoding

TASKS_MAX: Final = 64
"""Tasks that write at once at most. One writes all of a partition's rows, and where there are more, several partitions'."""
TABLES_NAMED: Final = 5
"""Tables that an error names at most, of those whose rows were being written."""

_SETTINGS: Final = {
    # Sorted rows must come in one task each, in their order: nobody may join or cut tasks behind our back.
    "spark.sql.adaptive.enabled": "false",
    # What is kept lives for seconds: to compress it costs more than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
}

M = TypeVar("M", Watermark, Ddl)


class BatchSent(NamedTuple):
    """What became of a batch. ``watermark``: the commitTs of the last WATERMARK sent, None if there was none."""

    rows: int
    statements: int
    sequence_id: int
    watermark: int | None
    seconds: float


class Batches:
    """Sends micro-batches of one feed; give it to ``foreachBatch``. Called by one thread at a time."""

    def __init__(
        self,
        schemas: FeedSchemas,
        sink: KafkaSink,
        brokers: Brokers,
        done: Callable[[BatchSent], None],
        *,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """``done`` is told of every batch, on Spark's thread. ``patience_s``: how long brokers may take nothing."""
        self._schemas = schemas
        self._sink = sink
        self.brokers = brokers
        self._done = done
        self._patience_s = patience_s
        self._attempt = uuid.uuid4().hex
        self.topics = Topics(brokers, sink)
        self.announcer = self._new_announcer()

    def __call__(self, entries: DataFrame, batch_id: int) -> None:
        """Send one micro-batch: rows of the source, at least the columns of ``routing.READ_DDL``. Safe to repeat.

        MessageTooLarge, SimpleInvalid, SimpleSchemaMissing, TopicUnfit, BrokerUnavailable: no WATERMARK was sent that
        covers what was not. TopicGone: what was sent before is there no more.
        """
        began = time.monotonic()
        schemas = self._schemas
        # Whatever stands in the batch was stored before now, and so was the schema that stands before it.
        with Connection(schemas.endpoint) as server:
            known = server.schemas(schemas.feed)
        self._renew_topics()
        self.topics.learn((one.database, one.table) for one in known)
        routing = Routing(
            schemas.feed, self._sink.changefeed, self._sink.topic, dict(self.topics.places), schemas
        )
        spark = entries.sparkSession  # the query's own copy of the session: what is set here stays here
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        routed = entries.mapInArrow(routing.route, ROUTED_DDL).persist()
        try:
            steps, last = self._survey(routed)
            out = _BatchOut(self, routed)
            send_steps(steps, out)
            self.send_schemas(self.announcer.again(now()))
            # A topic that was made anew in the meantime has WATERMARKs, and not what they cover.
            self._renew_topics()
        except BaseException as failure:
            # Nobody knows which of the schemas that it takes for sent are there.
            self.announcer = self._new_announcer()
            # The workers' client may still send what this attempt gave it: in its order, as repeats of what comes now.
            self._attempt = uuid.uuid4().hex
            if isinstance(failure, BrokerUnavailable):
                self._renew_topics()
            raise
        finally:
            routed.unpersist()
        rows = sum(one.rows for step in steps for one in step.rows)
        statements = sum(step.statement is not None for step in steps)
        self._done(BatchSent(rows, statements, last, out.sent_watermark, time.monotonic() - began))

    def _renew_topics(self) -> None:
        """Raise TopicGone if what was sent is there no more. Brokers that are away are met where something is sent."""
        with suppress(BrokerUnavailable):
            self.topics.renew()

    def _check_brokers(self) -> None:
        """Raise why what is being sent can't arrive: TopicGone, or BrokerUnavailable while that is so."""
        self.topics.renew()
        self.brokers.check_writable(self.topics.places)

    def _new_announcer(self) -> Announcer:
        return Announcer(self._sink.changefeed.bootstrap, self.topics.topic_of, self.topics.partitions_of)

    def _survey(self, routed: DataFrame) -> tuple[list[Step], int]:
        """Return the steps of a batch, and its last sequence id. What comes to the driver are counts and statements."""
        # Statements are no data, and no more than a batch has entries. This fills what is kept, all tasks at once.
        found = routed.where(F.col("control") == DDL).select("sequence_id", "subject", "value").collect()
        statements = sorted(
            Control(row["sequence_id"], bytes(row["value"]), read_subject(row["subject"])[:2])
            for row in found
        )
        marked = F.when(F.col("control") == WATERMARK, F.col("value"))
        groups = (
            routed.where(F.col("control").isNull() | (F.col("control") == WATERMARK))
            .groupBy(_step_of(statements).alias("step"), "control", "subject")
            .agg(
                F.count("*").alias("rows"),
                F.min("sequence_id").alias("first"),
                F.max("sequence_id").alias("last"),
                F.max_by(marked, "sequence_id").alias("value"),
            )
            .collect()
        )
        rows = [
            Rows(one["step"], *read_subject(one["subject"]), one["first"], one["rows"])
            for one in groups
            if one["control"] is None
        ]
        marks = [
            (one["step"], Control(one["last"], bytes(one["value"])))
            for one in groups
            if one["control"] == WATERMARK
        ]
        ends = [one["last"] for one in groups] + [one.sequence_id for one in statements]
        return plan_steps(statements, rows, marks), max(ends, default=0)

    def write_rows(self, rows: DataFrame, about: str) -> None:
        """Write routed rows, each partition's in the order of the feed; all are acknowledged when it returns.

        BrokerUnavailable if brokers took nothing for as long as they may; TopicGone; QueryFailed, which says ``about`` what.
        """
        # Each attempt has a client of its own, which gives up nothing that it holds: none is begun in an outage.
        wait_writable(lambda: self.brokers.check_writable(self.topics.places), self._patience_s)
        tasks = max(1, min(self.topics.slots, TASKS_MAX))
        ordered = rows.repartitionById(tasks, F.col("slot") % tasks).sortWithinPartitions(
            "slot", "sequence_id"
        )
        placed = ordered.select(*self._place_columns(), "value")
        options = connector_options(self._sink, self._patience_s, self._attempt)
        # A session's own tags do not reach the jobs of a micro-batch.
        context = rows.sparkSession.sparkContext
        tag = f"headrace-kafka-{self._attempt}"
        watch = Watch(self._check_brokers, lambda: context.cancelJobsWithTag(tag), self._patience_s)
        context.addJobTag(tag)
        try:
            with watch:
                placed.write.format("kafka").options(**options).save()
        except (PySparkException, Py4JJavaError) as failure:
            raise watch.error or error_of_write(failure) or failed_at(failure, about) from None
        finally:
            context.removeJobTag(tag)

    def _place_columns(self) -> tuple[Column, Column]:
        """Return topic and partition of a slot, each looked up in one literal, however many there are."""
        places = sorted(self.topics.places.items(), key=lambda one: one[1].first_slot)
        topics = [topic for topic, place in places for _ in range(place.partitions)]
        partitions = [str(number) for _, place in places for number in range(place.partitions)]
        names, numbers = (F.split(F.lit(",".join(words)), ",") for words in (topics, partitions))
        slot = F.col("slot")
        return names[slot].alias("topic"), numbers[slot].cast("int").alias("partition")

    def send_schemas(self, due: Iterable[BootstrapDue]) -> None:
        """Send BOOTSTRAP messages."""
        sendings = []
        for one in due:
            value = self.form(one.message)
            schema = one.message.table_schema
            self.check_size(value, one.topic, f"the BOOTSTRAP of {schema.schema}.{schema.table}")
            sendings.append(Sending(one.topic, one.partitions, value))
        self.brokers.send(sendings)

    def check_size(self, value: bytes, topic: str, about: str) -> None:
        """Raise MessageTooLarge, naming the feed and what it is ``about``, if a message is larger than its topic takes."""
        try:
            check_size(value, topic, self.topics.places[topic])
        except MessageTooLarge as error:
            raise MessageTooLarge(f"feed {self._schemas.feed}, {about}: {error.detail}") from None

    def schema_of(self, rows: Rows) -> TableSchema:
        """Return the schema of some rows; SimpleSchemaMissing."""
        return self._schemas.find(rows.database, rows.table, rows.version)

    def decoded(self, entry: Control, kind: type[M]) -> M:
        """Return the message of a control entry; SimpleInvalid, naming feed and sequence id, if it is none of ``kind``."""
        named = f"feed {self._schemas.feed}, sequence id {entry.sequence_id}"
        try:
            message = json_codec.decode(entry.value)
        except SimpleInvalid as error:
            raise SimpleInvalid(f"{named}: {error.detail}") from None
        if not isinstance(message, kind):
            raise SimpleInvalid(f"{named}: a message of the type {message.type}")
        return message

    def form(self, message: Message, json: bytes | None = None) -> bytes:
        """Return a message's bytes in the encoding that is asked for; ``json``: those in the feed."""
        if self._sink.changefeed.encoding is Encoding.AVRO:
            return avro_codec.encode(message)
        return json if json is not None else json_codec.encode(message)


class _BatchOut:
    """Sends one batch. ``sent_watermark``: the commitTs of the last WATERMARK that was sent."""

    def __init__(self, batches: Batches, routed: DataFrame) -> None:
        self._batches = batches
        self._routed = routed
        self.sent_watermark: int | None = None

    def announce(self, rows: Sequence[Rows]) -> None:
        batches = self._batches
        batches.send_schemas(batches.announcer.before_rows(rows, batches.schema_of, now()))

    def write(self, step: Step) -> None:
        mine = F.col("control").isNull() & (F.col("sequence_id") > step.after)
        if step.below is not None:
            mine &= F.col("sequence_id") < step.below
        tables = sorted({f"{one.database}.{one.table}" for one in step.rows})
        more = f" and {len(tables) - TABLES_NAMED} more" if len(tables) > TABLES_NAMED else ""
        about = f"rows of {', '.join(tables[:TABLES_NAMED])}{more}"
        self._batches.write_rows(self._routed.where(mine), about)

    def watermark(self, entry: Control) -> None:
        batches = self._batches
        mark = batches.decoded(entry, Watermark)
        value = batches.form(mark, entry.value)
        places = batches.topics.places
        batches.brokers.send(
            [Sending(topic, range(place.partitions), value) for topic, place in places.items()]
        )
        self.sent_watermark = mark.commit_ts

    def statement(self, entry: Control) -> None:
        batches = self._batches
        message = batches.decoded(entry, Ddl)
        topic = batches.topics.topic_of_statement(message, entry.table)
        if topic is None:
            return
        place = batches.topics.places[topic]
        value = batches.form(message, entry.value)
        batches.check_size(value, topic, f"sequence id {entry.sequence_id}, table {'.'.join(entry.table)}")
        batches.brokers.send([Sending(topic, range(place.partitions), value)])
        batches.announcer.statement(message, topic, now())


def _step_of(statements: Iterable[Control]) -> Column:
    """Return how many of the statements stand before an entry."""
    places = [F.lit(one.sequence_id) for one in statements]
    if not places:
        return F.lit(0)
    return F.size(F.filter(F.array(*places), lambda place: place < F.col("sequence_id")))


def now() -> Now:
    """Return the time, as :class:`Announcer` takes it."""
    return Now(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)
