"""Table schemas by (schema, table, version), in bounded memory.

The version is an equality key: which of two is newer, nobody can tell from it. Names count exactly as they are written.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container, Iterator
from typing import Final

from headrace.simple.faults import Shown, invalid
from headrace.simple.message import Bootstrap, Ddl, name_of
from headrace.simple.schema import TableSchema

SchemaKey = tuple[str, str, int]
"""(schema, table, version): what rows name their schema by."""

SCHEMAS_MAX: Final = 4_096
"""A schema takes about half a kilobyte a column."""


class SchemaCache:
    """At most ``schemas_max`` schemas. The one that was not used for longest goes first, but never one that is needed."""

    def __init__(self, schemas_max: int = SCHEMAS_MAX) -> None:
        self.schemas_max = schemas_max
        self._schemas: OrderedDict[SchemaKey, TableSchema] = OrderedDict()

    def __len__(self) -> int:
        return len(self._schemas)

    def __contains__(self, key: SchemaKey) -> bool:
        return key in self._schemas

    def __iter__(self) -> Iterator[TableSchema]:
        """All schemas, the one that was not used for longest first."""
        return iter(self._schemas.values())

    def get(self, key: SchemaKey) -> TableSchema | None:
        """Return the schema, and count it as used; None if it is not there."""
        found = self._schemas.get(key)
        if found is not None:
            self._schemas.move_to_end(key)
        return found

    def add(self, schema: TableSchema, needed: Container[SchemaKey] = (), *, message: str = "") -> bool:
        """Keep ``schema``; True if it was not known. Keys in ``needed`` are not evicted, even above the bound.

        The first one of a version stays, as with TiCDC's consumers; a TRUNCATE gives the same version another ``table_id``,
        which is taken over. SimpleInvalid, naming ``message``, if the same version has other columns: one of the two would
        read rows wrongly.
        """
        key = schema.key
        known = self.get(key)
        if known is None:
            self._schemas[key] = schema
            self._evict(needed)
            return True
        if _types(known) != _types(schema):
            columns = ", ".join(column.name for column in known.columns)
            raise invalid(
                message or "{}.{} version {}".format(*key),
                "tableSchema.columns",
                f"those that version {schema.version} of {schema.schema}.{schema.table} was given before ({columns})",
                Shown("others"),
            )
        if known.table_id != schema.table_id:
            self._schemas[key] = schema
        return False

    def learn(self, message: Ddl | Bootstrap, needed: Container[SchemaKey] = ()) -> bool:
        """Keep every schema in ``message``; True if one was not known. Errors as :meth:`add`."""
        before = message.pre_table_schema if isinstance(message, Ddl) else None
        found = [
            self.add(schema, needed, message=name_of(message))
            for schema in (before, message.table_schema)
            if schema is not None and schema.columns
        ]
        return any(found)

    def _evict(self, needed: Container[SchemaKey]) -> None:
        surplus = len(self._schemas) - self.schemas_max
        if surplus > 0:
            newest = next(reversed(self._schemas))
            for key in [key for key in self._schemas if key not in needed and key != newest][:surplus]:
                del self._schemas[key]


def _types(schema: TableSchema) -> dict[str, tuple[str, bool, tuple[str, ...]]]:
    """What rows are read by. Writers of the two generations give the same version other orders and lengths."""
    kinds = ((column.name, column.data_type) for column in schema.columns)
    return {name: (kind.mysql_type, kind.unsigned, kind.elements) for name, kind in kinds}
