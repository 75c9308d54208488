"""One DDL statement at its commitTs: what it does to captured tables, and the entries that tell of it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.catalogue_table import CatalogueTable
from headrace.capture.control import ControlEntry, ddl_entry, schema_entry
from headrace.capture.ddl import DdlStatement, TableName
from headrace.capture.effects import (
    SourceSchemas,
    Times,
    emptied,
    ended,
    judge,
    judge_former,
    key_types,
    restarted,
    returned,
    stopped,
)
from headrace.capture.tables import Tables, TableState, Unknown
from headrace.errors import TableStopped
from headrace.runtime.logs import get_logger
from headrace.simple.message import Ddl, MessageType
from headrace.simple.schema import TableSchema

logger = get_logger("capture")

_SHOWN_CHARS: Final = 200


class AppliedStatement:
    """A statement that concerns captured tables; :meth:`entries` changes ``tables`` in place, once."""

    def __init__(self, tables: Tables, source: SourceSchemas, statement: DdlStatement, times: Times) -> None:
        self._tables = tables
        self._source = source
        self._statement = statement
        self._times = times

    def entries(self, suspects: Sequence[TableName] = ()) -> Iterator[ControlEntry]:
        """Yield the entries in their order. ``suspects``: what a statement that can't be read may have meant."""
        statement = self._statement
        if statement.unread:
            for name in suspects:
                yield self._stopped(
                    name,
                    f"a statement that can't be read may have changed {'.'.join(name)}: {statement.sql[:_SHOWN_CHARS]}",
                )
        elif statement.database_only is not None:
            yield from self._about_database(statement.database_only)
        elif statement.table is not None:
            yield from self._about_table(statement.table)
            if statement.unlogged_actions:
                yield from self._with_actions(statement.table)
            if statement.moves_rows:
                for name in (statement.table, *statement.others):
                    if name in self._tables.states:
                        yield self._stopped(
                            name,
                            f"rows of {'.'.join(name)} moved, went or got new values, and no row event tells of that: "
                            f"{statement.sql[:_SHOWN_CHARS]}",
                        )

    def _about_database(self, database: str) -> Iterator[ControlEntry]:
        if self._statement.moves_rows:
            for name in self._tables.of_database(database):
                yield from self._erase(name, f"DROP TABLE {name}")
            for name in [name for name in self._tables.waiting if name.database == database]:
                self._tables.forget(name)
        yield self._ddl(TableName(database, ""), None, None)

    def _about_table(self, name: TableName) -> Iterator[ControlEntry]:
        statement = self._statement
        if statement.view:
            yield self._ddl(name, None, None)
            return
        match statement.kind:
            case MessageType.CREATE:
                yield from self._create(name)
            case MessageType.ERASE:
                yield from self._erase(name, statement.sql)
            case MessageType.TRUNCATE:
                yield from self._truncate(name)
            case MessageType.RENAME if statement.new_name is not None:
                yield from self._rename(name, statement.new_name)
            case _:
                yield from self._alter(name)

    def _create(self, name: TableName) -> Iterator[ControlEntry]:
        # CREATE OR REPLACE, or a table that was dropped before a restart: the feed keeps the schemas of those.
        yield from self._erase(name, f"DROP TABLE IF EXISTS {name}")
        table = self._source.table(name)
        table_id = self._tables.next_id()
        schema = from_catalogue(table, table_id, self._times.commit_ts) if table is not None else None
        state = self._tables.states[name] = TableState(name, schema)
        yield self._ddl(name, schema, None)
        if schema is not None:
            yield schema_entry(schema, self._times.build_ts)
        yield from self._judged(state, table, None)

    def _erase(self, name: TableName, sql: str) -> Iterator[ControlEntry]:
        known = name in self._tables.states or name in self._tables.stopped
        state = self._tables.forget(name)
        yield from returned(self._tables, name, self._times)
        if known:
            before = state.schema if state is not None else None
            yield ddl_entry(Ddl(MessageType.ERASE, sql, *self._times, before, before), *name)

    def _truncate(self, name: TableName) -> Iterator[ControlEntry]:
        state = self._tables.states.get(name)
        if state is not None:
            yield from emptied(self._tables, state, self._times, self._statement.sql)
            yield from ended(self._tables, name)  # nothing is left to copy, and all that follows goes out

    def _alter(self, name: TableName) -> Iterator[ControlEntry]:
        state = self._tables.states.get(name)
        table = self._source.table(name)
        if state is None:
            if table is not None:
                self._tables.await_copy(name)
            return
        before = state.schema
        if table is None:  # it is gone or has another name by now, which the binlog will say
            yield self._ddl(name, before, before)
            return
        table_id = before.table_id if before is not None else self._tables.next_id()
        state.schema = from_catalogue(table, table_id, self._times.commit_ts)
        state.forget_shape()
        yield self._ddl(name, state.schema, before)
        yield schema_entry(state.schema, self._times.build_ts)
        yield from restarted(self._tables, state, before, self._times)
        yield from self._judged(state, table, before)

    def _rename(self, name: TableName, new_name: TableName) -> Iterator[ControlEntry]:
        tables = self._tables
        state = tables.states.get(name)
        wanted = tables.captures(new_name)
        for one in (name, new_name):
            yield from returned(tables, one, self._times)
        if state is None and name not in tables.stopped and name not in tables.waiting:
            if wanted:
                yield from self._come_in(name, new_name)
            return
        tables.rename(name, new_name)
        before = state.schema if state is not None else None
        table = self._source.table(new_name) if state is not None else None
        if state is not None:
            if before is not None:
                state.schema = self._renamed(before, new_name, table)
            elif table is not None:  # it was made and renamed before any of that was read
                state.schema = from_catalogue(table, tables.next_id(), self._times.commit_ts)
            again = state.schema is not None and tables.renamed_at.get(new_name) == state.schema.version
            told = None if again else state.schema
            yield ddl_entry(Ddl(MessageType.RENAME, self._statement.sql, *self._times, told, before), *name)
            if again:
                yield self._stopped(
                    new_name, "one RENAME TABLE gave it this name twice: its schemas have one version"
                )
                return
        if not wanted:
            tables.forget(new_name)
            logger.warning("a table left the capture by its new name", old=str(name), new=str(new_name))
        elif state is not None and state.schema is not None:
            tables.renamed_at[new_name] = state.schema.version
            yield schema_entry(state.schema, self._times.build_ts)
            yield from self._judged(state, table, before)

    def _come_in(self, name: TableName, new_name: TableName) -> Iterator[ControlEntry]:
        """Begin with a table of which nothing is known, under a name that is captured.

        If it has to be copied, nobody else would do that under its new name. If every table is known, it is a temporary
        one or a sequence, and what has the new name is what it was; or the snapshot passed it over.
        """
        tables = self._tables
        entered = tables.unknown is Unknown.STOPS and not tables.captures(name)
        if entered or tables.unknown is Unknown.COPIED_LATER:
            yield from self._erase(new_name, f"DROP TABLE IF EXISTS {new_name}")
            tables.waiting[new_name] = None
        elif new_name not in tables.states:
            table = self._source.table(new_name)
            if table is not None and not tables.await_copy(new_name):
                yield from self._judged(TableState(new_name, from_catalogue(table, 0, 0)), table, None)

    def _renamed(self, before: TableSchema, new_name: TableName, table: CatalogueTable | None) -> TableSchema:
        """Return the schema under the new name; with the catalogue's details if that has the table in the shape it had.

        Where the statements before this one were met late, the catalogue knew the table under this name alone.
        """
        version = self._times.commit_ts
        if table is not None:
            schema = from_catalogue(table, before.table_id, version)
            if _shape(schema) == _shape(before):
                return schema
        return msgspec.structs.replace(
            before, schema=new_name.database, table=new_name.table, version=version
        )

    def _judged(
        self, state: TableState, table: CatalogueTable | None, before: TableSchema | None
    ) -> Iterator[ControlEntry]:
        """Stop a table that can't be captured as it is now, or, where it is not there any more, by its new schema alone."""
        if state.schema is None or state.name in self._tables.stopped:
            return
        try:
            if table is None:
                self._tables.selection.of(state.schema, before)
            else:
                judge(table, state.schema, self._tables, self._source, before)
            judge_former(state, self._tables)
        except TableStopped as error:
            yield stopped(self._tables, state.name, error, self._times)

    def _with_actions(self, name: TableName) -> Iterator[ControlEntry]:
        """Stop a table whose new foreign keys change its rows unseen, though the catalogue may have lost them again."""
        tables = self._tables
        if name in tables.states and name not in tables.stopped:
            gap = self._source.gap_of(self._statement.unlogged_actions)
            if gap is not None:
                yield self._stopped(name, f"{'.'.join(name)}: {gap}")

    def _ddl(self, name: TableName, schema: TableSchema | None, before: TableSchema | None) -> ControlEntry:
        statement = self._statement
        return ddl_entry(Ddl(statement.kind, statement.sql, *self._times, schema, before), *name)

    def _stopped(self, name: TableName, detail: str) -> ControlEntry:
        return stopped(self._tables, name, TableStopped(detail), self._times)


def _shape(schema: TableSchema) -> list[tuple[object, ...]]:
    """What two descriptions of one table have in common, however much each of them knows; its handle key in full."""
    columns = [
        (column.name, column.data_type.mysql_type, column.data_type.unsigned, column.nullable)
        for column in schema.columns
    ]
    return [*columns, *key_types(schema)]
