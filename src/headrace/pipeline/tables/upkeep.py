"""Keeps tables healthy for months: small files are put together, what nobody can read any more is removed. Between batches.

Bounded: one table is compacted, and one cleaned, after a batch at most. What ``published.json`` names, and what it named
within the last day, is never touched: a file that left a table, and a commit of its log, stays for as long as a moment that
still counts may need it. Each table has its turn, also where every run of the job is short: whose turn it is is kept in the
ledger. A failure here ends no batch: it is logged, and tried again later.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import nlargest
from typing import Final, NamedTuple

import msgspec
from delta.tables import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.pipeline.tables.delta_log import clean_log
from headrace.pipeline.tables.ledger import Ledger, PublishedTable
from headrace.pipeline.tables.merge import PROPERTIES
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
ALARMING: Final = 3
"""So many failures of a table in a row are more than bad luck."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_LOG_CLEANUP: Final = "delta.enableExpiredLogCleanup"
_RETAINED_HOURS: Final = 48
"""What tables are made with: for so long Delta knows when a file left a table. It asks back below it."""

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
    return max(_RETAINED_HOURS, hours)


class Upkeep:
    """Looks after the tables of one ledger; call :meth:`work` after each publish, on the same thread."""

    def __init__(self, ledger: Ledger, terms: Terms | None = None) -> None:
        self._ledger = ledger
        self._terms = terms or Terms()
        self._failures: dict[tuple[str, str], int] = {}
        self._not_removed: dict[str, datetime] = {}

    def published(self) -> None:
        """Note that a moment is published now."""
        now = datetime.now(UTC)
        before = self._ledger.publishes
        after = publishes_with(before, now)
        if after != before:
            self._ledger.keep(publishes=after)

    def work(self, spark: SparkSession) -> bool:
        """Do what is due for one table, or two; True if a table has a new version that is to be published."""
        moment = self._ledger.published
        if moment is None:
            return False
        self._remove_folders()
        for name, value in _SETTINGS.items():
            spark.conf.set(name, value)
        # What is shown of a stopped table need not be its newest version: it is left alone.
        tables = [one for one in moment.tables if one.stopped_after is msgspec.UNSET]
        self._note(tables)
        changed = self._look(spark, tables)
        self._clean(spark, tables)
        return changed

    def _note(self, tables: list[PublishedTable]) -> None:
        """Keep in mind whose turn it is. Of a table that is new, or goes on again, nothing is removed for a day.

        What was shown while it was stopped may be a version that it had left long before.
        """
        paths = {one.path for one in tables}
        cleaned = {path: at for path, at in self._ledger.cleaned.items() if path in paths}
        cleaned |= dict.fromkeys(paths - set(cleaned), _text(datetime.now(UTC) + KEPT))
        seen = {path: version for path, version in self._ledger.seen.items() if path in paths}
        if (cleaned, seen) != (self._ledger.cleaned, self._ledger.seen):
            self._ledger.keep(cleaned=cleaned, seen=seen)

    def _look(self, spark: SparkSession, tables: list[PublishedTable]) -> bool:
        """Count the files of the tables with the most commits since that was done; True if one has a new version."""
        seen = self._ledger.seen
        commits = {one.path: _commits(one, seen.get(one.path, 0)) for one in tables}
        due = [one for one in tables if commits[one.path] >= self._terms.commits_between]
        looked: dict[str, int] = {}
        changed = False
        for table in nlargest(LOOKS_MAX, due, key=lambda one: commits[one.path]):
            looked[table.path] = table.version
            changed = self._tried(table.path, "compaction", partial(self._compact, spark, table))
            if changed:
                break
        if looked:
            self._ledger.keep(seen=seen | looked)
        return changed

    def _clean(self, spark: SparkSession, tables: list[PublishedTable]) -> None:
        """Remove the old files of the one table that has waited for it longest, if that is due.

        What Delta does not know any more when it left the table would be removed at once. So nothing is, where a moment may
        need files for longer than that: after a pause of the job, until it has published for a day.
        """
        now = datetime.now(UTC)
        hours = retained_hours(self._ledger.publishes, now)
        cleaned = self._ledger.cleaned
        waiting = [one for one in tables if self._may_try(one.path, now)]
        table = min(waiting, key=lambda one: cleaned[one.path], default=None)
        if hours is None or hours > _RETAINED_HOURS or table is None:
            return
        if (now - _time(cleaned[table.path])).total_seconds() < self._terms.clean_every_s:
            return
        if self._tried(table.path, "removal", partial(self._remove_old, spark, table, now, hours)):
            self._ledger.keep(cleaned=cleaned | {table.path: _text(now)})
        else:
            self._not_removed[table.path] = now

    def _may_try(self, path: str, now: datetime) -> bool:
        return now - self._not_removed.get(path, _NEVER) >= SAMPLE

    def _remove_old(self, spark: SparkSession, table: PublishedTable, now: datetime, hours: int) -> bool:
        spark.sql(f"VACUUM {_named(self._ledger, table)} RETAIN {hours} HOURS")
        clean_log(self._ledger.to / table.path, now - timedelta(hours=hours), table.version)
        return True

    def _compact(self, spark: SparkSession, table: PublishedTable) -> bool:
        """Put a table's small files together, if it has too many; True if it has a new version."""
        delta = DeltaTable.forPath(spark, str(self._ledger.to / table.path))
        detail = delta.detail().select("numFiles", "sizeInBytes", "properties").first()
        if detail is None:
            return False
        changed = self._set_properties(spark, table, detail["properties"])
        if detail["numFiles"] <= self._terms.files_max + 2 * detail["sizeInBytes"] // FILE_BYTES:
            return changed
        delta.optimize().executeCompaction()
        logger.info("files of a table were put together", path=table.path, files=detail["numFiles"])
        return True

    def _set_properties(self, spark: SparkSession, table: PublishedTable, there: dict[str, str]) -> bool:
        """Give a table that an older program made what tables are made with now; True if it lacked that."""
        if there.get(_LOG_CLEANUP) == PROPERTIES[_LOG_CLEANUP]:
            return False
        wanted = ", ".join(f"'{name}' = '{value}'" for name, value in PROPERTIES.items())
        spark.sql(f"ALTER TABLE {_named(self._ledger, table)} SET TBLPROPERTIES ({wanted})")
        return True

    def _tried(self, path: str, what: str, job: Callable[[], bool]) -> bool:
        """Return what a job says; False, and a line in the log, if it fails: the tables are whole without it."""
        try:
            done = job()
        except (PySparkException, Py4JJavaError, OSError) as error:
            failures = self._failures[path, what] = self._failures.get((path, what), 0) + 1
            tell = logger.error if failures >= ALARMING else logger.warning
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            told = {"path": path, "what": what, "failures": failures, "reason": reason}
            tell("old or small files of a table stay", **told)
            return False
        self._failures.pop((path, what), None)
        return done

    def _remove_folders(self) -> None:
        """Remove the folders that no moment of the last day names; one that is still there keeps its name taken."""
        now = datetime.now(UTC)
        hours = retained_hours(self._ledger.publishes, now)
        if hours is None:
            return
        named = {one.path for one in self._ledger.tables}
        done = set()
        for one in self._ledger.left:
            if now - _time(one.at) < timedelta(hours=hours) or not self._may_try(one.path, now):
                continue
            if one.path in named or self._tried(one.path, "folder", partial(self._remove_folder, one.path)):
                done.add(one.path)
            else:
                self._not_removed[one.path] = now
        if done:
            self._ledger.keep(left=[one for one in self._ledger.left if one.path not in done])

    def _remove_folder(self, path: str) -> bool:
        folder = self._ledger.to / path
        if folder.exists():
            shutil.rmtree(folder)
        return True


def _commits(table: PublishedTable, seen: int) -> int:
    """Return how many commits a table had since the version ``seen``; all that it had, if it is at an older one now."""
    return table.version - seen if table.version >= seen else table.version


def _named(ledger: Ledger, table: PublishedTable) -> str:
    return f"delta.{quoted(str(ledger.to / table.path))}"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
