"""A batch's part of attached tables, and of the one of entries without a table -> their Delta tables.

A table that what came does not fit stands still where it was; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.entries.entry import Op
from headrace.errors import ValueUnfit
from headrace.pipeline.failures import failed_at
from headrace.pipeline.tables.attached import Changes, stopped_tables
from headrace.pipeline.tables.ledger import Ledger, folder_of
from headrace.pipeline.tables.merge import (
    APP_ID,
    APP_VERSION,
    TableBatch,
    apply_batch,
    create_empty,
    follow_schema,
)
from headrace.pipeline.tables.origins import given_of, now_text
from headrace.pipeline.tables.parallel import run_all
from headrace.pipeline.tables.schemas import TableName, unfit
from headrace.pipeline.tables.states import StopNote
from headrace.pipeline.tables.survey import Survey
from headrace.runtime.logs import get_logger

logger = get_logger("pipeline")

COPY_AGAIN: Final = (
    "Mend it at the source, then copy the table again: headrace publisher copy DSN --table TABLE."
)
"""What brings an attached table back that stands still."""


class AttachedBatch:
    """One batch on its way into attached tables. ``changes``: what its control entries come to.

    ``stops``: tables that what came does not fit, and why; filled by :meth:`merge`.
    """

    def __init__(self, ledger: Ledger, entries: DataFrame, survey: Survey, changes: Changes) -> None:
        self._ledger = ledger
        self._entries = entries
        self._survey = survey
        self._changes = changes
        self.stops: dict[TableName, StopNote] = {}

    def merge(self) -> int:
        """Bring every table that does not stand still up to the batch's end; returns how many got rows. Safe to repeat."""
        changes, spark = self._changes, self._entries.sparkSession
        still = stopped_tables(changes.states.values())
        rows = {part.table for part in self._survey.parts if part.rows}
        touched = (rows | changes.cleared.keys()) - still
        described = {placed.schema.name for placed in changes.schemas} - touched - still
        jobs: list[Callable[[], None]] = [
            partial(self._stopping, table, partial(self._merge_rows, table)) for table in sorted(touched)
        ]
        jobs += [partial(self._stopping, table, partial(self._follow, table)) for table in sorted(described)]
        self._run(spark, jobs)
        return len(touched)

    def merge_plain(self) -> int:
        """Merge the entries that name no table alone, as in a feed of capture; returns how many tables got rows."""
        if not self._survey.has_plain_rows:
            return 0
        self._run(self._entries.sparkSession, [partial(_naming, (), partial(self._merge_rows, ()))])
        return 1

    def _run(self, spark: SparkSession, jobs: list[Callable[[], None]]) -> None:
        spark.conf.set(APP_ID, f"headrace:{self._ledger.feed}:{self._ledger.incarnation}")
        spark.conf.set(APP_VERSION, str(self._survey.sequence_id))
        try:
            run_all(spark, jobs)
        finally:
            spark.conf.unset(APP_ID)
            spark.conf.unset(APP_VERSION)

    def _merge_rows(self, table: TableName, puts_above: int = 0) -> None:
        """Merge a table's rows; of puts and patches only those above the sequence id ``puts_above``."""
        ledger, survey = self._ledger, self._survey
        versions = ledger.schemas.of(table, survey.sequence_id) if table else given_of(ledger)
        if table and not versions:
            problem = "the feed has no schema entry of this table before its rows"
            raise unfit(ledger.feed, survey.sequence_id, table, "", problem)
        cleared_at = self._changes.cleared.get(table, 0)
        rows = _rows_of(self._entries, table, cleared_at)
        if puts_above:
            rows = rows.where((F.col("op") == Op.DELETE.value) | (F.col("sequence_id") > puts_above))
        batch = TableBatch(
            feed=ledger.feed,
            table=table,
            rows=rows,
            versions=versions,
            cleared_at=cleared_at,
            patched=any(part.patches for part in survey.parts if part.table == table),
            recopied=table in self._changes.recopied,
        )
        apply_batch(self._entries.sparkSession, ledger.to / folder_of(table), batch)

    def _follow(self, table: TableName) -> None:
        spark, path = self._entries.sparkSession, self._ledger.to / folder_of(table)
        versions = self._ledger.schemas.of(table)
        create_empty(spark, path, versions[-1])
        follow_schema(spark, path, versions, recopied=table in self._changes.recopied)

    def _stopping(self, table: TableName, job: Callable[[], None]) -> None:
        """Do a table's part. Where what came does not fit, the table stands still: its commit was not made."""
        try:
            _naming(table, job)
        except ValueUnfit as error:
            if not table:  # nothing could bring it back
                raise
            again = self._changes.recopied.get(table)
            if again is None:
                self._stop(table, error)
                return
        else:
            return
        # What was wrong before the copy comes once more with it.
        try:
            _naming(table, partial(self._merge_rows, table, again))
        except ValueUnfit as error:
            self._stop(table, error)

    def _stop(self, table: TableName, error: ValueUnfit) -> None:
        merged, before = self._ledger.merged, self._survey.first - 1
        self.stops[table] = StopNote(
            after=before if merged is None else min(before, merged.sequence_id),
            state=None,
            code=error.code,
            reason=error.detail,
            hint=COPY_AGAIN,
            at=now_text(),
        )
        logger.warning("a table is stopped", table=".".join(table), code=error.code, detail=error.detail)


def _naming(table: TableName, job: Callable[[], None]) -> None:
    """Do a table's part; what Spark raises in it comes out as one of our errors, and names the table."""
    try:
        job()
    except (PySparkException, Py4JJavaError) as failure:
        raise failed_at(failure, f"table {'.'.join(table) or 'of entries without a table'}") from None


def _rows_of(entries: DataFrame, table: TableName, above: int) -> DataFrame:
    names = F.array(*[F.lit(part) for part in table])
    mine = F.col("table") == names if table else F.col("table").isNull()
    kept = entries.where(mine & F.col("control").isNull() & (F.col("sequence_id") > above))
    return kept.select("key", "sequence_id", "op", "value")
