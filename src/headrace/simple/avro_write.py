"""A message to its Avro form, field by field: the way that names what can't be written. Rows have a shorter one."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from headrace.simple.avro_schema import (
    BRANCHES,
    BYTES,
    DDL_KINDS,
    DECIMAL_TYPES,
    DML_KINDS,
    DOUBLE,
    FLOAT,
    KINDS,
    LONG,
    NULL,
    NUMERIC_TYPES,
    RECORDS,
    STRING,
    TIMESTAMP,
    UNSIGNED_BIGINT,
)
from headrace.simple.avro_varint import long_bytes, u64_bytes
from headrace.simple.bounds import I64_MAX, I64_MIN, U64_MAX, check_message
from headrace.simple.faults import Shown, invalid, show
from headrace.simple.message import (
    VERSION,
    Bootstrap,
    Checksum,
    Ddl,
    Dml,
    Float32,
    Message,
    Raw,
    RawRow,
    Timestamp,
    UnsignedBigint,
    Watermark,
    name_of,
)
from headrace.simple.schema import Column, DataType, Index, TableSchema

FLOAT_FORM: Final = struct.Struct("<f")
DOUBLE_FORM: Final = struct.Struct("<d")

_MESSAGE: Final = long_bytes(RECORDS.index("Message"))
_VERSION: Final = long_bytes(VERSION)
_NULL: Final = long_bytes(0)
_PRESENT: Final = long_bytes(1)
_END: Final = long_bytes(0)
_BOOLEANS: Final = (b"\x00", b"\x01")
_BRANCH: Final = tuple(long_bytes(branch) for branch in range(len(BRANCHES)))

RAW_EXPECTED: Final = "an int of 64 bits, a float, a str, bytes, a Timestamp, an UnsignedBigint or None"


def beginning(kind: str) -> bytes:
    """Return how a message begins whose payload is ``kind`` of ``KINDS``: up to its version, which is the same for all."""
    number = long_bytes(KINDS.index(kind))
    return _MESSAGE + number + number + _VERSION


def write_message(message: Message) -> bytes:
    """Return the Avro form of ``message``. SimpleInvalid, naming message, field and expected type, if there is none."""
    check_message(message)
    writer = _Writer(name_of(message))
    match message:
        case Dml():
            return writer.dml(message)
        case Watermark():
            return beginning("WATERMARK") + u64_bytes(message.commit_ts) + long_bytes(message.build_ts)
        case Bootstrap():
            schema = writer.table_schema("tableSchema", message.table_schema)
            return beginning("BOOTSTRAP") + long_bytes(message.build_ts) + schema
        case Ddl():
            return writer.ddl(message)


def head_bytes(message: Dml) -> bytes:
    """Return what every row of a table and type has in common, from the version up to the type."""
    return _Writer(name_of(message)).head(message)


def name_bytes(name: str) -> tuple[bytes, ...]:
    """Return how an entry of a row's map begins, by the branch of its value: the column's name, and the branch.

    UnicodeEncodeError for what is no Unicode.
    """
    text = name.encode()
    return tuple(long_bytes(len(text)) + text + branch for branch in _BRANCH)


class _Writer:
    """Makes the bytes of one message's fields; ``name`` is what errors call the message."""

    def __init__(self, name: str) -> None:
        self._name = name

    def text(self, field: str, value: str) -> bytes:
        """A ``string``."""
        try:
            raw = value.encode()
        except UnicodeEncodeError as error:
            found = Shown(f"with {value[error.start]!a} in it")
            raise invalid(self._name, field, "Unicode text", found) from None
        return long_bytes(len(raw)) + raw

    @staticmethod
    def _array(items: Iterable[bytes]) -> bytes:
        """An ``array`` in one block, or a ``map`` of entries."""
        written = list(items)
        if not written:
            return _END
        return b"".join([long_bytes(len(written)), *written, _END])

    def dml(self, message: Dml) -> bytes:
        """A row's message."""
        if message.start_ts is not None:
            raise invalid(
                self._name, "startTs", "absent in Avro, which has no place for it", message.start_ts
            )
        return b"".join(
            [
                beginning("DML"),
                self.head(message),
                u64_bytes(message.commit_ts),
                long_bytes(message.build_ts),
                u64_bytes(message.schema_version),
                _NULL,  # claimCheckLocation
                _NULL,  # handleKeyOnly
                _NULL if message.checksum is None else _PRESENT + _checksum(message.checksum),
                self._row("data", message.data),
                self._row("old", message.old),
            ]
        )

    def head(self, message: Dml) -> bytes:
        """Database, table, table id and type."""
        return b"".join(
            [
                self.text("database", message.database),
                self.text("table", message.table),
                long_bytes(message.table_id),
                long_bytes(DML_KINDS.index(message.type)),
            ]
        )

    def _row(self, field: str, row: RawRow | None) -> bytes:
        if not row:
            return _NULL
        return _PRESENT + self._array(
            self.text(f"the name {name!a} in {field}", name) + self._value(f"{field}.{name}", value)
            for name, value in row.items()
        )

    def _value(self, field: str, value: Raw) -> bytes:
        # By exact type: a bool is no int here, a Float32 no float.
        if value is None:
            return _BRANCH[NULL]
        if type(value) is str:
            return _BRANCH[STRING] + self.text(field, value)
        if type(value) is int:
            return _BRANCH[LONG] + self._number(field, value, I64_MIN, I64_MAX)
        if type(value) is Timestamp:
            location = self.text(f"{field}.location", value.location)
            return _BRANCH[TIMESTAMP] + location + self.text(f"{field}.value", value.value)
        if type(value) is UnsignedBigint:
            return _BRANCH[UNSIGNED_BIGINT] + self._number(f"{field}.value", value.value, 0, U64_MAX)
        if type(value) is bytes:
            return _BRANCH[BYTES] + long_bytes(len(value)) + value
        if type(value) is float:
            return _BRANCH[DOUBLE] + DOUBLE_FORM.pack(value)
        if type(value) is Float32:
            return _BRANCH[FLOAT] + self._single(field, value)
        raise invalid(self._name, field, RAW_EXPECTED, Shown(f"{show(value)} of {type(value).__name__}"))

    def _number(self, field: str, value: int, least: int, greatest: int) -> bytes:
        if type(value) is not int or not least <= value <= greatest:
            raise invalid(self._name, field, f"an integer from {least} to {greatest}", value)
        return u64_bytes(value) if value > I64_MAX else long_bytes(value)

    def _single(self, field: str, value: Float32) -> bytes:
        try:
            return FLOAT_FORM.pack(value)
        except OverflowError:
            raise invalid(self._name, field, "a number of single precision", value) from None

    def ddl(self, message: Ddl) -> bytes:
        """The message of a DDL statement."""
        return b"".join(
            [
                beginning("DDL"),
                long_bytes(DDL_KINDS.index(message.type)),
                self.text("sql", message.sql),
                u64_bytes(message.commit_ts),
                long_bytes(message.build_ts),
                self._optional_schema("tableSchema", message.table_schema),
                self._optional_schema("preTableSchema", message.pre_table_schema),
            ]
        )

    def _optional_schema(self, field: str, schema: TableSchema | None) -> bytes:
        return _NULL if schema is None else _PRESENT + self.table_schema(field, schema)

    def table_schema(self, field: str, schema: TableSchema) -> bytes:
        """A table's schema."""
        return b"".join(
            [
                self.text(f"{field}.database", schema.schema),
                self.text(f"{field}.table", schema.table),
                long_bytes(schema.table_id),
                u64_bytes(schema.version),
                self._array(
                    self._column(f"{field}.columns[{place}]", column)
                    for place, column in enumerate(schema.columns)
                ),
                self._array(
                    self._index(f"{field}.indexes[{place}]", index)
                    for place, index in enumerate(schema.indexes)
                ),
            ]
        )

    def _column(self, field: str, column: Column) -> bytes:
        return b"".join(
            [
                self.text(f"{field}.name", column.name),
                self._data_type(f"{field}.dataType", column.data_type),
                _BOOLEANS[column.nullable],
                self._default(f"{field}.default", column),
            ]
        )

    def _data_type(self, field: str, of: DataType) -> bytes:
        has_decimal = of.decimal or of.mysql_type in DECIMAL_TYPES
        return b"".join(
            [
                self.text(f"{field}.mysqlType", of.mysql_type),
                self.text(f"{field}.charset", of.charset),
                self.text(f"{field}.collate", of.collate),
                long_bytes(of.length),
                _PRESENT + long_bytes(of.decimal) if has_decimal else _NULL,
                _PRESENT + self._texts(f"{field}.elements", of.elements) if of.elements else _NULL,
                _flag(of.mysql_type, of.unsigned),
                _flag(of.mysql_type, of.zerofill),
            ]
        )

    def _default(self, field: str, column: Column) -> bytes:
        default, is_bit = column.default, column.data_type.mysql_type == "bit"
        if default is None:
            return _NULL
        if isinstance(default, int) is not is_bit:
            expected = "an integer, as that of every BIT" if is_bit else "a string"
            raise invalid(self._name, field, expected, default)
        if isinstance(default, int):
            return _PRESENT + _bits(default, column.data_type.length)
        return _PRESENT + self.text(field, default)

    def _index(self, field: str, index: Index) -> bytes:
        return b"".join(
            [
                self.text(f"{field}.name", index.name),
                _BOOLEANS[index.unique],
                _BOOLEANS[index.primary],
                _BOOLEANS[index.nullable],
                self._texts(f"{field}.columns", index.columns),
            ]
        )

    def _texts(self, field: str, texts: tuple[str, ...]) -> bytes:
        return self._array(self.text(f"{field}[{place}]", text) for place, text in enumerate(texts))


def _checksum(checksum: Checksum) -> bytes:
    return b"".join(
        [
            long_bytes(checksum.version),
            _BOOLEANS[checksum.corrupted],
            long_bytes(checksum.current),
            long_bytes(checksum.previous),
        ]
    )


def _flag(mysql_type: str, is_set: bool) -> bytes:
    return _PRESENT + _BOOLEANS[is_set] if is_set or mysql_type in NUMERIC_TYPES else _NULL


def _bits(number: int, length: int) -> bytes:
    """The default of a BIT: a ``string`` of raw bytes, the greatest first, as many as the column has."""
    size = (max(number.bit_length(), min(length, 64), 1) + 7) // 8
    return long_bytes(size) + number.to_bytes(size, "big")
