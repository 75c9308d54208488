"""Reading a feed's state from MariaDB or MySQL with the application's own query, in one consistent snapshot."""

from __future__ import annotations

import socket
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Final

import pymysql
from pymysql.cursors import SSCursor

from headrace.errors import SnapshotUnavailable, SourceUnavailable
from headrace.publisher.dsn import Dsn
from headrace.publisher.mysql.connection import Source, connect, execute, mysql_errors
from headrace.publisher.mysql.relay import unmarked_ids
from headrace.publisher.state import NO_STATE, STATE_HINT, StateReader, object_line

_BEGIN: Final = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
)


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
        self._connection = connect(self._dsn)

    def begin(self) -> array[int]:
        """Fix what is read; returns the ids of the outbox rows that are unmarked in it."""
        connection = self._opened()
        with mysql_errors():
            for statement in _BEGIN:
                execute(connection, statement)
            return unmarked_ids(connection, self._feed)

    def lines(self) -> Iterator[bytes]:
        connection = self._opened()
        with mysql_errors():
            try:
                with closing(connection.cursor(SSCursor)) as cursor:
                    cursor.execute(self._query or "")
                    if len(cursor.description or ()) != 2:
                        raise ValueError("it must select two columns, key and changes")
                    for key, changes in cursor:
                        yield object_line(key, changes)
            except (pymysql.err.ProgrammingError, ValueError) as error:
                raise SnapshotUnavailable(
                    f"snapshot-sql of {self._feed}: {error}", hint=STATE_HINT.format(feed=self._feed)
                ) from None

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

    def _opened(self) -> Source:
        if self._connection is None:
            raise SourceUnavailable("this reader is closed")
        return self._connection
