"""What processes last said of themselves, in the SQLite metadata database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from headrace.log.metadata.contract import ReportRow, ReportRows
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.rows import REPORT
from headrace.log.metadata.sqlite_rows import known_row, put_rows, stored_rows

Use = Callable[[], AbstractContextManager[sqlite3.Connection]]


class SqliteReports(ReportRows):
    """A part of an open metadata database: ``use`` gives it for reading, ``change`` within a transaction."""

    def __init__(self, use: Use, change: Use, damages: Damages) -> None:
        self._use, self._change, self._damages = use, change, damages

    def keep(self, rows: Sequence[ReportRow]) -> None:
        with self._change() as database:
            for row in rows:
                known = known_row(database, self._damages, REPORT, REPORT.key_of(row), raises=False)
                if known is None or known.reported_at_ms <= row.reported_at_ms:
                    put_rows(database, self._damages, REPORT, [row])

    def all(self) -> list[ReportRow]:
        with self._use() as database:
            return self._damages.sift(REPORT, stored_rows(database, REPORT, "ORDER BY kind, name"))

    def forget(self, reported_before_ms: int, rows_max: int) -> list[tuple[str, str]]:
        where = "WHERE reported_at_ms < ? ORDER BY reported_at_ms LIMIT ?"
        with self._change() as database:
            stored = stored_rows(database, REPORT, where, (reported_before_ms, rows_max))
            keys = [(row.kind, row.name) for row in self._damages.sift(REPORT, stored)]
            database.executemany("DELETE FROM report WHERE kind = ? AND name = ?", keys)
        return keys

    def drop(self, kind: str, name: str) -> None:
        with self._change() as database:
            database.execute("DELETE FROM report WHERE kind = ? AND name = ?", (kind, name))
        self._damages.mended(REPORT, (kind, name))
        self._damages.tell()
