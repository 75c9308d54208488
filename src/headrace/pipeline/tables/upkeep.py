"""Keeps tables healthy for months: small files are put together, what nobody can read any more is removed. Between batches.

Bounded: one table is compacted, or cleaned, after a batch at most. What ``published.json`` names, and what it named within
the last day, is never touched: a file that left a table stays for as long as a moment that still counts may need it.
"""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from headrace.pipeline.tables.ledger import Ledger, PublishedTable
from headrace.pipeline.tables.rows import quoted
from headrace.runtime.logs import get_logger

logger = get_logger("pipeline")

FILE_BYTES: Final = 64 << 20
"""Files are put together up to about this size."""
LOOKS_MAX: Final = 4
"""Tables whose files are counted after one batch, at most."""
KEPT: Final = timedelta(hours=24)
"""How long a moment can be read after another one took its place."""
SAMPLE: Final = timedelta(hours=1)
_RETAINED_HOURS_MIN: Final = 48
"""What tables are made with; Delta asks back below it."""

_SETTINGS: Final = {
    "spark.databricks.delta.optimize.minFileSize": str(FILE_BYTES // 2),
    "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
    # One file list of a small folder: the default of 10,000 tasks takes twenty seconds.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    # Cleaning makes no version of the table.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    # Without these Delta passes over the hours that VACUUM is told, and takes the table's own.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
}


class Terms(NamedTuple):
    """When something is due.

    ``commits_between``: commits of a table after which its files are looked at. ``files_max``: more files than this, beside
    two for each :data:`FILE_BYTES` of the table, are put together. ``clean_every_s``: least time between two removals of a
    table's old files.
    """

    commits_between: int = 40
    files_max: int = 32
    clean_every_s: float = 6 * 3600.0


def publishes_with(times: list[str], now: datetime) -> list[str]:
    """Return the times of publishes, with one that is made ``now``: one an hour, and from the last days what is needed."""
    kept = times
    if not kept or now - _time(kept[-1]) >= SAMPLE:
        kept = [*times, _text(now)]
    # The last one that is older than a day is the one that counts; all before it do not.
    old = [one for one in kept if now - _time(one) > KEPT]
    return [*old[-1:], *[one for one in kept if now - _time(one) <= KEPT]]


def retained_hours(times: list[str], now: datetime) -> int | None:
    """Return for how many hours a removed file must stay; None if nothing may be removed yet.

    A file that left a table before the moment was published that readers could still see a day ago is needed by none.
    """
    old = [_time(one) for one in times if now - _time(one) >= KEPT]
    if not old:
        return None
    hours = -(-(now - old[-1]) // timedelta(hours=1))
    return max(_RETAINED_HOURS_MIN, hours)


class Upkeep:
    """Looks after the tables of one ledger; call :meth:`work` after each publish, on the same thread."""

    def __init__(self, ledger: Ledger, terms: Terms | None = None) -> None:
        self._ledger = ledger
        self._terms = terms or Terms()
        self._seen: dict[str, int] = {}

    def published(self) -> None:
        """Note that a moment is published now."""
        now = datetime.now(UTC)
        before = self._ledger.publishes
        after = publishes_with(before, now)
        if after != before:
            self._ledger.keep(publishes=after)

    def work(self, spark: SparkSession) -> bool:
        """Do what is due for one table; True if a table has a new version that is to be published."""
        moment = self._ledger.published
        if moment is None:
            return False
        self._remove_folders()
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        between, looks = self._terms.commits_between, 0
        for table in moment.tables:
            # What this process has not looked at yet is due, unless it has few commits at all.
            if table.version - self._seen.get(table.path, 0) >= between:
                self._seen[table.path] = table.version
                looks += 1
                if self._compact(spark, table):
                    return True
            if looks == LOOKS_MAX:
                return False
        self._clean(spark, moment.tables)
        return False

    def _clean(self, spark: SparkSession, tables: list[PublishedTable]) -> None:
        """Remove the old files of the one table that has waited for it longest, if that is due."""
        now = datetime.now(UTC)
        hours = retained_hours(self._ledger.publishes, now)
        cleaned = self._ledger.cleaned
        table = min(tables, key=lambda one: cleaned.get(one.path, ""), default=None)
        if hours is None or table is None:
            return
        last = cleaned.get(table.path)
        if last is None or (now - _time(last)).total_seconds() >= self._terms.clean_every_s:
            spark.sql(f"VACUUM {_named(self._ledger, table)} RETAIN {hours} HOURS")
            there = {one.path for one in tables}
            kept = {path: at for path, at in cleaned.items() if path in there}
            self._ledger.keep(cleaned=kept | {table.path: _text(now)})

    def _compact(self, spark: SparkSession, table: PublishedTable) -> bool:
        delta = DeltaTable.forPath(spark, str(self._ledger.to / table.path))
        detail = delta.detail().select("numFiles", "sizeInBytes").first()
        if (
            detail is None
            or detail["numFiles"] <= self._terms.files_max + 2 * detail["sizeInBytes"] // FILE_BYTES
        ):
            return False
        delta.optimize().executeCompaction()
        logger.info("files of a table were put together", path=table.path, files=detail["numFiles"])
        return True

    def _remove_folders(self) -> None:
        """Remove the folders that no moment of the last day names."""
        now = datetime.now(UTC)
        hours = retained_hours(self._ledger.publishes, now)
        due = [
            one
            for one in self._ledger.left
            if hours is not None and now - _time(one.at) >= timedelta(hours=hours)
        ]
        named = {one.path for one in self._ledger.tables}
        for one in due:
            if one.path not in named:
                shutil.rmtree(self._ledger.to / one.path, ignore_errors=True)
        if due:
            self._ledger.keep(left=[one for one in self._ledger.left if one not in due])


def _named(ledger: Ledger, table: PublishedTable) -> str:
    return f"delta.{quoted(str(ledger.to / table.path))}"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
