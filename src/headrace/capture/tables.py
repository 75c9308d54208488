"""What capture knows of each table: its schema in force, how its rows are read and written, what is left out. Pure.

A table has a state from its first schema on: by CREATE TABLE, by the snapshot that reaches it, or, where no snapshot is
made, by its first row. Rows of a table without one are either left to a snapshot that is still to come, or stop that table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from headrace.capture.binlog.event import RowsChanged
from headrace.capture.binlog.rows import RowDecoder
from headrace.capture.changes import RowPair
from headrace.capture.ddl import TableName
from headrace.capture.ddl.statement import quoted
from headrace.capture.position import CopyProgress, RawKey, SourcePosition
from headrace.capture.row_form import RowForm
from headrace.capture.selection import Selection
from headrace.errors import BinlogInvalid, FeedUnfit
from headrace.runtime.logs import get_logger
from headrace.simple.schema import TableSchema

logger = get_logger("capture")

CAPTURED_KNOWN_MAX: Final = 100_000
"""Tables of which it is remembered whether the settings want them."""

Covers = Callable[[TableSchema, RawKey, Sequence[RawKey]], list[bool]]
"""Tells of each key of a table whether it stands at or before another one, in the order of its handle key's index."""


class Unknown(StrEnum):
    """What rows of a captured table mean that has no state."""

    COPIED_LATER = "copied-later"
    """The initial snapshot is still to reach it: they are left out."""
    BEGINS_HERE = "begins-here"
    """No snapshot is made: the table begins with them."""
    STOPS = "stops"
    """Every table is known: one that the source has after all is copied then, any other stops."""


@dataclass(slots=True)
class TableState:
    """One table: its ``schema`` in force (``schema.table_id`` is its id in the feed), and how its rows go out.

    ``identity``: the shape in the binlog that ``decoder`` and ``form`` were made for, ``b""`` before the schema's first row.
    ``schema`` is None while the catalogue had no table of its name and no row came; ``former`` are the names that it had
    then.
    """

    name: TableName
    schema: TableSchema | None
    identity: bytes = b""
    decoder: RowDecoder | None = None
    form: RowForm | None = None
    former: tuple[TableName, ...] = ()

    def read(self, event: RowsChanged) -> tuple[Sequence[RowPair], RowForm]:
        """Return the rows of an event whose table map this state was made ready for, and their form.

        BinlogInvalid, BinlogUnsupported, and TableStopped where a value can't be told.
        """
        if self.decoder is None or self.form is None:
            raise BinlogInvalid(
                f"rows of {'.'.join(self.name)} before {event.end} stand behind DDL, without a TABLE_MAP"
            )
        return self.decoder.rows(event), self.form

    def forget_shape(self) -> None:
        """The schema is another: the next row has to be looked at."""
        self.identity = b""
        self.decoder = self.form = None


@dataclass(slots=True)
class Copying:
    """A copy of a table's rows that is under way.

    ``number`` names it in its copy-begin and copy-end entries; ``last`` is the greatest handle key that is in the feed.
    ``leaves_out``: changes of rows behind ``last`` are left out, because the feed holds nothing of them yet.
    """

    number: int
    last: RawKey | None = None
    rows: int = 0
    leaves_out: bool = True
    request: str = ""

    def progress(self, name: TableName) -> CopyProgress:
        """Return what the source position says of this copy."""
        return CopyProgress(
            table=(name.database, name.table),
            number=self.number,
            last=self.last,
            rows=self.rows,
            reason="initial" if self.leaves_out else "asked",
            id=self.request,
        )


class Tables:
    """All tables of one capture.

    ``last_id``: the last table id given. ``stopped``: why a table's rows are not captured, those without a state too.
    ``copies``: what is under way, in its order. ``waiting``: what a snapshot has yet to begin with. ``stale``: tables
    without a state of which the feed holds rows as they once were, because the settings left them out; ``newly_stale`` are
    those that the settings leave out from this restart on. ``renamed_at``: the version under which each name was given last.
    """

    def __init__(self, selection: Selection, unknown: Unknown, last_id: int = 0) -> None:
        self.selection = selection
        self.unknown = unknown
        self.last_id = last_id
        self.states: dict[TableName, TableState] = {}
        self.stopped: dict[TableName, str] = {}
        self.copies: dict[TableName, Copying] = {}
        self.waiting: dict[TableName, None] = {}
        self.stale: dict[TableName, TableSchema] = {}
        self.newly_stale: list[TableName] = []
        self._stale_ids: tuple[tuple[int, int], ...] = ()
        self.renamed_at: dict[TableName, int] = {}
        self._gone: set[TableName] = set()
        self._late: set[TableName] = set()
        self._captured: dict[TableName, bool] = {}

    @classmethod
    def restored(
        cls, selection: Selection, unknown: Unknown, position: SourcePosition, schemas: Iterable[TableSchema]
    ) -> Tables:
        """Return the tables as a feed's newest schemas, in their order, and its source position have them.

        A name of which the feed has a schema may have no table behind it any more. FeedUnfit: the position is unreadable.
        """
        tables = cls(selection, unknown, position.table_id)
        tables.waiting = {TableName(*table): None for table in position.waiting}
        schemas = list(schemas)
        newest = {schema.table_id: schema for schema in schemas}
        for schema in schemas:
            name = TableName(schema.schema, schema.table)
            # A schema may stand in the feed before the transaction of which the position tells.
            tables.last_id = max(tables.last_id, schema.table_id)
            wanted, was_left_out = tables.captures(name), _is_within(schema.table_id, position.left_out)
            if newest[schema.table_id] is not schema or (wanted and name in tables.waiting):
                tables._gone.add(name)
            elif not wanted or was_left_out:
                tables.stale[name] = schema
                if not was_left_out and _text_of(name) not in position.stopped:
                    tables.newly_stale.append(name)
            else:
                tables.states[name] = TableState(name, schema)
        tables._note_stale()
        tables.waiting = {name: None for name in tables.waiting if tables.captures(name)}
        for text, reason in position.stopped.items():
            if tables.captures(name := _name_of(text)):
                tables.stopped[name] = reason
        for copy in position.copies:
            if tables.captures(name := TableName(*copy.table)):
                copying = Copying(copy.number, copy.last, copy.rows, copy.reason == "initial", copy.id)
                tables.copies[name] = copying
        return tables

    @property
    def is_whole(self) -> bool:
        """Whether the feed holds all rows of all tables: no snapshot is under way or to come."""
        return (
            self.unknown is not Unknown.COPIED_LATER
            and not self.waiting
            and not any(copying.leaves_out for copying in self.copies.values())
        )

    def captures(self, name: TableName) -> bool:
        """Tell whether the settings want this table."""
        captured = self._captured.get(name)
        if captured is None:
            if len(self._captured) >= CAPTURED_KNOWN_MAX:
                self._captured.clear()
            captured = self._captured[name] = self.selection.captures(name.database, name.table)
        return captured

    def next_id(self) -> int:
        """Return the id of a table that is new in the feed."""
        self.last_id += 1
        return self.last_id

    def awaits_copy(self, name: TableName) -> bool:
        """Tell whether changes of a table without a state are left to a snapshot that is to come."""
        return name in self.waiting or name in self.stale or self.unknown is Unknown.COPIED_LATER

    def await_copy(self, name: TableName) -> bool:
        """Let a captured table that the source has, and of which nothing is known, wait to be copied; False if it can't.

        The server lists a table not at all while the last step of an ALTER TABLE or RENAME swaps its files. So the snapshot
        may have passed it over; the statement, or the table's next rows, give it away.
        """
        known = name in self.states or name in self.stopped or name in self.copies
        if known or self.unknown is Unknown.BEGINS_HERE or not self.captures(name):
            return False
        if name not in self.waiting:
            self.waiting[name] = None
            self._late.add(name)
            if self.unknown is Unknown.STOPS:
                logger.warning("a table is found late", database=name.database, table=name.table)
        return True

    def of_database(self, database: str) -> list[TableName]:
        """Return the tables of ``database`` that have a state or are stopped."""
        return [name for name in {**self.states, **self.stopped} if name.database == database]

    def forget(self, name: TableName) -> TableState | None:
        """Drop all that is known of a table, and return the state that it had."""
        self.stopped.pop(name, None)
        self.copies.pop(name, None)
        self.waiting.pop(name, None)
        return self._pop_state(name)

    def take_stale(self, name: TableName) -> TableSchema | None:
        """Return the schema of a table whose stale rows are taken out of the feed now; None if it holds none.

        Of a name that the settings leave out they stay until it is wanted: what it stands for then is known only then.
        """
        if name not in self.stale or not self.captures(name):
            return None
        schema = self.stale.pop(name)
        self._gone.add(name)
        self._note_stale()
        return schema

    def stop(self, name: TableName, reason: str) -> None:
        """Let no more rows of a table go out; what was to be copied of it is not."""
        self.stopped[name] = reason
        self.copies.pop(name, None)
        self.waiting.pop(name, None)

    def rename(self, name: TableName, new_name: TableName) -> None:
        """Move all that is known of a table but its schema to its new name."""
        self.forget(new_name)
        state = self._pop_state(name)
        if state is not None:
            if state.schema is None:
                state.former += (name,)
            state.name = new_name
            state.forget_shape()
            self.states[new_name] = state
        if (reason := self.stopped.pop(name, None)) is not None:
            self.stopped[new_name] = reason
        if (copying := self.copies.pop(name, None)) is not None:
            self.copies[new_name] = copying
        if name in self.waiting:
            del self.waiting[name]
            self.waiting[new_name] = None

    def progress(self) -> tuple[CopyProgress, ...]:
        """Return what the source position says of the copies."""
        return tuple(copying.progress(name) for name, copying in self.copies.items())

    def awaited(self) -> tuple[tuple[str, str], ...]:
        """Return what the source position says of what waits: the names that a restart would take for those of tables held.

        And those that the source did not list. A restart finds the others there.
        """
        return tuple(
            (name.database, name.table) for name in self.waiting if name in self._gone or name in self._late
        )

    def left_out(self) -> tuple[tuple[int, int], ...]:
        """Return what the source position says of :attr:`stale`: ranges of table ids, first and last."""
        return self._stale_ids

    def reasons(self) -> dict[str, str]:
        """Return what the source position says of the tables that are stopped."""
        return {_text_of(name): reason for name, reason in self.stopped.items()}

    def _pop_state(self, name: TableName) -> TableState | None:
        state = self.states.pop(name, None)
        if state is not None:
            self._gone.add(name)
        return state

    def _note_stale(self) -> None:
        ranges: list[tuple[int, int]] = []
        for table_id in sorted(schema.table_id for schema in self.stale.values()):
            if ranges and ranges[-1][1] == table_id - 1:
                ranges[-1] = ranges[-1][0], table_id
            else:
                ranges.append((table_id, table_id))
        self._stale_ids = tuple(ranges)


def within(copying: Copying, form: RowForm, rows: Sequence[RowPair], covers: Covers) -> list[RowPair]:
    """Return what ``rows`` are to a feed that holds the table's rows up to ``copying.last`` alone.

    A row that is moved over that border by a change of its key comes as an INSERT, or goes as a DELETE.
    """
    last = copying.last
    if last is None:
        return []
    keys = [form.key_values(values) for pair in rows for values in pair if values is not None]
    inside = iter(covers(form.schema, last, keys))
    kept: list[RowPair] = []
    for before, after in rows:
        old = before if before is not None and next(inside) else None
        new = after if after is not None and next(inside) else None
        if old is not None or new is not None:
            kept.append((old, new))
    return kept


def _is_within(number: int, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= number <= last for first, last in ranges)


_PART: Final = re.compile(r"`((?:``|[^`])*)`|([^`.]*)")


def _text_of(name: TableName) -> str:
    """Return ``database.table``; a part in which that would be ambiguous stands in backticks."""
    return ".".join(part if _PART.fullmatch(part) and part[:1] != "`" else quoted(part) for part in name)


def _name_of(text: str) -> TableName:
    """Return the table that :func:`_text_of` wrote."""
    first = _PART.match(text)
    second = _PART.fullmatch(text, first.end() + 1) if first else None
    if first is None or second is None:
        raise FeedUnfit(f"the feed's source position names a table {text!r}")
    database, table = (
        part[1].replace("``", "`") if part[1] is not None else part[2] for part in (first, second)
    )
    return TableName(database, table)
