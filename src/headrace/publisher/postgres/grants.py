"""The least rights that attaching, the agent, and an application that calls ``Outbox.add`` need: as values, and as SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Final

from psycopg import sql

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.grants import Grant, Party, Rights
from headrace.publisher.postgres.attachment import AttachmentState, read_attachments
from headrace.publisher.postgres.catalogue import Table, read_relations, read_table, search_path
from headrace.publisher.postgres.connection import Source, connect, fetch_one, transaction
from headrace.publisher.postgres.naming import choose_relations
from headrace.runtime.dsn import Dsn

_AGENT_TABLES: Final = {
    "headrace_format": ("SELECT",),
    "headrace_origin": ("SELECT", "INSERT", "DELETE"),
    "headrace_outbox": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "headrace_owner": ("SELECT", "INSERT", "UPDATE"),
    "headrace_pass": ("SELECT", "INSERT", "DELETE"),
    "headrace_mark": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "headrace_attached": ("SELECT", "UPDATE", "DELETE"),
    "headrace_copy": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "headrace_copy_left": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "headrace_parked": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "headrace_added_feed": ("SELECT", "INSERT"),
}
_AGENT_SEQUENCES: Final = {
    "headrace_outbox_id": ("SELECT", "USAGE"),
    "headrace_asleep_until": ("UPDATE",),
    "headrace_added": ("SELECT",),
}
_AGENT_FUNCTIONS: Final = (
    "headrace_wake()",
    "headrace_fingerprint()",
    "headrace_row(record, text, text, text)",
)
_ADD: Final = "headrace_add(text, text, text, text, text)"


def read_rights(dsn: Dsn, tables: Sequence[str], role: str, application_role: str | None) -> Rights:
    """Return the rights for ``tables`` (none: those that are attached) in the database that ``dsn`` names."""
    with closing(connect(dsn)) as connection:
        found = read_tables(connection, tables)
        grants = make_grants(connection, found, role, application_role)
    return Rights(grants, describe_others(found, role), "after the first headrace publisher attach")


def read_tables(connection: Source, names: Sequence[str]) -> list[tuple[Table, str]]:
    """Return each table of ``names`` (none: those that are attached) with a column of its key. Raises as attach does."""
    with transaction(connection):
        keys: dict[int, str] = {}
        if fetch_one(connection, "SELECT to_regclass('headrace.headrace_attached') IS NOT NULL")[0]:
            live = read_attachments(connection, AttachmentState.LIVE)
            keys = {one.oid: one.spec.schema.key[0] for one in live}
        oids = list(keys)
        if names:
            request = AttachRequest(feed="", tables=tuple(names))
            chosen = choose_relations(request, read_relations(connection), search_path(connection))
            oids = [one.oid for one in chosen]
        tables = [table for oid in oids if (table := read_table(connection, oid)) is not None]
    return [(table, keys.get(table.oid) or _key_column(table)) for table in tables]


def _key_column(table: Table) -> str:
    index = table.primary_key or next(iter(table.unique), None)
    names = [name for name in index.columns if name] if index else [column.name for column in table.columns]
    return names[0]


def make_grants(
    connection: Source, tables: Sequence[tuple[Table, str]], role: str, application_role: str | None
) -> list[Grant]:
    """Return every privilege that is needed, also those that are granted already. Those on the outbox wait for the first
    attach.
    """

    def name(*parts: str) -> str:
        return sql.Identifier(*parts).as_string(connection)

    agent = name(role)
    database = fetch_one(connection, "SELECT current_database()")[0]
    grants = [
        Grant(Party.OWNER, "CREATE", f"DATABASE {name(database)}", name(owner))
        for owner in sorted({table.owner for table, _ in tables})
    ]
    grants.append(Grant(Party.AGENT, "USAGE", "SCHEMA headrace", agent))
    for kind, rights in (("TABLE", _AGENT_TABLES), ("SEQUENCE", _AGENT_SEQUENCES)):
        grants += [
            Grant(Party.AGENT, privilege, f"{kind} headrace.{one}", agent)
            for one, privileges in rights.items()
            for privilege in privileges
        ]
    grants += [Grant(Party.AGENT, "EXECUTE", f"FUNCTION headrace.{one}", agent) for one in _AGENT_FUNCTIONS]
    grants += [
        Grant(Party.AGENT, "USAGE", f"SCHEMA {name(schema)}", agent)
        for schema in sorted({table.schema for table, _ in tables})
    ]
    for table, key in tables:
        place = f"TABLE {name(table.schema, table.name)}"
        # SELECT ... FOR SHARE asks for UPDATE on any one column. Nothing is ever updated.
        grants.append(Grant(Party.AGENT, "SELECT", place, agent))
        grants.append(Grant(Party.AGENT, f"UPDATE ({name(key)})", place, agent))
    if application_role is not None:
        grants.append(Grant(Party.APPLICATION, "USAGE", "SCHEMA headrace", name(application_role)))
        grants.append(
            Grant(Party.APPLICATION, "EXECUTE", f"FUNCTION headrace.{_ADD}", name(application_role))
        )
    return grants


def describe_others(tables: Iterable[tuple[Table, str]], role: str) -> list[str]:
    """Return, as SQL comments, what no GRANT gives, and what is not needed but useful."""
    secured = [table.label for table, _ in tables if table.row_security]
    lines = [
        f"-- optional, so that agent status can name other roles' sessions: GRANT pg_read_all_stats TO {role};"
    ]
    if secured:
        lines.append(
            f"-- {', '.join(secured)}: row-level security would hide rows from copies: ALTER ROLE {role} BYPASSRLS;"
        )
    lines.append(
        "-- a change of columns is mended by a role that owns the table: else run headrace publisher attach again"
    )
    return lines
