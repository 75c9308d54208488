"""Up to where consumers had come when, in the SQLite metadata database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager

from headrace.log.metadata.contract import ProgressRow, ProgressRows
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.rows import PROGRESS, Key
from headrace.log.metadata.sqlite_rows import known_row, put_rows, stored_rows

Use = Callable[[], AbstractContextManager[sqlite3.Connection]]


class SqliteProgress(ProgressRows):
    """A part of an open metadata database: ``use`` gives it for reading, ``change`` within a transaction."""

    def __init__(self, use: Use, change: Use, damages: Damages) -> None:
        self._use, self._change, self._damages = use, change, damages

    def of_feed(self, feed: str) -> list[ProgressRow]:
        where = "WHERE feed = ? ORDER BY consumer, subject, name, step"
        with self._use() as database:
            return self._damages.sift(PROGRESS, stored_rows(database, PROGRESS, where, (feed,)))

    def change(
        self, keys: Collection[Key], change: Callable[[Key, ProgressRow | None], ProgressRow | None]
    ) -> None:
        with self._change() as database:
            for key in keys:
                row = change(key, known_row(database, self._damages, PROGRESS, key, raises=False))
                if row is not None:
                    put_rows(database, self._damages, PROGRESS, [row])

    def forget(self, moved_before_ms: int, rows_max: int) -> int:
        where = "WHERE moved_at_ms < ? ORDER BY moved_at_ms LIMIT ?"
        with self._change() as database:
            stored = stored_rows(database, PROGRESS, where, (moved_before_ms, rows_max))
            keys = [PROGRESS.key_of(row) for row in self._damages.sift(PROGRESS, stored)]
            database.executemany(
                "DELETE FROM progress WHERE consumer = ? AND subject = ? AND name = ? AND feed = ? AND step = ?",
                keys,
            )
        return len(keys)
