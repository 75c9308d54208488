"""A table's shape in the binlog -> a schema as messages carry it, with the catalogue's details where the two agree. Pure.

The binlog's own description is what rows are decoded by, so it decides; it has no defaults, display widths, secondary
indexes and MariaDB's own types (INET4, INET6, UUID come as bytes). Those come from the catalogue, or from the version in
force, if that describes the same columns, else of the single columns and indexes that it describes the same. So a late DDL
statement never labels a row with columns that it does not have.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from headrace.capture.binlog.event import BinlogColumn, TableMap
from headrace.capture.binlog.network import SIZES, Form
from headrace.capture.binlog.table_map import ColumnType
from headrace.capture.catalogue_schema import TEXT_FORMS, from_catalogue
from headrace.capture.catalogue_table import CatalogueTable
from headrace.simple.mysql_types import default_length
from headrace.simple.schema import Column, DataType, Index, TableSchema

_T = ColumnType
_INTEGERS: Final = {
    _T.TINY: "tinyint",
    _T.SHORT: "smallint",
    _T.INT24: "mediumint",
    _T.LONG: "int",
    _T.LONGLONG: "bigint",
}
_PLAIN: Final = {
    _T.FLOAT: "float",
    _T.DOUBLE: "double",
    _T.DATE: "date",
    _T.NEWDATE: "date",
    _T.TIMESTAMP: "timestamp",
    _T.DATETIME: "datetime",
    _T.TIME: "time",
    _T.JSON: "json",
    _T.GEOMETRY: "geometry",
}
_FRACTIONS: Final = {_T.TIMESTAMP2: "timestamp", _T.DATETIME2: "datetime", _T.TIME2: "time"}
_BLOB_SIZES: Final = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_CHARACTER_BYTES_MAX: Final = {
    **dict.fromkeys(("big5", "cp932", "euckr", "gb2312", "gbk", "sjis", "ucs2"), 2),
    **dict.fromkeys(("eucjpms", "ujis", "utf8", "utf8mb3"), 3),
    **dict.fromkeys(("gb18030", "utf16", "utf16le", "utf32", "utf8mb4"), 4),
}
"""Bytes of the longest character, of the character sets where that is not 1."""

_HIDDEN: Final = re.compile(r"DB_ROW_HASH_[0-9]+")
_WIDTHS_UNKNOWN: Final = frozenset({*_INTEGERS.values(), "float", "double"})
"""The binlog does not say how wide these are shown."""

Collations = Mapping[int, str]
"""The id of each collation of the server -> its name."""


def from_table_map(table_map: TableMap, collations: Collations, table_id: int, version: int) -> TableSchema:
    """Return the schema that the binlog alone tells: no defaults, display widths as by default, the primary key alone.

    Of a table that has none, that is the first UNIQUE index on columns that are NOT NULL: MariaDB takes it for one.
    MariaDB's hidden column DB_ROW_HASH_1 (of a UNIQUE index on long columns) is left out. Never fails: a type without a name
    in messages is ``unspecified``.
    """
    names = [column.name for column in table_map.columns]
    key = tuple(names[place] for place in table_map.primary_key)
    return TableSchema(
        table_map.database,
        table_map.table,
        table_id,
        version,
        tuple(
            Column(column.name, _data_type(column, collations), column.nullable, None)
            for column in _shown(table_map, ())
        ),
        (Index("PRIMARY", unique=True, primary=True, nullable=False, columns=key),) if key else (),
    )


def disagreement(schema: TableSchema, table_map: TableMap, collations: Collations) -> str | None:
    """Return the first way in which rows of ``table_map`` do not fit the columns of ``schema``, in words; None if they fit.

    Names, order, types, lengths, signs, character sets, labels, NOT NULL and the primary key count; what the binlog does not
    tell does not, and neither do the table's own name, ``table_id`` and ``version``. The columns of a schema that fits are
    the first ones of the rows, in their order; what the server hides stands behind them.
    """
    shown = _shown(table_map, {column.name for column in schema.columns})
    for place, (ours, theirs) in enumerate(zip(schema.columns, shown, strict=False), start=1):
        if ours.name != theirs.name:
            return f"column {place} is {ours.name!r}, in the binlog {theirs.name!r}"
        difference = _difference(ours, theirs, collations)
        if difference is not None:
            return f"column {ours.name!r}: {difference} in the binlog"
    if len(schema.columns) != len(shown):
        return f"there are {len(schema.columns)} columns, in the binlog {len(shown)}"
    key = tuple(table_map.columns[place].name for place in table_map.primary_key)
    known = next((index.columns for index in schema.indexes if index.primary), ())
    if key != known:
        return f"the primary key is ({', '.join(known)}), in the binlog ({', '.join(key)})"
    return None


def enrich(
    table_map: TableMap,
    collations: Collations,
    catalogue: CatalogueTable | None,
    previous: TableSchema | None,
    *,
    table_id: int,
    version: int,
) -> TableSchema:
    """Return the schema of rows of ``table_map``: the catalogue's if it fits, else the previous one if that does.

    If neither does, what they say of those columns that fit, the previous one first: a column that several statements in a
    row left alone stays what it was, an INET6 text and not bytes. Whichever it is, it has the table map's database and
    table, ``table_id`` and ``version``.
    """
    read = from_catalogue(catalogue, table_id, version) if catalogue is not None else None
    for known in (read, previous):
        if known is not None and disagreement(known, table_map, collations) is None:
            return replace(
                known, schema=table_map.database, table=table_map.table, table_id=table_id, version=version
            )
    bare = from_table_map(table_map, collations, table_id, version)
    return _pieced(bare, table_map, collations, [known for known in (previous, read) if known is not None])


def binlog_forms(schema: TableSchema, table_map: TableMap) -> dict[str, Form]:
    """Return the columns whose bytes ``schema``, which fits, has as text: name -> MariaDB's type."""
    known = {column.name: column.data_type for column in schema.columns}
    return {
        column.name: form
        for column in table_map.columns
        for form in _forms(column)
        if known.get(column.name) == TEXT_FORMS[form]
    }


def _pieced(
    bare: TableSchema, table_map: TableMap, collations: Collations, known: Sequence[TableSchema]
) -> TableSchema:
    """Return ``bare`` with what the first of ``known`` that describes a column as the binlog does says of it.

    Indexes are those of the first one whose primary key is the binlog's, as far as their columns are there.
    """
    columns = list(bare.columns)
    for place, theirs in enumerate(_shown(table_map, ())):
        named = (ours for schema in known for ours in schema.columns if ours.name == theirs.name)
        fitting = (ours for ours in named if _difference(ours, theirs, collations) is None)
        columns[place] = next(fitting, columns[place])
    names = {column.name for column in columns}
    for schema in known:
        indexes = tuple(index for index in schema.indexes if names.issuperset(index.columns))
        pieced = replace(bare, columns=tuple(columns), indexes=indexes)
        if disagreement(pieced, table_map, collations) is None:
            return pieced
    return replace(bare, columns=tuple(columns))


def _forms(column: BinlogColumn) -> Iterator[Form]:
    """The types of MariaDB whose values stand in the binlog as this column's do."""
    if column.type == _T.STRING and column.charset == "binary":
        yield from (form for form, size in SIZES.items() if size == column.meta)


def _is_hidden(column: BinlogColumn) -> bool:
    return column.type == _T.LONGLONG and column.unsigned and _HIDDEN.fullmatch(column.name) is not None


def _shown(table_map: TableMap, listed: Collection[str]) -> list[BinlogColumn]:
    """Return the columns without those that the server hides: they stand last, and none of ``listed`` is one."""
    columns = list(table_map.columns)
    while columns and _is_hidden(columns[-1]) and columns[-1].name not in listed:
        columns.pop()
    return columns


def _difference(ours: Column, theirs: BinlogColumn, collations: Collations) -> str | None:
    mine, other = ours.data_type, _data_type(theirs, collations)
    if any(mine == TEXT_FORMS[form] for form in _forms(theirs)):
        other = mine
    if mine.mysql_type in _WIDTHS_UNKNOWN:
        other = replace(other, length=mine.length, zerofill=mine.zerofill)
    if mine.mysql_type == "decimal":
        other = replace(other, zerofill=mine.zerofill)
    if theirs.type in (_T.TIMESTAMP, _T.DATETIME, _T.TIME):
        other = replace(other, length=mine.length, decimal=mine.decimal)  # the old forms don't say
    for field in DataType.__struct_fields__:
        if getattr(mine, field) != getattr(other, field):
            return f"its {field} is {getattr(mine, field)!r}, {getattr(other, field)!r}"
    if ours.nullable != theirs.nullable:
        return f"it is {'' if ours.nullable else 'not '}nullable, {'' if theirs.nullable else 'not '}nullable"
    return None


def _data_type(column: BinlogColumn, collations: Collations) -> DataType:
    """The type of a column as far as the binlog tells it."""
    if column.type in _INTEGERS:
        name = _INTEGERS[_T(column.type)]
        return _number(name, default_length(name, unsigned=column.unsigned), unsigned=column.unsigned)
    if column.type in _FRACTIONS:
        name = _FRACTIONS[_T(column.type)]
        return DataType(name, "binary", "binary", default_length(name, fraction=column.meta), column.meta)
    if column.type in _PLAIN:
        name = _PLAIN[_T(column.type)]
        return _number(name, default_length(name), unsigned=column.unsigned)
    match column.type:
        case _T.NEWDECIMAL:
            decimal = _number("decimal", column.meta >> 8, unsigned=column.unsigned)
            return replace(decimal, decimal=column.meta & 0xFF)
        case _T.BIT:
            return _number("bit", column.meta, unsigned=True)
        case _T.YEAR:
            return replace(_number("year", 4, unsigned=True), zerofill=True)
        case _T.ENUM | _T.SET:
            name = "enum" if column.type == _T.ENUM else "set"
            text = _text(column, collations, name, default_length(name, elements=column.labels))
            return replace(text, elements=column.labels)
        case _T.BLOB | _T.BLOB_COMPRESSED:
            name = f"{_BLOB_SIZES.get(column.meta, '')}{'blob' if _is_binary(column) else 'text'}"
            return _text(column, collations, name, default_length(name))
        case _T.STRING:
            name = "binary" if _is_binary(column) else "char"
            return _text(column, collations, name, _characters(column, column.meta))
        case _T.VARCHAR | _T.VAR_STRING | _T.VARCHAR_COMPRESSED:
            name = "varbinary" if _is_binary(column) else "varchar"
            size = column.meta - (column.type == _T.VARCHAR_COMPRESSED)  # a byte says how it is compressed
            return _text(column, collations, name, _characters(column, size))
        case _:
            return DataType("unspecified", "", "")


def _number(name: str, length: int, *, unsigned: bool) -> DataType:
    return DataType(name, "binary", "binary", length, unsigned=unsigned)


def _text(column: BinlogColumn, collations: Collations, name: str, length: int) -> DataType:
    collation = collations.get(column.collation, "") if column.collation is not None else "binary"
    return DataType(name, column.charset or "binary", collation, length)


def _is_binary(column: BinlogColumn) -> bool:
    return column.charset == "binary" or column.collation is None


def _characters(column: BinlogColumn, size: int) -> int:
    return size // _CHARACTER_BYTES_MAX.get(column.charset, 1)
