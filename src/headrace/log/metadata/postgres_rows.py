"""Rows of the PostgreSQL metadata tables: read with their checksums, and written with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.log.metadata.damages import Damages
from headrace.log.metadata.rows import Table

R = TypeVar("R", bound=tuple[Any, ...])
Session = Connection[TupleRow]


def columns_of(table: Table[Any], prefix: str = "") -> str:
    """Return the names of its columns and of the checksum, for SQL."""
    return ", ".join(f"{prefix}{column}" for column in (*table.columns, "crc"))


def stored_rows(
    connection: Session, table: Table[Any], where: str = "", values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Return rows as they are stored, with their checksums."""
    query = f"SELECT {columns_of(table, 'known.')} FROM headrace_log.{table.name} AS known {where}"  # noqa: S608  # names of ours
    return connection.execute(query, values).fetchall()


def locked_row(connection: Session, table: Table[R], new: R) -> tuple[Any, ...]:
    """Return the stored row with the key of ``new``, which is put there if there is none; locked either way."""
    keys = ", ".join(table.columns[: table.keys])
    return connection.execute(
        f"INSERT INTO headrace_log.{table.name} AS known ({columns_of(table)})"  # noqa: S608  # names of ours
        f" VALUES ({', '.join(['%s'] * (len(table.columns) + 1))})"
        f" ON CONFLICT ({keys}) DO UPDATE SET crc = known.crc RETURNING {columns_of(table, 'known.')}",
        table.stamped(new),
    ).fetchall()[0]


def put_rows(connection: Session, damages: Damages, table: Table[R], rows: Sequence[R]) -> None:
    """Write whole rows, with their checksums, over those with their keys, which must be there."""
    if not rows:
        return
    keys, rest = table.columns[: table.keys], (*table.columns[table.keys :], "crc")
    connection.cursor().executemany(
        f"UPDATE headrace_log.{table.name} SET {', '.join(f'{column} = %s' for column in rest)}"  # noqa: S608  # names of ours
        f" WHERE {' AND '.join(f'{column} = %s' for column in keys)}",
        [(*table.stamped(row)[table.keys :], *table.key_of(row)) for row in rows],
    )
    for row in rows:
        damages.mended(table, table.key_of(row))
