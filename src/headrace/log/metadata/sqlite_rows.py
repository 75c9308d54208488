"""Rows of the SQLite metadata database: read with their checksums, and written with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, TypeVar

from headrace.log.metadata.damages import Damages
from headrace.log.metadata.rows import ALARM, Key, Table

R = TypeVar("R", bound=tuple[Any, ...])


def known_row(
    database: sqlite3.Connection, damages: Damages, table: Table[R], key: Key, *, raises: bool = True
) -> R | None:
    """Return the row with this key; None if there is none. If it is damaged MetadataCorrupt, or None with ``raises`` off."""
    where = " AND ".join(f"{column} = ?" for column in table.columns[: table.keys])
    stored = stored_rows(database, table, f"WHERE {where}", key)
    row = damages.checked(table, stored[0]) if stored else None
    if row is None and stored and raises:
        damages.raise_if_damaged(table, table.key_of(stored[0]))
    return row


def put_rows(database: sqlite3.Connection, damages: Damages, table: Table[R], rows: Sequence[R]) -> None:
    """Write whole rows, with their checksums, over those with their keys."""
    write_rows(database, table, rows)
    for row in rows:
        damages.mended(table, table.key_of(row))


def stored_rows(
    database: sqlite3.Connection, table: Table[Any], where: str = "", values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Return rows as they are stored, with their checksums; values come from the table itself, never from an index."""
    columns = ", ".join(table.columns)
    source = f"{table.name} NOT INDEXED" if table is ALARM else table.name
    query = f"SELECT {columns}, crc FROM {source} {where}"  # noqa: S608  # names of ours
    return database.execute(query, tuple(values)).fetchall()


def write_rows(database: sqlite3.Connection, table: Table[R], rows: Sequence[R]) -> None:
    """Write rows with their checksums; what is known of damage stays as it is."""
    marks = ", ".join("?" * (len(table.columns) + 1))
    columns = ", ".join(table.columns)
    database.executemany(
        f"REPLACE INTO {table.name} ({columns}, crc) VALUES ({marks})",  # noqa: S608  # names of ours
        [table.stamped(row) for row in rows],
    )
