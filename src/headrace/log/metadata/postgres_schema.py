"""Checksums for metadata tables of format 1, which had none: each row gets its own, once."""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.errors import StoreForbidden
from headrace.log.metadata.rows import TABLES
from headrace.log.postgres.schema import MAKING_LOCK
from headrace.wire.versions import LOG_TABLES

_HAS_CHECKSUMS: Final = """
SELECT count(*) FROM pg_attribute
WHERE attrelid = 'headrace_log.listener'::regclass AND attname = 'crc' AND NOT attisdropped"""


def shown(table: str) -> str:
    """Return a table's name for people."""
    return f"headrace_log.{table}"


def lacks_checksums(connection: Connection[TupleRow]) -> bool:
    """Return whether the tables are of format 1."""
    return connection.execute(_HAS_CHECKSUMS).fetchall() == [(0,)]


def upgrade(connection: Connection[TupleRow]) -> None:
    """Give each row its checksum. Servers of an older version stop at their next append: they would write rows without.

    Raises StoreForbidden where the role does not own the tables; nothing was changed then.
    """
    if not lacks_checksums(connection):
        return
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING_LOCK,))
            if not lacks_checksums(connection):  # another server was first
                return
            for table in TABLES:
                connection.execute(f"ALTER TABLE {shown(table.name)} ADD COLUMN crc bigint")
                keys = table.columns[: table.keys]
                query = f"SELECT {', '.join(table.columns)} FROM {shown(table.name)}"  # noqa: S608  # names of ours
                rows = connection.execute(query).fetchall()
                connection.cursor().executemany(
                    f"UPDATE {shown(table.name)} SET crc = %s WHERE {' AND '.join(f'{key} = %s' for key in keys)}",  # noqa: S608  # names of ours
                    [(table.stamped(row)[-1], *table.key_of(row)) for row in rows],
                )
                connection.execute(f"ALTER TABLE {shown(table.name)} ALTER COLUMN crc SET NOT NULL")
            connection.execute(
                "UPDATE headrace_log.format SET written_as = %s, readable_from = %s", LOG_TABLES
            )
    except psycopg.errors.InsufficientPrivilege as error:
        raise StoreForbidden(
            "the metadata tables have no checksums yet, and this role may not add them",
            hint="Start this version once as the owner of the schema headrace_log.",
        ) from error
