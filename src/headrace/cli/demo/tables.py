"""What the demo does on Spark: the feed as Delta tables, then tables restored from the archive; each row is compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headrace.archive.moments.target import Asked
from headrace.cli.demo import application
from headrace.cli.demo.rows import keyed
from headrace.cli.demo.run import Ran
from headrace.cli.demo.verdict import Count, Fold, compare
from headrace.entries.lsn import Lsn
from headrace.pipeline.restore.job import Request, restore
from headrace.pipeline.session import SessionSettings, open_session
from headrace.pipeline.tables.job import Progress, run_tables
from headrace.pipeline.tables.reader import iter_rows

TELL_EVERY: Final = 5


class _Teller:
    """Turns the job's progress, which comes every second, into a line every few."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._calls = 0

    def progress(self, now: Progress) -> None:
        if self._calls % TELL_EVERY == 0:
            self._tell(f"Spark has merged {now.entries} entries" + (f", {now.lag} to go" if now.lag else ""))
        self._calls += 1


def open_spark(folder: Path) -> Any:
    """Start a SparkSession of the demo in ``folder``, for the functions below. Only the pipeline itself imports Spark."""
    settings = SessionSettings(
        log_file=folder / "spark.log", name="headrace demo", master="local[2]", short_lived=True
    )
    return open_session(settings)


def spark_counts(spark: Any, ran: Ran, folder: Path, feed: str, tell: Callable[[str], None]) -> list[Count]:
    """Build the tables of ``feed`` in ``folder`` up to the head, read them back, and count what differs from the source.

    ``tell`` is given a line now and then.
    """
    run_tables(
        spark, feed=feed, to=str(folder), server=ran.server, once=True, progress=_Teller(tell).progress
    )
    tell("the tables are published; reading them back")
    return _counts("spark", folder, ran)


def restored_counts(spark: Any, ran: Ran, archive: Path, lsn: str, to: Path) -> tuple[list[Count], float]:
    """Restore the tables at ``lsn`` from ``archive`` into ``to``, and count what differs from the source as it was then.

    Returns the counts, and the seconds that the restore took.
    """
    request = Request(archive=str(archive), asked=Asked(to_lsn=Lsn.parse(lsn)), out=str(to))
    outcome = restore(spark, request)
    (feed,) = outcome.feeds
    return _counts("restored", to / feed.folder, ran), outcome.seconds


def _counts(reader: str, folder: Path, ran: Ran) -> list[Count]:
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, row in iter_rows(str(folder)):
        rows[name[-1]].append(row)
    found = Fold(reader, counts={table: Count(reader, table) for table in application.TABLES})
    for table in application.TABLES:
        found.rows |= keyed(table, rows[table])
        found.counts[table].duplicated = len(rows[table]) - len(keyed(table, rows[table]))
    balance = sum(int(row["balance"]) for row in rows["accounts"])
    found.counts["accounts"].torn = int(balance != application.TOTAL)
    return compare(ran.source, found)
