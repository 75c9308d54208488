"""A captured database and its tables in Delta, and how the two are compared: column by column, as text at the source."""

from __future__ import annotations

import json
import signal
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.pipeline.tables.job import Summary, read_tables, run_tables
from headrace.pipeline.tables.moments import MOMENTS, sql_number, value_text
from headrace.pipeline.tables.rows import quoted
from headrace.pipeline.tables.simple.dates import text_of
from tests.integration.capture.commands import Capture
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
        return bool(source and position and source["behind-transactions"] == 0 and not status["copies"])

    def head(self) -> int:
        """The newest sequence id of the feed."""
        return int(self.server.http.get(f"/feeds/{self.feed}").json()["head-sequence-id"])

    def run(self, **more: Any) -> Summary:
        """Bring the tables up to the feed's head."""
        options = {"entries_max": 1_000_000} | more
        return run_tables(
            self.spark, feed=self.feed, to=self.to, server=self.server.url, once=True, retry_s=20, **options
        )

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

    def in_delta(self, table: str) -> Rows:
        """Every published row of a table, likewise."""
        return rows_of(read_tables(self.spark, self.to)[self.database.name, table])

    def tables(self) -> set[str]:
        """The names of the published tables that are not stopped."""
        return {name[1] for name in read_tables(self.spark, self.to)}

    def differences(self, *tables: str) -> list[str]:
        """What is different in these tables (default: all) between the source and Delta, in words."""
        names = tables or tuple(name for (name,) in self.database.sql("SHOW TABLES"))
        found = (
            [] if tables or set(names) == self.tables() else [f"{sorted(names)} and {sorted(self.tables())}"]
        )
        for table in names:
            wanted, there = (sorted(rows, key=str) for rows in (self.at_source(table), self.in_delta(table)))
            if len(wanted) != len(there):
                found.append(f"{table}: {len(wanted)} rows, and {len(there)} in Delta")
            for left, right in zip(wanted, there, strict=False):
                found += [
                    f"{table}.{name}: {left.get(name)!r}, and {right.get(name)!r} in Delta"
                    for name in left | right
                    if name not in left or name not in right or left[name] != right[name]
                ]
        return found


def rows_of(frame: DataFrame) -> Rows:
    """The rows of a captured table with comparable values."""
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    numbers = {
        name: F.expr(sql_number(quoted(name), kind)) for name, kind in kinds.items() if kind in MOMENTS
    }
    rows = frame.withColumns(numbers).collect() if numbers else frame.collect()
    return [{name: _of_delta(kinds[name], cell) for name, cell in row.asDict().items()} for row in rows]


def _of_delta(kind: str, cell: Any) -> Any:
    if cell is None:
        return None
    if kind in MOMENTS:
        text = text_of(cell, kind) or value_text(cell, kind)
        return text.replace("T", " ").removesuffix("+00:00")
    if kind.startswith("decimal") or kind.endswith("int"):
        return Decimal(cell)
    if kind in {"float", "double"}:
        return float(cell)
    return bytes(cell).hex().upper() if kind == "binary" else cell


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
