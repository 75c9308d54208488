"""The schemas of the feeds' tables in PostgreSQL. Servers that find the same at once wait for each other's mark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from headrace.log.metadata.contract import SchemaRows
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.postgres_rows import Session, locked_row, put_rows, stored_rows
from headrace.log.metadata.rows import JOURNAL, SCHEMA, SCHEMA_MARK, SchemaMark, SchemaRow

T = TypeVar("T")

_NEWEST: Final = """
WHERE feed = %s AND (database_name, table_name, sequence_id) IN (
    SELECT database_name, table_name, max(sequence_id) FROM headrace_log.table_schema WHERE feed = %s
    GROUP BY database_name, table_name HAVING max(sequence_id) > %s)
ORDER BY sequence_id LIMIT %s"""
_ONE: Final = "WHERE feed = %s AND database_name = %s AND table_name = %s AND version = %s"


class _Run(Protocol):
    def __call__(self, work: Callable[[Session], T]) -> T: ...


class PostgresSchemas(SchemaRows):
    """A part of the metadata tables: ``run`` calls work, perhaps twice, with a connection in autocommit mode."""

    def __init__(self, run: _Run, damages: Damages) -> None:
        self._run, self._damages = run, damages

    def mark(self) -> SchemaMark | None:
        def work(connection: Session) -> list[SchemaMark]:
            return self._damages.sift(SCHEMA_MARK, stored_rows(connection, SCHEMA_MARK))

        return next(iter(self._run(work)), None)

    def begin(self, position: int, forget_above: str | None = None) -> None:
        mark = SchemaMark(JOURNAL, position, 0, 0)

        def work(connection: Session) -> None:
            with connection.transaction():
                locked_row(connection, SCHEMA_MARK, mark)
                put_rows(connection, self._damages, SCHEMA_MARK, [mark])
                if forget_above is not None:
                    connection.execute(
                        "DELETE FROM headrace_log.table_schema WHERE lsn > %s", (forget_above,)
                    )

        self._run(work)

    def keep(self, rows: Sequence[SchemaRow], since: int, mark: SchemaMark | None) -> bool:
        def work(connection: Session) -> bool:
            with connection.transaction():
                marks = self._damages.sift(SCHEMA_MARK, stored_rows(connection, SCHEMA_MARK, "FOR UPDATE"))
                if not marks or marks[0].position < since:
                    return False
                for row in rows:
                    known = self._damages.checked(SCHEMA, locked_row(connection, SCHEMA, row))
                    if known is None or known.lsn < row.lsn:
                        put_rows(connection, self._damages, SCHEMA, [row])
                if mark is not None and mark.position > marks[0].position:
                    put_rows(connection, self._damages, SCHEMA_MARK, [mark])
                return True

        return self._run(work)

    def schema(self, feed: str, database: str, table: str, version: int) -> SchemaRow | None:
        if "\0" in database + table:  # what PostgreSQL can't store was never kept
            return None
        key = (feed, database, table, version)
        rows = self._run(
            lambda connection: self._damages.sift(SCHEMA, stored_rows(connection, SCHEMA, _ONE, key))
        )
        if not rows:
            self._damages.raise_if_damaged(SCHEMA, key)
        return rows[0] if rows else None

    def newest(self, feed: str, after: int, rows_max: int) -> list[SchemaRow]:
        values = (feed, feed, after, rows_max)
        return self._run(
            lambda connection: self._damages.sift(SCHEMA, stored_rows(connection, SCHEMA, _NEWEST, values))
        )
