"""Where a row goes: TiCDC's partition rules and its hash, exactly. A consumer that checks the place gets the same one.

The hash is the XOR of CRC-32s: one of the table's name, one of each key column's name and value. So the order of columns
does not matter, and nothing stands between a name and its value.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Final, Protocol, cast
from zlib import crc32

from headrace.errors import ConfigInvalid
from headrace.simple.faults import Misfit, Shown, invalid, unsupported
from headrace.simple.kind import Kind
from headrace.simple.message import Dml, Raw, Timestamp, name_of
from headrace.simple.mysql_types import Family, family_of
from headrace.simple.schema import Column, TableSchema
from headrace.simple.table_filter import lowered
from headrace.simple.values import kind_of

_CANONICAL: Final = frozenset(
    {Family.INTEGER, Family.YEAR, Family.BIT, Family.FLOAT, Family.DOUBLE, Family.ENUM, Family.SET}
)
"""Families whose value is hashed as its shortest text, whichever way it was written."""


class PartitionRule(StrEnum):
    """What of a row decides its partition."""

    DEFAULT = "default"
    """The table's name, as ``table``."""
    TABLE = "table"
    TS = "ts"
    INDEX_VALUE = "index-value"
    COLUMNS = "columns"


class NullHashing(StrEnum):
    """How a NULL in a key column counts. The two generations of TiCDC differ, in ``columns`` and named indexes alone."""

    TEXT = "text"
    """As the text ``null``: TiCDC v8.0 to v8.5 in its classic architecture. The default, since most consumers are of it."""
    SKIP = "skip"
    """Not at all, nor does the column's name: TiCDC in its new architecture."""


def hash_of(*parts: bytes) -> int:
    """Return the CRC-32 of ``parts``, one behind the other; a row's hash is the XOR of several."""
    value = 0
    for part in parts:
        value = crc32(part, value)
    return value


class Placer(Protocol):
    """A partition rule for the rows of one table schema."""

    def partition_of(self, message: Dml, partitions: int) -> int:
        """Return the partition of a row, 0 … ``partitions`` - 1. SimpleInvalid if a value of its key is missing or unfit."""


class ByTable:
    """``default`` and ``table``: all rows of a table in one partition."""

    def __init__(self, schema: TableSchema) -> None:
        self._hash = hash_of(schema.schema.encode(), schema.table.encode())

    def partition_of(self, message: Dml, partitions: int) -> int:
        """Return the partition."""
        return self._hash % partitions


class ByTs:
    """``ts``: by the commitTs. Rows of one table go to all partitions."""

    def partition_of(self, message: Dml, partitions: int) -> int:
        """Return the partition."""
        return message.commit_ts % partitions


class ByColumns:
    """``index-value`` and ``columns``: by the table and the values of some columns.

    The new row counts, of a DELETE the old one. Names are hashed as the schema spells them.
    """

    def __init__(self, schema: TableSchema, columns: tuple[str, ...], nulls: NullHashing) -> None:
        self._hash = hash_of(schema.schema.encode(), schema.table.encode())
        self._nulls = nulls
        known = {column.name: column for column in schema.columns}
        self._columns = [(name, name.encode(), _ValueText(known[name])) for name in columns]

    def partition_of(self, message: Dml, partitions: int) -> int:
        """Return the partition."""
        image, row = ("data", message.data) if message.data is not None else ("old", message.old)
        value = self._hash
        for name, encoded, text_of in self._columns:
            if row is None or name not in row:
                expected = "a value, since it decides the partition"
                raise invalid(name_of(message), f"{image}.{name}", expected, Shown("absent"))
            raw = row[name]
            if raw is None:
                if self._nulls is NullHashing.TEXT:
                    value ^= hash_of(encoded, b"null")
                continue
            value ^= hash_of(encoded, text_of(message, f"{image}.{name}", raw))
        return value % partitions


def placer_of(
    schema: TableSchema,
    rule: PartitionRule,
    *,
    index: str = "",
    columns: tuple[str, ...] = (),
    nulls: NullHashing = NullHashing.TEXT,
) -> Placer:
    """Return the rule for the rows of ``schema``.

    ``index`` names a unique index for ``index-value``; without it the handle key counts, and a table without one goes by its
    name. Case does not count in names of indexes and columns. ConfigInvalid where the table has no such index or column.
    """
    match rule:
        case PartitionRule.TS:
            return ByTs()
        case PartitionRule.INDEX_VALUE:
            names = _index_columns(schema, index) if index else schema.handle_key
            return ByColumns(schema, names, nulls)
        case PartitionRule.COLUMNS:
            return ByColumns(schema, tuple(_column(schema, name) for name in columns), nulls)
        case _:
            return ByTable(schema)


def _index_columns(schema: TableSchema, name: str) -> tuple[str, ...]:
    for index in schema.indexes:
        if lowered(index.name) == lowered(name):
            if not (index.unique or index.primary):
                raise _not_there(schema, f"the index {index.name!r} is not unique")
            return index.columns
    raise _not_there(schema, f"it has no index {name!r}")


def _column(schema: TableSchema, name: str) -> str:
    for column in schema.columns:
        if lowered(column.name) == lowered(name):
            return column.name
    raise _not_there(schema, f"it has no column {name!r}")


def _not_there(schema: TableSchema, why: str) -> ConfigInvalid:
    return ConfigInvalid(
        f"no partition for rows of {schema.schema}.{schema.table}: {why}",
        table=f"{schema.schema}.{schema.table}",
    )


class _ValueText:
    """What is hashed of a column's value: the bytes of binary columns, the text of all others."""

    def __init__(self, column: Column) -> None:
        kind = kind_of(column.data_type)
        family = family_of(column.data_type)
        self._expected = kind.expected
        self._kind: Kind | None = kind if family in _CANONICAL else None
        self._decode = cast("Callable[[Raw], bytes]", kind.read_json) if family is Family.BINARY else None

    def __call__(self, message: Dml, field: str, raw: Raw) -> bytes:
        if isinstance(raw, bytes):
            return raw
        try:
            if self._decode is not None:
                return self._decode(raw)
            if self._kind is not None:
                # Digits are JSON's form of a number; what Avro has for it is no text, but for BIT.
                value = self._kind.read_json(raw) if isinstance(raw, str) else self._kind.read_avro(raw)
                return _without_sign_of_zero(str(self._kind.write_json(value))).encode()
        except Misfit:
            raise invalid(name_of(message), field, self._expected, raw) from None
        text = raw.value if isinstance(raw, Timestamp) else raw
        if not isinstance(text, str):
            why = f"how a value {raw!r} of this column is hashed is not known"
            raise unsupported(name_of(message), field, self._expected, why)
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise invalid(name_of(message), field, "Unicode text", raw) from None


def _without_sign_of_zero(text: str) -> str:
    return "0" if text == "-0" else text
