"""A captured feed in memory and its Delta tables, batch by batch, without a server: what tests of merging begin with."""

from __future__ import annotations

import shutil
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.tables.captured import CapturedTables, read_batch
from headrace.pipeline.tables.delta_log import newest_version
from headrace.pipeline.tables.ledger import Ledger
from headrace.pipeline.tables.merge import EXACT_WRITES
from headrace.pipeline.tables.reader import rows_at
from headrace.pipeline.tables.states import Reached
from tests.unit.pipeline.tables.simple.history import Feed

ENTRIES = "sequence_id BIGINT, control STRING, table ARRAY<STRING>, value BINARY, source_time TIMESTAMP"


class DeltaTables:
    """The tables of a feed in a folder; ``feed`` grows, and each batch takes what is new in it, or a part of that."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.feed = Feed()
        self.ledger = Ledger(folder, "shop", "incarnation")
        for name, value in EXACT_WRITES.items():
            spark.conf.set(name, value)

    def copied(self, folder: Path) -> DeltaTables:
        """The same tables in another folder, as a process that has ended left them."""
        self.ledger.close()
        made = copy(self)
        made.ledger = Ledger(shutil.copytree(self.ledger.to, folder), "shop", "incarnation")
        return made

    def entries(self, first: int, last: int) -> DataFrame:
        """A range of the feed as the source gives it."""
        rows = [
            (
                at,
                one.control or None,
                list(one.table) or None,
                one.value,
                datetime.fromtimestamp(one.source_time_ms / 1000, UTC) if one.source_time_ms else None,
            )
            for at, one in self.feed.entries[first - 1 : last]
        ]
        return self.spark.createDataFrame(rows, ENTRIES)

    def take(self, last: int | None = None, tables: CapturedTables | None = None) -> None:
        """Bring the tables up to the entry ``last``: one batch, kept in the ledger at its end."""
        reached = self.ledger.reached
        after, end = reached.sequence_id if reached is not None else 0, last or len(self.feed.entries)
        batch = read_batch(self.entries(after + 1, end), after, end)
        known = self.ledger.tables
        outcome = (tables or CapturedTables(self.ledger)).apply(batch, known, self.ledger.update)
        self.ledger.keep(tables=outcome.tables, reached=Reached(end, ""))

    def folder(self, name: str = "t") -> Path:
        """Where a table's files are."""
        (found,) = [one.path for one in self.ledger.tables if one.table == ("shop", name)]
        return self.ledger.to / found

    def version(self) -> int:
        """The newest version of the table ``t``."""
        return newest_version(self.folder()) or 0

    def rows(self) -> list[dict[str, Any]]:
        """The rows of the table ``t``, without our columns, by their id."""
        return sorted(rows_at(self.folder(), self.version()), key=lambda row: int(row["id"]))

    def stopped(self) -> list[str]:
        """Why tables are stopped."""
        return [one.stopped.reason for one in self.ledger.tables if one.stopped is not None]
