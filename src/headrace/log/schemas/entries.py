"""Which entries of a frame are schemas of tables. Pure.

A schema is a control entry, a put, with a NUL and ``schema/{database}/{table}/{version}`` as its key
(docs/formats/control-entries.md). The version is what follows the last slash. Names may hold slashes themselves: then the
entry's ``table`` says which is which, else its value's members ``database`` and ``table``, else the first slash ends the
database.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec

from headrace.entries.entry import Change, Op
from headrace.errors import JournalCorrupt
from headrace.runtime.logs import get_logger
from headrace.runtime.typed_json import decode_json
from headrace.wire.entry import decode_entry
from headrace.wire.frame import Frame, FrameKind

logger = get_logger("log")

KEY_PREFIX: Final = b"\0schema/"
"""What the key of a schema begins with. An entry, a frame without these bytes holds none."""
NAME_CHARS_MAX: Final = 128
"""Longest name of a database or of a table; databases take at most 64. It bounds an index row of PostgreSQL."""
VERSION_MAX: Final = (1 << 63) - 1

_VERSION = re.compile(r"0|[1-9][0-9]{0,18}")


class SchemaName(NamedTuple):
    """Which schema of a feed it is."""

    database: str
    table: str
    version: int


class SchemaEntry(NamedTuple):
    """A schema as it stands in a feed. ``lsn``: text of 38 characters. ``value``: the entry's value, byte for byte."""

    name: SchemaName
    sequence_id: int
    lsn: str
    value: bytes


class _Said(msgspec.Struct):
    """What an attached table's schema says of itself (docs/formats/attached-change.md)."""

    database: str
    table: str


def schemas_of(frame: Frame) -> Iterator[SchemaEntry]:
    """Yield the schemas among a frame's entries, in order."""
    header = frame.header
    if header.kind != FrameKind.ENTRIES or KEY_PREFIX not in bytes(frame.body):
        return
    for sequence_id, stored in enumerate(frame.entries(), header.first_sequence_id):
        if KEY_PREFIX not in bytes(stored):  # data may hold these bytes too: only the entry's key decides
            continue
        try:
            entry = decode_entry(stored, sequence_id)
        except (
            JournalCorrupt
        ) as error:  # whole as it was written, so of a kind that only a later version knows
            logger.warning("an entry can't be looked at for a schema", reason=error.detail)
            continue
        name = name_of(entry.change)
        if name is not None:
            yield SchemaEntry(name, sequence_id, str(entry.lsn), entry.change.value)


def name_of(change: Change) -> SchemaName | None:
    """Return which schema an entry holds; None if it holds none, or one whose key does not follow the rule."""
    if change.op is not Op.PUT or change.key is None or not change.key.startswith(KEY_PREFIX):
        return None
    try:
        names, _, version = change.key[len(KEY_PREFIX) :].decode().rpartition("/")
    except UnicodeDecodeError:
        return None
    database, table = _split(names, change)
    if not _VERSION.fullmatch(version) or int(version) > VERSION_MAX:
        return None
    if not all(0 < len(name) <= NAME_CHARS_MAX and "\0" not in name for name in (database, table)):
        return None
    return SchemaName(database, table, int(version))


def _split(names: str, change: Change) -> tuple[str, str]:
    """Return database and table, of which ``names`` is the one, a slash and the other."""
    database, _, table = names.partition("/")
    if "/" not in table:
        return database, table
    if len(change.table) == 2 and "/".join(change.table) == names:
        return change.table[0], change.table[1]
    try:
        said = decode_json(change.value, _Said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return database, table
    return (said.database, said.table) if f"{said.database}/{said.table}" == names else (database, table)
