"""A table's rows in chunks, by its handle key: each a consistent state at an exact place in the binlog. Nobody waits for it.

A chunk is one short transaction WITH CONSISTENT SNAPSHOT. The server says at which end of a transaction in its binlog that
snapshot was taken, so a chunk and the binlog behind its place are the table, without a lock on rows. Meanwhile a second
connection holds the table's metadata lock as every reader does: writers go on, only a change of the table's shape waits, for
one chunk at most. So the rows have the shape that was checked, and the table's name means the same table all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from typing import Any, Final, NamedTuple

import pymysql
from msgspec.structs import replace
from pymysql.constants import ER
from pymysql.cursors import SSCursor

from headrace.capture.binlog.event import Place
from headrace.capture.catalogue_schema import catalogue_forms, from_catalogue
from headrace.capture.catalogue_table import TableKind
from headrace.capture.ddl import TableName
from headrace.capture.mariadb.catalogue import read_table
from headrace.capture.mariadb.connection import Source, execute, fetch, held, source_errors, transaction
from headrace.capture.mariadb.key_order import KeyOrder
from headrace.capture.mariadb.key_parts import quoted
from headrace.capture.mariadb.select_forms import SelectForm, select_form
from headrace.capture.mariadb.server import current_place
from headrace.capture.position import RawKey
from headrace.errors import TableStopped
from headrace.simple.faults import Misfit, show
from headrace.simple.message import Timestamp
from headrace.simple.mysql_types import INTEGER_BITS
from headrace.simple.schema import TableSchema

CHUNK_ROWS: Final = 5_000
CHUNK_BYTES: Final = 8 << 20
"""Bytes of values, as the server sends them, after which a chunk ends; one row is always taken."""

CONSISTENT_ENGINE: Final = "InnoDB"
"""The storage engine whose tables have a state that a snapshot shows."""

LOCK_TIMEOUT_S: Final = 1
"""How long a chunk waits for a table whose shape is being changed; meanwhile nothing of the binlog is read."""

RawValues = tuple[str | Timestamp | None, ...]


class Chunk(NamedTuple):
    """Rows that follow each other in the order of the handle key, as they were at ``place``.

    ``place``: every transaction that ends at or before it is in the rows, none behind it is. ``rows``: raw values in the
    order of the schema's columns; None for those that were not chosen. ``last_key``: of the last row, None if there are no
    rows. ``whole``: at ``place`` no row stood behind these. ``size``: bytes, as the server sent them.
    """

    place: Place
    rows: list[RawValues]
    last_key: RawKey | None
    whole: bool
    size: int


class NoChunkReason(StrEnum):
    """Why there is no chunk just now."""

    TABLE_CHANGED = "table-changed"
    """It has another shape than the schema says: go on with a reader of the new schema, at the same key."""
    TABLE_GONE = "table-gone"
    """It was dropped or renamed; the binlog says so, or will."""
    TABLE_BUSY = "table-busy"
    """Its shape is being changed: ask again in a moment."""


class NoChunk(NamedTuple):
    """There is no chunk; ``detail`` says why, in the words of the server where it has some."""

    reason: NoChunkReason
    detail: str


class ChunkReader:
    """Reads the chunks of one table in one shape, in the order of ``order``.

    It keeps two connections, opened when they are needed; not for several threads.
    """

    def __init__(
        self,
        connect: Callable[[], Source],
        schema: TableSchema,
        forms: Mapping[str, str],
        delivered: Sequence[int] | None = None,
        *,
        rows_max: int = CHUNK_ROWS,
        bytes_max: int = CHUNK_BYTES,
        any_engine: bool = False,
    ) -> None:
        """``connect`` opens a session as :func:`headrace.capture.mariadb.connection.connect` does.

        ``forms``: what :func:`headrace.capture.catalogue_schema.catalogue_forms` says of the table. ``delivered``: places of
        the columns that are read besides the handle key; None: all. ``any_engine``: read tables whose storage engine has no
        snapshots too; their rows are of no one moment then.

        TableStopped where the table has no handle key, or a column is of a type that is not read.
        """
        self.order = KeyOrder(schema, forms)
        self._connect = connect
        self._schema = schema
        self._any_engine = any_engine
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._limit = rows_max
        self._index = _index_of(schema)
        self._width = len(schema.columns)
        self._name = f"{schema.schema}.{schema.table}"
        self._table = f"{quoted(schema.schema)}.{quoted(schema.table)}"
        self._places = sorted(
            {*(range(len(schema.columns)) if delivered is None else delivered), *self.order.places}
        )
        self._forms = dict(forms)
        chosen = [self._form(place) for place in self._places]
        self._select = ", ".join(sql for sql, _ in chosen)
        self._reads = [read for _, read in chosen]
        self._guard: Source | None = None
        self._session: Source | None = None

    def read(self, after: RawKey | None) -> Chunk | NoChunk:
        """Return the rows behind ``after``, from the first one if it is None: at most so many rows and bytes as was said.

        Raises TableStopped (a value that can't be told, an engine without snapshots, ``after`` is no key of this table),
        SourceUnfit (no binlog), SourceForbidden, SourceUnavailable: ask again.
        """
        with self._whole_or_closed():
            guard = self._guarding()
            try:
                with held(guard, self._table):
                    refused = self._refusal(guard)
                    return refused if refused is not None else self._snapshot(after)
            except pymysql.err.MySQLError as error:
                reason = _NO_CHUNK.get(error.args[0] if error.args else 0)
                if reason is None:
                    raise
                return NoChunk(reason, str(error.args[1]))

    def query(self, after: RawKey | None) -> str:
        """Return the statement that reads the next chunk; TableStopped if ``after`` is no key of this table."""
        where = f" WHERE {self.order.after(after)}" if after is not None else ""
        return (
            f"SELECT {self._select} FROM {self._table} FORCE INDEX ({quoted(self._index)}){where} "  # noqa: S608 - all quoted
            f"ORDER BY {self.order.order_by} LIMIT {self._limit}"
        )

    def estimate_rows(self) -> int | None:
        """Return about how many rows the table has, as the server's statistics say; None if it is gone or has none."""
        with self._whole_or_closed():
            rows = fetch(self._guarding(), _ESTIMATE, (self._schema.schema, self._schema.table))
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    def close(self) -> None:
        """Close both connections; the next call opens them again."""
        for connection in (self._guard, self._session):
            if connection is not None and connection.open:
                connection.close()
        self._guard = self._session = None

    def _refusal(self, guard: Source) -> NoChunk | None:
        """Return why there is no chunk, if the table is not what the schema says; it can't change while the lock is held."""
        table = read_table(guard, TableName(self._schema.schema, self._schema.table))
        if table is None or table.kind not in _WITH_ROWS:
            return NoChunk(NoChunkReason.TABLE_GONE, f"{self._name} is no table")
        if table.engine != CONSISTENT_ENGINE and not self._any_engine:
            raise self._stopped(
                f"{self._name} is kept by the storage engine {table.engine}, which has no snapshots: its rows can't be told "
                "from changes that come meanwhile",
                f"ALTER TABLE {self._table} ENGINE = InnoDB, then run headrace capture copy for it.",
            )
        found = from_catalogue(table, self._schema.table_id, self._schema.version)
        if catalogue_forms(table) != self._forms or _shape(found) != _shape(self._schema):
            return NoChunk(
                NoChunkReason.TABLE_CHANGED, f"{self._name} has other columns or another handle key now"
            )
        return None

    def _snapshot(self, after: RawKey | None) -> Chunk:
        """Read a chunk in a snapshot of its own; the table's metadata lock is held by another connection meanwhile."""
        session = self._reading()
        with transaction(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"):
            session.use_unicode = True
            place = current_place(session)
            session.use_unicode = False
            rows, size, cut = self._rows(session, after)
        whole = not cut and len(rows) < self._limit
        if cut:
            self._limit = max(len(rows), 1)
        elif not whole and 2 * size < self._bytes_max:
            self._limit = min(2 * self._limit, self._rows_max)
        last = tuple(rows[-1][place] for place in self.order.places) if rows else None
        return Chunk(place, rows, last, whole, size)

    def _rows(self, session: Source, after: RawKey | None) -> tuple[list[RawValues], int, bool]:
        """Return rows, their bytes, and whether more were left that the server had begun to send."""
        rows: list[RawValues] = []
        size = 0
        with closing(session.cursor(RowStream)) as cursor:
            try:
                cursor.execute(self.query(after))
                for sent in cursor.fetchall_unbuffered():
                    size += sum(map(len, filter(None, sent)))
                    rows.append(self._values(sent))
                    if size >= self._bytes_max and len(rows) < self._limit:
                        cursor.abandon()
                        return rows, size, True
            except BaseException:
                cursor.abandon()
                raise
        return rows, size, False

    def _values(self, sent: Sequence[bytes | None]) -> RawValues:
        try:
            values = [
                None if value is None else read(value) for read, value in zip(self._reads, sent, strict=True)
            ]
        except UnicodeDecodeError:
            raise self._fault(sent) from None
        if len(values) == self._width:
            return tuple(values)
        row: list[str | Timestamp | None] = [None] * self._width
        for place, value in zip(self._places, values, strict=True):
            row[place] = value
        return tuple(row)

    def _fault(self, sent: Sequence[bytes | None]) -> TableStopped:
        """Return the error for a row that has a text which is none: it names the column and the row's key."""
        texts: dict[int, str | Timestamp | None] = {}
        faulty = ""
        for place, read, value in zip(self._places, self._reads, sent, strict=True):
            try:
                texts[place] = None if value is None else read(value)
            except UnicodeDecodeError:
                faulty = self._schema.columns[place].name
                texts[place] = value.hex() if value is not None else None
        key = ", ".join(show(texts[place]) for place in self.order.places)
        return self._stopped(
            f"{self._name}.{faulty} holds bytes that are no text of its character set, in the row with the key {key}",
            "Mend the value at the source, or leave the column out (exclude-columns), then run headrace capture copy.",
        )

    def _form(self, place: int) -> SelectForm:
        column = self._schema.columns[place]
        try:
            return select_form(column, self._forms.get(column.name))
        except Misfit:
            kind = column.data_type
            raise self._stopped(
                f"{self._name}.{column.name} is of the type {kind.mysql_type} ({kind.charset}), which is not read",
                "Leave the column out (exclude-columns), then run headrace capture copy for this table.",
            ) from None

    def _guarding(self) -> Source:
        """The connection that holds the table's metadata lock and answers questions."""
        if self._guard is None:
            self._guard = self._connect()
            execute(self._guard, f"SET SESSION lock_wait_timeout = {LOCK_TIMEOUT_S}")
        return self._guard

    def _reading(self) -> Source:
        """The connection for snapshots. Where it would wait for a change of shape, that waits for the guard: it gives up."""
        if self._session is None or not self._session.open:
            self._session = self._connect()
            execute(self._session, "SET SESSION lock_wait_timeout = 0")
            execute(self._session, "SET SESSION character_set_results = NULL")
            execute(self._session, "SET SESSION max_statement_time = 0")
            self._session.decoders = {}
        return self._session

    @contextmanager
    def _whole_or_closed(self) -> Iterator[None]:
        """Turn the driver's errors into ours; after any error the next call begins with new connections."""
        try:
            with source_errors():
                yield
        except BaseException:
            self.close()
            raise

    def _stopped(self, detail: str, hint: str) -> TableStopped:
        return TableStopped(detail, hint=hint, database=self._schema.schema, table=self._schema.table)


class RowStream(SSCursor):
    """Rows one by one, as they come."""

    def abandon(self) -> None:
        """Close the connection. A cursor would read the rest away first, and a row may have gigabytes."""
        connection = self.connection
        result: Any = vars(self).get("_result")
        if result is not None:
            result.unbuffered_active = False
        if connection.open:
            connection.close()


def _shape(schema: TableSchema) -> object:
    """What must be equal for rows to be read by ``schema``: neither defaults, other indexes nor display widths."""
    columns = tuple(
        (
            column.name,
            column.nullable,
            replace(
                column.data_type,
                zerofill=False,
                length=0 if column.data_type.mysql_type in _WITH_WIDTH else column.data_type.length,
            ),
        )
        for column in schema.columns
    )
    return columns, schema.handle_key


def _index_of(schema: TableSchema) -> str:
    """Return the name of the index whose columns are the handle key."""
    names = [index.name for index in schema.indexes if index.unique and index.columns == schema.handle_key]
    secondary = [name for name in names if name.lower() != _PRIMARY.lower()]
    return secondary[0] if secondary and _PRIMARY not in names else _PRIMARY


_PRIMARY: Final = "PRIMARY"
_WITH_ROWS: Final = frozenset({TableKind.TABLE, TableKind.VERSIONED})
_WITH_WIDTH: Final = frozenset({*INTEGER_BITS, "float", "double"})
"""Types whose length only says how wide they are shown, which the binlog does not."""
_ESTIMATE: Final = (
    "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
)
_NO_CHUNK: Final = {
    ER.TABLE_DEF_CHANGED: NoChunkReason.TABLE_CHANGED,
    ER.BAD_FIELD_ERROR: NoChunkReason.TABLE_CHANGED,
    ER.KEY_DOES_NOT_EXITS: NoChunkReason.TABLE_CHANGED,
    ER.NO_SUCH_TABLE: NoChunkReason.TABLE_GONE,
    ER.BAD_DB_ERROR: NoChunkReason.TABLE_GONE,
    ER.LOCK_WAIT_TIMEOUT: NoChunkReason.TABLE_BUSY,
}
