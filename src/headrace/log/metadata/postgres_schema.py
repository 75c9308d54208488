"""Metadata tables of older formats: rows of format 1 get their checksums, and what is new is made, once."""

from __future__ import annotations

from importlib import resources
from typing import Any, Final

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.errors import StoreForbidden
from headrace.log.metadata.rows import ADDED, TABLES, Table
from headrace.log.postgres.schema import MAKING_LOCK
from headrace.wire.versions import LOG_TABLES

_HAS_CHECKSUMS: Final = """
SELECT count(*) FROM pg_attribute
WHERE attrelid = 'headrace_log.listener'::regclass AND attname = 'crc' AND NOT attisdropped"""


def shown(table: str) -> str:
    """Return a table's name for people."""
    return f"headrace_log.{table}"


_NAMES: Final = """
SELECT relname FROM pg_class WHERE relnamespace = 'headrace_log'::regnamespace AND relkind = 'r'"""


def lacks_checksums(connection: Connection[TupleRow]) -> bool:
    """Return whether the tables are of format 1."""
    return connection.execute(_HAS_CHECKSUMS).fetchall() == [(0,)]


def present_tables(connection: Connection[TupleRow]) -> list[Table[Any]]:
    """Return the tables that are there: an older format has not all of them."""
    names = {name for (name,) in connection.execute(_NAMES).fetchall()}
    return [table for table in TABLES if table.name in names]


def upgrade(connection: Connection[TupleRow]) -> None:
    """Bring the tables up to this format. Servers that write rows without checksums stop at their next append then.

    Raises StoreForbidden where the role does not own the tables; nothing was changed then.
    """
    if _is_upgraded(connection):
        return
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING_LOCK,))
            if _is_upgraded(connection):  # another server was first
                return
            if lacks_checksums(connection):
                _add_checksums(connection)
            present = present_tables(connection)
            for version, tables in ADDED.items():
                if tables[0] not in present:
                    script = resources.files("headrace.log.metadata").joinpath(f"postgres_{version}.sql")
                    connection.execute(script.read_bytes())
            connection.execute(
                "UPDATE headrace_log.format SET written_as = %s, readable_from = %s", LOG_TABLES
            )
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreForbidden(
            "the metadata tables are of an older format (without checksums, or without some of the tables), and this role "
            "may not change that",
            hint="Start this version once as the owner of the schema headrace_log.",
        ) from error


def _is_upgraded(connection: Connection[TupleRow]) -> bool:
    return not lacks_checksums(connection) and len(present_tables(connection)) == len(TABLES)


def _add_checksums(connection: Connection[TupleRow]) -> None:
    for table in present_tables(connection):
        connection.execute(f"ALTER TABLE {shown(table.name)} ADD COLUMN crc bigint")
        keys = table.columns[: table.keys]
        query = f"SELECT {', '.join(table.columns)} FROM {shown(table.name)}"  # noqa: S608  # names of ours
        rows = connection.execute(query).fetchall()
        connection.cursor().executemany(
            f"UPDATE {shown(table.name)} SET crc = %s WHERE {' AND '.join(f'{key} = %s' for key in keys)}",  # noqa: S608  # names of ours
            [(table.stamped(row)[-1], *table.key_of(row)) for row in rows],
        )
        connection.execute(f"ALTER TABLE {shown(table.name)} ALTER COLUMN crc SET NOT NULL")
