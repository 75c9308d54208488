"""The schemas of the feeds' tables in the SQLite metadata database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

from headrace.log.metadata.contract import SchemaRows
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.rows import JOURNAL, SCHEMA, SCHEMA_MARK, SchemaMark, SchemaRow
from headrace.log.metadata.sqlite_rows import known_row, put_rows, stored_rows

Use = Callable[[], AbstractContextManager[sqlite3.Connection]]

_NEWEST: Final = """
WHERE feed = ? AND (database_name, table_name, sequence_id) IN (
    SELECT database_name, table_name, max(sequence_id) FROM table_schema WHERE feed = ?
    GROUP BY database_name, table_name HAVING max(sequence_id) > ?)
ORDER BY sequence_id LIMIT ?"""


class SqliteSchemas(SchemaRows):
    """A part of an open metadata database: ``use`` gives it for reading, ``change`` within a transaction."""

    def __init__(self, use: Use, change: Use, damages: Damages) -> None:
        self._use, self._change, self._damages = use, change, damages

    def mark(self) -> SchemaMark | None:
        with self._use() as database:
            return known_row(database, self._damages, SCHEMA_MARK, (JOURNAL,), raises=False)

    def begin(self, position: int, forget_above: str | None = None) -> None:
        with self._change() as database:
            put_rows(database, self._damages, SCHEMA_MARK, [SchemaMark(JOURNAL, position, 0, 0)])
            if forget_above is not None:
                database.execute("DELETE FROM table_schema WHERE lsn > ?", (forget_above,))

    def keep(self, rows: Sequence[SchemaRow], since: int, mark: SchemaMark | None) -> bool:
        with self._change() as database:
            stands = known_row(database, self._damages, SCHEMA_MARK, (JOURNAL,), raises=False)
            if stands is None or stands.position < since:
                return False
            for row in rows:
                known = known_row(database, self._damages, SCHEMA, SCHEMA.key_of(row), raises=False)
                if known is None or known.lsn < row.lsn:
                    put_rows(database, self._damages, SCHEMA, [row])
            if mark is not None and mark.position > stands.position:
                put_rows(database, self._damages, SCHEMA_MARK, [mark])
        return True

    def schema(self, feed: str, database: str, table: str, version: int) -> SchemaRow | None:
        with self._use() as connection:
            return known_row(connection, self._damages, SCHEMA, (feed, database, table, version))

    def newest(self, feed: str, after: int, rows_max: int) -> list[SchemaRow]:
        with self._use() as database:
            stored = stored_rows(database, SCHEMA, _NEWEST, (feed, feed, after, rows_max))
            return self._damages.sift(SCHEMA, stored)
