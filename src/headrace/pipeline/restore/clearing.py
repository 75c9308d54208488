"""Control entries of a feed -> up to where each table was cleared, for a restore of keys and values. Pure.

Keys and values know no tables, so what makes a table's rows go away must be told of each: TRUNCATE, and for captured feeds
CREATE and ERASE of a table of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from headrace.errors import RestoreInexact, SimpleInvalid, SimpleUnsupported
from headrace.pipeline.bases.generations import Shape, key_shape
from headrace.pipeline.restore.surveying import Control
from headrace.pipeline.tables.schemas import TableName, read_cleared
from headrace.pipeline.tables.simple.plan import is_simple
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, MessageType
from headrace.simple.schema import TableSchema

_AS_TABLES: Final = "Restore this feed --as tables, which follows such statements, or leave it out: --feeds."
_CLEARING: Final = frozenset({MessageType.CREATE, MessageType.ERASE, MessageType.TRUNCATE})


class Clearing:
    """One feed's tables, told of its control entries in order; a statement that can't be read makes its table odd.

    ``places``: table -> the sequence id below which its rows are gone. ``odd``: table -> why its rows can't be told by their
    keys: it was renamed with rows in it, or its handle key changed; a later statement may clear that.
    """

    def __init__(self) -> None:
        self.places: dict[TableName, int] = {}
        self.odd: dict[TableName, str] = {}
        self._keys: dict[TableName, Shape | None] = {}
        self._was: dict[TableName, list[tuple[TableName, int]]] = {}

    def add(self, entry: Control) -> None:
        """Follow one entry. ValueUnfit for a TRUNCATE that names no table."""
        if entry.control == "truncate":
            self._clear(
                read_cleared(entry.value, feed=entry.feed, sequence_id=entry.sequence_id), entry.sequence_id
            )
            return
        if entry.control == "schema" and not is_simple(entry.value):
            return
        try:
            message = json_codec.decode(entry.value)
        except (SimpleInvalid, SimpleUnsupported, msgspec.MsgspecError) as error:
            self.odd[entry.table] = f"the statement at sequence id {entry.sequence_id} can't be read: {error}"
            return
        if isinstance(message, Bootstrap):
            self._key_of(message.table_schema, entry.sequence_id)
        elif isinstance(message, Ddl):
            self._statement(message, entry.table, entry.sequence_id)

    def _statement(self, message: Ddl, table: TableName, place: int) -> None:
        after = message.table_schema
        if message.type is MessageType.RENAME:
            self._rename(table, table if after is None else _name(after), place)
            return
        if message.type in _CLEARING:
            self._clear(table, place)
        if message.type is not MessageType.ERASE and after is not None:
            self._key_of(after, place)

    def _clear(self, table: TableName, place: int) -> None:
        self.places[table] = max(self.places.get(table, 0), place)
        self.odd.pop(table, None)
        self._keys.pop(table, None)
        for old, renamed_at in self._was.pop(table, []):
            # Rows from before the rename stand under the old name, and were this table's.
            self.places[old] = max(self.places.get(old, 0), renamed_at)

    def _rename(self, old: TableName, new: TableName, place: int) -> None:
        self._clear(new, place)
        self._was[new] = [*self._was.pop(old, []), (old, place)]
        self.odd.pop(old, None)
        self.odd[new] = (
            f"it was renamed from {'.'.join(old)} at sequence id {place}: older rows have keys of that name"
        )
        if old in self._keys:
            self._keys[new] = self._keys.pop(old)

    def _key_of(self, schema: TableSchema, place: int) -> None:
        name, key = _name(schema), key_shape(schema)
        known = self._keys.get(name)
        if known is not None and known != key:  # a key of another type is written in another way, too
            self.odd[name] = f"its key changed at sequence id {place}: older rows have keys of another form"
        self._keys[name] = key


def cleared_of(controls: Iterable[Control]) -> tuple[dict[TableName, int], dict[TableName, str]]:
    """Return what a feed's control entries, in order, come to: where each table was cleared, and which are odd, and why."""
    clearing = Clearing()
    for entry in controls:
        clearing.add(entry)
    return clearing.places, clearing.odd


def is_captured(controls: Iterable[Control]) -> bool:
    """Tell by a feed's control entries whether its rows are messages of the Simple Protocol, whoever wrote them."""
    return any(one.control == "ddl" or (one.control == "schema" and is_simple(one.value)) for one in controls)


def check_exact(feed: str, odd: dict[TableName, str]) -> None:
    """Raise RestoreInexact, naming the table, if a feed's keys do not tell its rows apart."""
    for table, reason in odd.items():
        raise RestoreInexact(
            f"feed {feed}, table {'.'.join(table)}: keys and values would not be exact: {reason}",
            hint=_AS_TABLES,
        )


def _name(schema: TableSchema) -> TableName:
    return schema.schema, schema.table
