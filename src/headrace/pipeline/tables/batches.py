"""One micro-batch of a feed -> all its tables, then published as one moment. The body of the tables job's foreachBatch.

Order: schemas are kept durably, then every table that the batch touches is merged (several at once), then
``published.json`` is replaced. A batch that runs again, after a crash anywhere between, comes to the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it
from pyspark.util import inheritable_thread_target

from headrace.entries.entry import Op
from headrace.pipeline.tables.ledger import Ledger, PublishedFile, PublishedTable, folder_of, newest_version
from headrace.pipeline.tables.merge import (
    APP_ID,
    APP_VERSION,
    EXACT_WRITES,
    TableBatch,
    apply_batch,
    create_empty,
    follow_schema,
)
from headrace.pipeline.tables.schemas import PlacedSchema, TableName, read_cleared, read_schema, unfit

SCHEMA: Final = "schema"
TRUNCATE: Final = "truncate"
_FOLLOWED: Final = (SCHEMA, TRUNCATE)
"""Control entries that change tables; all others are passed over."""

TABLES_AT_ONCE: Final = 4
"""Tables merged at the same time: most of a small merge is planning on the driver, which leaves the cores idle."""


class Part(NamedTuple):
    """What a batch holds of one table, counted: rows, patches, entries that are batches themselves, controls."""

    table: TableName
    rows: int
    patches: int
    batches: int
    controls: int


class Survey(NamedTuple):
    """A batch counted: its entries, its last one (sequence id, LSN), and whether a transaction ends there."""

    entries: int
    sequence_id: int
    lsn: str
    whole: bool
    parts: list[Part]


class BatchDone(NamedTuple):
    """What became of a batch. ``published``: readers see its end."""

    entries: int
    tables: int
    sequence_id: int
    published: bool
    seconds: float


class Batches:
    """Applies micro-batches to the tables of one ledger; give it to ``foreachBatch``. Called by one thread at a time."""

    def __init__(self, ledger: Ledger, done: Callable[[BatchDone], None]) -> None:
        """``done`` is told of every batch, on Spark's thread."""
        self._ledger = ledger
        self._done = done

    def __call__(self, entries: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch: rows of the source, all its columns. Safe to repeat."""
        started = time.monotonic()
        entries = entries.persist()
        try:
            survey = survey_of(entries)
            if not survey.entries:
                return
            touched = self._apply(entries, survey)
        finally:
            entries.unpersist()
        shown = survey.whole and self._ledger.may_publish(survey.sequence_id)
        if shown:
            self._publish(survey)
        elapsed = time.monotonic() - started
        self._done(BatchDone(survey.entries, touched, survey.sequence_id, shown, elapsed))

    def _apply(self, entries: DataFrame, survey: Survey) -> int:
        ledger = self._ledger
        for part in survey.parts:
            if part.batches:
                problem = "an entry of several mutations can't be kept in tables"
                raise unfit(ledger.feed, survey.sequence_id, part.table, "", problem)
        cleared, schemas = self._controls(entries, survey)
        ledger.begin(survey.sequence_id, schemas)
        touched = {part.table for part in survey.parts if part.rows} | set(cleared)
        described = {placed.schema.name for placed in schemas} - touched
        spark = entries.sparkSession  # the query's own copy of the session: what is set here stays here
        for name, value in EXACT_WRITES.items():
            spark.conf.set(name, value)
        spark.conf.set(APP_ID, f"headrace:{ledger.feed}:{ledger.incarnation}")
        spark.conf.set(APP_VERSION, str(survey.sequence_id))
        patched = {part.table for part in survey.parts if part.patches}
        jobs: list[Callable[[], None]] = []
        for table in sorted(touched):
            cleared_at = cleared.get(table, 0)
            rows = _rows_of(entries, table, cleared_at)
            versions = ledger.schemas.of(table, survey.sequence_id)
            if table and not versions:
                problem = "the feed has no schema entry of this table before its rows"
                raise unfit(ledger.feed, survey.sequence_id, table, "", problem)
            batch = TableBatch(ledger.feed, table, rows, versions, cleared_at, table in patched)
            jobs.append(partial(apply_batch, spark, ledger.to / folder_of(table), batch))
        jobs += [partial(self._follow, spark, table) for table in sorted(described)]
        try:
            _run_all(spark, jobs)
        finally:
            spark.conf.unset(APP_ID)
            spark.conf.unset(APP_VERSION)
        return len(touched)

    def _follow(self, spark: SparkSession, table: TableName) -> None:
        path = self._ledger.to / folder_of(table)
        versions = self._ledger.schemas.of(table)
        create_empty(spark, path, versions[-1])
        follow_schema(spark, path, versions)

    def _controls(
        self, entries: DataFrame, survey: Survey
    ) -> tuple[dict[TableName, int], list[PlacedSchema]]:
        """Return (the last place where each table was cleared, the schemas) that the batch's control entries tell of."""
        cleared: dict[TableName, int] = {}
        schemas: list[PlacedSchema] = []
        if any(part.controls for part in survey.parts):
            wanted = entries.where(F.col("control").isin(*_FOLLOWED))
            # A table's schema and its clearing are not data: there are as many as there were such commands.
            for row in wanted.select("sequence_id", "control", "value").collect():
                value, place = bytes(row["value"]), int(row["sequence_id"])
                if row["control"] == SCHEMA:
                    schema = read_schema(value, feed=self._ledger.feed, sequence_id=place)
                    schemas.append(PlacedSchema(sequence_id=place, schema=schema))
                else:
                    table = read_cleared(value, feed=self._ledger.feed, sequence_id=place)
                    cleared[table] = max(cleared.get(table, 0), place)
        return cleared, schemas

    def _publish(self, survey: Survey) -> None:
        ledger = self._ledger
        tables = []
        for table in [(), *ledger.schemas.tables()]:
            version = newest_version(ledger.to / folder_of(table))
            if version is not None:
                tables.append(PublishedTable(table=list(table), path=folder_of(table), version=version))
        ledger.publish(
            PublishedFile(
                feed=ledger.feed,
                incarnation=ledger.incarnation,
                sequence_id=survey.sequence_id,
                lsn=survey.lsn,
                published_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                tables=tables,
            )
        )


def survey_of(entries: DataFrame) -> Survey:
    """Count a batch by table, in one pass over it. The answer has one row a table, whatever the batch's size."""
    is_row = F.col("control").isNull()
    ends = F.col("tx_last") | (F.col("source_tx").isNull() & F.col("append_end"))
    groups = (
        entries.groupBy("table")
        .agg(
            F.count("*").alias("entries"),
            _count(is_row).alias("rows"),
            _count(is_row & (F.col("op") == Op.PATCH.value)).alias("patches"),
            _count(is_row & (F.col("op") == Op.BATCH.value)).alias("batches"),
            _count(F.col("control").isin(*_FOLLOWED)).alias("controls"),
            F.max_by(F.struct("sequence_id", "lsn", ends.alias("whole")), "sequence_id").alias("last"),
        )
        .collect()
    )
    if not groups:
        return Survey(0, 0, "", whole=True, parts=[])
    last: Any = max((group["last"] for group in groups), key=lambda one: int(one["sequence_id"]))
    parts = [
        Part(
            tuple(group["table"] or ()), group["rows"], group["patches"], group["batches"], group["controls"]
        )
        for group in groups
    ]
    total = sum(group["entries"] for group in groups)
    return Survey(total, last["sequence_id"], last["lsn"], whole=last["whole"], parts=parts)


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _rows_of(entries: DataFrame, table: TableName, above: int) -> DataFrame:
    names = F.array(*[F.lit(part) for part in table])
    mine = F.col("table") == names if table else F.col("table").isNull()
    kept = entries.where(mine & F.col("control").isNull() & (F.col("sequence_id") > above))
    return kept.select("key", "sequence_id", "op", "value")


def _run_all(spark: SparkSession, jobs: list[Callable[[], None]]) -> None:
    """Run the jobs, several at once, and raise the first failure after all have ended."""
    if len(jobs) < 2:
        for job in jobs:
            job()
        return
    with ThreadPoolExecutor(min(TABLES_AT_ONCE, len(jobs)), thread_name_prefix="tables") as pool:
        # Spark's thread-local properties say which query a job belongs to, so that it is cancelled with it.
        running = [pool.submit(inheritable_thread_target(spark)(job)) for job in jobs]
    for one in running:
        one.result()
