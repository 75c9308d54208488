"""What rows of a table look like in wal2json: their columns' names and types, made of a schema entry's value. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from headrace.errors import SimpleInvalid
from headrace.runtime.typed_json import decode_json
from headrace.server.pg.output.column_values import (
    NULL,
    Convert,
    attached_converter,
    simple_converter,
    untyped,
)
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap
from headrace.simple.schema import DataType, TableSchema

_encode = msgspec.json.Encoder().encode
_SIZED: Final = frozenset({"char", "varchar", "binary", "varbinary"})
_WITH_FRACTION: Final = frozenset({"datetime", "timestamp", "time"})


class ShapeOptions(NamedTuple):
    """What is said of each column: wal2json's options of these names."""

    include_types: bool = True
    include_not_null: bool = False


class ShapeColumn(NamedTuple):
    """A column. ``opening``: its JSON object up to its value; ``closing``: what stands behind that in ``columns``."""

    name: str
    opening: bytes
    closing: bytes
    convert: Convert


class Shape(NamedTuple):
    """A table's columns in their order, and those that tell its rows apart. ``captured``: rows are Simple messages."""

    columns: tuple[ShapeColumn, ...]
    key: tuple[str, ...]
    pk: bytes
    captured: bool

    def columns_json(self, row: Mapping[str, Any]) -> bytes:
        """Return the list ``columns`` of a row, whose missing members are NULL."""
        return b"[%b]" % b",".join(
            [
                one.opening + (one.convert(bytes(row[one.name])) if one.name in row else NULL) + one.closing
                for one in self.columns
            ]
        )

    def given_json(self, row: Mapping[str, Any]) -> bytes:
        """Return the same for those columns alone that the row has: of a patch."""
        return self._some(row, closing=True)

    def identity_json(self, row: Mapping[str, Any]) -> bytes:
        """Return the list ``identity``: the key's columns of a row, or all of them where the table has no key."""
        if not self.key:
            return self._some(row, closing=False)
        return self._some({name: row[name] for name in self.key if name in row}, closing=False)

    def _some(self, row: Mapping[str, Any], *, closing: bool) -> bytes:
        return b"[%b]" % b",".join(
            [
                one.opening + one.convert(bytes(row[one.name])) + (one.closing if closing else b"}")
                for one in self.columns
                if one.name in row
            ]
        )


class _Column(msgspec.Struct, rename="kebab"):
    name: str
    type: str
    nullable: bool = True
    source_type: str = ""


class _Attached(msgspec.Struct):
    """A schema entry of an attached table (docs/formats/attached-change.md)."""

    columns: list[_Column]
    key: list[str] = []


def shape_of(value: bytes, options: ShapeOptions) -> Shape | None:
    """Return the shape that a schema entry's value describes; None if it is no schema that is known here."""
    try:
        attached = decode_json(value, _Attached)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _captured_shape(value, options)
    columns = [
        _column(
            one.name,
            one.source_type or one.type,
            nullable=one.nullable,
            convert=attached_converter(one.type, one.source_type),
            options=options,
        )
        for one in attached.columns
    ]
    return _shape(columns, tuple(attached.key), captured=False)


def shape_of_table(schema: TableSchema, options: ShapeOptions) -> Shape:
    """Return the shape of a captured table."""
    columns = [
        _column(
            one.name,
            mysql_type_name(one.data_type),
            nullable=one.nullable,
            convert=simple_converter(one.data_type),
            options=options,
        )
        for one in schema.columns
    ]
    return _shape(columns, schema.handle_key, captured=True)


def untyped_shape(names: Iterable[str], options: ShapeOptions) -> Shape:
    """Return the shape of a row of which no schema is known: its own members."""
    columns = [_column(name, "", nullable=True, convert=untyped, options=options) for name in names]
    return _shape(columns, (), captured=False)


def mysql_type_name(data_type: DataType) -> str:
    """Return a type as it is declared, as far as its values need it: ``varchar(20)``, ``decimal(12,6)``."""
    name = data_type.mysql_type
    if name in _SIZED and data_type.length > 0:
        return f"{name}({data_type.length})"
    if name == "decimal":
        return f"{name}({data_type.length},{data_type.decimal})" + (" unsigned" if data_type.unsigned else "")
    if name in _WITH_FRACTION and data_type.decimal:
        return f"{name}({data_type.decimal})"
    if name == "bit":
        return f"bit({data_type.length})"
    return f"{name} unsigned" if data_type.unsigned and name != "year" else name


def _captured_shape(value: bytes, options: ShapeOptions) -> Shape | None:
    try:
        message = json_codec.decode(value)
    except SimpleInvalid:
        return None
    return shape_of_table(message.table_schema, options) if isinstance(message, Bootstrap) else None


def _shape(columns: list[ShapeColumn], key: tuple[str, ...], *, captured: bool) -> Shape:
    pk = b",".join([one.opening.removesuffix(b',"value":') + b"}" for one in columns if one.name in key])
    return Shape(tuple(columns), key, b"[%b]" % pk, captured)


def _column(
    name: str, type_name: str, *, nullable: bool, convert: Convert, options: ShapeOptions
) -> ShapeColumn:
    opening = b'{"name":' + _encode(name)
    if options.include_types:
        opening += b',"type":' + _encode(type_name)
    closing = b"}"
    if options.include_not_null:
        closing = b',"optional":%b}' % (b"true" if nullable else b"false")
    return ShapeColumn(name, opening + b',"value":', closing, convert)
