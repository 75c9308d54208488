"""What every message must keep to, whatever its encoding: numbers in their ranges, rows where its type has them."""

from __future__ import annotations

from typing import Final

from headrace.simple.faults import Shown, invalid
from headrace.simple.message import (
    DDL_TYPES,
    DML_TYPES,
    Bootstrap,
    Ddl,
    Dml,
    Message,
    MessageType,
    RawRow,
    name_of,
)
from headrace.simple.schema import TableSchema

U64_MAX: Final = (1 << 64) - 1
I64_MIN: Final = -(1 << 63)
I64_MAX: Final = (1 << 63) - 1
I32_MIN: Final = -(1 << 31)
I32_MAX: Final = (1 << 31) - 1
U32_MAX: Final = (1 << 32) - 1

_WITH_DATA: Final = frozenset({MessageType.INSERT, MessageType.UPDATE})
_WITH_OLD: Final = frozenset({MessageType.UPDATE, MessageType.DELETE})


def check_message(message: Message) -> None:
    """Raise SimpleInvalid, naming message, field and expected type, if a member is out of its bounds or out of place.

    Codecs call it on what they were given to encode and on what they have decoded.
    """
    if isinstance(message, Dml):
        # One look at what is nearly always right: a row's way must be short.
        if not (
            0 <= message.commit_ts <= U64_MAX
            and 0 <= message.schema_version <= U64_MAX
            and I64_MIN <= message.table_id <= I64_MAX
            and I64_MIN <= message.build_ts <= I64_MAX
            and message.start_ts is None
            and message.checksum is None
        ):
            _check_row_numbers(message)
        _check_row(message)
        return
    name = name_of(message)
    _check_int(name, "buildTs", message.build_ts, I64_MIN, I64_MAX)
    if isinstance(message, Bootstrap):
        check_schema(name, "tableSchema.", message.table_schema)
        return
    _check_int(name, "commitTs", message.commit_ts, 0, U64_MAX)
    if isinstance(message, Ddl):
        if message.type not in DDL_TYPES:
            raise invalid(name, "type", f"one of {', '.join(sorted(DDL_TYPES))}", Shown(message.type))
        for field, schema in (
            ("tableSchema", message.table_schema),
            ("preTableSchema", message.pre_table_schema),
        ):
            if schema is not None:
                check_schema(name, f"{field}.", schema)


def _check_row_numbers(message: Dml) -> None:
    name = name_of(message)
    _check_int(name, "commitTs", message.commit_ts, 0, U64_MAX)
    _check_int(name, "schemaVersion", message.schema_version, 0, U64_MAX)
    _check_int(name, "tableID", message.table_id, I64_MIN, I64_MAX)
    _check_int(name, "buildTs", message.build_ts, I64_MIN, I64_MAX)
    if message.start_ts is not None:
        _check_int(name, "startTs", message.start_ts, 0, U64_MAX)
    checksum = message.checksum
    if checksum is not None:
        _check_int(name, "checksum.version", checksum.version, I32_MIN, I32_MAX)
        _check_int(name, "checksum.current", checksum.current, 0, U32_MAX)
        _check_int(name, "checksum.previous", checksum.previous, 0, U32_MAX)


def _check_row(message: Dml) -> None:
    kind = message.type
    if kind not in DML_TYPES:
        raise invalid(name_of(message), "type", f"one of {', '.join(sorted(DML_TYPES))}", Shown(kind))
    if not message.database:
        raise invalid(name_of(message), "database", "the name of a database", Shown("nothing"))
    if not message.table:
        raise invalid(name_of(message), "table", "the name of a table", Shown("nothing"))
    if not message.data if kind in _WITH_DATA else message.data:
        raise _row_fault(message, "data", message.data)
    if not message.old if kind in _WITH_OLD else message.old:
        raise _row_fault(message, "old", message.old)


def _row_fault(message: Dml, field: str, row: RawRow | None) -> Exception:
    if row:
        return invalid(name_of(message), field, f"absent in a message of type {message.type}", Shown("a row"))
    return invalid(name_of(message), field, "an object with a value for each column", Shown("nothing"))


def check_schema(name: str, prefix: str, schema: TableSchema) -> None:
    """Raise SimpleInvalid if a number in ``schema`` is out of bounds.

    ``name`` is the message's, ``prefix`` what stands before the names of members: ``tableSchema.``, or nothing.
    """
    _check_int(name, f"{prefix}tableID", schema.table_id, I64_MIN, I64_MAX)
    _check_int(name, f"{prefix}version", schema.version, 0, U64_MAX)
    for place, column in enumerate(schema.columns):
        at = f"{prefix}columns[{place}]"
        kind = column.data_type
        _check_int(name, f"{at}.dataType.length", kind.length, I64_MIN, I64_MAX)
        _check_int(name, f"{at}.dataType.decimal", kind.decimal, I32_MIN, I32_MAX)
        if isinstance(column.default, int):
            _check_int(name, f"{at}.default", column.default, 0, U64_MAX)


def _check_int(name: str, field: str, number: int, least: int, greatest: int) -> None:
    if not least <= number <= greatest:
        raise invalid(name, field, f"an integer from {least} to {greatest}", number)
