"""The least rights that making the outbox, the agent, and an application that calls ``Outbox.add`` need here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from headrace.errors import Usage
from headrace.publisher.grants import Grant, Party, Rights
from headrace.publisher.mysql.connection import connect, fetch, mysql_errors
from headrace.runtime.dsn import Dsn

_SETUP: Final = ("CREATE", "SELECT", "INSERT")
_AGENT_TABLES: Final = {
    "headrace_format": ("SELECT",),
    "headrace_outbox": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "headrace_owner": ("SELECT", "INSERT", "UPDATE"),
    "headrace_parked": ("SELECT", "INSERT", "UPDATE", "DELETE"),
}
_APPLICATION_TABLES: Final = {"headrace_format": ("SELECT",), "headrace_outbox": ("INSERT",)}


def read_rights(dsn: Dsn, tables: Sequence[str], role: str, application_role: str | None) -> Rights:
    """Return the rights in the database that ``dsn`` names. A role is ``USER``, at any host, or ``USER@HOST``.

    Raises Usage if tables are named: none is attached here.
    """
    if tables:
        raise Usage("no table of MariaDB or MySQL is attached", hint="Leave --table away.")
    with closing(connect(dsn)) as connection, mysql_errors():
        database = f"`{str(fetch(connection, 'SELECT DATABASE()')[0][0]).replace('`', '``')}`"
        ((user,),) = fetch(connection, "SELECT CURRENT_USER()")
    # In the name of a database, _ and % stand for any character where a right for the whole of it is given.
    whole = database.replace("_", "\\_").replace("%", "\\%") + ".*"
    agent = _account(role)
    grants = [Grant(Party.OWNER, privilege, whole, _account(str(user))) for privilege in _SETUP]
    grants += [
        Grant(Party.AGENT, privilege, f"{database}.{table}", agent)
        for table, privileges in _AGENT_TABLES.items()
        for privilege in privileges
    ]
    # To put a parked row back, writers are kept out. It can be given for a whole database only.
    grants.append(Grant(Party.AGENT, "LOCK TABLES", whole, agent))
    if application_role is not None:
        grants += [
            Grant(Party.APPLICATION, privilege, f"{database}.{table}", _account(application_role))
            for table, privileges in _APPLICATION_TABLES.items()
            for privilege in privileges
        ]
    notes = [f"-- for snapshots: SELECT on the tables that snapshot-sql reads, to {agent}"]
    return Rights(grants, notes, "after Outbox.create")


def _account(role: str) -> str:
    """Return ``'user'@'host'``; what follows the last @ is the host."""
    user, separator, host = role.rpartition("@")
    return f"{_quoted(user)}@{_quoted(host)}" if separator else f"{_quoted(role)}@'%'"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
