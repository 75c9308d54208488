"""information_schema -> tables as values: one table whole, or which tables there are.

Needs SELECT on the tables; the server hides what the user has no right to. Times in defaults are in the session's zone, UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from headrace.capture.catalogue_table import (
    CatalogueColumn,
    CatalogueIndex,
    CatalogueTable,
    Generation,
    TableKind,
)
from headrace.capture.ddl import TableName
from headrace.capture.mariadb.connection import Source, fetch, source_errors
from headrace.capture.mariadb.labels import is_doubtful, true_type
from headrace.errors import SourceUnavailable, TableNotFound

_SYSTEM: Final = ("information_schema", "mysql", "performance_schema", "sys")

_TABLES: Final = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES
WHERE TABLE_SCHEMA NOT IN %s ORDER BY TABLE_SCHEMA, TABLE_NAME"""
_TABLE: Final = """
SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"""
_HASHED: Final = "HASH"
_COLUMNS: Final = """
SELECT COLUMN_NAME, COLUMN_TYPE, DATA_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE, COLUMN_DEFAULT, EXTRA,
       GENERATION_EXPRESSION
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"""
_INDEXES: Final = """
SELECT INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, INDEX_TYPE
FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"""


class ListedTable(NamedTuple):
    """A table without its columns. ``engine`` is "" for a view, and where the server can't open the table."""

    name: TableName
    kind: TableKind
    engine: str


def list_tables(connection: Source) -> list[ListedTable]:
    """Return all tables, views and sequences that the user may see, but the server's own, ordered by database and name.

    Raises SourceUnavailable.
    """
    with source_errors():
        rows = fetch(connection, _TABLES, (_SYSTEM,))
    return [
        ListedTable(TableName(database, table), _kind(kind), engine or "")
        for database, table, kind, engine in rows
    ]


def read_table(connection: Source, name: TableName) -> CatalogueTable | None:
    """Return a table as it is now; None if there is none of that name, or not for this user.

    Its parts are read one after the other: what is changed meanwhile may stand in it in part. Who compares it with the
    binlog (:func:`headrace.capture.table_schema.disagreement`) notices. Of a view that has lost its tables no columns are
    known. Raises SourceUnavailable, also where the server can't open the table.
    """
    with source_errors():
        tables = fetch(connection, _TABLE, name)
        columns = fetch(connection, _COLUMNS, name)
        indexes = fetch(connection, _INDEXES, name)
    if not tables:
        return None
    kind, engine = tables[0]
    if not columns and _kind(kind) in (TableKind.TABLE, TableKind.VERSIONED):
        raise SourceUnavailable(f"the database can't open the table {name}, or it was dropped just now")
    whole = [_with_labels(connection, name, column) for column in columns]
    return CatalogueTable(name, _kind(kind), engine or "", tuple(map(_column, whole)), _indexes(indexes))


def _with_labels(connection: Source, table: TableName, row: Sequence[Any]) -> Sequence[Any]:
    name, type_, base_type, charset, *rest = row
    if not is_doubtful(type_, charset):
        return row
    try:
        return name, true_type(connection, table, name, type_), base_type, charset, *rest
    except TableNotFound as error:
        raise SourceUnavailable(f"the database: {error.detail}") from None


def _kind(text: str) -> TableKind:
    return TableKind(text) if text in frozenset(TableKind) else TableKind.OTHER


def _column(row: Sequence[Any]) -> CatalogueColumn:
    name, type_, base_type, charset, collation, nullable, default, extra, expression = row
    return CatalogueColumn(
        name=name,
        type=type_,
        base_type=base_type.lower(),
        charset=charset or "",
        collation=collation or "",
        nullable=nullable == "YES",
        default=default,
        generation=_generation(extra, expression),
        invisible="INVISIBLE" in extra,
    )


def _generation(extra: str, expression: str | None) -> Generation | None:
    if expression in (Generation.ROW_START, Generation.ROW_END):
        return Generation(expression)
    word, generated, _ = extra.partition(" GENERATED")
    return Generation(word) if generated else None


def _indexes(rows: Sequence[Sequence[Any]]) -> tuple[CatalogueIndex, ...]:
    """Make the indexes of their columns, which the server gives in order, index by index."""
    return tuple(
        CatalogueIndex(
            name,
            not int(non_unique),
            tuple(part[2] for part in parts),
            tuple(part[3] for part in parts),
            parts[0][4] == _HASHED,
        )
        for (name, non_unique), group in groupby(rows, key=lambda row: (row[0], row[1]))
        for parts in [list(group)]
    )
