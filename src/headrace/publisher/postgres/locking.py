"""Who may attach a table, and the lock under which triggers are put on it or taken away."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from psycopg import sql

from headrace.errors import PlatformUnsupported, SourceForbidden
from headrace.publisher.postgres.catalogue import Relation, Table, label_of
from headrace.publisher.postgres.connection import DDL_LOCK_MS, Source, fetch_one

POSTGRES_OLDEST: Final = 140_000
"""The oldest server that can put a trigger in another's place (CREATE OR REPLACE TRIGGER)."""

NO_WRITES: Final = "SHARE ROW EXCLUSIVE"
"""Lets others read, and waits until every transaction that wrote has ended."""

NO_ACCESS: Final = "ACCESS EXCLUSIVE"
"""What DROP TRIGGER takes."""

_HINT: Final = "headrace publisher grants prints the SQL that is needed."
_MAY_CREATE: Final = """
SELECT current_user::text, current_database()::text, n.oid IS NOT NULL,
    CASE WHEN n.oid IS NULL THEN has_database_privilege(current_database(), 'CREATE')
        ELSE pg_has_role(n.nspowner, 'USAGE') END,
    pg_get_userbyid(n.nspowner)::text
FROM (SELECT 'headrace'::name AS name) AS wanted LEFT JOIN pg_namespace AS n ON n.nspname = wanted.name"""
_OWNERS: Final = """
SELECT n.nspname, c.relname, pg_get_userbyid(c.relowner)::text, current_user::text
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.oid = ANY(%s) AND NOT pg_has_role(c.relowner, 'USAGE') ORDER BY 1, 2"""
_READER: Final = """
SELECT r.rolname, has_table_privilege(r.oid, %(oid)s::oid, 'SELECT'), r.rolsuper OR r.rolbypassrls,
    pg_has_role(r.oid, (SELECT relowner FROM pg_class WHERE oid = %(oid)s), 'USAGE')
FROM pg_roles AS r JOIN pg_namespace AS n ON n.nspowner = r.oid WHERE n.nspname = 'headrace'"""
_ENCODING: Final = "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')"


def check_server(connection: Source) -> None:
    """Raise PlatformUnsupported for a server that is too old, or that does not know what its texts mean."""
    version, encoding = fetch_one(connection, _ENCODING)
    if version < POSTGRES_OLDEST:
        raise PlatformUnsupported(
            f"this is PostgreSQL {version // 10_000}; {POSTGRES_OLDEST // 10_000} or newer is needed",
            hint="Upgrade the server.",
        )
    if encoding == "SQL_ASCII":
        raise PlatformUnsupported(
            "the database's encoding is SQL_ASCII: what its texts mean is not known",
            hint="Make a database with ENCODING 'UTF8' and move the tables there.",
        )


def check_may_create(connection: Source) -> None:
    """Raise SourceForbidden, naming what is missing, if this role can't make the outbox, or change the one that there is."""
    role, database, exists, may, owner = fetch_one(connection, _MAY_CREATE)
    if may:
        return
    if exists:
        raise SourceForbidden(
            f"role {role} is not {owner}, who owns the schema headrace, nor a member of it",
            hint=f"Attach as {owner}, or: GRANT {owner} TO {role}.",
        )
    raise SourceForbidden(f"role {role} may not create a schema in the database {database}", hint=_HINT)


def check_may_alter(connection: Source, oids: Iterable[int]) -> None:
    """Raise SourceForbidden if this role does not own all of these tables."""
    row = connection.execute(_OWNERS, (list(oids),)).fetchone()
    if row is not None:
        schema, table, owner, role = row
        raise SourceForbidden(
            f"role {role} does not own {label_of(schema, table)}, and only {owner} can put triggers on it",
            hint=f"Attach as {owner}, or: GRANT {owner} TO {role}.",
        )


def check_readable(connection: Source, table: Table) -> None:
    """Raise SourceForbidden if the functions' owner can't see every row: they look whether a row is still there."""
    role, may_select, bypasses, owns = fetch_one(connection, _READER, {"oid": table.oid})
    if not may_select:
        raise SourceForbidden(
            f"role {role}, who owns the schema headrace, may not read {table.label}",
            hint=f"GRANT SELECT ON {table.label} TO {role}.",
        )
    if bypasses or not table.row_security or (owns and not table.row_security_forced):
        return
    raise SourceForbidden(
        f"row-level security of {table.label} hides rows from role {role}, who owns the schema headrace",
        hint=f"ALTER ROLE {role} BYPASSRLS, or ALTER TABLE {table.label} NO FORCE ROW LEVEL SECURITY.",
    )


def lock_tables(connection: Source, tables: Iterable[Table | Relation], mode: str) -> None:
    """Lock ``tables`` and their partitions, in one order for everybody, waiting for all of them together no longer than for
    one.

    For use within ``run_ddl``, which gives way and comes back.
    """
    deadline = time.monotonic() + DDL_LOCK_MS / 1000
    for table in sorted(tables, key=lambda one: (one.schema, one.name)):
        left_ms = max(1, round((deadline - time.monotonic()) * 1000))
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(left_ms)))
        place = sql.Identifier(table.schema, table.name)
        connection.execute(sql.SQL("LOCK TABLE {} IN {} MODE").format(place, sql.SQL(mode)))
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(DDL_LOCK_MS)))
