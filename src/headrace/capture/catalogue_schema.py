"""The catalogue's description of a table -> a schema as messages carry it. Pure.

MariaDB's own types, as readers meet them: JSON is ``longtext``, which it is (that its text is JSON is a CHECK, which a
session may switch off); INET4, INET6 and UUID are text of their own lengths; COMPRESSED is left out; BOOL is ``tinyint`` of
length 1.
Generated columns, virtual ones included, are columns like others: MariaDB's binlog has their values. So are invisible ones.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.capture.binlog.network import Form
from headrace.capture.catalogue_table import CatalogueColumn, CatalogueTable
from headrace.simple.mysql_types import default_length
from headrace.simple.schema import Column, DataType, Index, TableSchema

_TYPE: Final = re.compile(
    r"(?P<base>\w+)\s*(?:\((?P<arguments>(?:'(?:[^']|'')*'|[^')])*)\))?(?P<flags>.*)", re.DOTALL
)
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_LITERAL: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'", re.DOTALL)
_ESCAPE: Final = re.compile(r"''|\\(.)", re.DOTALL)
_ESCAPED: Final = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "b": "\b", "Z": "\x1a"}
_NOW: Final = re.compile(r"(current_timestamp|now|localtime|localtimestamp)\b(\(\d?\))?", re.IGNORECASE)
_INTEGER: Final = re.compile(r"-?\d+")
_INTEGERS: Final = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint"})
_FRACTIONS: Final = frozenset({"datetime", "timestamp", "time"})
_ELEMENTS: Final = frozenset({"enum", "set"})
_GEOMETRIES: Final = frozenset(
    {"point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection"}
)
TEXT_FORMS: Final = {
    Form.INET4: DataType("varchar", "ascii", "ascii_general_ci", 15),
    Form.INET6: DataType("varchar", "ascii", "ascii_general_ci", 39),
    Form.UUID: DataType("char", "ascii", "ascii_general_ci", 36),
}
"""MariaDB's types whose values messages have as text, while the binlog has 4 or 16 bytes: what a reader is told."""


def from_catalogue(table: CatalogueTable, table_id: int, version: int) -> TableSchema:
    """Return the schema of ``table``; its indexes in the server's order, prefixes left out. Never fails.

    ``primary`` is the index that the binlog calls so, whatever its name: then nothing but a statement about keys gives a
    table another handle key.
    """
    primary = table.taken_for_primary
    nullable = {column.name: column.nullable for column in table.columns}
    return TableSchema(
        table.name.database,
        table.name.table,
        table_id,
        version,
        tuple(_column(column) for column in table.columns),
        tuple(
            Index(
                index.name,
                index.unique,
                index is primary,
                any(nullable.get(name, True) for name in index.columns),
                index.columns,
            )
            for index in table.indexes
        ),
    )


def catalogue_forms(table: CatalogueTable) -> dict[str, Form]:
    """Return the columns whose values messages have as text of another form than the binlog: name -> MariaDB's type."""
    return {column.name: form for column in table.columns if (form := _form(column)) is not None}


def _column(column: CatalogueColumn) -> Column:
    data_type = _data_type(column)
    return Column(column.name, data_type, column.nullable, _default(column, data_type))


def _form(column: CatalogueColumn) -> Form | None:
    return Form(column.base_type) if column.base_type in frozenset(Form) else None


def _data_type(column: CatalogueColumn) -> DataType:
    form = _form(column)
    if form is not None:
        return TEXT_FORMS[form]
    base = "geometry" if column.base_type in _GEOMETRIES else column.base_type
    parts = _TYPE.fullmatch(column.type)
    arguments = (parts["arguments"] if parts is not None else None) or ""
    flags = parts["flags"] if parts is not None else ""
    year = base == "year"
    zerofill = "zerofill" in flags or year
    unsigned = "unsigned" in flags or zerofill or base == "bit"
    elements: tuple[str, ...] = ()
    length = scale = 0
    if base in _ELEMENTS:
        elements = tuple(label.replace("''", "'") for label in _LABEL.findall(arguments))
    else:
        length, scale = (*(int(part) for part in arguments.split(",") if part.strip().isdigit()), 0, 0)[:2]
    fraction = length if base in _FRACTIONS else 0
    if fraction or not length:
        length = default_length(base, unsigned=unsigned, fraction=fraction, elements=elements)
    return DataType(
        base,
        column.charset or "binary",
        column.collation or "binary",
        length,
        fraction or (scale if base == "decimal" else 0),
        elements,
        unsigned,
        zerofill,
    )


def _default(column: CatalogueColumn, data_type: DataType) -> str | int | None:
    sql = column.default
    if sql is None or sql.upper() == "NULL" or column.generation is not None:
        return None
    if literal := _LITERAL.fullmatch(sql):
        text = _ESCAPE.sub(lambda found: _unescaped(found[1]), literal[1])
        return _bits(text) if data_type.mysql_type == "bit" else text
    if data_type.mysql_type == "bit":
        return int(sql[2:-1], 2) if re.fullmatch("b'[01]+'", sql) else sql
    if _NOW.fullmatch(sql):
        return "CURRENT_TIMESTAMP"
    if data_type.mysql_type in _INTEGERS and _INTEGER.fullmatch(sql):
        return str(int(sql))
    if found := re.fullmatch("X'([0-9A-Fa-f]*)'", sql):
        return bytes.fromhex(found[1]).decode(errors="replace")
    return sql


def _unescaped(letter: str | None) -> str:
    return "'" if letter is None else _ESCAPED.get(letter, letter)


def _bits(text: str) -> int:
    return int.from_bytes(text.encode("latin-1", errors="replace"), "big")
