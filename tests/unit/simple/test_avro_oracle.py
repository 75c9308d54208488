"""The Avro form against fastavro over the same schema: it reads whatever we write, and we whatever it writes."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.simple.avro_codec import decode, encode
from headrace.simple.avro_schema import DECIMAL_TYPES, NAMESPACE, NUMERIC_TYPES, SCHEMA
from headrace.simple.avro_varint import long_bytes
from headrace.simple.message import (
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Float32,
    Message,
    MessageType,
    Raw,
    RawRow,
    Timestamp,
    UnsignedBigint,
    Watermark,
)
from headrace.simple.schema import Column, DataType, TableSchema
from headrace.simple.values import Encoding
from tests.scale import scaled, sized
from tests.simple import dmls, messages

PARSED: Any = fastavro.parse_schema(SCHEMA)
Datum = dict[str, Any]


def signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number


def union(branch: str, datum: Datum) -> tuple[str, Datum]:
    return f"{NAMESPACE}.{branch}", datum


def value_datum(value: Raw) -> Any:
    match value:
        case Timestamp(location, text):
            return union("Timestamp", {"location": location, "value": text})
        case UnsignedBigint(number):
            return union("UnsignedBigint", {"value": signed(number)})
        case Float32():
            return "float", float(value)
        case None:
            return None
    return {int: "long", float: "double", str: "string", bytes: "bytes"}[type(value)], value


def row_datum(row: RawRow | None) -> Any:
    return None if row is None else {name: value_datum(value) for name, value in row.items()}


def type_datum(of: DataType) -> Datum:
    numeric = of.mysql_type in NUMERIC_TYPES
    return {
        "mysqlType": of.mysql_type,
        "charset": of.charset,
        "collate": of.collate,
        "length": of.length,
        "decimal": of.decimal if of.mysql_type in DECIMAL_TYPES else None,
        "elements": list(of.elements) or None,
        "unsigned": of.unsigned if numeric else None,
        "zerofill": of.zerofill if numeric else None,
    }


def default_datum(column: Column) -> str | None:
    """fastavro has no raw bytes in a string: they come and go as halves of surrogate pairs."""
    if not isinstance(column.default, int):
        return column.default
    size = max(column.data_type.length + 7, column.default.bit_length() + 7, 8) // 8
    return column.default.to_bytes(size, "big").decode("utf-8", "surrogateescape")


def schema_datum(schema: TableSchema) -> Datum:
    return {
        "database": schema.schema,
        "table": schema.table,
        "tableID": schema.table_id,
        "version": signed(schema.version),
        "columns": [
            {
                "name": column.name,
                "dataType": type_datum(column.data_type),
                "nullable": column.nullable,
                "default": default_datum(column),
            }
            for column in schema.columns
        ],
        "indexes": [
            msgspec.to_builtins(index) | {"columns": list(index.columns)} for index in schema.indexes
        ],
    }


def optional_datum(branch: str, value: TableSchema | Checksum | None) -> Any:
    if value is None:
        return None
    return union(
        branch, schema_datum(value) if isinstance(value, TableSchema) else msgspec.to_builtins(value)
    )


def payload_datum(message: Message) -> Datum:
    match message:
        case Watermark(commit_ts, build_ts):
            return {"version": 1, "commitTs": signed(commit_ts), "buildTs": build_ts}
        case Bootstrap(build_ts, schema):
            return {"version": 1, "buildTs": build_ts, "tableSchema": schema_datum(schema)}
        case Ddl():
            return {
                "version": 1,
                "type": str(message.type),
                "sql": message.sql,
                "commitTs": signed(message.commit_ts),
                "buildTs": message.build_ts,
                "tableSchema": optional_datum("TableSchema", message.table_schema),
                "preTableSchema": optional_datum("TableSchema", message.pre_table_schema),
            }
        case Dml():
            return {
                "version": 1,
                "database": message.database,
                "table": message.table,
                "tableID": message.table_id,
                "type": str(message.type),
                "commitTs": signed(message.commit_ts),
                "buildTs": message.build_ts,
                "schemaVersion": signed(message.schema_version),
                "claimCheckLocation": None,
                "handleKeyOnly": None,
                "checksum": optional_datum("Checksum", message.checksum),
                "data": row_datum(message.data),
                "old": row_datum(message.old),
            }


def datum_of(message: Message) -> Datum:
    kind = {Watermark: "Watermark", Bootstrap: "Bootstrap", Ddl: "DDL", Dml: "DML"}[type(message)]
    return {"type": kind.upper(), "payload": union(kind, payload_datum(message))}


def written(message: Message) -> bytes:
    """What fastavro makes of a message."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, union("Message", datum_of(message)))
    return out.getvalue()


def read(data: bytes) -> Any:
    """What fastavro reads: a datum of a message."""
    found: Any = fastavro.schemaless_reader(
        io.BytesIO(data), PARSED, None, return_record_name=True, handle_unicode_errors="surrogateescape"
    )
    assert found[0] == f"{NAMESPACE}.Message"
    return found[1]


def without_branches(datum: Any) -> Any:
    """A datum as the reader has it: primitives without the branch of the union that they were in."""
    match datum:
        case ("long" | "float" | "double" | "string" | "bytes", value):
            return value
        case (str() as name, dict() as record):
            return name, without_branches(record)
        case dict():
            return {name: without_branches(value) for name, value in datum.items()}
        case list():
            return [without_branches(value) for value in datum]
    return datum


def has_raw_bits(message: Message) -> bool:
    """Whether some default of a BIT is no UTF-8: fastavro does not write that, though it reads it."""
    return "\\udc" in repr(datum_of(message))


@settings(max_examples=sized(scaled(90), soak=scaled(300)))
@given(messages(Encoding.AVRO))
def test_fastavro_reads_what_we_write(message: Message) -> None:
    data = encode(message)
    assert read(data) == without_branches(datum_of(message))
    assert decode(data) == message


@settings(max_examples=sized(scaled(90), soak=scaled(300)))
@given(messages(Encoding.AVRO).filter(lambda message: not has_raw_bits(message)))
def test_fastavro_writes_the_very_bytes_that_we_write(message: Message) -> None:
    data = written(message)
    assert encode(message) == data
    assert decode(data) == message


@st.composite
def blocks(draw: st.DrawFn, items: list[bytes]) -> bytes:
    """The items of an array or a map in some order, in several blocks, of which some give their size."""
    rest = draw(st.permutations(items))
    out = b""
    while rest:
        count = draw(st.integers(1, len(rest)))
        block = b"".join(rest[:count])
        out += long_bytes(-count) + long_bytes(len(block)) if draw(st.booleans()) else long_bytes(count)
        out += block
        rest = rest[count:]
    return out + b"\x00"


def entry(name: str, value: Raw) -> bytes:
    """An entry of a row's map, as fastavro writes it: what a message has in place of the two bytes of an empty one."""
    least, message = (
        written(Dml(MessageType.INSERT, "", "", 0, 0, 0, 0, row)) for row in ({"": None}, {name: value})
    )
    return message[len(least) - 4 : -2]


@settings(max_examples=sized(scaled(60), soak=scaled(200)))
@given(st.data(), dmls(Encoding.AVRO))
def test_maps_in_any_order_and_any_blocks(data: st.DataObject, generated: tuple[TableSchema, Dml]) -> None:
    message = generated[1]
    whole = encode(message)
    for row in (message.data, message.old):
        if row:
            entries = [entry(name, value) for name, value in row.items()]
            usual = long_bytes(len(entries)) + b"".join(entries) + b"\x00"
            assert usual in whole
            whole = whole.replace(usual, data.draw(blocks(entries)), 1)
    whole += data.draw(st.binary(max_size=3))
    assert read(whole) == without_branches(datum_of(message))
    assert decode(whole) == message
