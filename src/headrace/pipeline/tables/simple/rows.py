"""Rows' messages -> typed Arrow columns, exactly as their schema says; what does not fit is refused, never bent.

Called on workers, one call a record batch. The envelope of a message is parsed with its row in one step, values column by
column. Types: docs/formats/tables.md, "Simple feeds". Pure: Arrow and Python, no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from headrace.errors import SimpleInvalid, SimpleUnsupported, ValueUnfit
from headrace.pipeline.tables.rows import GONE, SEQUENCE_ID, quoted
from headrace.pipeline.tables.schemas import TableName, unfit
from headrace.pipeline.tables.simple.spark_types import Read, ReadAll, arrow_type, bulk_reader, reader
from headrace.pipeline.tables.simple.steps import Reading
from headrace.simple import json_codec
from headrace.simple.faults import Misfit
from headrace.simple.message import DML_TYPES, VERSION, Dml, MessageType, Timestamp
from headrace.simple.schema import TableSchema
from headrace.simple.values import Image, RowTypes
from headrace.wire.arrays import array_of

COMMIT_TS: Final = "_headrace_commit_ts"
"""Column beside the row's own: the commitTs of the transaction that the row is from."""

ROWS_DDL: Final = "sequence_id BIGINT, value BINARY"
"""What is typed: entries of one table, by their sequence id and their message."""

OWN_DDL: Final = f"{SEQUENCE_ID} BIGINT, {COMMIT_TS} BIGINT"
"""The columns of ours that a Simple feed's table has."""

_INT64_MAX: Final = (1 << 63) - 1
_RawRow = dict[str, str | Timestamp | None]
_ABSENT: Final = object()


class _Envelope(
    msgspec.Struct, gc=False, rename={"commit_ts": "commitTs", "schema_version": "schemaVersion"}
):
    """What a row's message says, as far as a table needs it; the codec judges what is odd."""

    version: int
    type: MessageType
    database: str = ""
    table: str = ""
    commit_ts: int = -1
    schema_version: int = 0
    claim: str = msgspec.field(name="claimCheckLocation", default="")
    key_only: bool = msgspec.field(name="handleKeyOnly", default=False)
    data: _RawRow | None = None
    old: _RawRow | None = None


_DECODE: Final = msgspec.json.Decoder(_Envelope).decode
_REFUSED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def typed_ddl(reading: Reading) -> str:
    """Return the columns of typed rows as Spark SQL: ours, whether the row is gone, then the table's."""
    own = [f"{quoted(column.name)} {column.kind}" for column in reading.columns]
    return ", ".join([OWN_DDL, f"{GONE} BOOLEAN", *own])


def typed_schema(reading: Reading) -> Any:
    """Return the same columns as an Arrow schema."""
    own = [(column.name, arrow_type(column.kind)) for column in reading.columns]
    return pa.schema([(SEQUENCE_ID, pa.int64()), (COMMIT_TS, pa.int64()), (GONE, pa.bool_()), *own])


def typed_batches(batches: Iterator[Any], reading: Reading) -> Iterator[Any]:
    """Turn record batches of a table's rows (:data:`ROWS_DDL`) into typed ones (:func:`typed_schema`), in any order.

    A row that is gone has its key's columns alone. An UPDATE that changes the key gives two rows: the old key's, gone, and
    the new one's. A column that a message leaves out is NULL. Raises ValueUnfit, which names feed, sequence id, table and
    column, for whatever is no row of one of the schemas of ``reading``.
    """
    rows = _Rows(reading)
    for batch in batches:
        yield rows.typed(batch.column("sequence_id").to_pylist(), batch.column("value").to_pylist())


class _Cell(NamedTuple):
    """How one column of the table is read at one version of its schema."""

    place: int
    name: str
    read: Read
    read_all: ReadAll | None
    nullable: bool


class _Version:
    """One version of a table's schema: how its rows are read, and those that wait to be."""

    def __init__(self, schema: TableSchema, reading: Reading) -> None:
        self.schema = schema
        self.table: TableName = (schema.schema, schema.table)
        self.names = frozenset(column.name for column in schema.columns)
        columns = {column.name.casefold(): column for column in schema.columns}
        self.cells: list[_Cell] = []
        self.key: list[_Cell] = []
        for place, wanted in enumerate(reading.columns):
            column = columns[wanted.name.casefold()]
            kind = column.data_type
            read, read_all = reader(kind, wanted.kind), bulk_reader(kind, wanted.kind)
            cell = _Cell(place, column.name, read, read_all, column.nullable)
            self.cells.append(cell)
            if wanted.name in reading.key:
                self.key.append(cell)
        readable = {cell.name for cell in self.cells}
        self.hidden = [name for name in self.names if name not in readable]


class _Found(NamedTuple):
    """One row of the table: where it is from, and its raw values; of a row that is gone those of the key count."""

    sequence_id: int
    commit_ts: int
    gone: bool
    raw: _RawRow
    value: bytes


class _Rows:
    def __init__(self, reading: Reading) -> None:
        self.feed = reading.feed
        self.out = typed_schema(reading)
        self.versions = {schema.key: _Version(schema, reading) for schema in reading.schemas}
        self.width = len(reading.columns)

    def typed(self, sequence_ids: Sequence[int], values: Sequence[bytes]) -> Any:
        found: dict[tuple[str, str, int], list[_Found]] = {}
        for sequence_id, value in zip(sequence_ids, values, strict=True):
            try:
                message = _DECODE(value)
            except _REFUSED:
                raise self._fault(sequence_id, value, None) from None
            key = message.database, message.table, message.schema_version
            version = self.versions.get(key)
            if version is None or not _is_plain(message):
                raise self._fault(sequence_id, value, version)
            rows = found.get(key)
            if rows is None:
                rows = found[key] = []
            self._take(version, message, sequence_id, value, rows)
        return self._batch(found)

    def _take(
        self, version: _Version, message: _Envelope, sequence_id: int, value: bytes, rows: list[_Found]
    ) -> None:
        data, old = message.data, message.old
        if data is not None:
            known = version.names.issuperset(data)
            hidden = version.hidden and any(data.get(name) is not None for name in version.hidden)
            if not known or hidden or message.type is MessageType.DELETE:
                raise self._fault(sequence_id, value, version)
            if old is not None and _moves(version.key, old, data):
                rows.append(_Found(sequence_id, message.commit_ts, True, old, value))
            rows.append(_Found(sequence_id, message.commit_ts, False, data, value))
        elif old is not None and message.type is MessageType.DELETE:
            rows.append(_Found(sequence_id, message.commit_ts, True, old, value))
        else:
            raise self._fault(sequence_id, value, version)

    def _batch(self, found: dict[tuple[str, str, int], list[_Found]]) -> Any:
        rows = [row for some in found.values() for row in some]
        columns: list[list[Any]] = [[] for _ in range(self.width)]
        for key, some in found.items():
            version = self.versions[key]
            keys = {cell.place for cell in version.key}
            for cell in version.cells:
                columns[cell.place] += self._read(version, cell, some, is_key=cell.place in keys)
        arrays = [
            array_of([row.sequence_id for row in rows], pa.int64()),
            array_of([row.commit_ts for row in rows], pa.int64()),
            array_of([row.gone for row in rows], pa.bool_()),
        ]
        arrays += [
            array_of(column, field.type) for column, field in zip(columns, list(self.out)[3:], strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.out)

    def _read(self, version: _Version, cell: _Cell, rows: Sequence[_Found], *, is_key: bool) -> list[Any]:
        found = _at_once(cell, rows, is_key=is_key)
        if found is not None:
            return found
        name, read = cell.name, cell.read
        absent = _ABSENT if is_key or not cell.nullable else None
        cells: list[Any] = []
        row = rows[0]
        try:
            for row in rows:
                raw = None if row.gone and not is_key else row.raw.get(name, absent)
                if raw is None:
                    if is_key or not (cell.nullable or row.gone):
                        raise Misfit
                    cells.append(None)
                elif raw is _ABSENT:
                    if is_key:
                        raise Misfit
                    cells.append(None)
                else:
                    cells.append(read(raw))
        except Misfit:
            raise self._fault(row.sequence_id, row.value, version, name) from None
        return cells

    def _fault(
        self, sequence_id: int, value: bytes, version: _Version | None, column: str = ""
    ) -> ValueUnfit:
        """Say what is wrong with a message, in the codec's own words where it has some."""
        table = version.table if version is not None else next(iter(self.versions))[:2]
        try:
            message = json_codec.decode(value)
            if not isinstance(message, Dml):
                return unfit(self.feed, sequence_id, table, "", f"{message.type} is no row")
            if version is None:
                known = ", ".join(str(key[2]) for key in self.versions)
                name = ".".join(message.schema_key[:2])
                problem = f"it is of {name} version {message.schema_version}; the schema before it is {known}"
                return unfit(self.feed, sequence_id, table, "", problem)
            if message.commit_ts > _INT64_MAX:
                return unfit(self.feed, sequence_id, table, "", f"commitTs {message.commit_ts} is above 2^63")
            types = RowTypes(version.schema)
            for image in Image:
                if (message.data if image is Image.DATA else message.old) is not None:
                    types.read(message, image)
        except (SimpleInvalid, SimpleUnsupported) as error:
            field = str(error.members.get("field", ""))
            column = field.partition(".")[2] if field.startswith(("data.", "old.")) else column
            return unfit(self.feed, sequence_id, table, column, error.detail)
        return unfit(
            self.feed, sequence_id, table, column, f"a message of type {message.type} has no value of it"
        )


def _moves(key: Sequence[_Cell], old: _RawRow, data: _RawRow) -> bool:
    for cell in key:  # noqa: SIM110  # on the way of every row a plain loop is quicker
        if old.get(cell.name) != data.get(cell.name):
            return True
    return False


def _at_once(cell: _Cell, rows: Sequence[_Found], *, is_key: bool) -> list[Any] | None:
    """Read a column in one go; None where that can't be, or where some value does not fit: one by one it is found."""
    name, read_all = cell.name, cell.read_all
    if read_all is None:
        return None
    raws = [None if row.gone and not is_key else row.raw.get(name) for row in rows]
    try:
        if None not in raws:
            return read_all(raws)
        if is_key or not cell.nullable:
            return None
        present = iter(read_all([raw for raw in raws if raw is not None]))
    except (Misfit, TypeError, ValueError):
        return None
    return [None if raw is None else next(present) for raw in raws]


def _is_plain(message: _Envelope) -> bool:
    return (
        message.version == VERSION
        and message.type in DML_TYPES
        and not (message.claim or message.key_only)
        and 0 <= message.commit_ts <= _INT64_MAX
    )
