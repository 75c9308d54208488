"""What is asked of the source's catalogue while its binlog goes by: tables, foreign keys, the order of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.capture.catalogue_schema import catalogue_forms
from headrace.capture.catalogue_table import CatalogueTable, TableKind
from headrace.capture.ddl import TableName
from headrace.capture.mariadb.catalogue import list_tables, read_table
from headrace.capture.mariadb.connection import Source, source_errors
from headrace.capture.mariadb.foreign_keys import read_foreign_keys
from headrace.capture.mariadb.key_order import AskedOrder, KeyOrder
from headrace.capture.position import RawKey
from headrace.capture.settings import Cascades
from headrace.capture.tables import Tables
from headrace.errors import SourceUnavailable, TableNotFound
from headrace.runtime.logs import get_logger
from headrace.simple.schema import TableSchema

logger = get_logger("capture")

READS_MAX: Final = 10
"""How often a table is read until two reads agree: its parts come one after the other, and it may be changed meanwhile."""

_TABLES: Final = frozenset({TableKind.TABLE, TableKind.VERSIONED})


class SourceCatalogue:
    """The catalogue over one connection, for one thread. Raises SourceUnavailable where the server does not answer."""

    def __init__(self, connection: Source, cascades: Cascades) -> None:
        self._connection = connection
        self._cascades = cascades
        self._orders: dict[TableName, tuple[TableSchema, AskedOrder]] = {}

    def table(self, name: TableName) -> CatalogueTable | None:
        """Return a table as it is now; None if there is none of that name, or a view or sequence stands there."""
        found, again = None, self._read(name)
        for _ in range(READS_MAX):
            found, again = again, self._read(name)
            if found == again:
                break
        return found if found is not None and found.kind in _TABLES else None

    def captured(self, tables: Tables) -> list[TableName]:
        """Return the tables that there are now and that the settings want, ordered by database and name."""
        listed = list_tables(self._connection)
        return [one.name for one in listed if one.kind in _TABLES and tables.captures(one.name)]

    def gap(self, name: TableName) -> str | None:
        """Return which foreign key changes rows of a table without a line in the binlog; None if none, or if accepted.

        SourceForbidden if the account may not read the whole table.
        """
        try:
            keys = read_foreign_keys(self._connection, *name)
        except TableNotFound:
            return None
        for key in keys:
            if key.unlogged:
                gap = _gap(f"the foreign key {key.name} to {'.'.join(key.parent)}", key.unlogged)
                if self._cascades is Cascades.REFUSE:
                    return gap
                logger.warning("a gap is accepted", database=name.database, table=name.table, detail=gap)
        return None

    def gap_of(self, actions: tuple[str, ...]) -> str | None:
        """Return what a foreign key with these actions does, which a statement tells of and which may be gone again."""
        return _gap("a foreign key", actions) if self._cascades is Cascades.REFUSE else None

    def covers(self, schema: TableSchema, last: RawKey, keys: Sequence[RawKey]) -> list[bool]:
        """Tell of each of ``keys`` of a table whether it is at or before ``last``, in the order of the handle key's index.

        TableStopped if that can't be told.
        """
        name = TableName(schema.schema, schema.table)
        known = self._orders.get(name)
        if known is None or known[0] != schema:
            table = self.table(name)
            forms = catalogue_forms(table) if table is not None else {}
            known = self._orders[name] = schema, AskedOrder(lambda: self._connection, KeyOrder(schema, forms))
        return known[1].covers(last, keys)

    def _read(self, name: TableName) -> CatalogueTable | None:
        try:
            return read_table(self._connection, name)
        except (
            SourceUnavailable
        ):  # where the server still answers, the table was dropped between two questions
            with source_errors():
                self._connection.ping(reconnect=False)
            return None


def _gap(subject: str, actions: tuple[str, ...]) -> str:
    return f"{subject} has {' and '.join(actions)}: InnoDB changes rows of this table without a line in the binlog"
