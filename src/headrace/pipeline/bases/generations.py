"""Control entries of a feed -> the generations of its tables: between which entries one row of a key takes another's place.

A generation of a table begins at each control entry that changes what its rows mean or which there are: a schema, a DDL
statement, a TRUNCATE, the ends of a copy. Within one, of a key's entries the last one says all; across them a fold may
look at the older one, too. Rows are *void* where a later TRUNCATE, DROP or CREATE has taken them out for good. Pure:
values of the driver that travel to workers; the rules are those by which :mod:`headrace.pipeline.tables` folds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from headrace.errors import HeadraceError
from headrace.pipeline.tables.simple.plan import is_simple
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, MessageType
from headrace.simple.schema import DataType, TableSchema

TableName = tuple[str, ...]

WATERMARK: Final = "watermark"
_CAPTURED: Final = frozenset({"ddl", WATERMARK})
"""Control entries that captured feeds alone have."""
_CUTS: Final = frozenset({"schema", "ddl", "copy-begin", "copy-end", "stopped"})
"""Those of a captured feed that begin a generation."""


class ControlEntry(NamedTuple):
    """A control entry of a feed: its sequence id, its name, its ``table`` (``()`` for none), and what it says."""

    sequence_id: int
    control: str
    table: TableName
    value: bytes


class Generation(NamedTuple):
    """Rows of a table between two control entries.

    ``void``: they are gone for good. ``handle_key``: of a captured table, the columns that tell rows apart; None where no
    schema says so: then nothing is left out. ``tells_deletes``: a deletion must be kept even where no older row of its
    key is, since that row may stand under another key or name.
    """

    void: bool
    handle_key: tuple[str, ...] | None
    tells_deletes: bool


class TableGenerations(NamedTuple):
    """A table's generations: rows below ``cuts[0]`` are of the first one, rows above the last cut of the last one."""

    cuts: tuple[int, ...]
    generations: tuple[Generation, ...]

    def place_of(self, sequence_id: int) -> int:
        """Return which generation a row is of: an index into ``generations``."""
        return bisect_left(self.cuts, sequence_id)


_ALWAYS: Final = TableGenerations((), (Generation(void=False, handle_key=None, tells_deletes=True),))


class FeedGenerations(NamedTuple):
    """A feed's tables. ``captured``: its rows are messages of the Simple Protocol. ``others``: of a table not named here.

    ``last``: the sequence id of the feed's last entry, which a base keeps whatever it is.
    """

    captured: bool
    tables: Mapping[TableName, TableGenerations]
    others: TableGenerations
    last: int

    def of(self, table: TableName) -> TableGenerations:
        """Return the generations of a table; of entries that name none too."""
        return self.tables.get(table, self.others)


class _Named(msgspec.Struct):
    database: str = ""
    table: str = ""


_NAMED: Final = msgspec.json.Decoder(_Named)


def generations_of(
    controls: Iterable[ControlEntry], last: int, other_keys: Collection[TableName] = ()
) -> FeedGenerations:
    """Return the generations of one feed's tables. ``controls``: all its control entries up to ``last``, WATERMARKs or
    not. ``other_keys``: tables with rows whose keys are none of capture's, if it is captured.
    """
    ordered = sorted(controls)
    captured = is_captured(ordered)
    tables = _Tables(captured=captured)
    for one in ordered:
        if captured and one.control in _CUTS:
            tables.follow_captured(one)
        elif not captured and one.control in {"schema", "truncate"}:
            tables.follow_attached(one)
    return tables.finished(last, other_keys)


def is_captured(controls: Iterable[ControlEntry]) -> bool:
    """Tell whether the control entries are those of a captured feed: its rows are messages of the Simple Protocol."""
    return any(
        one.control in _CAPTURED or (one.control == "schema" and is_simple(one.value)) for one in controls
    )


def needed_watermarks(controls: Sequence[ControlEntry]) -> set[int]:
    """Return the sequence ids of the WATERMARKs that a fold needs: the newest one, and the first one behind each statement.

    A table that was renamed stops at the first WATERMARK if no schema has come under its new name before.
    """
    kept: set[int] = set()
    newest, is_due = 0, False
    for one in sorted(controls):
        if one.control == "ddl":
            is_due = True
        elif one.control == WATERMARK:
            newest = one.sequence_id
            if is_due:
                kept.add(newest)
                is_due = False
    return kept | {newest} if newest else kept


Shape = tuple[tuple[str, DataType], ...]
"""How a captured table's keys are written: the columns of the handle key and their types."""


@dataclass(slots=True)
class _Open:
    """A generation while its table is followed."""

    void: bool = False
    handle_key: tuple[str, ...] | None = None
    tells_deletes: bool = False


@dataclass(slots=True)
class _Lineage:
    """One table through its names, since it was brought or cleared last.

    While a copy is under way all deletions are kept: a row of it may be older than one. ``rows``: its generations since
    then, with the name and the shape of keys that each had. ``left``: generations that a TRUNCATE in the middle of a copy
    has emptied: they count until the copy ends, as a fold that has seen no row of them takes the table for one that is
    still being copied.
    """

    schema: TableSchema | None = None
    copying: bool = False
    rows: list[tuple[_Open, TableName, Shape | None]] = field(default_factory=list)
    left: list[_Open] = field(default_factory=list)

    def clear(self) -> None:
        gone = [one for one, _, _ in self.rows]
        self.rows = []
        if self.copying:
            self.left += gone
        else:
            for one in gone:
                one.void = True

    def end_copy(self) -> None:
        self.copying = False
        for one in self.left:
            one.void = True
        self.left = []

    def erase(self) -> None:
        for one in (*self.left, *(one for one, _, _ in self.rows)):
            one.void = True
        self.rows, self.left = [], []


class _Tables:
    def __init__(self, *, captured: bool) -> None:
        self._captured = captured
        self._cuts: dict[TableName, list[int]] = {}
        self._found: dict[TableName, list[_Open]] = {}
        self._lineages: dict[TableName, _Lineage] = {}
        self._everywhere: list[int] = []

    def follow_attached(self, entry: ControlEntry) -> None:
        """A schema or a TRUNCATE of an attached table."""
        name = named(entry.value) or entry.table
        if not name:
            self._cut_all(entry.sequence_id)
            return
        self._know(name)
        if entry.control == "truncate":
            self._lineages[name].clear()
        self._cut(name, entry.sequence_id)

    def follow_captured(self, entry: ControlEntry) -> None:
        """A control entry of a captured feed. One that can't be read stops its table: it is a cut and nothing else."""
        names = {entry.table} if entry.table else set()
        try:
            match entry.control:
                case "schema":
                    names |= self._schema(entry)
                case "ddl":
                    names |= self._ddl(entry)
                case "copy-begin" | "copy-end":
                    self._copy(entry)
        except HeadraceError:
            pass
        if not names:
            self._cut_all(entry.sequence_id)
        for name in names:
            self._cut(name, entry.sequence_id)

    def finished(self, last: int, other_keys: Collection[TableName]) -> FeedGenerations:
        """Return what was found; the feed's last entry is ``last``."""
        for table in other_keys:
            for one in self._found.get(table, ()):
                one.tells_deletes = True
        for lineage in self._lineages.values():
            if lineage.copying:
                for one, _, _ in lineage.rows:
                    one.tells_deletes = True
        tables = {}
        for name, cuts in self._cuts.items():
            found = tuple(
                Generation(one.void, one.handle_key, one.tells_deletes) for one in self._found[name]
            )
            tables[name] = TableGenerations(tuple(cuts), found)
        return FeedGenerations(self._captured, tables, self._others(), last)

    def _others(self) -> TableGenerations:
        one = _ALWAYS.generations[0]
        return TableGenerations(tuple(self._everywhere), (one,) * (len(self._everywhere) + 1))

    # -- what entries say -----------------------------------------------------------------------------------------------

    def _schema(self, entry: ControlEntry) -> set[TableName]:
        message = json_codec.decode(entry.value)
        if not isinstance(message, Bootstrap):
            return set()
        name = (message.table_schema.schema, message.table_schema.table)
        self._know(name)
        self._lineages[name].schema = message.table_schema
        return {name}

    def _ddl(self, entry: ControlEntry) -> set[TableName]:
        message = json_codec.decode(entry.value)
        name = entry.table
        if not isinstance(message, Ddl) or not name:
            return set()
        self._know(name)
        match message.type:
            case MessageType.CREATE | MessageType.ERASE:
                self._lineages[name].erase()
                made = message.table_schema if message.type is MessageType.CREATE else None
                self._lineages[name] = _Lineage(schema=made)
            case MessageType.TRUNCATE:
                self._lineages[name].clear()
            case MessageType.RENAME if message.table_schema is not None:
                new = (message.table_schema.schema, message.table_schema.table)
                self._know(new)
                moved = self._lineages[name]
                self._lineages[name] = _Lineage()
                if new != name:
                    self._lineages[new].erase()
                self._lineages[new] = moved
                return {new}
        return set()

    def _copy(self, entry: ControlEntry) -> None:
        if not entry.table:
            return
        self._know(entry.table)
        if entry.control == "copy-begin":
            self._lineages[entry.table].copying = True
        else:
            self._lineages[entry.table].end_copy()

    # -- cuts -----------------------------------------------------------------------------------------------------------

    def _know(self, name: TableName) -> None:
        """Begin to follow a table: with all the cuts that hold for every table."""
        if name in self._cuts:
            return
        self._cuts[name] = list(self._everywhere)
        self._lineages[name] = _Lineage()
        self._found[name] = []
        for _ in range(len(self._everywhere) + 1):
            self._open(name)

    def _cut(self, name: TableName, place: int) -> None:
        self._know(name)
        if self._cuts[name][-1:] != [place]:
            self._cuts[name].append(place)
            self._open(name)

    def _cut_all(self, place: int) -> None:
        for name in self._cuts:
            self._cut(name, place)
        self._everywhere.append(place)

    def _open(self, name: TableName) -> None:
        lineage = self._lineages[name]
        schema = lineage.schema
        shape = key_shape(schema) if self._captured else ()
        one = _Open(handle_key=schema.handle_key if schema is not None else None)
        if self._captured:
            # Generations without a schema have no rows, or the table stopped at the first one.
            known = [(at, other) for _, at, other in lineage.rows if other is not None]
            one.tells_deletes = shape is None or any(before != (name, shape) for before in known)
        lineage.rows.append((one, name, shape))
        self._found[name].append(one)


def key_shape(schema: TableSchema | None) -> Shape | None:
    """Return the names and types of the handle key's columns: keys of one shape are written alike. None without a key."""
    if schema is None:
        return None
    kinds = {column.name: column.data_type for column in schema.columns}
    if not schema.handle_key or not kinds.keys() >= set(schema.handle_key):
        return None
    return tuple((name, kinds[name]) for name in schema.handle_key)


def named(value: bytes) -> TableName:
    """Return the table that the value of an attached table's control entry names; () if it names none, or can't be read."""
    try:
        found = _NAMED.decode(value)
    except msgspec.MsgspecError:
        return ()
    return (found.database, found.table) if found.table else ()
