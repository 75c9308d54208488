"""A table's schema as DDL and BOOTSTRAP messages carry it. The members' names on the wire stand here, for the JSON codec."""

from __future__ import annotations

import msgspec


class DataType(msgspec.Struct, frozen=True, omit_defaults=True, rename={"mysql_type": "mysqlType"}):
    """A column's type.

    ``mysql_type`` is the base name alone (``int``, ``varchar``, ``blob``), without a length, ``unsigned`` or ``zerofill``.
    ``length`` is the display width, characters, digits or bytes that MySQL gives the type (0: none, -1: unspecified), and
    ``decimal`` the scale of a DECIMAL or the digits of a second's fraction. ``elements`` are the labels of ENUM and SET.
    ``unsigned`` is true for BIT and YEAR as well, ``zerofill`` for YEAR.
    """

    mysql_type: str
    charset: str
    collate: str
    length: int = 0
    decimal: int = 0
    elements: tuple[str, ...] = ()
    unsigned: bool = False
    zerofill: bool = False


class Column(msgspec.Struct, frozen=True, rename={"data_type": "dataType"}):
    """One column. ``default`` is MySQL's text of it, an int (unsigned) for BIT, None where there is none.

    Defaults of TIMESTAMP columns are in UTC and carry no zone, unlike values.
    """

    name: str
    data_type: DataType
    nullable: bool
    default: str | int | None


class Index(msgspec.Struct, frozen=True):
    """One index. ``nullable``: some column of it may be NULL (unreliable after a column was moved; columns know better)."""

    name: str
    unique: bool
    primary: bool
    nullable: bool
    columns: tuple[str, ...]


class TableSchema(msgspec.Struct, frozen=True, rename={"table_id": "tableID"}):
    """What a table looked like at one version. ``version`` (u64) is an equality key: it says nothing about order.

    ``schema`` is the database's name. ``columns`` stand in the order of creation or of the table, as the writer has it.
    """

    schema: str
    table: str
    table_id: int
    version: int
    columns: tuple[Column, ...]
    indexes: tuple[Index, ...]

    @property
    def key(self) -> tuple[str, str, int]:
        """What rows find their schema by: (schema, table, version)."""
        return self.schema, self.table, self.version

    @property
    def handle_key(self) -> tuple[str, ...]:
        """The columns that identify a row, () if nothing does.

        The primary key; without one, of the UNIQUE indexes whose columns are all NOT NULL the one with the fewest columns,
        the earliest of equals. Writers add an index ``primary`` to a table that has none, with the columns of the *first*
        such index: that one is not taken for a primary key.
        """
        required = {column.name for column in self.columns if not column.nullable}
        usable = [
            index.columns
            for index in self.indexes
            if index.unique and not index.primary and required.issuperset(index.columns)
        ]
        for index in self.indexes:
            stands_in = index is self.indexes[-1] and index.name == "primary" and index.columns in usable[:1]
            if index.primary and not stands_in:
                return index.columns
        return min(usable, key=len, default=())
