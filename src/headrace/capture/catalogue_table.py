"""A table as the server's catalogue (information_schema) describes it, as values. Made by capture/mariadb/catalogue.py."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headrace.capture.ddl import TableName


class TableKind(StrEnum):
    """What stands behind a table's name: information_schema's TABLE_TYPE."""

    TABLE = "BASE TABLE"
    VERSIONED = "SYSTEM VERSIONED"
    """Keeps its history in itself: a row that is changed stays, as another row (WITH SYSTEM VERSIONING)."""
    VIEW = "VIEW"
    SEQUENCE = "SEQUENCE"
    OTHER = "OTHER"


class Generation(StrEnum):
    """How a generated column gets its values."""

    VIRTUAL = "VIRTUAL"
    STORED = "STORED"
    ROW_START = "ROW START"
    """When a row of a versioned table began to hold."""
    ROW_END = "ROW END"


class CatalogueColumn(msgspec.Struct, frozen=True):
    """One column. ``type`` is its type in full, as SHOW CREATE TABLE has it: ``int(10) unsigned``, ``enum('a','b')``.

    ``base_type`` is the type's name alone. ``charset`` and ``collation`` are "" where the type has none, bytes included.
    ``default`` is SQL: a literal, an expression, NULL; None where there is none.
    """

    name: str
    type: str
    base_type: str
    charset: str
    collation: str
    nullable: bool
    default: str | None
    generation: Generation | None = None
    invisible: bool = False


class CatalogueIndex(msgspec.Struct, frozen=True):
    """One index. ``prefixes``: of each column the characters or bytes that the index takes, None for all of it.

    ``hashed``: it is one of hashes, on a hidden column, because the columns are too long for another.
    """

    name: str
    unique: bool
    columns: tuple[str, ...]
    prefixes: tuple[int | None, ...]
    hashed: bool = False

    @property
    def primary(self) -> bool:
        """Whether it is the primary key: MariaDB lets no other index have that name."""
        return self.name == "PRIMARY"


class CatalogueTable(msgspec.Struct, frozen=True):
    """One table. ``indexes`` stand in the server's order: the primary key, the unique ones, the others."""

    name: TableName
    kind: TableKind
    engine: str
    columns: tuple[CatalogueColumn, ...]
    indexes: tuple[CatalogueIndex, ...]

    @property
    def taken_for_primary(self) -> CatalogueIndex | None:
        """The index that the binlog calls the primary key, None if none.

        Without one that is the first UNIQUE index of columns that are NOT NULL, whole and not hashed.
        """
        required = {column.name for column in self.columns if not column.nullable}
        for index in self.indexes:
            whole = not index.hashed and not any(index.prefixes) and required.issuperset(index.columns)
            if index.primary or (index.unique and whole):
                return index
        return None
