"""Up to where consumers had come when, in PostgreSQL. Servers that write the same row wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol, TypeVar

from headrace.log.metadata.contract import ProgressRow, ProgressRows
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.postgres_rows import Session, locked_row, put_rows, stored_rows
from headrace.log.metadata.rows import PROGRESS, Key

T = TypeVar("T")


class _Run(Protocol):
    def __call__(self, work: Callable[[Session], T]) -> T: ...


class PostgresProgress(ProgressRows):
    """A part of the metadata tables: ``run`` calls work, perhaps twice, with a connection in autocommit mode."""

    def __init__(self, run: _Run, damages: Damages) -> None:
        self._run, self._damages = run, damages

    def of_feed(self, feed: str) -> list[ProgressRow]:
        where = "WHERE feed = %s ORDER BY consumer, subject, name, step"
        return self._run(
            lambda connection: self._damages.sift(PROGRESS, stored_rows(connection, PROGRESS, where, (feed,)))
        )

    def change(
        self, keys: Collection[Key], change: Callable[[Key, ProgressRow | None], ProgressRow | None]
    ) -> None:
        def work(connection: Session) -> None:
            with connection.transaction():
                for key in sorted(keys):  # in one order, else two servers could wait for each other
                    # The lock is taken by a row that says nothing; who else begins the same one waits for it.
                    consumer, subject, name, feed, step = key
                    new = ProgressRow(consumer, subject, name, feed, step, "", "", 0, b"")
                    stored = locked_row(connection, PROGRESS, new)
                    known = self._damages.checked(PROGRESS, stored)
                    row = change(key, known if known is not None and known.points else None)
                    if row is not None:
                        put_rows(connection, self._damages, PROGRESS, [row])

        self._run(work)

    def forget(self, moved_before_ms: int, rows_max: int) -> int:
        # One that moves at this moment holds its row's lock: it is passed over.
        where = "WHERE moved_at_ms < %s ORDER BY moved_at_ms LIMIT %s FOR UPDATE SKIP LOCKED"
        delete = (
            "DELETE FROM headrace_log.progress"
            " WHERE consumer = %s AND subject = %s AND name = %s AND feed = %s AND step = %s"
        )

        def work(connection: Session) -> int:
            with connection.transaction():
                stored = stored_rows(connection, PROGRESS, where, (moved_before_ms, rows_max))
                keys = [PROGRESS.key_of(row) for row in self._damages.sift(PROGRESS, stored)]
                connection.cursor().executemany(delete, keys)
                return len(keys)

        return self._run(work)
