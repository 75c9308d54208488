"""Reading a feed's state from PostgreSQL: one repeatable-read transaction on a connection of its own, exported to marking.

The trap: TRUNCATE and the forms of ALTER TABLE that rewrite a table are not seen by snapshots as they should be. A reader
whose snapshot is older finds the table empty. So the tables are locked (ACCESS SHARE, as any SELECT does) *before* the
snapshot is taken: the lock keeps both away, or the snapshot is younger. LOCK TABLE is the one statement that can stand
before it in its transaction. The relations of an operator's query can't be locked so (a right to a view is none to its
tables). They are looked up and locked twice, by planning the query: in a transaction before the snapshot, and after it
in the snapshot's own. If they are the same files under the same names both times, nothing was rewritten in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Final

import msgspec
import psycopg
from psycopg import sql

from headrace.errors import SnapshotUnavailable, SourceUnavailable
from headrace.publisher.postgres.added import was_added
from headrace.publisher.postgres.attachment import Attachment, AttachmentState, read_attachments
from headrace.publisher.postgres.connection import Source, connect, fetch_one, postgres_errors, transaction
from headrace.publisher.postgres.copy_sql import ROW, SourceTable, identifier, read_source_table
from headrace.publisher.postgres.render import RowRenderer
from headrace.publisher.postgres.state_query import FETCH_ROWS, Query, Relation, read_relations
from headrace.publisher.postgres.triggers import row_json
from headrace.publisher.state import ALSO_ADDED, NO_STATE, STATE_HINT, StateReader, row_line, schema_line
from headrace.runtime.dsn import Dsn

TABLE_WAIT_MS: Final = 200
"""How long the tables' locks are waited for: marking waits meanwhile."""

IDLE_MS_MAX: Final = 3_600_000
"""How long the transaction may stay idle: while a backlog is marked, and while the spool is slow."""

CANCEL_S_MAX: Final = 2.0
"""How long a request to cancel may take."""

_SETTINGS: Final = f"""
SET TRANSACTION READ ONLY;
SET LOCAL lock_timeout = {TABLE_WAIT_MS};
SET LOCAL idle_in_transaction_session_timeout = {IDLE_MS_MAX};
SET LOCAL row_security = off;
SET LOCAL enable_seqscan = on;
SET LOCAL enable_bitmapscan = on;
SET LOCAL enable_hashjoin = on;
SET LOCAL enable_mergejoin = on"""
"""row_security off: a policy makes an error, never fewer rows. None of these takes the snapshot."""

_ADDED: Final = """
SELECT (SELECT is_called FROM headrace.headrace_added) AND EXISTS (
    SELECT FROM headrace.headrace_outbox WHERE change_feed_id = %s AND attached IS NULL AND control IS NULL)"""
_CHANGED: Final = "the tables of {feed} were changed just now"


class PostgresStateReader(StateReader):
    """See :class:`~headrace.publisher.state.StateReader`. ``query``: the application's own, for rows of no table."""

    def __init__(self, dsn: Dsn, feed: str, query: str | None) -> None:
        self.was_read = False
        self._dsn = dsn
        self._feed = feed
        self._query = None if query is None else Query(query, feed)
        self._tables: list[tuple[Attachment, SourceTable]] = []
        self._connection: Source | None = None
        self._transaction = ExitStack()

    def open(self) -> None:
        self._connection = connect(self._dsn, application_name="headrace snapshot")

    def begin(self) -> str:
        """Fix what is read, and return the name by which another session can see just the same until :meth:`close`.

        Raises SourceUnavailable if a table is locked, or changed just now.
        """
        connection = self._opened()
        with postgres_errors():
            tables = self._read_tables(connection)
            relations = None if self._query is None else _look_up(connection, tables, self._query)
            self._transaction.enter_context(transaction(connection, repeatable_read=True))
            _lock(connection, tables)
            exported = str(fetch_one(connection, "SELECT pg_export_snapshot()")[0])
            if self._query is not None:
                self._query.open(connection)
                if read_relations(connection) != relations:
                    raise SourceUnavailable(_CHANGED.format(feed=self._feed))
            self._tables = self._read_tables(connection)
        if [(one.number, table[:2]) for one, table in self._tables] != [
            (one.number, table[:2]) for one, table in tables
        ]:
            raise SourceUnavailable(_CHANGED.format(feed=self._feed))
        return exported

    def lines(self) -> Iterator[bytes]:
        connection = self._opened()
        with postgres_errors():
            self._check(connection)
            for attachment, table in self._tables:
                yield from _table_lines(connection, attachment, table)
            if self._query is not None:
                yield from self._query.lines()

    def cancel(self) -> None:
        connection = self._connection
        if connection is not None:
            with suppress(psycopg.Error):  # it was closed just now, or the database is away
                connection.cancel_safe(timeout=CANCEL_S_MAX)

    def close(self) -> None:
        if self._connection is not None:
            if self._query is not None:
                self._query.close()
            with suppress(SourceUnavailable):
                self._transaction.close()
            self._connection.close()
            self._connection = None

    def _opened(self) -> Source:
        if self._connection is None:
            raise SourceUnavailable("this reader is closed")
        return self._connection

    def _read_tables(self, connection: Source) -> list[tuple[Attachment, SourceTable]]:
        """Return the feed's attached tables under the names that they have now."""
        found = []
        for one in read_attachments(connection, AttachmentState.LIVE):
            if one.feed == self._feed:
                table = read_source_table(connection, one.oid)
                if table is None:
                    raise SnapshotUnavailable(f"the attached table {one.label} is not there any more")
                found.append((one, table))
        return found

    def _check(self, connection: Source) -> None:
        """Refuse a feed of which a part has no state that could be read."""
        if self._query is not None:
            return
        hint = STATE_HINT.format(feed=self._feed)
        if not self._tables:
            raise SnapshotUnavailable(NO_STATE.format(feed=self._feed), hint=hint)
        if was_added(connection, self._feed) or fetch_one(connection, _ADDED, (self._feed,))[0]:
            raise SnapshotUnavailable(ALSO_ADDED.format(feed=self._feed), hint=hint)


def _lock(connection: Source, tables: Sequence[tuple[Attachment, SourceTable]]) -> None:
    """Make the transaction's settings, and keep ``tables`` as they are until it ends; takes no snapshot."""
    connection.execute(_SETTINGS)
    for _, table in tables:
        place = sql.Identifier(table.schema, table.name)
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(place))


def _look_up(
    connection: Source, tables: Sequence[tuple[Attachment, SourceTable]], query: Query
) -> set[Relation]:
    """Return all that a reading locks, in a transaction of its own: to plan the query takes a snapshot."""
    with transaction(connection):
        _lock(connection, tables)
        query.open(connection)
        found = read_relations(connection)
        query.close()
    return found


def _table_lines(connection: Source, attachment: Attachment, table: SourceTable) -> Iterator[bytes]:
    yield schema_line(attachment.spec.schema)
    renderer = RowRenderer(attachment.spec)
    name = msgspec.json.encode(renderer.table)
    # Rows of other tables that inherit from this one fire no trigger of it.
    query = sql.SQL("SELECT {} FROM {}{} AS {}").format(
        row_json(attachment, ROW),
        sql.SQL("" if table.partitioned else "ONLY "),
        sql.SQL(".").join([identifier(table.schema), identifier(table.name)]),
        identifier(ROW),
    )
    with connection.cursor(name="headrace_state") as cursor:
        cursor.itersize = FETCH_ROWS
        cursor.execute(query, ())
        for (text,) in cursor:
            yield row_line(renderer.render("put", text), name)
