"""Reading a feed's state from MariaDB or MySQL with the application's own query, in one consistent snapshot.

The trap: a table that is renamed, and another put in its place, is read as it was when the snapshot was taken: empty. So the
query is opened first, for no rows. That takes the metadata locks of all its tables, which keep any DDL away until the
transaction ends. The snapshot comes after, with the first row that is read: of the outbox.
"""

from __future__ import annotations

import socket
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Final

import pymysql
from pymysql.constants import ER
from pymysql.cursors import SSCursor

from headrace.errors import SnapshotUnavailable, SourceUnavailable
from headrace.publisher.mysql.connection import QUERY_TIMEOUT_S, Source, connect, execute, mysql_errors
from headrace.publisher.mysql.relay import unmarked_ids
from headrace.publisher.state import NO_STATE, STATE_HINT, TWO_COLUMNS, StateReader, object_line
from headrace.runtime.dsn import Dsn

TABLE_WAIT_S: Final = 1
"""How long a table that DDL holds is waited for: marking waits meanwhile."""

_BEGIN: Final = (
    f"SET SESSION lock_wait_timeout = {TABLE_WAIT_S}",
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION READ ONLY",
)
_OPEN: Final = "SELECT * FROM (\n{query}\n) AS headrace_objects LIMIT 0"
_WRONG_QUERY: Final = (ER.DUP_FIELDNAME, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR)


class MysqlStateReader(StateReader):
    """See :class:`~headrace.publisher.state.StateReader`. ``query``: the application's own; no table is attached here."""

    def __init__(self, dsn: Dsn, feed: str, query: str | None) -> None:
        self.was_read = False
        self._dsn = dsn
        self._feed = feed
        self._query = query
        self._connection: Source | None = None

    def open(self) -> None:
        if self._query is None:
            raise SnapshotUnavailable(
                NO_STATE.format(feed=self._feed), hint=STATE_HINT.format(feed=self._feed)
            )
        self._connection = connect(self._dsn, QUERY_TIMEOUT_S)

    def begin(self) -> array[int]:
        """Fix what is read; returns the ids of the outbox rows that are unmarked in it."""
        connection = self._opened()
        with mysql_errors():
            for statement in _BEGIN:
                execute(connection, statement)
            with self._query_errors():
                self._open_tables(connection)
            return unmarked_ids(connection, self._feed)

    def lines(self) -> Iterator[bytes]:
        connection = self._opened()
        with mysql_errors(), self._query_errors(), closing(connection.cursor(SSCursor)) as cursor:
            cursor.execute(self._query or "")
            for key, changes in cursor:
                yield object_line(key, changes)

    def cancel(self) -> None:
        connection = self._connection
        # The driver reads with a blocking call: an end of file is the one thing that wakes it.
        held = None if connection is None else getattr(connection, "_sock", None)
        if held is not None:
            with suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            with suppress(pymysql.err.Error):
                self._connection.close()
            self._connection = None

    def _open_tables(self, connection: Source) -> None:
        """Take the metadata locks of all tables that the query reads, and read no row. ValueError: not two columns."""
        query = (self._query or "").rstrip("; \t\r\n")
        with closing(connection.cursor()) as cursor:
            cursor.execute(_OPEN.format(query=query))
            if len(cursor.description or ()) != 2:
                raise ValueError(TWO_COLUMNS)

    @contextmanager
    def _query_errors(self) -> Iterator[None]:
        """Say what is wrong with the query by its name; what can pass goes on as it is."""
        try:
            yield
        except (pymysql.err.MySQLError, ValueError) as error:
            known = isinstance(error, ValueError | pymysql.err.ProgrammingError)
            if not known and error.args[0] not in _WRONG_QUERY:
                raise
            raise SnapshotUnavailable(
                f"snapshot-sql of {self._feed}: {error}", hint=STATE_HINT.format(feed=self._feed)
            ) from None

    def _opened(self) -> Source:
        if self._connection is None:
            raise SourceUnavailable("this reader is closed")
        return self._connection
