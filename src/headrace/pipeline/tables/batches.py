"""One micro-batch of a feed -> all its tables, then published as one moment. The body of the tables job's foreachBatch.

Order: schemas are kept durably, then every table that the batch touches is merged (several at once), then
``published.json`` is replaced. A batch that runs again, after a crash anywhere between, comes to the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.entries.entry import Op
from headrace.pipeline.failures import failed_at
from headrace.pipeline.tables.captured import CapturedTables, read_batch
from headrace.pipeline.tables.catching_up import CatchingUp
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
from headrace.pipeline.tables.origins import begin_with, check_place, given_of, now_text, with_origins
from headrace.pipeline.tables.parallel import run_all
from headrace.pipeline.tables.schemas import PlacedSchema, TableName, read_cleared, read_schema, unfit
from headrace.pipeline.tables.simple.plan import is_simple
from headrace.pipeline.tables.states import NO_VERSION, LeftFolder, Reached
from headrace.pipeline.tables.upkeep import Upkeep

SCHEMA: Final = "schema"
TRUNCATE: Final = "truncate"
_FOLLOWED: Final = (SCHEMA, TRUNCATE)
"""Control entries that change attached tables; all others are passed over."""

_OF_CAPTURE: Final = ("ddl", "watermark")
"""Control entries that captured feeds alone have."""


class Part(NamedTuple):
    """What a batch holds of one table, counted: rows, patches, entries that are batches themselves, controls."""

    table: TableName
    rows: int
    patches: int
    batches: int
    controls: int


class Survey(NamedTuple):
    """A batch counted: its entries, the first and the last one (sequence id, LSN), and whether a transaction ends there.

    ``captured``: it has control entries that captured feeds alone have.
    """

    entries: int
    first: int
    sequence_id: int
    lsn: str
    whole: bool
    captured: bool
    parts: list[Part]

    @property
    def has_plain_rows(self) -> bool:
        """Whether entries that name no table are among the rows."""
        return any(part.rows and not part.table for part in self.parts)


class BatchDone(NamedTuple):
    """What became of a batch. ``published``: readers see its end."""

    entries: int
    tables: int
    sequence_id: int
    published: bool
    seconds: float


class Batches:
    """Applies micro-batches to the tables of one ledger; give it to ``foreachBatch``. Called by one thread at a time."""

    def __init__(
        self,
        ledger: Ledger,
        done: Callable[[BatchDone], None],
        coming_back: CatchingUp | None = None,
        *,
        compacted: bool = False,
    ) -> None:
        """``done`` is told of every batch, on Spark's thread. ``coming_back``: brings stopped tables back.

        ``compacted``: entries that others overwrote may be missing before a batch, as in a base snapshot.
        """
        self._ledger = ledger
        self._done = done
        self._coming_back = coming_back
        self._compacted = compacted
        self._upkeep = Upkeep(ledger)
        self._captured = CapturedTables(ledger)

    def __call__(self, entries: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch: rows of the source, all its columns. Safe to repeat."""
        started = time.monotonic()
        entries = entries.persist()
        try:
            survey = survey_of(entries)
            if not survey.entries:
                return
            if not self._compacted:
                check_place(self._ledger, survey.first)
            begin_with(self._ledger, survey.first)
            touched = self._apply(entries, survey)
        finally:
            entries.unpersist()
        if self._coming_back is not None:
            self._coming_back.serve(entries.sparkSession)
        shown = survey.whole and self._ledger.may_publish(survey.sequence_id)
        if shown:
            publish_moment(self._ledger, Reached(survey.sequence_id, survey.lsn))
            self._upkeep.published()
            if self._upkeep.work(entries.sparkSession):
                publish_again(self._ledger)
        elapsed = time.monotonic() - started
        self._done(BatchDone(survey.entries, touched, survey.sequence_id, shown, elapsed))

    def _apply(self, entries: DataFrame, survey: Survey) -> int:
        ledger = self._ledger
        for part in survey.parts:
            if part.batches:
                problem = "an entry of several mutations can't be kept in tables"
                raise unfit(ledger.feed, survey.sequence_id, part.table, "", problem)
        spark = entries.sparkSession  # the query's own copy of the session: what is set here stays here
        for name, value in EXACT_WRITES.items():
            spark.conf.set(name, value)
        found = self._controls(entries, survey)
        captured = survey.captured or ledger.reached is not None or bool(ledger.tables)
        if captured or any(is_simple(row["value"]) for row in found):
            ledger.begin(survey.sequence_id, [])
            plain = self._merge(entries, survey, {(): 0} if survey.has_plain_rows else {}, [])
            return plain + self._follow_capture(entries, survey)
        cleared, schemas = self._changes(found)
        ledger.begin(survey.sequence_id, schemas)
        touched = dict.fromkeys((part.table for part in survey.parts if part.rows), 0) | cleared
        count = self._merge(entries, survey, touched, schemas)
        if ledger.merged is None or ledger.merged.sequence_id < survey.sequence_id:
            ledger.keep(merged=Reached(survey.sequence_id, survey.lsn))
        return count

    def _follow_capture(self, entries: DataFrame, survey: Survey) -> int:
        """Bring captured tables up to the batch's end, and keep durably that they are."""
        ledger = self._ledger
        after = survey.first - 1
        if ledger.reached is not None and ledger.reached.sequence_id > after:
            # The batch runs again, and the ledger's states are those behind it, or behind a part of it.
            after = ledger.reached.sequence_id
            if after >= survey.sequence_id:
                return 0
            entries = entries.where(F.col("sequence_id") > after)
        batch = read_batch(entries, after, survey.sequence_id)
        before = ledger.tables
        outcome = self._captured.apply(batch, before, ledger.update)
        left = [LeftFolder(path, now_text()) for path in outcome.erased]
        known_ts = ledger.reached.commit_ts if ledger.reached is not None else 0
        # Kept with the place: if the job dies before it publishes, no WATERMARK may come for long.
        reached = Reached(survey.sequence_id, survey.lsn, outcome.watermark or known_ts)
        copied = [one.table for one in batch.controls if one.control == "copy-begin"]
        seen = [*(run.table for run in batch.runs), *(one.table for one in batch.controls)]
        tables = with_origins(outcome.tables, before, copied, seen, ledger.start)
        ledger.keep(tables=tables, reached=reached, **({"left": [*ledger.left, *left]} if left else {}))
        return outcome.touched

    def _merge(
        self,
        entries: DataFrame,
        survey: Survey,
        cleared: dict[TableName, int],
        schemas: list[PlacedSchema],
    ) -> int:
        """Merge tables of other feeds: those in ``cleared``, and where each was cleared last (0: it was not)."""
        ledger, spark = self._ledger, entries.sparkSession
        touched = set(cleared)
        described = {placed.schema.name for placed in schemas} - touched
        spark.conf.set(APP_ID, f"headrace:{ledger.feed}:{ledger.incarnation}")
        spark.conf.set(APP_VERSION, str(survey.sequence_id))
        patched = {part.table for part in survey.parts if part.patches}
        jobs: list[Callable[[], None]] = []
        for table in sorted(touched):
            cleared_at = cleared.get(table, 0)
            rows = _rows_of(entries, table, cleared_at)
            versions = ledger.schemas.of(table, survey.sequence_id) if table else given_of(ledger)
            if table and not versions:
                problem = "the feed has no schema entry of this table before its rows"
                raise unfit(ledger.feed, survey.sequence_id, table, "", problem)
            batch = TableBatch(ledger.feed, table, rows, versions, cleared_at, table in patched)
            merge = partial(apply_batch, spark, ledger.to / folder_of(table), batch)
            jobs.append(partial(_naming, table, merge))
        jobs += [partial(_naming, table, partial(self._follow, spark, table)) for table in sorted(described)]
        try:
            run_all(spark, jobs)
        finally:
            spark.conf.unset(APP_ID)
            spark.conf.unset(APP_VERSION)
        return len(touched)

    def _follow(self, spark: SparkSession, table: TableName) -> None:
        path = self._ledger.to / folder_of(table)
        versions = self._ledger.schemas.of(table)
        create_empty(spark, path, versions[-1])
        follow_schema(spark, path, versions)

    def _controls(self, entries: DataFrame, survey: Survey) -> list[Row]:
        """Return the batch's control entries that change attached tables: as many as there were such commands."""
        if not any(part.controls for part in survey.parts):
            return []
        wanted = entries.where(F.col("control").isin(*_FOLLOWED))
        return wanted.select("sequence_id", "control", "value").collect()

    def _changes(self, controls: list[Row]) -> tuple[dict[TableName, int], list[PlacedSchema]]:
        """Return (the last place where each table was cleared, the schemas) that control entries tell of."""
        cleared: dict[TableName, int] = {}
        schemas: list[PlacedSchema] = []
        for row in controls:
            value, place = bytes(row["value"]), int(row["sequence_id"])
            if row["control"] == SCHEMA:
                schema = read_schema(value, feed=self._ledger.feed, sequence_id=place)
                schemas.append(PlacedSchema(sequence_id=place, schema=schema))
            else:
                table = read_cleared(value, feed=self._ledger.feed, sequence_id=place)
                cleared[table] = max(cleared.get(table, 0), place)
        return cleared, schemas


def _naming(table: TableName, job: Callable[[], None]) -> None:
    """Do a table's part; what Spark raises in it comes out as one of our errors, and names the table."""
    try:
        job()
    except (PySparkException, Py4JJavaError) as failure:
        raise failed_at(failure, f"table {'.'.join(table) or 'of entries without a table'}") from None


def publish_moment(ledger: Ledger, end: Reached) -> None:
    """Publish every table at its newest version as the moment ``end``: all that is there must be merged up to it."""
    before = ledger.published.commit_ts if ledger.published is not None else UNSET
    commit_ts = ledger.reached.commit_ts if ledger.reached is not None else 0
    ledger.publish(
        PublishedFile(
            feed=ledger.feed,
            incarnation=ledger.incarnation,
            sequence_id=end.sequence_id,
            lsn=end.lsn,
            published_at=now_text(),
            tables=newest_tables(ledger),
            commit_ts=commit_ts or before,
            readable_from=2 if ledger.tables else 1,
        )
    )


def publish_again(ledger: Ledger) -> None:
    """Publish the same moment with the versions that its tables have now: rows are the same, files are others."""
    if ledger.published is not None:
        tables = newest_tables(ledger)
        ledger.publish(msgspec.structs.replace(ledger.published, published_at=now_text(), tables=tables))


def newest_tables(ledger: Ledger) -> list[PublishedTable]:
    """Return every table of a ledger at its newest version, but for those whose first rows are still being copied.

    Of a stopped table that a resume has brought a part of the way, the version before that part.
    """
    tables = []
    for table in [(), *ledger.schemas.tables()]:
        version = newest_version(ledger.to / folder_of(table))
        if version is not None:
            tables.append(PublishedTable(table=list(table), path=folder_of(table), version=version))
    for one in ledger.tables:
        version = newest_version(ledger.to / one.path)
        note = one.stopped
        if note is not None and note.version is not UNSET:
            version = note.version if note.version != NO_VERSION else None
        if version is not None and not one.copying:
            after = UNSET if note is None else note.after
            tables.append(PublishedTable(list(one.table), one.path, version, after))
    return tables


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
            _count(F.col("control").isin(*_OF_CAPTURE)).alias("captured"),
            F.min("sequence_id").alias("first"),
            F.max_by(F.struct("sequence_id", "lsn", ends.alias("whole")), "sequence_id").alias("last"),
        )
        .collect()
    )
    if not groups:
        return Survey(0, 0, 0, "", whole=True, captured=False, parts=[])
    last: Any = max((group["last"] for group in groups), key=lambda one: int(one["sequence_id"]))
    parts = [
        Part(
            tuple(group["table"] or ()), group["rows"], group["patches"], group["batches"], group["controls"]
        )
        for group in groups
    ]
    total = sum(group["entries"] for group in groups)
    first = min(group["first"] for group in groups)
    captured = any(group["captured"] for group in groups)
    place = int(last["sequence_id"])
    return Survey(total, first, place, last["lsn"], whole=last["whole"], captured=captured, parts=parts)


def _count(condition: Column) -> Column:
    return F.count(F.when(condition, 1))


def _rows_of(entries: DataFrame, table: TableName, above: int) -> DataFrame:
    names = F.array(*[F.lit(part) for part in table])
    mine = F.col("table") == names if table else F.col("table").isNull()
    kept = entries.where(mine & F.col("control").isNull() & (F.col("sequence_id") > above))
    return kept.select("key", "sequence_id", "op", "value")
