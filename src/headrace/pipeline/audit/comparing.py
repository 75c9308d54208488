"""One table on two sides: the feed folded anew against what is published, and against what the source holds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import UNSET
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.pipeline.audit.checksums import differences, figures_of, own_columns
from headrace.pipeline.audit.source import SourceTable
from headrace.pipeline.audit.texts import source_text, table_text
from headrace.pipeline.audit.verdicts import SourceDifference, SourceVerdict, TableAudit
from headrace.pipeline.tables.ledger import PublishedTable
from headrace.pipeline.tables.reader import version_frame
from headrace.pipeline.tables.schemas import TableName

_COLUMNS_SHOWN: Final = 10


class Comparing:
    """Compares tables of the folder ``folded`` with others; lists up to ``differences_max`` keys of each that differs."""

    def __init__(self, spark: SparkSession, folded: Path, differences_max: int) -> None:
        self._spark = spark
        self._folded = folded
        self._differences_max = differences_max

    def with_published(
        self,
        name: TableName,
        ours: PublishedTable | None,
        theirs: PublishedTable | None,
        *,
        published: Path,
        key: tuple[str, ...],
    ) -> TableAudit:
        """Return the verdict on one table of the folder ``published``; None where a side has none of this name."""
        feed = None if ours is None else self._frame(self._folded, ours)
        table = None if theirs is None else self._frame(published, theirs)
        if ours is None or theirs is None or feed is None or table is None:
            return TableAudit(
                table=list(name),
                equal=False,
                feed=None if feed is None else figures_of(feed),
                published=None if table is None else figures_of(table),
                reason="the feed has no such table" if feed is None else "it is not published",
            )
        sides = figures_of(feed), figures_of(table)
        reason = _difference(ours, theirs, own_columns(feed), own_columns(table))
        same = sides[0] == sides[1]
        listed = [] if same or reason else differences(feed, table, key, self._differences_max)
        return TableAudit(
            table=list(name),
            equal=same and not reason,
            feed=sides[0],
            published=sides[1],
            reason=reason,
            differences=listed,
            stopped_after=stopped_after(theirs),
        )

    def with_source(self, ours: PublishedTable | None, theirs: SourceTable | None) -> SourceVerdict:
        """Return the verdict on one table of the source; None where a side has none of this name."""
        if theirs is None:
            return SourceVerdict(equal=False, reason="the source has no such captured table")
        if theirs.reason:
            return SourceVerdict(equal=False, reason=f"the source's rows can't be compared: {theirs.reason}")
        source = self._source_frame(theirs)
        if ours is None:
            # A table without rows need not be told of; one that is being copied is not shown before it is whole.
            reason = "" if theirs.rows == 0 else "the feed has no such table"
            return SourceVerdict(equal=not reason, source=figures_of(source), reason=reason)
        if ours.stopped_after is not UNSET:
            reason = f"it is stopped after {ours.stopped_after}, so it is not what the source holds"
            return SourceVerdict(equal=False, source=figures_of(source), reason=reason)
        table = self._frame(self._folded, ours)
        columns = own_columns(table)
        if set(columns) != set(theirs.columns):
            odd = ", ".join(sorted(set(columns) ^ set(theirs.columns))[:_COLUMNS_SHOWN])
            return SourceVerdict(
                equal=False, source=figures_of(source), reason=f"its columns are others: {odd}"
            )
        feed = _texts_of(table, theirs)
        sides = figures_of(source), figures_of(feed)
        same = sides[0] == sides[1]
        found = [] if same else differences(source, feed, theirs.key, self._differences_max)
        listed = [SourceDifference(one.key, one.rows_in_feed, one.rows_in_table) for one in found]
        return SourceVerdict(equal=same, source=sides[0], feed=sides[1], differences=listed)

    def _frame(self, folder: Path, one: PublishedTable) -> DataFrame:
        return version_frame(self._spark, folder / one.path, one.version)

    def _source_frame(self, table: SourceTable) -> DataFrame:
        texts = [
            source_text(F.col(f"c{at}"), kind).alias(name)
            for at, (name, kind) in enumerate(table.columns.items())
        ]
        return self._spark.read.parquet(str(table.file)).select(*texts)


def _texts_of(frame: DataFrame, table: SourceTable) -> DataFrame:
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    return frame.select(
        *[table_text(name, kinds[name], kind).alias(name) for name, kind in table.columns.items()]
    )


def _difference(
    ours: PublishedTable, theirs: PublishedTable, columns: Mapping[str, str], published: Mapping[str, str]
) -> str:
    """Return what sets two tables apart besides their rows; empty if nothing does."""
    # Behind the last row before it, where a stop stands depends on where batches ended.
    if (stopped_after(ours) is None) != (stopped_after(theirs) is None):
        return f"folded anew it stops after {stopped_after(ours)}, the published one after {stopped_after(theirs)}"
    if columns != published:
        odd = sorted(set(columns.items()) ^ set(published.items()))
        return f"its columns are others: {', '.join(f'{name} {kind}' for name, kind in odd[:_COLUMNS_SHOWN])}"
    return ""


def stopped_after(table: PublishedTable) -> int | None:
    """Return the entry after which a table is stopped; None if it is not."""
    return None if table.stopped_after is UNSET else table.stopped_after
