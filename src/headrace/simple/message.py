"""The messages of the Simple Protocol as values, the same for JSON and Avro: what codecs make and take.

A message's ``commit_ts`` is a TSO (u64: ``physical_ms << 18 | logical``), ``build_ts`` milliseconds since 1970. Values of
rows are *raw*, as the encoding has them; :mod:`headrace.simple.values` says what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar, Final

import msgspec

from headrace.simple.schema import TableSchema

VERSION: Final = 1
"""The one version of the protocol that there is."""


class MessageType(StrEnum):
    """What a message says of itself: every ``type`` of the JSON form."""

    WATERMARK = "WATERMARK"
    BOOTSTRAP = "BOOTSTRAP"
    CREATE = "CREATE"
    RENAME = "RENAME"
    CINDEX = "CINDEX"
    DINDEX = "DINDEX"
    ERASE = "ERASE"
    TRUNCATE = "TRUNCATE"
    ALTER = "ALTER"
    QUERY = "QUERY"
    INSERT = "INSERT"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


DML_TYPES: Final = frozenset({MessageType.INSERT, MessageType.UPDATE, MessageType.DELETE})
DDL_TYPES: Final = frozenset(MessageType) - DML_TYPES - {MessageType.WATERMARK, MessageType.BOOTSTRAP}


class Timestamp(msgspec.Struct, frozen=True, gc=False):
    """A raw TIMESTAMP: wall time in the zone ``location`` (an IANA name, ``UTC`` or ``Local``)."""

    location: str
    value: str


class UnsignedBigint(msgspec.Struct, frozen=True, gc=False):
    """A raw BIGINT UNSIGNED of the Avro form; ``value`` is the number itself, 0 … 2**64 - 1."""

    value: int


class Float32(float):
    """A raw FLOAT of the Avro form: a ``float`` is its ``double``, this its ``float``."""

    __slots__ = ()


Raw = str | int | float | bytes | Timestamp | UnsignedBigint | None
"""A column's value as an encoding has it. JSON: str, Timestamp, None. Avro: all of them."""

RawRow = Mapping[str, Raw]


class Watermark(msgspec.Struct, frozen=True):
    """All events up to ``commit_ts`` were delivered."""

    type: ClassVar[MessageType] = MessageType.WATERMARK
    commit_ts: int
    build_ts: int


class Bootstrap(msgspec.Struct, frozen=True):
    """A table's schema, sent again for consumers that begin in the middle."""

    type: ClassVar[MessageType] = MessageType.BOOTSTRAP
    build_ts: int
    table_schema: TableSchema


class Ddl(msgspec.Struct, frozen=True):
    """A DDL statement (``type`` is one of ``DDL_TYPES``), with the schema after it and, from some writers, before it.

    ``table_schema`` is None for a statement about a whole database. Readers must not depend on ``pre_table_schema``.
    """

    type: MessageType
    sql: str
    commit_ts: int
    build_ts: int
    table_schema: TableSchema | None = None
    pre_table_schema: TableSchema | None = None


class Checksum(msgspec.Struct, frozen=True):
    """CRC-32 of a row as the source computed it: ``current`` of the new row, ``previous`` of the old; 0 is not verified."""

    version: int
    corrupted: bool
    current: int
    previous: int


class Dml(msgspec.Struct, frozen=True):
    """A row that was changed (``type`` is one of ``DML_TYPES``), in the form that its schema version gave it.

    An INSERT has ``data``, a DELETE ``old``, an UPDATE both, each a full row but for virtual columns; the other is None.
    ``start_ts`` (JSON alone) is when the transaction began; None if the writer does not say.
    """

    type: MessageType
    database: str
    table: str
    table_id: int
    commit_ts: int
    build_ts: int
    schema_version: int
    data: RawRow | None = None
    old: RawRow | None = None
    checksum: Checksum | None = None
    start_ts: int | None = None

    @property
    def schema_key(self) -> tuple[str, str, int]:
        """What finds this row's schema: (database, table, schema version)."""
        return self.database, self.table, self.schema_version


Message = Watermark | Bootstrap | Ddl | Dml


def name_of(message: Message) -> str:
    """Return how errors name a message: its type, its table where it has one, and its place in time."""
    match message:
        case Watermark():
            return f"WATERMARK {message.commit_ts}"
        case Bootstrap():
            schema = message.table_schema
            return f"BOOTSTRAP of {schema.schema}.{schema.table} version {schema.version}"
        case Ddl():
            of = message.table_schema or message.pre_table_schema
            table = f" of {of.schema}.{of.table}" if of is not None else ""
            return f"{message.type}{table} at commitTs {message.commit_ts}"
        case Dml():
            return f"{message.type} of {message.database}.{message.table} at commitTs {message.commit_ts}"
