"""Replication commands -> values (PostgreSQL's manual, "Streaming Replication Protocol"). Pure: nothing is looked up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.server.pg.lsn import parse_lsn
from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.pg.tokens import Kind, Reader, Token, syntax_error

SLOT_NAME_CHARS_MAX: Final = 63
"""As with PostgreSQL (NAMEDATALEN)."""
_SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}", re.ASCII)

VERBS: Final = frozenset(
    {
        "identify_system", "create_replication_slot", "read_replication_slot", "drop_replication_slot",
        "start_replication", "alter_replication_slot", "timeline_history", "base_backup", "upload_manifest",
    }
)  # fmt: skip
"""The words with which replication commands begin, but for SHOW, which is a query as well."""


class IdentifySystem(NamedTuple):
    """``IDENTIFY_SYSTEM``."""


class CreateSlot(NamedTuple):
    """``CREATE_REPLICATION_SLOT name [TEMPORARY] LOGICAL plugin``; what snapshot a client wants means nothing here."""

    name: str
    plugin: str
    temporary: bool


class ReadSlot(NamedTuple):
    """``READ_REPLICATION_SLOT name``."""

    name: str


class DropSlot(NamedTuple):
    """``DROP_REPLICATION_SLOT name [WAIT]``."""

    name: str
    wait: bool


class Start(NamedTuple):
    """``START_REPLICATION SLOT name LOGICAL X/X [(options)]``. ``position`` 0: where the slot is."""

    name: str
    position: int
    options: Mapping[str, str]


Command = IdentifySystem | CreateSlot | ReadSlot | DropSlot | Start


def is_command(token: Token) -> bool:
    """Tell whether a statement that begins with this word is a replication command."""
    return token.is_word(*VERBS)


def parse_command(reader: Reader) -> Command:
    """Read a replication command; PgError: 42601 for no command, 0A000 for what only physical replication has."""
    verb = reader.take().value
    if verb == "identify_system":
        reader.end()
        return IdentifySystem()
    if verb == "create_replication_slot":
        return _create(reader)
    if verb == "read_replication_slot":
        name = slot_name(reader.name())
        reader.end()
        return ReadSlot(name)
    if verb == "drop_replication_slot":
        name, wait = slot_name(reader.name()), reader.take_if("wait")
        reader.end()
        return DropSlot(name, wait)
    if verb == "start_replication":
        return _start(reader)
    raise PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{verb.upper()} is not supported: this is a log, not a PostgreSQL cluster",
        hint="Logical replication slots are: CREATE_REPLICATION_SLOT name LOGICAL headrace.",
    )


def slot_name(name: str) -> str:
    """Return ``name`` if a slot can have it; PgError (42602)."""
    if _SLOT_NAME.fullmatch(name):
        return name
    raise PgError(
        SqlState.INVALID_NAME,
        f'replication slot name "{name[:SLOT_NAME_CHARS_MAX]}" is not valid',
        hint=f"1 to {SLOT_NAME_CHARS_MAX} lower case letters, numbers and underscores.",
    )


def physical() -> PgError:
    """Return what whoever asks for physical replication is told."""
    return PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        "physical replication is not supported: the journal is no write-ahead log of PostgreSQL",
        hint="Use a logical slot: CREATE_REPLICATION_SLOT s LOGICAL headrace, then START_REPLICATION SLOT s LOGICAL 0/0.",
    )


def _create(reader: Reader) -> CreateSlot:
    name = slot_name(reader.name())
    temporary = reader.take_if("temporary")
    if reader.expect("physical", "logical") == "physical":
        raise physical()
    plugin = reader.name()
    if reader.sign_if("("):
        _create_options(reader)
    while (token := reader.peek()) is not None and token.is_word(
        "export_snapshot", "noexport_snapshot", "use_snapshot", "two_phase"
    ):
        _judge_option(reader.take().value, "")
    reader.end()
    return CreateSlot(name, plugin, temporary)


def _create_options(reader: Reader) -> None:
    while True:
        name = reader.name()
        token = reader.peek()
        given = "" if token is None or token.kind is Kind.SIGN else reader.value()
        _judge_option(name, given.lower())
        if reader.sign_if(")"):
            return
        reader.expect_sign(",")


_OFF: Final = frozenset({"false", "off", "0"})


def _judge_option(name: str, value: str) -> None:
    """There is nothing to use a snapshot for, so none is made; options that would change the stream do not pass."""
    if name in {"export_snapshot", "noexport_snapshot", "reserve_wal"} or value in _OFF:
        return
    if name == "snapshot" and value in {"export", "nothing"}:
        return
    raise PgError(
        SqlState.FEATURE_NOT_SUPPORTED,
        f"{name.upper()} {value}".rstrip() + " is not supported for a slot here",
    )


def _start(reader: Reader) -> Start:
    if not reader.take_if("slot"):
        raise physical()
    name = slot_name(reader.name())
    token = reader.take()
    if not token.is_word("logical"):
        if token.kind is Kind.LSN or token.is_word("physical"):
            raise physical()
        raise syntax_error(token.value)
    position = parse_lsn(reader.take().value)
    options: dict[str, str] = {}
    if reader.sign_if("("):
        while True:
            option = reader.name()
            token_after = reader.peek()
            has_value = token_after is not None and token_after.kind is not Kind.SIGN
            if option in options:
                raise PgError(SqlState.SYNTAX_ERROR, f'the option "{option}" is given twice')
            options[option] = reader.value() if has_value else ""
            if reader.sign_if(")"):
                break
            reader.expect_sign(",")
    reader.end()
    return Start(name, position, options)
