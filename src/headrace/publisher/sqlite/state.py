"""Reading a feed's state from SQLite: in WAL mode on a connection of its own, beside writers; else on the caller's.

In WAL mode a reader sees what was committed when it did its first SELECT, however long it reads. That SELECT is done while
the source's connection holds the write lock: so both see the same rows, and what is marked then is what is read.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import SnapshotUnavailable, SourceUnavailable
from headrace.publisher.outbox.sqlite import check_format
from headrace.publisher.sqlite.added import was_added
from headrace.publisher.sqlite.attachment import Attachment, AttachmentState, read_attachments
from headrace.publisher.sqlite.catalogue import read_table
from headrace.publisher.sqlite.connection import connect, sqlite_errors
from headrace.publisher.sqlite.render import RowRenderer
from headrace.publisher.state import (
    ALSO_ADDED,
    NO_STATE,
    STATE_HINT,
    TWO_COLUMNS,
    StateReader,
    object_line,
    row_line,
    schema_line,
)

_ADDED: Final = """
SELECT 1 FROM headrace_outbox
WHERE change_feed_id = ? AND attached IS NULL AND control IS NULL AND table_name IS NULL LIMIT 1"""
_PASSING: Final = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY)
_TYPES: Final = {int: "INTEGER", float: "REAL", bytes: "BLOB", type(None): "NULL"}


class SqliteStateReader(StateReader):
    """See :class:`~headrace.publisher.state.StateReader`. ``query``: the application's own, for rows of no table."""

    def __init__(self, path: Path, feed: str, query: str | None) -> None:
        self.was_read = False
        self._path = path
        self._feed = feed
        self._query = query
        self._connection: sqlite3.Connection | None = None
        self._read: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        self._connection = connect(self._path, any_thread=True)
        with sqlite_errors():
            self._connection.execute("PRAGMA query_only = ON").close()

    def begin(self) -> None:
        """Fix what is read: while the caller holds the write lock, and has written nothing yet."""
        if self._connection is None:
            raise SourceUnavailable("this reader is closed")
        with sqlite_errors():
            self._connection.execute("BEGIN")
            self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()

    def lines(self) -> Iterator[bytes]:
        if self._connection is None:
            raise SourceUnavailable("this reader is closed")
        return self.lines_on(self._connection)

    def lines_on(self, connection: sqlite3.Connection) -> Iterator[bytes]:
        """Give the state as ``connection`` sees it in the transaction that it is in."""
        with sqlite_errors(), self._reading(connection):
            tables = [
                one for one in read_attachments(connection, AttachmentState.LIVE) if one.feed == self._feed
            ]
            self._check(connection, tables)
            for table in tables:
                yield from _table_lines(connection, table)
            if self._query is not None:
                yield from self._query_lines(connection, self._query)

    def cancel(self) -> None:
        with self._lock:  # a connection that is not ours must not be interrupted in what it does next
            for connection in (self._connection, self._read):
                if connection is not None:
                    with suppress(sqlite3.ProgrammingError):  # it was closed just now
                        connection.interrupt()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _reading(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Let :meth:`cancel` interrupt ``connection`` during the body, whoever owns it."""
        with self._lock:
            self._read = connection
        try:
            yield
        finally:
            with self._lock:
                self._read = None

    def _check(self, connection: sqlite3.Connection, tables: list[Attachment]) -> None:
        """Refuse a feed of which a part has no state that could be read."""
        if self._query is not None:
            return
        hint = STATE_HINT.format(feed=self._feed)
        if not tables:
            raise SnapshotUnavailable(NO_STATE.format(feed=self._feed), hint=hint)
        is_added = check_format(connection) and connection.execute(_ADDED, (self._feed,)).fetchone()
        if is_added or was_added(connection, self._feed):
            raise SnapshotUnavailable(ALSO_ADDED.format(feed=self._feed), hint=hint)

    def _query_lines(self, connection: sqlite3.Connection, query: str) -> Iterator[bytes]:
        try:
            cursor = connection.execute(query)
            if cursor.description is None or len(cursor.description) != 2:
                raise ValueError(TWO_COLUMNS)
            for key, changes in cursor:
                if not isinstance(changes, str):
                    kind = _TYPES[type(changes)]
                    raise ValueError(f"the changes of {key!r:.80} are {kind}: JSON as TEXT is needed")
                yield object_line(key, changes)
        except (sqlite3.OperationalError, sqlite3.ProgrammingError, ValueError) as error:
            if getattr(error, "sqlite_errorcode", None) in _PASSING:
                raise
            raise SnapshotUnavailable(
                f"snapshot-sql of {self._feed}: {error}", hint=STATE_HINT.format(feed=self._feed)
            ) from None


def _table_lines(connection: sqlite3.Connection, table: Attachment) -> Iterator[bytes]:
    if read_table(connection, table.table) is None:
        raise SnapshotUnavailable(f"the attached table {table.table} is not there any more")
    yield schema_line(table.spec.schema)
    renderer = RowRenderer(table.spec)
    name = msgspec.json.encode(renderer.table)
    for values in connection.execute(table.sql.select_rows()):
        yield row_line(renderer.render(values, None), name)
