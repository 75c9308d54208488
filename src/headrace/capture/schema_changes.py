"""What the shape of rows says of their table, and which statements matter to captured tables. Pure.

Which columns rows have, the binlog alone says. A DDL statement is told with the schema that the catalogue has once the
statement is met; where that is a later one already, the rows' own shape sets it right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from headrace.capture.binlog.event import Statement, TableMap
from headrace.capture.binlog.rows import RowDecoder
from headrace.capture.catalogue_table import CatalogueTable
from headrace.capture.control import ControlEntry, schema_entry
from headrace.capture.ddl import DdlStatement, TableName, parse
from headrace.capture.effects import SourceSchemas, Times, judge, judge_former, restarted, stopped
from headrace.capture.row_form import RowForm
from headrace.capture.statements import AppliedStatement
from headrace.capture.table_schema import binlog_forms, disagreement, enrich
from headrace.capture.tables import Tables, TableState, Unknown
from headrace.errors import BinlogUnsupported, TableStopped
from headrace.runtime.logs import get_logger
from headrace.simple.schema import TableSchema

logger = get_logger("capture")

_ANY_TABLE: Final = "any"
_SHOWN_CHARS: Final = 200
_SEQUENCE_COLUMNS: Final = (
    *("next_not_cached_value", "minimum_value", "maximum_value", "start_value"),
    *("increment", "cache_size", "cycle_option", "cycle_count"),
)


class SchemaChanges:
    """Changes ``tables`` in place. ``collations``: the id of each collation of the server -> its name.
    ``lower_case_names``: the server stores the names of tables in lower case.

    The entries of a call belong into one transaction, in their order.
    """

    def __init__(
        self,
        tables: Tables,
        source: SourceSchemas,
        collations: Mapping[int, str],
        *,
        lower_case_names: bool = False,
    ) -> None:
        self._tables = tables
        self._source = source
        self._collations = collations
        self._lower_case_names = lower_case_names

    def fit(self, name: TableName, table_map: TableMap, times: Times) -> Iterator[ControlEntry]:
        """Make a table ready for rows of this shape; yields its new schema where the one in force does not fit them.

        A sequence is no table, though the binlog has rows of it; and a table that is to be copied yet needs nothing.
        TableStopped if the table's rows can't go out; what was yielded before holds.
        """
        state = self._tables.states.get(name)
        if state is None and tuple(column.name for column in table_map.columns) == _SEQUENCE_COLUMNS:
            return
        if state is None:
            if self._tables.unknown is Unknown.STOPS:
                if self._source.table(name) is not None and self._tables.await_copy(name):
                    return
                raise TableStopped(
                    f"rows of {'.'.join(name)} came, which was neither in the snapshot nor created since",
                    hint="See that capture's account may SELECT from it, then run headrace capture copy for it.",
                )
            state = self._tables.states[name] = TableState(name, None)
        schema = previous = state.schema
        if schema is None or disagreement(schema, table_map, self._collations) is not None:
            schema = state.schema = self._enriched(name, table_map, previous, times)
            yield schema_entry(schema, times.build_ts)
            yield from restarted(self._tables, state, previous, times)
            schema = state.schema
        if previous is None:
            self._judge_first(state, schema)
        choice = self._tables.selection.of(schema, previous)
        state.form = RowForm(schema, choice.delivered, choice.masks)
        forms = binlog_forms(schema, table_map)
        state.decoder = RowDecoder(
            table_map,
            {
                place: forms[column.name]
                for place, column in enumerate(table_map.columns)
                if column.name in forms
            },
            _unneeded(schema, choice.delivered, len(table_map.columns)),
        )
        state.identity = table_map.identity

    def concerning(self, event: Statement) -> Iterator[DdlStatement]:
        """Yield what a statement does to captured tables, one after the other.

        BinlogUnsupported if it changed rows of them without logging those.
        """
        for statement in parse(
            event.sql,
            event.database,
            ansi_quotes=event.ansi_quotes,
            no_backslash_escapes=event.no_backslash_escapes,
            lower_case_names=self._lower_case_names,
        ):
            if statement.statement_format:
                if self._may_change_rows(statement, event.database):
                    raise BinlogUnsupported(
                        f"a statement that changes rows was logged without them, before {event.end}: "
                        f"{event.sql[:_SHOWN_CHARS]}"
                    )
            elif self._concerns(statement, event.database):
                yield statement

    def apply(self, statement: DdlStatement, default_database: str, times: Times) -> list[ControlEntry]:
        """Do what ``statement``, which concerns captured tables, does to them, and return what tells of it.

        A table of which a message would be too large is stopped.
        """
        suspects = self._suspects(statement, default_database) if statement.unread else []
        entries: list[ControlEntry] = []
        try:
            entries.extend(AppliedStatement(self._tables, self._source, statement, times).entries(suspects))
        except TableStopped as error:
            logger.error("a statement can't be told", detail=error.detail)
            named = (statement.new_name, statement.table)
            entries += [
                stopped(self._tables, name, error, times) for name in named if name in self._tables.states
            ]
        return entries

    def _concerns(self, statement: DdlStatement, default_database: str) -> bool:
        if statement.temporary:
            return False
        if statement.unread:
            return bool(self._suspects(statement, default_database))
        if statement.database_only is not None:
            return self._is_captured_database(statement.database_only)
        named = (statement.table, statement.new_name, *statement.others)
        return any(name is not None and self._tables.captures(name) for name in named)

    def _may_change_rows(self, statement: DdlStatement, default_database: str) -> bool:
        named = {name.database for name in self._tables.states if _names(statement.sql, name.database)}
        return any(self._is_captured_database(database) for database in {default_database, *named} - {""})

    def _judge_first(self, state: TableState, schema: TableSchema) -> None:
        """Judge a table of which the rows alone tell first; TableStopped."""
        table = self._source.table(state.name)
        if table is not None:
            judge(table, schema, self._tables, self._source)
        judge_former(state, self._tables)

    def _enriched(
        self, name: TableName, table_map: TableMap, previous: TableSchema | None, times: Times
    ) -> TableSchema:
        catalogue: CatalogueTable | None = self._source.table(name)
        table_id = previous.table_id if previous is not None else self._tables.next_id()
        return enrich(
            table_map, self._collations, catalogue, previous, table_id=table_id, version=times.commit_ts
        )

    def _suspects(self, statement: DdlStatement, default_database: str) -> list[TableName]:
        """Return the tables that an unread statement may have meant: those that it names, else its database's."""
        known = list(self._tables.states)
        return [name for name in known if _names(statement.sql, name.table)] or [
            name
            for name in known
            if name.database == default_database or _names(statement.sql, name.database)
        ]

    def _is_captured_database(self, database: str) -> bool:
        if self._tables.of_database(database):
            return True
        return self._tables.captures(TableName(database, _ANY_TABLE))


def _names(sql: str, name: str) -> bool:
    """Tell whether a text may name a table or database, as a word of its own."""
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", sql, re.IGNORECASE) is not None


def _unneeded(schema: TableSchema, delivered: tuple[int, ...], count: int) -> frozenset[int]:
    """The places of the columns that are neither delivered nor in the handle key, of ``count`` in the binlog."""
    key = set(schema.handle_key)
    places = (place for place, column in enumerate(schema.columns) if column.name in key)
    return frozenset(range(count)).difference(delivered, places)
