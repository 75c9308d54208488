"""A micro-batch counted by table, in one pass over it, before anything is merged."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.entries.entry import Op
from headrace.pipeline.tables.attached import CONTROLS
from headrace.pipeline.tables.schemas import TableName

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
            _count(F.col("control").isin(*CONTROLS)).alias("controls"),
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
