"""The small SQL that replication tools and people at ``psql`` send: read into values. Pure; nothing is looked up.

::

    SELECT item, ...  [FROM relation | function(...)]  [WHERE column = 'value' [AND ...]]  [ORDER BY ...]  [LIMIT n]
    SHOW name    SET ...    BEGIN, COMMIT and their kin

An item is ``*``, a column, a literal, or a function of literals, each with ``AS name``. Anything else is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.server.pg.commands import Command, is_command, parse_command
from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.pg.tokens import Kind, Reader, syntax_error, tokens_of


class Literal(NamedTuple):
    """A value as text; None is NULL."""

    value: str | None


class Column(NamedTuple):
    """A column of the relation."""

    name: str


class Star(NamedTuple):
    """All columns of the relation."""


class Call(NamedTuple):
    """A function of literals; a name without its schema."""

    name: str
    arguments: Sequence[str | None]


class Item(NamedTuple):
    """What is selected, and what its column is called."""

    value: Literal | Column | Star | Call
    name: str


class Select(NamedTuple):
    """A query. ``source`` None: one row. ``where``: columns and what they must be."""

    items: Sequence[Item]
    source: Column | Call | None
    where: Sequence[tuple[str, str]]
    limit: int | None


class Show(NamedTuple):
    """``SHOW name``."""

    name: str


class Accepted(NamedTuple):
    """A statement that changes nothing here: what it is completed with."""

    tag: str


Statement = Select | Show | Accepted | Command

_ACCEPTED: Final = {
    "set": "SET", "reset": "RESET", "begin": "BEGIN", "start": "START TRANSACTION", "commit": "COMMIT", "end": "COMMIT",
    "rollback": "ROLLBACK", "abort": "ROLLBACK", "discard": "DISCARD ALL", "deallocate": "DEALLOCATE",
}  # fmt: skip
_AFTER_ITEMS: Final = ("from", "where", "order", "limit")
ITEMS_MAX: Final = 100
"""Most items, and most conditions, of a query: the one relation has 15 columns."""
STATEMENTS_MAX: Final = 100
"""Most statements of one message: all are answered before the client is waited for."""
LIMIT_DIGITS_MAX: Final = 18
"""As many as PostgreSQL's ``bigint`` always has room for."""
_BARE: Final = frozenset({"current_user", "session_user", "user", "current_database", "current_schema"})
"""Functions that are called without parentheses."""


def parse_statements(text: str) -> list[Statement]:
    """Return the statements of a simple query, in order; PgError for one that is not known here."""
    found: list[Statement] = []
    begin, tokens = 0, tokens_of(text)
    for end, token in enumerate([*tokens, None]):
        if token is None or token.is_sign(";"):
            if end > begin:
                found.append(_statement(Reader(tokens[begin:end])))
                _check_count(found, STATEMENTS_MAX, "statements")
            begin = end + 1
    return found


def _statement(reader: Reader) -> Statement:
    first = reader.peek()
    if first is None:
        raise syntax_error("")
    if is_command(first):
        return parse_command(reader)
    if first.kind is Kind.WORD and first.value in _ACCEPTED:
        return Accepted(_ACCEPTED[first.value])
    if first.is_word("show"):
        reader.take()
        name = reader.name()
        if name == "transaction":  # SHOW TRANSACTION ISOLATION LEVEL
            reader.expect("isolation")
            reader.expect("level")
            name = "transaction_isolation"
        while reader.sign_if("."):
            name = f"{name}.{reader.name()}"
        reader.end()
        return Show(name)
    if first.is_word("select"):
        reader.take()
        return _select(reader)
    if first.kind is not Kind.WORD:
        raise syntax_error(first.value)
    raise PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{first.value.upper()[:40]} is not supported: this is a log, and no database",
        hint="SELECT * FROM pg_replication_slots, IDENTIFY_SYSTEM and START_REPLICATION are.",
    )


def _select(reader: Reader) -> Select:
    items = [_item(reader)]
    while reader.sign_if(","):
        items.append(_item(reader))
        _check_count(items, ITEMS_MAX, "items")
    source: Column | Call | None = None
    where: list[tuple[str, str]] = []
    limit: int | None = None
    if reader.take_if("from"):
        name = _qualified(reader)
        source = Call(name, _arguments(reader)) if reader.sign_if("(") else Column(name)
        token = reader.peek()
        if token is not None and (token.is_word("as") or not token.is_word(*_AFTER_ITEMS)):
            reader.take_if("as")
            reader.name()
    if reader.take_if("where"):
        where.append(_condition(reader))
        while reader.take_if("and"):
            where.append(_condition(reader))
            _check_count(where, ITEMS_MAX, "conditions")
    if reader.take_if("order"):
        reader.expect("by")
        reader.value()
        while reader.sign_if(","):
            reader.value()
        reader.take_if("asc", "desc")
    if reader.take_if("limit"):
        number = reader.take()
        if number.kind is not Kind.NUMBER or not number.value.isdecimal():
            raise syntax_error(number.value)
        if len(number.value) > LIMIT_DIGITS_MAX:
            raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, f"LIMIT has more than {LIMIT_DIGITS_MAX} digits")
        limit = int(number.value)
    reader.end()
    return Select(items, source, where, limit)


def _check_count(found: Sequence[object], most: int, what: str) -> None:
    if len(found) > most:
        raise PgError(SqlState.PROGRAM_LIMIT_EXCEEDED, f"more than {most} {what}")


def _item(reader: Reader) -> Item:
    if reader.sign_if("*"):
        return Item(Star(), "*")
    value, name = _value(reader)
    while reader.sign_if("::"):
        _qualified(reader)
    token = reader.peek()
    is_name = (
        token is not None and token.kind in {Kind.WORD, Kind.QUOTED} and not token.is_word(*_AFTER_ITEMS)
    )
    if reader.take_if("as") or is_name:
        name = reader.name()
    return Item(value, name)


def _value(reader: Reader) -> tuple[Literal | Column | Call, str]:
    token = reader.peek()
    if token is None:
        raise syntax_error("")
    if token.kind in {Kind.TEXT, Kind.NUMBER}:
        return Literal(reader.take().value), "?column?"
    if token.is_word("null"):
        reader.take()
        return Literal(None), "?column?"
    name = _qualified(reader)
    if reader.sign_if("("):
        return Call(name, _arguments(reader)), name
    return (Call(name, ()) if name in _BARE else Column(name)), name


def _arguments(reader: Reader) -> list[str | None]:
    """Take what stands in a call's parentheses, up to the closing one; named arguments (``a => 1``) by their order."""
    found: list[str | None] = []
    if reader.sign_if(")"):
        return found
    while True:
        token = reader.peek()
        value = reader.value()
        if reader.sign_if("="):
            reader.expect_sign(">")
            token = reader.peek()
            value = reader.value()
        found.append(None if token is not None and token.is_word("null") else value)
        while reader.sign_if("::"):
            _qualified(reader)
        if reader.sign_if(")"):
            return found
        reader.expect_sign(",")


def _condition(reader: Reader) -> tuple[str, str]:
    name = _qualified(reader)
    reader.expect_sign("=")
    value = reader.value()
    while reader.sign_if("::"):
        _qualified(reader)
    return name, value


def _qualified(reader: Reader) -> str:
    """Take a name with its schema or table before it, and return its last part."""
    name = reader.name()
    while reader.sign_if("."):
        name = reader.name()
    return name
