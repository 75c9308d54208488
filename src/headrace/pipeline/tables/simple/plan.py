"""Control entries of a batch, and where rows stand between them -> what is to be done with each table.

Runs on the driver, over the control entries alone: rows are counted, not read. The rules are those of
docs/howto/consume-simple.md, "Statements". The same entries give the same plan, so a batch that runs again does the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from headrace.capture.ddl.columns import column_changes
from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.pipeline.tables.schemas import unfit
from headrace.pipeline.tables.simple.altering import follow
from headrace.pipeline.tables.simple.evolution import Unfollowed
from headrace.pipeline.tables.simple.planned import PlannedTable
from headrace.pipeline.tables.simple.state import TableState
from headrace.pipeline.tables.simple.steps import Erase, Reading, RenameTo, Rows, Step, TableColumn
from headrace.runtime.typed_json import decode_json
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, MessageType, Watermark
from headrace.simple.schema import TableSchema

Name = tuple[str, str]


class Control(NamedTuple):
    """A control entry: its place, its name (``ddl``), its ``table``, its value, and the source's time of it.

    ``source_s``: seconds since 1970, None if the entry tells none.
    """

    sequence_id: int
    control: str
    table: tuple[str, ...]
    value: bytes
    source_s: int | None = None


class Run(NamedTuple):
    """Rows of one table with no cut between them: from the entry ``first`` to ``last``, both rows."""

    table: Name
    first: int
    last: int


class Plan(NamedTuple):
    """``steps``: what to do, those of one identity in order. ``tables``: every table behind them, to be given next time.

    ``watermark``: the greatest commitTs of a WATERMARK in the batch, None if there is none.
    """

    steps: list[Step]
    tables: tuple[TableState, ...]
    watermark: int | None


_CUTS: Final = frozenset({"schema", "ddl", "copy-begin", "copy-end", "stopped"})
_SHOWN_CHARS: Final = 200


class _Named(msgspec.Struct):
    type: str = ""
    reason: str = ""


def is_simple(value: bytes) -> bool:
    """Tell whether the value of a ``schema`` entry is one of a Simple feed: a BOOTSTRAP message."""
    try:
        return decode_json(value, _Named).type == MessageType.BOOTSTRAP
    except msgspec.MsgspecError:
        return False


def cuts(controls: Iterable[Control]) -> tuple[int, ...]:
    """Return the places between which rows of one table make one :class:`Run`, in order."""
    return tuple(sorted(one.sequence_id for one in controls if one.control in _CUTS))


def plan(
    tables: Sequence[TableState],
    controls: Sequence[Control],
    runs: Sequence[Run],
    *,
    feed: str,
    only: int | None = None,
) -> Plan:
    """Return what a batch does to tables.

    ``tables``: as the batch before left them. ``controls``: all control entries of the batch; ``runs``: all its rows.
    ``only``: look at the table of this identity alone, whatever its names. ValueUnfit for a WATERMARK that can't be read;
    whatever else can't be read or followed stops its table.
    """
    planner = _Planner(tables, feed, only)
    events: list[Control | Run] = [*controls, *runs]
    events.sort(key=lambda one: one.first if isinstance(one, Run) else one.sequence_id)
    for event in events:
        if isinstance(event, Run):
            planner.rows(event)
        else:
            planner.control(event)
    return planner.finish()


class _Planner:
    def __init__(self, tables: Sequence[TableState], feed: str, only: int | None) -> None:
        self.feed = feed
        self.only = only
        self.tables = {state.name: PlannedTable(state, place=state.identity) for state in tables}
        self.done: list[Step] = []
        self.watermark: int | None = None

    def finish(self) -> Plan:
        for table in self.tables.values():
            if not table.stopped and table.schema is not None:
                try:
                    table.flush()
                except Unfollowed as error:
                    table.stop(table.place, str(error))
        steps = [*self.done]
        for table in self.tables.values():
            steps += table.steps
        return Plan(steps, tuple(table.state() for table in self.tables.values()), self.watermark)

    # -- rows -----------------------------------------------------------------------------------------------------------

    def rows(self, run: Run) -> None:
        table = self.tables.get(run.table)
        if table is None:
            table = self._born(run.table, run.first, None)
        if table is None or table.stopped:
            return
        schema = table.schema
        if schema is None:
            table.stop(run.first, "no schema entry of this table stands before its rows")
            return
        if table.adopted != schema.version and not self._adopt(table, schema, run.first):
            return
        columns = tuple(TableColumn(one.name, one.kind) for one in table.columns.there)
        reading = Reading(self.feed, (schema,), columns, _key_of(schema, columns))
        last = table.steps[-1] if table.steps else None
        first = run.first
        if isinstance(last, Rows) and (last.reading.columns, last.reading.key) == (columns, reading.key):
            table.steps.pop()
            first = last.first
            known = [one for one in last.reading.schemas if one.key != schema.key]
            reading = msgspec.structs.replace(reading, schemas=(*known, schema))
        table.add(Rows, run.last, first=first, last=run.last, names=(table.name,), reading=reading)

    def _adopt(self, table: PlannedTable, schema: TableSchema, place: int) -> bool:
        """Take over the version that a row names; False if the table stopped over it."""
        before = table.columns.copy()
        try:
            if table.adopted is None:
                table.columns.reset(schema)
            else:
                table.columns.adopt(schema)
            names = tuple(TableColumn(slot.name, slot.kind) for slot in table.columns.slots)
            if not _key_of(schema, names):
                raise Unfollowed(
                    "neither a primary key nor a UNIQUE key of NOT NULL columns tells its rows apart"
                )
            table.flush(before_row=place)
        except Unfollowed as error:
            table.columns = before
            table.stop(place, str(error))
            return False
        table.adopted = schema.version
        return True

    # -- control entries ------------------------------------------------------------------------------------------------

    def control(self, entry: Control) -> None:
        try:
            match entry.control:
                case "watermark":
                    self._watermark(entry)
                case "schema":
                    self._schema(entry)
                case "ddl":
                    self._ddl(entry)
                case "copy-begin" | "copy-end":
                    self._copy(entry)
                case "stopped":
                    self._stopped(entry)
        except (SimpleInvalid, SimpleUnsupported) as error:
            if entry.control == "watermark":
                raise unfit(self.feed, entry.sequence_id, (), "", error.detail) from None
            table = self._table(entry)
            if table is not None:
                table.stop(entry.sequence_id, error.detail, error.advice)

    def _table(self, entry: Control) -> PlannedTable | None:
        return self.tables.get(_name_of(entry))

    def _born(self, name: Name, place: int, schema: TableSchema | None) -> PlannedTable | None:
        """Return a table that begins here; None if it is none of those that are looked at."""
        if self.only is not None:
            return None
        table = self.tables[name] = PlannedTable(TableState(identity=place, name=name), place=place)
        if schema is not None:
            table.schema = schema
            table.columns.reset(schema)
        return table

    def _watermark(self, entry: Control) -> None:
        message = json_codec.decode(entry.value)
        if not isinstance(message, Watermark):
            raise SimpleInvalid(f"a watermark entry has a message of type {message.type}")
        self.watermark = max(self.watermark or 0, message.commit_ts)
        for table in self.tables.values():
            if table.moving:
                reason = f"the table is not captured under its new name {'.'.join(table.name)}: no change of it comes"
                table.stop(
                    entry.sequence_id, reason, "Capture the new name too, or leave the table as it is."
                )

    def _schema(self, entry: Control) -> None:
        message = json_codec.decode(entry.value)
        if not isinstance(message, Bootstrap):
            raise SimpleInvalid(f"a schema entry has a message of type {message.type}")
        schema = message.table_schema
        name = (schema.schema, schema.table)
        table = self.tables.get(name)
        if table is None:
            self._born(name, entry.sequence_id, schema)
            return
        table.schema, table.moving = schema, False
        if not table.stopped and table.adopted is None:
            table.place = entry.sequence_id
            table.columns.reset(schema)

    def _copy(self, entry: Control) -> None:
        """A copy brings every row, so a table that was stopped goes on with it, from nothing."""
        table = self._table(entry)
        if table is None:
            return
        if entry.control == "copy-end":
            table.copying = False
            return
        if table.stopped:
            table.empty(entry.sequence_id)
        table.copying = table.copying or table.adopted is None

    def _stopped(self, entry: Control) -> None:
        try:
            reason = decode_json(entry.value, _Named).reason
        except msgspec.MsgspecError:
            reason = ""
        table = self._table(entry) or self._born(_name_of(entry), entry.sequence_id, None)
        if table is not None:
            name = ".".join(table.name)
            hint = f"Mend it at the source, then run `headrace capture copy {name}`."
            table.stop(entry.sequence_id, f"capture stopped it: {reason or 'no reason is told'}", hint)

    # -- statements -----------------------------------------------------------------------------------------------------

    def _ddl(self, entry: Control) -> None:
        message = json_codec.decode(entry.value)
        if not isinstance(message, Ddl):
            raise SimpleInvalid(f"a ddl entry has a message of type {message.type}")
        table = self._table(entry)
        match message.type:
            case MessageType.CREATE:
                self._erase(table, entry.sequence_id)
                if message.table_schema is not None:
                    self._born(_name_of(entry), entry.sequence_id, message.table_schema)
            case MessageType.ERASE:
                self._erase(table, entry.sequence_id)
            case MessageType.TRUNCATE:
                if table is not None:  # a copy that is under way goes on, or ends with an entry of its own
                    table.empty(entry.sequence_id)
            case MessageType.RENAME:
                if table is not None:
                    self._rename(table, entry, message)
            case MessageType.ALTER | MessageType.CINDEX | MessageType.DINDEX:
                if table is not None and not table.stopped:
                    _alter(table, entry, message)

    def _erase(self, table: PlannedTable | None, place: int) -> None:
        if table is None:
            return
        del self.tables[table.name]
        table.steps = []
        if table.was_made:
            table.stopped = ""
            table.add(Erase, place)
        self.done += table.steps

    def _rename(self, table: PlannedTable, entry: Control, message: Ddl) -> None:
        schema = message.table_schema
        if schema is None:
            table.stop(entry.sequence_id, "it was renamed, and the message does not say to what")
            return
        new_name = (schema.schema, schema.table)
        if not table.stopped and table.schema is not None:
            table.flush()
        del self.tables[table.name]
        self._erase(self.tables.get(new_name), entry.sequence_id)
        table.name, table.moving = new_name, True
        self.tables[new_name] = table
        if table.made:
            table.add(RenameTo, entry.sequence_id)


def _alter(table: PlannedTable, entry: Control, message: Ddl) -> None:
    if table.adopted is None:  # without rows the next schema says all
        if message.table_schema is not None:
            table.columns.reset(message.table_schema)
            table.place = entry.sequence_id
        return
    before = table.columns.copy()
    try:
        follow(table.columns, column_changes(message.sql), message.table_schema, entry.source_s)
        table.columns.check_names()
    except Unfollowed as error:
        table.columns = before
        table.stop(entry.sequence_id, f"{error}: {message.sql[:_SHOWN_CHARS]}")
        return
    table.place = entry.sequence_id


def _name_of(entry: Control) -> Name:
    database, table = (*entry.table, "", "")[:2]
    return database, table


def _key_of(schema: TableSchema, columns: Sequence[TableColumn]) -> tuple[str, ...]:
    """Return the columns of the handle key; () if one of them has no values."""
    names = {column.name for column in columns}
    return schema.handle_key if names.issuperset(schema.handle_key) else ()
