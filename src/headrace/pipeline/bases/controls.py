"""Control entries of a feed -> those that a base keeps. Pure: the driver calls it with all of one feed's.

What goes has done its work for good: the rows that it was about are gone, and a later entry says what tables are from then
on. Schemas never go: a rebuilt server answers each of them, of dropped tables too. A table that was renamed keeps all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.errors import HeadraceError
from headrace.pipeline.bases.generations import (
    WATERMARK,
    ControlEntry,
    TableName,
    is_captured,
    named,
    needed_watermarks,
)
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, MessageType

ControlPlace = tuple[int, str]
"""A control entry's sequence id and name."""

_NEWEST_IS_ALL: Final = frozenset({"truncate", "copy-begin", "copy-end"})
"""Those of an attached table of which the newest one says what all before it did."""
_NOTED: Final = frozenset({"copy-begin", "copy-end", "stopped"})


def needed_controls(controls: Sequence[ControlEntry], last: int) -> set[ControlPlace]:
    """Return which of a feed's control entries a base keeps: with them alone every fold comes to the same.

    ``controls``: all of them up to ``last``, the feed's last entry, which stays whatever it is. The rows that a later
    TRUNCATE, DROP or CREATE took away must not be in the base (see :mod:`~headrace.pipeline.bases.generations`).
    """
    ordered = sorted(controls)
    gone = _gone_of_captured(ordered) if is_captured(ordered) else _gone_of_attached(ordered)
    left = [one for one in ordered if (one.sequence_id, one.control) not in gone or one.sequence_id == last]
    marks = needed_watermarks(left)
    return {
        (one.sequence_id, one.control)
        for one in left
        if one.control != WATERMARK or one.sequence_id in marks or one.sequence_id == last
    }


def _gone_of_attached(controls: Sequence[ControlEntry]) -> set[ControlPlace]:
    newest: dict[tuple[str, TableName], ControlPlace] = {}
    gone: set[ControlPlace] = set()
    if not any(one.control == "schema" for one in controls):
        return gone  # nothing says yet which kind of feed it is
    for one in controls:
        if one.control in _NEWEST_IS_ALL and all(name := named(one.value) or ("",)):
            if (before := newest.get((one.control, name))) is not None:
                gone.add(before)
            newest[one.control, name] = one.sequence_id, one.control
    return gone


@dataclass(slots=True)
class _Life:
    """A table under one name, since it was made or dropped last.

    ``begin``: the statement that did so. ``noted``: the entries since then that go once the table is empty. ``tangled``: it
    had another name, and rows of it may stand under that one.
    """

    begin: ControlPlace | None = None
    noted: list[ControlPlace] = field(default_factory=list)
    has_schema: bool = False
    copying: bool = False
    tangled: bool = False


def _gone_of_captured(controls: Sequence[ControlEntry]) -> set[ControlPlace]:
    lives = _Lives()
    for one in controls:
        if one.control == "schema":
            lives.schema(one)
        elif one.table and one.control == "ddl":
            lives.statement(one)
        elif one.table and one.control in _NOTED:
            lives.note(one)
    return lives.gone


class _Lives:
    """The tables of a captured feed, told of its control entries in order. ``gone``: those that nobody needs any more."""

    def __init__(self) -> None:
        self.gone: set[ControlPlace] = set()
        self._lives: dict[TableName, _Life] = {}

    def _of(self, name: TableName) -> _Life:
        return self._lives.setdefault(name, _Life())

    def note(self, entry: ControlEntry) -> None:
        """An entry that matters as long as rows from around it do."""
        life = self._of(entry.table)
        if entry.control in {"copy-begin", "copy-end"}:
            life.copying = entry.control == "copy-begin"
        life.noted.append((entry.sequence_id, entry.control))

    def schema(self, entry: ControlEntry) -> None:
        """A schema; one that can't be read says nothing of its table."""
        try:
            message = json_codec.decode(entry.value)
        except HeadraceError:
            return
        if isinstance(message, Bootstrap):
            self._of((message.table_schema.schema, message.table_schema.table)).has_schema = True

    def statement(self, entry: ControlEntry) -> None:
        """A statement. One that can't be read stops its table, until the table is empty."""
        place = entry.sequence_id, entry.control
        try:
            message = json_codec.decode(entry.value)
        except HeadraceError:
            message = None
        kind = message.type if isinstance(message, Ddl) else None
        after = message.table_schema if isinstance(message, Ddl) else None
        if kind in {MessageType.CREATE, MessageType.ERASE}:
            self._end(entry.table, place)
            self._of(entry.table).has_schema = kind is MessageType.CREATE and after is not None
        elif kind is MessageType.TRUNCATE:
            self._empty(self._of(entry.table), place)
        elif kind is MessageType.RENAME:
            self._of(entry.table).tangled = True
            if after is not None:
                self._lives[after.schema, after.table] = self._lives.pop(entry.table)
        else:
            self._of(entry.table).noted.append(place)

    def _end(self, name: TableName, place: ControlPlace) -> None:
        """The table is no more, or made anew: from here on its past says nothing, unless that had another name."""
        life = self._lives.pop(name, _Life())
        if life.tangled:
            return
        self._drop(life)
        if life.begin is not None:
            self.gone.add(life.begin)
        self._lives[name] = _Life(begin=place)

    def _empty(self, life: _Life, place: ControlPlace) -> None:
        """The table has no rows, and its columns are those of its newest schema, whatever was said of them.

        Not while it is copied: what the copy brings may be older than the TRUNCATE.
        """
        if life.has_schema and not life.copying and not life.tangled:
            self._drop(life)
        life.noted.append(place)

    def _drop(self, life: _Life) -> None:
        self.gone.update(life.noted)
        life.noted.clear()
