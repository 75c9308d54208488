"""What processes last said of themselves, in PostgreSQL. Servers that write the same row wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from headrace.log.metadata.contract import ReportRow, ReportRows
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.postgres_rows import Session, locked_row, put_rows, stored_rows
from headrace.log.metadata.rows import REPORT

T = TypeVar("T")


class _Run(Protocol):
    def __call__(self, work: Callable[[Session], T]) -> T: ...


class PostgresReports(ReportRows):
    """A part of the metadata tables: ``run`` calls work, perhaps twice, with a connection in autocommit mode."""

    def __init__(self, run: _Run, damages: Damages) -> None:
        self._run, self._damages = run, damages

    def keep(self, rows: Sequence[ReportRow]) -> None:
        def work(connection: Session) -> None:
            with connection.transaction():
                for row in sorted(rows):  # in one order, else two servers could wait for each other
                    known = self._damages.checked(REPORT, locked_row(connection, REPORT, row))
                    if known is None or known.reported_at_ms <= row.reported_at_ms:
                        put_rows(connection, self._damages, REPORT, [row])

        self._run(work)

    def all(self) -> list[ReportRow]:
        return self._run(
            lambda connection: self._damages.sift(
                REPORT, stored_rows(connection, REPORT, "ORDER BY kind, name")
            )
        )

    def forget(self, reported_before_ms: int, rows_max: int) -> list[tuple[str, str]]:
        # One that is reported at this moment holds its row's lock: it is passed over.
        where = "WHERE reported_at_ms < %s ORDER BY reported_at_ms LIMIT %s FOR UPDATE SKIP LOCKED"

        def work(connection: Session) -> list[tuple[str, str]]:
            with connection.transaction():
                stored = stored_rows(connection, REPORT, where, (reported_before_ms, rows_max))
                keys = [(row.kind, row.name) for row in self._damages.sift(REPORT, stored)]
                delete = "DELETE FROM headrace_log.report WHERE kind = %s AND name = %s"
                connection.cursor().executemany(delete, keys)
                return keys

        return self._run(work)

    def drop(self, kind: str, name: str) -> None:
        delete = "DELETE FROM headrace_log.report WHERE kind = %s AND name = %s"
        self._run(lambda connection: connection.execute(delete, (kind, name)))
        self._damages.mended(REPORT, (kind, name))
        self._damages.tell()
