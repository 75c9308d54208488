"""A table's schema as a feed carries it, so that nobody has to guess types (docs/formats/attached-change.md)."""

from __future__ import annotations

from typing import Final

import msgspec

TYPES: Final = (
    "int64", "float64", "decimal(p,s)", "decimal", "boolean", "string", "binary", "date", "time", "timestamp",
    "timestamp-ntz", "json",
)  # fmt: skip
"""The words for a column's type. SQLite uses int64, float64, boolean, string, binary and json; PostgreSQL all of them."""


class Column(msgspec.Struct, frozen=True, rename="kebab"):
    """One delivered column: its name, its type (one of :data:`TYPES`), and the type that the source declared."""

    name: str
    type: str
    source_type: str
    nullable: bool


class TableSchema(msgspec.Struct, frozen=True):
    """What a schema entry's ``changes`` says. ``version`` grows by one at each change of these columns or this key."""

    database: str
    table: str
    version: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def entry_key(self) -> str:
        """Return the reserved key of the schema entry (it begins with a NUL)."""
        return f"\0schema/{self.database}/{self.table}/{self.version}"

    def entry_changes(self) -> str:
        """Return the schema entry's ``changes`` as JSON text."""
        return msgspec.json.encode(self).decode()

    def same_shape(self, other: TableSchema) -> bool:
        """Return whether rows of both are read alike, so that no new version is needed."""
        return self.columns == other.columns and self.key == other.key


def control_key(control: str, database: str, table: str, number: int) -> str:
    """Return the reserved key of a control entry about a table: NUL, then such as ``copy-begin/main/accounts/3``."""
    return f"\0{control}/{database}/{table}/{number}"
