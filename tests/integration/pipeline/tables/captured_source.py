"""A captured database and its tables in Delta, and how the two are compared: column by column, as text at the source."""

from __future__ import annotations

import json
import signal
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET
from pyspark.sql import SparkSession

from headrace.pipeline.tables.job import Summary, run_tables
from headrace.pipeline.tables.reader import iter_rows, published_moment
from tests.integration.capture.commands import Capture
from tests.integration.pipeline.bringing import Brought, bring_tables
from tests.mariadb import Database
from tests.servers import ServerProcess
from tests.waiting import wait_until

Rows = list[dict[str, Any]]
_BYTES: Final = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}
_INEXACT: Final = {"float", "double"}


class CapturedSource:
    """A database, the process that captures it, and the job that keeps its tables in ``to``."""

    def __init__(
        self, database: Database, server: ServerProcess, spark: SparkSession, folder: Path, *lines: str
    ) -> None:
        self.database = database
        self.server = server
        self.spark = spark
        self.folder = folder
        self.to = str(folder / "tables")
        self.capture = Capture(folder, database, server, 'watermark-idle-interval = "1s"', *lines)
        self._process: Any = None

    @property
    def feed(self) -> str:
        """The feed's name."""
        return self.capture.feed

    def sql(self, *statements: str) -> None:
        """Run statements, each one a transaction."""
        for statement in statements:
            self.database.sql(statement)

    def begin(self) -> None:
        """Start capturing."""
        if self._process is None:
            self._process = self.capture.start("run")

    def stop(self) -> None:
        """Stop capturing."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.communicate(timeout=60)
            self._process = None

    def settle(self) -> None:
        """Wait until all that the database has so far is in the feed."""
        self.begin()
        wait_until(self._is_settled, 120, what="capture to have read everything")

    def _is_settled(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(self._process.communicate())
        if self.server.http.get(f"/feeds/{self.feed}").status_code != 200:
            return False
        _, out, _ = self.capture.run("status", "--json")
        status = json.loads(out)
        source, position = status.get("source"), status.get("position")
        if not source or not position or source["behind-transactions"]:
            return False
        # Between the copies of two tables none is under way.
        return bool(position["whole"] and not status["copies"])

    def head(self) -> int:
        """The newest sequence id of the feed."""
        return int(self.server.http.get(f"/feeds/{self.feed}").json()["head-sequence-id"])

    def run(self, **more: Any) -> Summary:
        """Bring the tables up to the feed's head."""
        options = {"entries_max": 1_000_000} | more
        return run_tables(
            self.spark, feed=self.feed, to=self.to, server=self.server.url, once=True, retry_s=20, **options
        )

    def bring(self) -> Brought:
        """Bring the tables up to the feed's head without a query of Spark's around the batches."""
        return bring_tables(self.spark, self.server, self.feed, self.to)

    def at_source(self, table: str) -> Rows:
        """Every row of a table, each column as comparable values."""
        columns = self.database.sql(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = "
            f"'{self.database.name}' AND table_name = '{table}' ORDER BY ordinal_position"
        )
        shown = [(name, kind) for name, kind in columns if kind not in {"point", "geometry"}]
        chosen = ", ".join(_selected(name, kind) for name, kind in shown)
        rows = self.database.sql(f"SELECT {chosen} FROM `{table}`")
        return [
            {name: _comparable(kind, cell) for (name, kind), cell in zip(shown, row, strict=True)}
            for row in rows
        ]

    def differences(self, *tables: str) -> list[str]:
        """What is different in these tables (default: all) between the source and Delta, in words."""
        names = tables or tuple(name for (name,) in self.database.sql("SHOW TABLES"))
        shown = rows_in(self.to)
        found = [] if tables or set(names) == set(shown) else [f"{sorted(names)} and {sorted(shown)}"]
        for table in names:
            wanted, there = (sorted(rows, key=str) for rows in (self.at_source(table), shown[table]))
            if len(wanted) != len(there):
                found.append(f"{table}: {len(wanted)} rows, and {len(there)} in Delta")
            for left, right in zip(wanted, there, strict=False):
                found += [
                    f"{table}.{name}: {left.get(name)!r}, and {right.get(name)!r} in Delta"
                    for name in left | right
                    if name not in left or name not in right or left[name] != right[name]
                ]
        return found


def rows_in(to: str) -> dict[str, Rows]:
    """The published tables that are not stopped, by name, their rows with comparable values."""
    found: dict[str, Rows] = {
        one.table[1]: [] for one in published_moment(to).tables if one.stopped_after is UNSET
    }
    for table, row in iter_rows(to):
        found[table[1]].append({name: _of_delta(cell) for name, cell in row.items()})
    return found


def _of_delta(cell: Any) -> Any:
    if isinstance(cell, date):  # a datetime is one, too
        text = cell.isoformat().replace("T", " ").removesuffix("+00:00")
        return text.rstrip("0").rstrip(".") if "." in text else text
    if isinstance(cell, int):
        return Decimal(cell)
    return cell.hex().upper() if isinstance(cell, bytes) else cell


def _selected(name: str, kind: str) -> str:
    if kind == "bit":
        return f"CAST(`{name}` + 0 AS CHAR)"
    if kind in _BYTES:
        return f"HEX(`{name}`)"
    return f"`{name}`" if kind in _INEXACT else f"CAST(`{name}` AS CHAR CHARACTER SET utf8mb4)"


def _comparable(kind: str, cell: Any) -> Any:
    if cell is None:
        return None
    if kind in _INEXACT:
        return float(cell)
    if kind in {"decimal", "bit", "year"} or kind.endswith("int"):
        return Decimal(str(cell))
    if kind in {"datetime", "timestamp", "time"} and "." in cell:
        return cell.rstrip("0").rstrip(".")
    return cell
