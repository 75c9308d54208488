"""What SQLite's catalogue says of tables: columns, unique indexes, kind, triggers. Read in the caller's transaction."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import NamedTuple

import msgspec


class SourceColumn(msgspec.Struct, frozen=True):
    """A column as declared. ``key_place`` counts from 1 in the primary key, 0 outside; ``generated`` are computed."""

    name: str
    declared: str
    not_null: bool
    default: str | None
    key_place: int
    generated: bool


class UniqueIndex(NamedTuple):
    """A unique index or constraint. A column is None where the index has an expression."""

    name: str
    columns: tuple[str | None, ...]
    collations: tuple[str, ...]
    partial: bool
    primary: bool


class Trigger(NamedTuple):
    """A trigger. Of two AFTER triggers SQLite fires the one with the greater ``place`` (the newer) first."""

    place: int
    name: str
    table: str
    sql: str


@dataclass(frozen=True, slots=True)
class Table:
    """An ordinary table of the main database."""

    name: str
    columns: tuple[SourceColumn, ...]
    unique: tuple[UniqueIndex, ...]
    without_rowid: bool
    strict: bool

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The declared key's columns, in order; empty if there is none."""
        placed = sorted((column.key_place, column.name) for column in self.columns if column.key_place)
        return tuple(name for _, name in placed)

    @property
    def rowid_alias(self) -> str | None:
        """The column that *is* the rowid (``INTEGER PRIMARY KEY``): stable, never NULL, and in no index."""
        key = self.primary_key
        if len(key) != 1 or self.without_rowid or any(index.primary for index in self.unique):
            return None
        return key[0]

    @property
    def rowid_name(self) -> str | None:
        """A name by which the rowid can be read: None WITHOUT ROWID, or where columns hide all three names."""
        taken = {column.name.lower() for column in self.columns}
        if self.without_rowid:
            return None
        return next((name for name in ("_rowid_", "rowid", "oid") if name not in taken), self.rowid_alias)


_TABLES = """
SELECT name, wr, strict FROM pragma_table_list
WHERE schema = 'main' AND type = 'table'
    AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' AND name NOT LIKE 'headrace\\_%' ESCAPE '\\'
ORDER BY name"""
_KIND = "SELECT type FROM pragma_table_list WHERE schema IN ('main', 'temp') AND lower(name) = lower(?)"
_COLUMNS = (
    "SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?, 'main') ORDER BY cid"
)
_INDEXES = "SELECT name, origin, partial FROM pragma_index_list(?, 'main') WHERE \"unique\" ORDER BY name"
_INDEX_COLUMNS = "SELECT name, coll FROM pragma_index_xinfo(?, 'main') WHERE key ORDER BY seqno"
_TRIGGERS = "SELECT rowid, name, tbl_name, sql FROM main.sqlite_master WHERE type = 'trigger' ORDER BY rowid"


def table_names(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the tables that may be attached, sorted: no views, virtual, internal or outbox tables."""
    return [name for name, _, _ in connection.execute(_TABLES)]


def kind_of(connection: sqlite3.Connection, name: str) -> str | None:
    """Return ``table``, ``view``, ``virtual`` or ``shadow`` for what is called ``name``, None if nothing is."""
    row = connection.execute(_KIND, (name,)).fetchone()
    return str(row[0]) if row else None


def read_table(connection: sqlite3.Connection, name: str) -> Table | None:
    """Return the table called exactly ``name``; None if there is none."""
    kind = next((row for row in connection.execute(_TABLES) if row[0] == name), None)
    if kind is None:
        return None
    columns = tuple(
        SourceColumn(column, declared or "", bool(not_null), default, place, hidden in (2, 3))
        for column, declared, not_null, default, place, hidden in connection.execute(
            _COLUMNS, (name,)
        ).fetchall()
        if hidden != 1
    )
    unique = tuple(
        _read_index(connection, index, origin == "pk", bool(partial))
        for index, origin, partial in connection.execute(_INDEXES, (name,)).fetchall()
    )
    return Table(name, columns, unique, bool(kind[1]), bool(kind[2]))


def read_triggers(connection: sqlite3.Connection) -> list[Trigger]:
    """Return all triggers of the main database, oldest first."""
    return [Trigger(*row) for row in connection.execute(_TRIGGERS)]


def schema_cookie(connection: sqlite3.Connection) -> int:
    """Return the number that SQLite changes with every change of the schema."""
    return int(connection.execute("PRAGMA main.schema_version").fetchone()[0])


def _read_index(connection: sqlite3.Connection, name: str, primary: bool, partial: bool) -> UniqueIndex:
    parts = connection.execute(_INDEX_COLUMNS, (name,)).fetchall()
    return UniqueIndex(
        name, tuple(part[0] for part in parts), tuple(part[1] for part in parts), partial, primary
    )
