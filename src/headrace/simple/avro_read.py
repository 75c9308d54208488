"""A message from its Avro form, field by field: the way that knows every shape and every fault. Rows have a shorter one."""

from __future__ import annotations

import struct
from typing import Final

from headrace.errors import SimpleInvalid
from headrace.simple.avro_forms import other_form
from headrace.simple.avro_reader import Reader
from headrace.simple.avro_schema import (
    BRANCHES,
    BYTES,
    DDL_KINDS,
    DML_KINDS,
    DOUBLE,
    FLOAT,
    KINDS,
    LONG,
    NULL,
    RECORDS,
    STRING,
    TIMESTAMP,
)
from headrace.simple.bounds import check_message
from headrace.simple.faults import Shown, unsupported
from headrace.simple.message import (
    VERSION,
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Float32,
    Message,
    Raw,
    Timestamp,
    UnsignedBigint,
    Watermark,
)
from headrace.simple.schema import Column, DataType, Index, TableSchema

_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")
_MESSAGE: Final = RECORDS.index("Message")

# The smallest of each: strings and arrays may be empty (1 byte), as every other field takes 1 byte.
_ENTRY_BYTES_MIN: Final = 2
_STRING_BYTES_MIN: Final = 1
_COLUMN_BYTES_MIN: Final = 11
_INDEX_BYTES_MIN: Final = 5
_BIT_DEFAULT_BYTES_MAX: Final = 8


def read_message(data: bytes) -> Message:
    """Return the message in ``data``; bytes behind it are ignored, as every reader does.

    SimpleInvalid or SimpleUnsupported, naming message, field and expected type, for everything else.
    """
    reader = Reader(data)
    try:
        kind = _kind(reader)
    except SimpleInvalid:
        if (other := other_form(data)) is not None:
            raise other from None
        raise
    reader.name = f"{KINDS[kind]} ({reader.name})"
    version = reader.int32("version")
    if version != VERSION:
        why = f"{version} is a version of the protocol that is not known here"
        raise unsupported(reader.name, "version", str(VERSION), why)
    message = _PAYLOADS[kind](reader)
    check_message(message)
    return message


def _kind(reader: Reader) -> int:
    branch = reader.choice("the record", RECORDS)
    if branch != _MESSAGE:
        raise reader.fault("the record", "Message", Shown(RECORDS[branch]))
    kind = reader.choice("type", KINDS)
    payload = reader.choice("payload", KINDS)
    if payload != kind:
        raise reader.fault("payload", f"that of a {KINDS[kind]}", Shown(f"that of a {KINDS[payload]}"))
    return kind


def _watermark(reader: Reader) -> Watermark:
    return Watermark(reader.u64("commitTs"), reader.long("buildTs"))


def _bootstrap(reader: Reader) -> Bootstrap:
    return Bootstrap(reader.long("buildTs"), _table_schema(reader, "tableSchema"))


def _ddl(reader: Reader) -> Ddl:
    kind = DDL_KINDS[reader.choice("type", DDL_KINDS)]
    reader.name = str(kind)
    sql = reader.text("sql")
    commit_ts = reader.u64("commitTs")
    reader.name = f"{kind} at commitTs {commit_ts}"
    build_ts = reader.long("buildTs")
    after, before = (
        _table_schema(reader, field) if reader.present(field, "TableSchema") else None
        for field in ("tableSchema", "preTableSchema")
    )
    return Ddl(kind, sql, commit_ts, build_ts, after, before)


def _dml(reader: Reader) -> Dml:
    database = reader.text("database")
    reader.name = f"a row of {database}"
    table = reader.text("table")
    reader.name += f".{table}"
    table_id = reader.long("tableID")
    kind = DML_KINDS[reader.choice("type", DML_KINDS)]
    reader.name = f"{kind} of {database}.{table}"
    commit_ts = reader.u64("commitTs")
    reader.name += f" at commitTs {commit_ts}"
    build_ts = reader.long("buildTs")
    schema_version = reader.u64("schemaVersion")
    _refuse_large(reader)
    checksum = _checksum(reader) if reader.present("checksum", "Checksum") else None
    data, old = (
        read_row(reader, field) if reader.present(field, "map") else None for field in ("data", "old")
    )
    return Dml(
        kind,
        database,
        table,
        table_id,
        commit_ts,
        build_ts,
        schema_version,
        data or None,
        old or None,
        checksum,
    )


def _refuse_large(reader: Reader) -> None:
    """Rows too large for the writer's broker stand elsewhere, or were left out but for their keys."""
    place = reader.text("claimCheckLocation") if reader.present("claimCheckLocation", "string") else ""
    if place:
        why = "the row is in another storage (claim check), which is not read"
        raise unsupported(reader.name, "claimCheckLocation", "absent", why)
    if reader.present("handleKeyOnly", "boolean") and reader.boolean("handleKeyOnly"):
        why = "the row is not in the message, only its key"
        raise unsupported(reader.name, "handleKeyOnly", "absent or false", why)


def _checksum(reader: Reader) -> Checksum:
    return Checksum(
        reader.int32("checksum.version"),
        reader.boolean("checksum.corrupted"),
        reader.long("checksum.current"),
        reader.long("checksum.previous"),
    )


def read_row(reader: Reader, field: str) -> dict[str, Raw]:
    """Read the map of a row, in whatever order and blocks."""
    row: dict[str, Raw] = {}
    for place in reader.items(field, "columns", _ENTRY_BYTES_MIN):
        column = reader.text(f"the name of column {place} in {field}")
        if column in row:
            raise reader.fault(f"{field}.{column}", "there once", Shown("there twice"))
        row[column] = _value(reader, f"{field}.{column}")
    return row


def _value(reader: Reader, field: str) -> Raw:
    branch = reader.choice(field, BRANCHES)
    if branch == NULL:
        return None
    if branch == LONG:
        return reader.long(field)
    if branch == FLOAT:
        return Float32(reader.floating(field, _FLOAT, "float"))
    if branch == DOUBLE:
        return reader.floating(field, _DOUBLE, "double")
    if branch == STRING:
        return reader.text(field)
    if branch == BYTES:
        return reader.raw(field)
    if branch == TIMESTAMP:
        return Timestamp(reader.text(f"{field}.location"), reader.text(f"{field}.value"))
    return UnsignedBigint(reader.u64(f"{field}.value"))


def _table_schema(reader: Reader, field: str) -> TableSchema:
    database = reader.text(f"{field}.database")
    table = reader.text(f"{field}.table")
    if reader.name.startswith("BOOTSTRAP"):
        reader.name = f"BOOTSTRAP of {database}.{table}"
    table_id = reader.long(f"{field}.tableID")
    version = reader.u64(f"{field}.version")
    at = f"{field}.columns"
    columns = [_column(reader, f"{at}[{place}]") for place in reader.items(at, "columns", _COLUMN_BYTES_MIN)]
    at = f"{field}.indexes"
    indexes = [_index(reader, f"{at}[{place}]") for place in reader.items(at, "indexes", _INDEX_BYTES_MIN)]
    return TableSchema(database, table, table_id, version, tuple(columns), tuple(indexes))


def _column(reader: Reader, field: str) -> Column:
    name = reader.text(f"{field}.name")
    data_type = _data_type(reader, f"{field}.dataType")
    nullable = reader.boolean(f"{field}.nullable")
    at = f"{field}.default"
    default: str | int | None = None
    if reader.present(at, "string"):
        default = _bit_default(reader, at) if data_type.mysql_type == "bit" else reader.text(at)
    return Column(name, data_type, nullable, default)


def _bit_default(reader: Reader, field: str) -> int:
    """The ``string`` of a BIT's default holds its bytes, the greatest first, whether they are UTF-8 or not."""
    raw = reader.raw(field, "the bits of a default")
    if len(raw) > _BIT_DEFAULT_BYTES_MAX:
        raise reader.fault(field, "the bits of a default, at most 8 bytes", raw)
    return int.from_bytes(raw, "big")


def _data_type(reader: Reader, field: str) -> DataType:
    mysql_type = reader.text(f"{field}.mysqlType")
    charset = reader.text(f"{field}.charset")
    collate = reader.text(f"{field}.collate")
    length = reader.long(f"{field}.length")
    at = f"{field}.decimal"
    decimal = reader.int32(at) if reader.present(at, "int") else 0
    at = f"{field}.elements"
    elements = _texts(reader, at) if reader.present(at, "array") else ()
    unsigned, zerofill = (
        reader.boolean(at) if reader.present(at, "boolean") else False
        for at in (f"{field}.unsigned", f"{field}.zerofill")
    )
    return DataType(mysql_type, charset, collate, length, decimal, elements, unsigned, zerofill)


def _texts(reader: Reader, field: str) -> tuple[str, ...]:
    return tuple(
        [reader.text(f"{field}[{place}]") for place in reader.items(field, "strings", _STRING_BYTES_MIN)]
    )


def _index(reader: Reader, field: str) -> Index:
    return Index(
        reader.text(f"{field}.name"),
        reader.boolean(f"{field}.unique"),
        reader.boolean(f"{field}.primary"),
        reader.boolean(f"{field}.nullable"),
        _texts(reader, f"{field}.columns"),
    )


_PAYLOADS: Final = (_watermark, _bootstrap, _ddl, _dml)
