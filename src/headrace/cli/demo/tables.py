"""The demo's last reader: Spark builds the Delta tables, and every published row is compared with the source."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from headrace.cli.demo import application
from headrace.cli.demo.rows import keyed
from headrace.cli.demo.run import Ran
from headrace.cli.demo.verdict import Count, Fold, compare
from headrace.pipeline.session import SessionSettings, open_session
from headrace.pipeline.tables.job import Progress, iter_rows, run_tables

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


def spark_counts(ran: Ran, folder: Path, feed: str, tell: Callable[[str], None]) -> list[Count]:
    """Build the tables of ``feed`` in ``folder`` up to the head, read them back, and count what differs from the source.

    ``tell`` is given a line now and then.
    """
    settings = SessionSettings(
        log_file=folder.parent / "spark.log", name="headrace demo", master="local[2]", short_lived=True
    )
    spark = open_session(settings)
    try:
        tell("Spark runs")
        run_tables(
            spark, feed=feed, to=str(folder), server=ran.server, once=True, progress=_Teller(tell).progress
        )
        tell("the tables are published; reading them back")
        rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for name, row in iter_rows(spark, str(folder)):
            rows[name[-1]].append(row)
    finally:
        spark.stop()
    found = Fold("spark", counts={table: Count("spark", table) for table in application.TABLES})
    for table in application.TABLES:
        found.rows |= keyed(table, rows[table])
        found.counts[table].duplicated = len(rows[table]) - len(keyed(table, rows[table]))
    balance = sum(int(row["balance"]) for row in rows["accounts"])
    found.counts["accounts"].torn = int(balance != application.TOTAL)
    return compare(ran.source, found)
