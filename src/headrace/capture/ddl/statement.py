"""What a DDL statement does, in the terms of the messages that tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.simple.message import MessageType


class TableName(NamedTuple):
    """A table's full name. ``str`` quotes it for SQL."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{quoted(self.database)}.{quoted(self.table)}"


@dataclass(frozen=True, slots=True)
class DdlStatement:
    """One statement about one table, view or database; a statement about several comes as several of these, in order."""

    kind: MessageType
    sql: str
    """The text for the message: the original, with quotes as no ``sql_mode`` has them, or rebuilt in part or whole."""
    table: TableName | None = None
    """The table or view; None: a database, or unread."""
    new_name: TableName | None = None
    """Of a RENAME."""
    database_only: str | None = None
    """The database that the statement is about as a whole."""
    others: tuple[TableName, ...] = ()
    """Further tables whose rows or existence it changes: the other half of an exchanged or converted partition."""
    conditional: bool = False
    """IF EXISTS or IF NOT EXISTS stands there, or is meant: it may have changed nothing."""
    temporary: bool = False
    """About a temporary table, which holds no rows that are logged."""
    view: bool = False
    moves_rows: bool = False
    """Rows of ``table``, of ``others`` or of a whole database came, went, moved or got values of their own, and no row event
    tells of that."""
    unlogged_actions: tuple[str, ...] = ()
    """Of foreign keys that it gives ``table``: ``ON DELETE CASCADE`` and its like, which no line in the binlog tells of."""
    statement_format: bool = False
    """It changes rows in words: the session that ran it did not log rows."""
    unread: bool = False
    """What it does is not known: nothing may be assumed of any table."""


def quoted(name: str) -> str:
    """Return a name as SQL has it in backticks."""
    return "`{}`".format(name.replace("`", "``"))
