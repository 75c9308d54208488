"""What an application calls inside its own transaction (RFD 5, "Publisher client module")."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headrace.errors import Usage
from headrace.publisher.outbox.record import Record, make_record

if TYPE_CHECKING:
    import psycopg
    import pymysql.connections

    Connection = sqlite3.Connection | psycopg.Connection[Any] | pymysql.connections.Connection[Any]

DRIVERS: Final = {
    "sqlite3": "headrace.publisher.outbox.sqlite",
    "psycopg": "headrace.publisher.outbox.postgres",
    "pymysql": "headrace.publisher.outbox.mysql",
}
"""Package of a connection's class -> the module that writes its outbox; imported when used. One more driver is one line."""


class _Dialect(Protocol):
    def create_tables(self, connection: Connection) -> None: ...

    def set_used_by_application(self, connection: Connection) -> None: ...

    def add_row(self, connection: Connection, record: Record) -> int: ...


class Outbox:
    """Writes outbox rows on the *caller's* connection, in the caller's transaction: both or neither.

    It never begins, commits or rolls back. The agent (``headrace agent run``) moves the rows into the feed.
    """

    @staticmethod
    def create(connection: Connection) -> None:
        """Make the outbox tables in the connection's database if they are not there; idempotent.

        In the caller's transaction if one is open, else each statement by itself. In MariaDB and MySQL, where DDL would
        commit that transaction, InvalidRequest if one is open. Raises FormatTooNew, untouched, if a newer Headrace made them
        in a form that this one can't read; AttachUnsafe where ids don't follow changes (Galera, group replication).
        """
        dialect = _dialect_of(connection)
        dialect.create_tables(connection)
        dialect.set_used_by_application(connection)

    @staticmethod
    def add(  # noqa: PLR0917  # what an application says of a change, in the order in which it is asked
        connection: Connection,
        feed: str,
        changes: Mapping[str, Any] | str | bytes,
        key: str | None = None,
        op: str = "put",
        changed: Sequence[str] | None = None,
    ) -> int:
        """Add one change of ``feed`` to the caller's transaction; returns the outbox row's id.

        ``changes``: a mapping, or ready JSON (an object) that is passed through byte for byte. ``key``: the entry's key;
        None leaves it to the feed (its ``key-field``, ``uuid`` by default). ``op``: ``put`` = the full state, ``patch`` =
        the members changed, ``delete`` = the old state. ``changed``: names of the changed members.

        Call it *after* the data has been written: the order of these rows is the order of the entries. In ``sqlite3``'s
        default mode the driver opens a transaction at the first write, ours or yours.

        Raises InvalidRequest (a bad argument, or an autocommit connection with no open transaction, where the row would
        commit by itself), TooLarge (1 MiB less 128 bytes, and less the longest member if the key is left to the feed),
        TableNotFound (no outbox yet), FormatTooNew. What it takes, the server takes.
        """
        return _dialect_of(connection).add_row(connection, make_record(feed, changes, key, op, changed))


def _dialect_of(connection: object) -> _Dialect:
    # A subclass of a driver's connection, such as an ORM's, is as good.
    for kind in type(connection).__mro__:
        module = DRIVERS.get(kind.__module__.partition(".")[0])
        if module is not None and kind.__name__ == "Connection":
            return cast("_Dialect", import_module(module))
    raise Usage(
        f"Outbox has no form for a {type(connection).__module__}.{type(connection).__name__}",
        hint="Pass the sqlite3, psycopg or pymysql connection that your transaction runs on.",
    )
