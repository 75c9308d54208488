"""What control entries do to whole tables, as the drill's own fold has it: which rows are gone, and where keys fail. Pure.

A row is followed from its own entry on: a RENAME carries it to another name; TRUNCATE, CREATE, ERASE, and a RENAME of
another table to the name that it has, end it.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final, NamedTuple

import msgspec

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.runtime.typed_json import decode_json
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl
from headrace.simple.schema import TableSchema

Table = tuple[str, ...]
_ENDING: Final = frozenset({"TRUNCATE", "CREATE", "ERASE"})
_TOLD: Final = frozenset({"truncate", "schema", "ddl"})


class _Event(NamedTuple):
    """Behind ``sequence_id`` a table's rows have another name; None: they are gone."""

    sequence_id: int
    name: Table | None


class Statements:
    """The statements of all feeds, told of in the order of each feed. They are kept in memory, one small value each."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, Table], list[_Event]] = {}
        self._keys: dict[tuple[str, Table], Any] = {}
        self._unfit: set[tuple[str, Table]] = set()

    @property
    def unkeyed(self) -> set[str]:
        """Feeds whose keys may not tell rows apart, so that keys and values are no exact state.

        A table of theirs was renamed, its handle key got other columns or types, or a statement about it can't be read; and
        nothing has emptied it since.
        """
        return {feed for feed, _ in self._unfit}

    def see(self, feed: str, sequence_id: int, control: str, value: bytes, table: Table) -> None:
        """Look at one control entry."""
        if control not in _TOLD or (control == "schema" and b'"BOOTSTRAP"' not in value):
            return  # another kind, or the schema of an attached table
        try:
            if control == "truncate":
                said = decode_json(value, dict[str, Any])
                self._end(feed, sequence_id, (said["database"], said["table"]))
                return
            message = json_codec.decode(value)
        except (SimpleInvalid, SimpleUnsupported, msgspec.MsgspecError, KeyError):
            self._unfit.add((feed, table))
            return
        if isinstance(message, Bootstrap):
            self._keyed(feed, message.table_schema)
        elif isinstance(message, Ddl):
            self._follow(feed, sequence_id, message, table)

    def is_gone(self, feed: str, table: Table, sequence_id: int, *, before: int | None = None) -> bool:
        """Tell whether a statement took a row away that was written at ``sequence_id``. ``before``: one below that place."""
        name: Table | None = table
        place = sequence_id
        while name is not None:
            events = self._events.get((feed, name), [])
            at = bisect_right(events, place, key=lambda one: one.sequence_id)
            if at == len(events) or (before is not None and events[at].sequence_id >= before):
                return False
            place, name = events[at]
        return True

    def _follow(self, feed: str, sequence_id: int, message: Ddl, table: Table) -> None:
        after = message.table_schema
        if message.type == "RENAME":
            new = table if after is None else (after.schema, after.table)
            self._rename(feed, sequence_id, table, new)
            return
        if message.type in _ENDING:
            self._end(feed, sequence_id, table)
        if after is not None and message.type != "ERASE":
            self._keyed(feed, after)

    def _end(self, feed: str, sequence_id: int, table: Table) -> None:
        self._events.setdefault((feed, table), []).append(_Event(sequence_id, None))
        self._unfit.discard((feed, table))
        self._keys.pop((feed, table), None)

    def _rename(self, feed: str, sequence_id: int, old: Table, new: Table) -> None:
        if new != old:
            self._end(feed, sequence_id, new)
            self._events.setdefault((feed, old), []).append(_Event(sequence_id, new))
            if (feed, old) in self._keys:
                self._keys[feed, new] = self._keys.pop((feed, old))
            self._unfit.discard((feed, old))
        self._unfit.add((feed, new))  # keys of rows from before have the old name in them

    def _keyed(self, feed: str, schema: TableSchema) -> None:
        types = {one.name: one.data_type for one in schema.columns}
        key = tuple((column, types.get(column)) for column in schema.handle_key)
        name = feed, (schema.schema, schema.table)
        if self._keys.setdefault(name, key) != key:
            self._unfit.add(name)
