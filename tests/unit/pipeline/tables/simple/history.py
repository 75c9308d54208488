"""A captured table as a plain model: statements and rows change it, and each says so in a feed, as capture would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.capture.control import (
    ControlEntry,
    copy_begin_entry,
    copy_end_entry,
    ddl_entry,
    schema_entry,
    stopped_entry,
    watermark_entry,
)
from headrace.entries.entry import Change, Op
from headrace.simple import json_codec
from headrace.simple.message import Ddl, Dml, MessageType
from headrace.simple.schema import Column, DataType, Index, TableSchema
from headrace.simple.values import RowTypes
from tests.unit.pipeline.tables.simple.steps_folded import Entry

MS = 1_800_000_000_000
LATE_MS = 4000
"""A statement's commitTs is later than its time: as much as it waited, or a WATERMARK went ahead."""
"""When a history begins, in milliseconds since 1970."""

INT = DataType("int", "binary", "binary", 11)
BIGINT = DataType("bigint", "binary", "binary", 20)
UNSIGNED = DataType("bigint", "binary", "binary", 20, unsigned=True)
EXACT = DataType("decimal", "binary", "binary", 8, 2)
EXACTER = DataType("decimal", "binary", "binary", 14, 4)
WORD = DataType("varchar", "utf8mb4", "utf8mb4_bin", 20)
TEXT = DataType("text", "utf8mb4", "utf8mb4_bin", 65_535)
DATE = DataType("date", "binary", "binary", 10)
MOMENT = DataType("datetime", "binary", "binary", 19)
STAMP = DataType("timestamp", "binary", "binary", 19)
BYTES = DataType("varbinary", "binary", "binary", 9)
POINT = DataType("geometry", "binary", "binary", -1)


def labels(*elements: str) -> DataType:
    """An ENUM of these labels."""
    return DataType("enum", "utf8mb4", "utf8mb4_bin", max(map(len, elements)), 0, elements)


def schema_of(
    columns: Mapping[str, DataType],
    *,
    version: int = 1,
    name: tuple[str, str] = ("shop", "t"),
    key: tuple[str, ...] = ("id",),
    required: tuple[str, ...] = (),
    defaults: Mapping[str, str] | None = None,
) -> TableSchema:
    """A table's schema; the key's columns are NOT NULL."""
    shown = tuple(
        Column(column, kind, column not in (*key, *required), (defaults or {}).get(column))
        for column, kind in columns.items()
    )
    indexes = (Index("PRIMARY", True, True, False, key),) if key else ()
    return TableSchema(*name, 7, version, shown, indexes)


@dataclass
class Feed:
    """A feed as it grows. Each call puts an entry into it; ``commit_ts`` grows by a second each."""

    entries: list[Entry] = field(default_factory=list)
    ticks: int = 0

    @property
    def commit_ts(self) -> int:
        return (MS + self.ticks * 1000) << 18

    def put(self, change: Change) -> int:
        """Append an entry and return its sequence id."""
        self.entries.append(Entry(len(self.entries) + 1, change))
        return len(self.entries)

    def control(self, entry: ControlEntry) -> int:
        began_ms = MS + self.ticks * 1000 - LATE_MS
        change = Change(
            entry.value, key=entry.key, control=entry.control, table=entry.table, source_time_ms=began_ms
        )
        return self.put(change)

    def schema(self, schema: TableSchema) -> int:
        return self.control(schema_entry(schema, MS))

    def ddl(
        self,
        kind: MessageType,
        sql: str,
        schema: TableSchema | None,
        *,
        of: tuple[str, str] = ("shop", "t"),
        told: bool = True,
    ) -> int:
        """A statement about the table ``of``, and, if ``told``, the schema entry behind it."""
        self.ticks += 1
        at = self.control(ddl_entry(Ddl(kind, sql, self.commit_ts, MS, schema, None), *of))
        if told and schema is not None:
            self.schema(schema)
        return at

    def alter(self, clauses: str, schema: TableSchema) -> int:
        return self.ddl(
            MessageType.ALTER, f"ALTER TABLE t {clauses}", schema, of=(schema.schema, schema.table)
        )

    def row(
        self, schema: TableSchema, data: Mapping[str, Any] | None, old: Mapping[str, Any] | None = None
    ) -> int:
        """A row that was changed: values of Python, as :mod:`headrace.simple.values` has them."""
        self.ticks += 1
        kind = MessageType.INSERT if old is None else MessageType.UPDATE
        kind = MessageType.DELETE if data is None else kind
        types = RowTypes(schema)
        message = Dml(
            kind,
            schema.schema,
            schema.table,
            schema.table_id,
            self.commit_ts,
            MS,
            schema.version,
            None if data is None else types.write(data, "a test's row"),
            None if old is None else types.write(old, "a test's row"),
        )
        return self.raw(schema, json_codec.encode(message), op=Op.DELETE if data is None else Op.PUT)

    def raw(self, schema: TableSchema, message: bytes, *, op: Op = Op.PUT) -> int:
        """A row's entry with any bytes as its message."""
        return self.put(Change(message, op=op, key=b"key", table=(schema.schema, schema.table)))

    def watermark(self) -> int:
        self.ticks += 1
        return self.control(watermark_entry(self.commit_ts, MS))

    def copy(self, schema: TableSchema, *, ends: bool = False) -> int:
        return self.control(copy_end_entry(schema, 1, 0) if ends else copy_begin_entry(schema, 1))

    def stopped(self, reason: str, name: tuple[str, str] = ("shop", "t")) -> int:
        self.ticks += 1
        return self.control(stopped_entry(*name, self.commit_ts, reason))


def versioned(schema: TableSchema, **changes: Any) -> TableSchema:
    """The schema with other members."""
    return msgspec.structs.replace(schema, **changes)
