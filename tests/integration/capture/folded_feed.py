"""A feed in memory that sessions of capture append to, and what its messages say the tables hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.capture.catalogue_schema import catalogue_forms, from_catalogue
from headrace.capture.changes import Append
from headrace.capture.ddl import TableName, parse
from headrace.capture.mariadb.catalogue import read_table
from headrace.capture.mariadb.chunks import Chunk, ChunkReader
from headrace.capture.mariadb.connection import connect
from headrace.capture.position import CopyProgress
from headrace.capture.requests import CopyRequests
from headrace.capture.session import CaptureSession, FeedStand
from headrace.capture.settings import CaptureSettings
from headrace.client.http import FeedClient
from headrace.entries.entry import Change, Op
from headrace.runtime.clock import SystemClock
from headrace.runtime.disk import Disk
from headrace.runtime.dsn import parse_dsn
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, Dml, MessageType, Raw
from headrace.simple.schema import TableSchema
from headrace.wire import varint
from headrace.wire.entry import change_of, message_of
from headrace.wire.frame import frames_of
from headrace.wire.generated import wal_pb2
from tests.mariadb import Database
from tests.servers import ServerProcess

Row = dict[str, Raw]
Rows = dict[tuple[Raw, ...], Row]


def changes_of(append: Append) -> list[Change]:
    """The entries of an append as values."""
    found = []
    for entry in append.fields:
        _, at = varint.decode(entry, 1)
        found.append(change_of(wal_pb2.WalEntry.FromString(entry[at:])))
    return found


class FoldedTable(NamedTuple):
    """A table as the feed tells it. ``key``: the columns whose values ``rows`` are found by."""

    schema: TableSchema
    rows: Rows
    key: tuple[str, ...]


class FeedInMemory:
    """All appends so far."""

    def __init__(self) -> None:
        self.appends: list[Append] = []
        self._read: dict[int, tuple[Append, list[Change]]] = {}

    def stand(self) -> FeedStand:
        """What a capture that starts now is told."""
        schemas: dict[tuple[str, str], TableSchema] = {}
        for change in self.changes():
            if change.control == "schema":
                message = json_codec.decode(change.value)
                assert isinstance(message, Bootstrap)
                schema = message.table_schema
                schemas.pop((schema.schema, schema.table), None)
                schemas[schema.schema, schema.table] = schema
        return FeedStand(self.appends[-1].position if self.appends else None, list(schemas.values()))

    def changes(self) -> Iterator[Change]:
        """All entries, in their order."""
        for append in self.appends:
            if id(append) not in self._read:
                self._read[id(append)] = (append, changes_of(append))
            yield from self._read[id(append)][1]

    def copies(self) -> tuple[CopyProgress, ...]:
        """The copies that the last append knows of."""
        return self.appends[-1].position.copies if self.appends else ()

    def controls(self, name: str) -> list[Change]:
        """The control entries of one name."""
        return [change for change in self.changes() if change.control == name]

    def messages(self) -> list[Dml | Ddl]:
        """Rows and DDL, in their order."""
        found = []
        for change in self.changes():
            if change.control in {"", "ddl"}:
                message = json_codec.decode(change.value)
                assert isinstance(message, Dml | Ddl)
                found.append(message)
        return found

    def tables(self) -> dict[TableName, FoldedTable]:
        """Fold the feed: its tables now."""
        return fold(self.changes())


async def read_changes(server: ServerProcess, feed: str) -> list[Change]:
    """All entries of a feed of a running server."""
    found: list[Change] = []
    async with FeedClient(server.url) as client:
        while len(found) < (head := (await client.feed(feed)).head_sequence_id):
            page = await client.read_frames(feed, len(found) + 1, head)
            for frame in frames_of(page.data):
                found += [change_of(message_of(stored)) for stored in frame.entries()]
    return found


def fold(changes: Iterable[Change]) -> dict[TableName, FoldedTable]:
    """Return the tables that a feed tells of. Checks, on the way, what is promised of every feed.

    The key of a schema that is told early may not tell the rows apart yet: it holds from the first row on.
    """
    tables: dict[TableName, FoldedTable] = {}
    schemas: dict[tuple[str, str, int], TableSchema] = {}
    stopped: set[TableName] = set()
    last_ts = 0
    for change in changes:
        if change.control == "schema":
            message = json_codec.decode(change.value)
            assert isinstance(message, Bootstrap)
            schema = message.table_schema
            schemas[schema.key] = schema
            name = TableName(schema.schema, schema.table)
            tables[name] = _reshaped(tables.get(name), schema)
        elif change.control == "stopped":
            stopped.add(TableName(*change.table))
        elif change.control == "copy-begin":
            stopped.discard(TableName(*change.table))
        elif change.control in {"ddl", "watermark", ""}:
            message = json_codec.decode(change.value)
            assert not isinstance(message, Bootstrap)
            assert message.commit_ts >= last_ts
            last_ts = message.commit_ts
            if isinstance(message, Ddl):
                _apply_ddl(tables, message, TableName(*change.table))
            elif isinstance(message, Dml):
                _apply_row(tables, schemas[message.schema_key], message, change)
    return {
        name: table if name in stopped else _keyed_as(table, table.schema) for name, table in tables.items()
    }


def new_name_of(message: Ddl) -> TableName:
    """The name that a RENAME gives: what was made and renamed before capture read of it has no schema."""
    if message.table_schema is not None:
        return TableName(message.table_schema.schema, message.table_schema.table)
    (statement,) = parse(message.sql, "")
    assert statement.new_name is not None
    return statement.new_name


def _apply_ddl(tables: dict[TableName, FoldedTable], message: Ddl, name: TableName) -> None:
    match message.type:
        case MessageType.ERASE:
            tables.pop(name, None)
        case MessageType.TRUNCATE:
            tables[name].rows.clear()
        case MessageType.CREATE:
            assert name not in tables
        case MessageType.RENAME:
            table = tables.pop(name, None)
            if message.table_schema is not None:
                rows, key = (table.rows, table.key) if table is not None else ({}, ())
                tables[new_name_of(message)] = FoldedTable(message.table_schema, rows, key)


def _apply_row(
    tables: dict[TableName, FoldedTable], schema: TableSchema, message: Dml, change: Change
) -> None:
    assert change.table == (message.database, message.table)
    name = TableName(message.database, message.table)
    table = tables[name] = _keyed_as(tables[name], schema)
    assert table.schema == schema, "a row comes under another schema than the last one that was told"
    assert message.table_id == schema.table_id
    if message.old is not None and not change.copy:
        found = table.rows.pop(_key(schema, dict(message.old)), None)
        assert found == dict(message.old), f"{message} changes a row that the feed has otherwise: {found}"
    if message.data is not None:
        key = _key(schema, dict(message.data))
        assert change.op is Op.PUT
        assert change.copy or key not in table.rows, f"{message} comes a second time"
        table.rows[key] = dict(message.data)


def _reshaped(table: FoldedTable | None, schema: TableSchema) -> FoldedTable:
    """Give the rows the columns of ``schema``: what is new in them has its default."""
    if table is None:
        return FoldedTable(schema, {}, schema.handle_key)
    rows: Rows = {
        key: {column.name: row.get(column.name, column.default) for column in schema.columns}
        for key, row in table.rows.items()
    }
    return table._replace(schema=schema, rows=rows)


def _keyed_as(table: FoldedTable, schema: TableSchema) -> FoldedTable:
    """Let the rows be found by the handle key of ``schema``."""
    if table.key == schema.handle_key:
        return table
    rows: Rows = {_key(schema, row): row for row in table.rows.values()}
    assert len(rows) == len(table.rows), f"{schema.handle_key} does not tell the rows of {schema.table} apart"
    return table._replace(rows=rows, key=schema.handle_key)


def _key(schema: TableSchema, row: Row) -> tuple[Raw, ...]:
    return tuple(row[name] for name in schema.handle_key)


def rows_at_source(dsn: str, name: TableName) -> Rows:
    """What a table holds, read at the source: raw values."""
    connection = connect(parse_dsn(dsn))
    try:
        table = read_table(connection, name)
        assert table is not None
        schema = from_catalogue(table, 1, 1)
        reader = ChunkReader(
            lambda: connect(parse_dsn(dsn)), schema, catalogue_forms(table), rows_max=1_000_000
        )
        chunk = reader.read(None)
        reader.close()
    finally:
        connection.close()
    assert isinstance(chunk, Chunk)
    assert chunk.whole
    names = [column.name for column in schema.columns]
    rows: list[Row] = [dict(zip(names, values, strict=True)) for values in chunk.rows]
    return {_key(schema, row): row for row in rows}


class Captured:
    """A source, a feed in memory, and one session after the other between them."""

    def __init__(self, settings: CaptureSettings, dsn: str, folder: Path) -> None:
        self.settings = settings
        self.dsn = dsn
        self.feed = FeedInMemory()
        self.requests = CopyRequests(folder, settings.feed, Disk())
        self.session: CaptureSession | None = None

    def open(self) -> CaptureSession:
        """Begin a session where the feed stands; the one before is dropped as if its process had been killed."""
        self.close()
        self.session = CaptureSession.open(
            self.settings, parse_dsn(self.dsn), self.feed.stand(), self.requests, SystemClock()
        )
        return self.session

    def close(self) -> None:
        """End the session."""
        if self.session is not None:
            self.session.close()
            self.session = None

    def run_until(self, done: Callable[[], bool], *, steps_max: int = 400) -> None:
        """Let the session work until ``done``."""
        session = self.session or self.open()
        for _ in range(steps_max):
            if done():
                return
            self.feed.appends += session.step()
        raise AssertionError(f"it is not done after {steps_max} steps")

    def run_to_watermark(self) -> None:
        """Let the session work until a WATERMARK covers all that is committed now."""
        count = len(self.feed.controls("watermark"))
        # The next one may have been asked for before this call; the one after that was not.
        self.run_until(lambda: len(self.feed.controls("watermark")) >= count + 2)

    def check(self, *names: TableName) -> None:
        """The feed tells of these tables, and no others, what the source holds."""
        tables = self.feed.tables()
        assert set(tables) == set(names)
        for name in names:
            assert tables[name].rows == rows_at_source(self.dsn, name)


def captured(database: Database, folder: Path, **settings: object) -> Captured:
    """A capture of all tables of ``database``, in small chunks, with frequent WATERMARKs; ``settings`` may say otherwise."""
    values: dict[str, object] = {
        "tables": (f"{database.name}.*",),
        "chunk_rows": 100,
        "watermark_interval": "0.1s",
        "watermark_idle_interval": "0.1s",
        **settings,
    }
    return Captured(CaptureSettings(feed=database.name, dsn=database.dsn, **values), database.dsn, folder)  # type: ignore[arg-type]  # each is of its setting's type


def named(database: Database, *tables: str) -> list[TableName]:
    """Tables of ``database`` by their full names."""
    return [TableName(database.name, table) for table in tables]
