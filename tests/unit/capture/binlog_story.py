"""Events of a binlog by hand: tables of numbers, transactions over them, and a catalogue that knows what became of them."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import msgspec

from headrace.capture.assembling import Assembler
from headrace.capture.binlog.event import (
    Begin,
    BinlogColumn,
    Commit,
    Event,
    Gtid,
    GtidPosition,
    RowsChanged,
    RowsKind,
    Statement,
    TableMap,
    TableMapped,
)
from headrace.capture.binlog.table_map import ColumnType
from headrace.capture.catalogue_table import CatalogueColumn, CatalogueIndex, CatalogueTable, TableKind
from headrace.capture.changes import Append
from headrace.capture.ddl import TableName
from headrace.capture.position import RawKey, SourcePosition
from headrace.capture.schema_changes import SchemaChanges
from headrace.capture.selection import ColumnRules, Selection
from headrace.capture.tables import Tables, Unknown
from headrace.entries.entry import Change
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap
from headrace.simple.schema import TableSchema
from headrace.wire import varint
from headrace.wire.entry import change_of
from headrace.wire.generated import wal_pb2

TIME_S = 1_700_000_000
WALL_MS = 1_700_000_000_123
FILE = "binlog.000001"
START = SourcePosition(gtid="0-1-1", file=FILE, offset=4, server_id=1, commit_ts=0, table_id=0)

Pair = tuple[tuple[int, ...] | None, tuple[int, ...] | None]


def named(text: str) -> TableName:
    """``database.table`` as a name."""
    database, _, table = text.partition(".")
    return TableName(database, table)


def catalogue_table(name: str, *columns: str, key: tuple[str, ...] = ("id",)) -> CatalogueTable:
    """A table of INT columns, NOT NULL."""
    found = tuple(CatalogueColumn(one, "int(11)", "int", "", "", False, None) for one in columns)
    indexes = (CatalogueIndex("PRIMARY", True, key, (None,) * len(key)),) if key else ()
    return CatalogueTable(named(name), TableKind.TABLE, "InnoDB", found, indexes)


class Story:
    """Writes a binlog. ``tables`` is the catalogue: what there is now, whatever the events say there was."""

    def __init__(self, **tables: tuple[str, ...]) -> None:
        """``tables``: of the database shop, name -> columns; the primary key is the column id."""
        self.events: list[Event] = []
        self.tables: dict[TableName, CatalogueTable] = {}
        self.gaps: dict[TableName, str] = {}
        self._shapes: dict[str, tuple[int, tuple[str, ...]]] = {}
        self._end = 100
        self._sequence = 1
        for table, columns in tables.items():
            self.create(f"shop.{table}", *columns)

    def table(self, name: TableName) -> CatalogueTable | None:
        """What the catalogue says."""
        found = self.tables.get(name)
        return msgspec.structs.replace(found, name=name) if found is not None else None

    def gap(self, name: TableName) -> str | None:
        """Which foreign key changes rows unseen."""
        return self.gaps.get(name)

    def gap_of(self, actions: tuple[str, ...]) -> str | None:
        """What is wrong with a foreign key that has these actions."""
        return f"a foreign key has {' and '.join(actions)}"

    def create(self, name: str, *columns: str, key: tuple[str, ...] = ("id",)) -> None:
        """Let there be a table of this shape, in the catalogue and in the rows that follow."""
        self.tables[named(name)] = catalogue_table(name, *columns, key=key)
        self._shapes[name] = len(self._shapes) + 10, columns

    def shape(self, name: str, *columns: str) -> None:
        """Let the rows that follow have these columns, whatever the catalogue says."""
        self._shapes[name] = len(self._shapes) + 10, columns

    def add(self, kind: type[Event], *fields: object) -> None:
        """Write any event."""
        self._end += 50
        self.events.append(kind(TIME_S + self._sequence, 1, self._end, *fields))

    def begin(self, *, standalone: bool = False, xa: bool = False) -> None:
        """Begin the next transaction."""
        self._sequence += 1
        self.add(Begin, Gtid(0, 1, self._sequence), standalone, standalone, xa, None)

    def rows(self, name: str, *pairs: Pair) -> None:
        """Write TABLE_MAP and one rows event; all pairs are of one kind."""
        number, columns = self._shapes[name]
        database, table = named(name)
        found = tuple(BinlogColumn(one, ColumnType.LONG, 0, False) for one in columns)
        identity = repr((name, columns)).encode()
        self.add(
            TableMapped, TableMap(number, database, table, found, (columns.index("id"),), (0,), identity)
        )
        before, after = pairs[0]
        kind = RowsKind.INSERT if before is None else RowsKind.DELETE if after is None else RowsKind.UPDATE
        all_columns = b"\xff"
        images = [image for pair in pairs for image in pair if image is not None]
        data = b"".join(b"\0" + struct.pack(f"<{len(columns)}i", *image) for image in images)
        masks = (None if before is None else all_columns, None if after is None else all_columns)
        self.add(RowsChanged, kind, number, len(columns), *masks, data, True)

    def insert(self, name: str, *rows: tuple[int, ...]) -> None:
        """Write inserts of one statement."""
        self.rows(name, *((None, row) for row in rows))

    def commit(self) -> None:
        """End the transaction."""
        self.add(Commit, self._sequence)

    def statement(self, sql: str, database: str = "shop") -> None:
        """Write a statement inside of a transaction."""
        self.add(Statement, database, sql, "utf8mb4", False, False, 0)

    def ddl(self, sql: str, database: str = "shop") -> None:
        """Write a DDL statement, a transaction of its own."""
        self.begin(standalone=True)
        self.statement(sql, database)

    def inserted(self, name: str, *rows: tuple[int, ...]) -> None:
        """Write a transaction of inserts."""
        self.begin()
        self.insert(name, *rows)
        self.commit()


def assembler(
    story: Story,
    position: SourcePosition = START,
    schemas: Iterable[TableSchema] = (),
    *,
    tables: tuple[str, ...] = ("shop.*",),
    unknown: Unknown = Unknown.BEGINS_HERE,
    bytes_max: int = 1 << 20,
    exclude: tuple[str, ...] = (),
) -> Assembler:
    """An assembler at a position. Keys of tables that are copied are compared as numbers."""
    selection = Selection(tables, ColumnRules(exclude=exclude))
    known = Tables.restored(selection, unknown, position, schemas)
    return Assembler(
        position,
        known,
        SchemaChanges(known, story, {}),
        lambda _, last, keys: [_number(key) <= _number(last) for key in keys],
        append_bytes_max=bytes_max,
        wall_ms=lambda: WALL_MS,
    )


def _number(key: RawKey) -> int:
    (value,) = key
    assert isinstance(value, str)
    return int(value)


def told(made: Assembler, events: Iterable[Event]) -> list[Append]:
    """Give events to an assembler, and return all appends."""
    found = [append for event in events for append in made.take(event)]
    return found + made.flush()


def behind(events: list[Event], position: SourcePosition) -> list[Event]:
    """What a server sends from a position on: whole transactions."""
    gtids = GtidPosition.parse(position.gtid)
    for place, event in enumerate(events):
        if isinstance(event, Begin) and not gtids.covers(event.gtid):
            return events[place:]
    return []


def changes_of(appends: Iterable[Append]) -> list[Change]:
    """The entries of appends as values."""
    found = []
    for append in appends:
        for entry in append.fields:
            _, at = varint.decode(entry, 1)
            found.append(change_of(wal_pb2.WalEntry.FromString(entry[at:])))
    return found


def schemas_of(appends: Iterable[Append]) -> list[TableSchema]:
    """The newest schema of each table, as the feed's server tells them."""
    found: dict[tuple[str, ...], TableSchema] = {}
    for change in changes_of(appends):
        if change.control == "schema":
            message = json_codec.decode(change.value)
            assert isinstance(message, Bootstrap)
            found[change.table] = message.table_schema
    return list(found.values())


def shown(appends: Iterable[Append]) -> list[str]:
    """The entries in short: control entries by name, rows by op, table, key and value; a ``.`` ends a transaction."""
    return [
        (change.control or f"{change.op} {(change.key or b'').decode()}") + ("." if change.tx_last else "")
        for change in changes_of(appends)
    ]
