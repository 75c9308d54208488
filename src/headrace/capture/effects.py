"""What befalls a table in the feed, as control entries: it is stopped or emptied, its copy begins or ends. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import msgspec

from headrace.capture.catalogue_table import CatalogueTable, TableKind
from headrace.capture.control import (
    ControlEntry,
    copy_begin_entry,
    copy_end_entry,
    ddl_entry,
    schema_entry,
    stopped_entry,
)
from headrace.capture.ddl import TableName
from headrace.capture.row_form import RowForm
from headrace.capture.tables import Copying, Tables, TableState
from headrace.errors import TableStopped
from headrace.runtime.logs import get_logger
from headrace.simple.message import Ddl, MessageType
from headrace.simple.schema import TableSchema

logger = get_logger("capture")

TRANSACTIONAL: Final = "InnoDB"
"""The engine whose tables have a state at a place of the binlog."""


class Times(NamedTuple):
    """When something is said: the commitTs of its transaction, and the milliseconds since 1970 at which this was written."""

    commit_ts: int
    build_ts: int


class SourceSchemas(Protocol):
    """What is asked of the source while its statements go by. Both may raise SourceUnavailable."""

    def table(self, name: TableName) -> CatalogueTable | None:
        """Return a table as it is now; None if there is none of that name, or a view stands there."""

    def gap(self, name: TableName) -> str | None:
        """Return which foreign key changes rows of a table without a line in the binlog, in words.

        None if none does, or if the settings accept it.
        """

    def gap_of(self, actions: tuple[str, ...]) -> str | None:
        """Return the same of a foreign key with these actions, such as ``ON DELETE CASCADE``, that a statement tells of."""


def stopped(tables: Tables, name: TableName, error: TableStopped, times: Times) -> ControlEntry:
    """Let no more rows of a table go out, and return what says so in the feed."""
    tables.stop(name, error.detail)
    logger.error(
        "a table is not captured any more",
        database=name.database,
        table=name.table,
        code=error.code,
        detail=error.detail,
        hint=error.advice,
    )
    return stopped_entry(name.database, name.table, times.commit_ts, error.detail)


def emptied(tables: Tables, state: TableState, times: Times, sql: str = "") -> Iterator[ControlEntry]:
    """Yield what takes all rows of a table out of the feed: TRUNCATE (``sql``, or ours), and the schema behind it.

    A version names one schema: behind a statement of the same commitTs the table keeps the one that it brought.
    """
    before = state.schema
    if before is None:
        return
    schema = before
    if before.version != times.commit_ts:
        schema = msgspec.structs.replace(before, table_id=tables.next_id(), version=times.commit_ts)
    state.schema = schema
    state.forget_shape()
    text = sql or f"TRUNCATE TABLE {state.name}"
    yield ddl_entry(Ddl(MessageType.TRUNCATE, text, *times, schema, before), *state.name)
    if schema is not before:
        yield schema_entry(schema, times.build_ts)


def returned(tables: Tables, name: TableName, times: Times) -> Iterator[ControlEntry]:
    """Yield what takes a table out of the feed of which the rows went stale while the settings left it out."""
    before = tables.take_stale(name)
    if before is not None:
        yield ddl_entry(Ddl(MessageType.ERASE, f"DROP TABLE IF EXISTS {name}", *times, before, before), *name)


def begun(
    tables: Tables,
    name: TableName,
    schema: TableSchema,
    times: Times,
    *,
    leaves_out: bool,
    request: str = "",
) -> Iterator[ControlEntry]:
    """Begin to copy a table; ``schema`` is what it looks like now, with whatever id and version.

    With ``leaves_out`` the feed holds nothing of the table from here on but what is copied: what it held is taken out. A
    table that was stopped goes on. Without, a schema that is in force stays it: changes that are still to come may need it.
    """
    state = tables.states.get(name)
    tables.stopped.pop(name, None)
    tables.waiting.pop(name, None)
    if state is None:
        yield from returned(tables, name, times)
        state = tables.states[name] = TableState(name, None)
    elif leaves_out:
        yield from emptied(tables, state, times)
    if leaves_out or state.schema is None:
        yield from adopted(tables, state, schema, times)
    tables.copies[name] = Copying(number=times.commit_ts, leaves_out=leaves_out, request=request)
    if state.schema is not None:
        yield copy_begin_entry(state.schema, times.commit_ts)


def adopted(tables: Tables, state: TableState, schema: TableSchema, times: Times) -> Iterator[ControlEntry]:
    """Let ``schema`` be the one in force, and yield it if it says anything else than that did."""
    before = state.schema
    table_id = before.table_id if before is not None else tables.next_id()
    version = before.version if before is not None else times.commit_ts
    if before == msgspec.structs.replace(schema, table_id=table_id, version=version):
        return
    state.schema = msgspec.structs.replace(schema, table_id=table_id, version=times.commit_ts)
    state.forget_shape()
    yield schema_entry(state.schema, times.build_ts)


def ended(tables: Tables, name: TableName) -> Iterator[ControlEntry]:
    """End the copy of a table, if there is one: all its rows are in the feed."""
    copying = tables.copies.pop(name, None)
    state = tables.states.get(name)
    if copying is not None and state is not None and state.schema is not None:
        yield copy_end_entry(state.schema, copying.number, copying.rows)


def restarted(
    tables: Tables, state: TableState, before: TableSchema | None, times: Times
) -> Iterator[ControlEntry]:
    """Begin a copy anew whose border means nothing any more, because the handle key is not what it was in ``before``."""
    copying = tables.copies.get(state.name)
    schema = state.schema
    if copying is None or copying.last is None or before is None or schema is None:
        return
    if key_types(before) == key_types(schema):
        return
    copying.last, copying.rows = None, 0
    if copying.leaves_out:
        yield from emptied(tables, state, times)


def judge(
    table: CatalogueTable,
    schema: TableSchema,
    tables: Tables,
    source: SourceSchemas,
    before: TableSchema | None = None,
) -> RowForm:
    """Return how rows of ``table`` go out; TableStopped if it can't be captured. ``before``: its schema until now."""
    name = ".".join(table.name)
    if table.kind is TableKind.VERSIONED:
        raise TableStopped(
            f"{name} is system-versioned: its binlog mixes the rows that are with those that were"
        )
    if table.engine != TRANSACTIONAL:
        raise TableStopped(
            f"{name} is kept by {table.engine}, which has no transactions",
            hint=f"Make it {TRANSACTIONAL}, then run headrace capture copy for it.",
        )
    if (gap := source.gap(table.name)) is not None:
        raise TableStopped(f"{name}: {gap}")
    schema_entry(schema, 0)  # which must fit into an entry
    choice = tables.selection.of(schema, before)
    return RowForm(schema, choice.delivered, choice.masks)


def judge_former(state: TableState, tables: Tables) -> None:
    """Look, once, whether renames before anything was known of a table led it out of a rule: TableStopped."""
    former, state.former = state.former, ()
    if state.schema is not None:
        for name in former:
            tables.selection.of(
                state.schema, msgspec.structs.replace(state.schema, schema=name.database, table=name.table)
            )


def key_types(schema: TableSchema) -> list[tuple[object, ...]]:
    """Return what the order of a table's rows depends on: its handle key's columns, and what tells their values apart."""
    types = {column.name: column.data_type for column in schema.columns}
    return [
        (name, kind.mysql_type, kind.unsigned, kind.charset, kind.collate, kind.elements)
        for name in schema.handle_key
        for kind in [types[name]]
    ]
