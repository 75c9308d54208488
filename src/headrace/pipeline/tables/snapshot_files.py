"""One version of a Delta table -> its columns and its files, from the table's log alone; and rows from these files. No JVM.

``format("headrace.tables")`` plans and reads with it. It knows what this room's tables have: column mapping by name, widened
types, checkpoints in one or several parts. What it does not know (deletion vectors, partitions) is refused, not passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import VersionGone
from headrace.runtime.typed_json import decode_json

ROWS_AT_ONCE: Final = 65_536
"""Rows of one record batch."""

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_FEATURES: Final = frozenset({"columnMapping", "timestampNtz", "typeWidening", "typeWidening-preview"})
"""What a reader of a table may have to know, and this one does."""


class DataFile(NamedTuple):
    """One Parquet file of a table: its path, and its size in bytes."""

    path: str
    size: int


class Field(NamedTuple):
    """One column: its name, its name in files, and its type as Spark's JSON has it."""

    name: str
    physical: str
    type: str


class Snapshot(NamedTuple):
    """A version of a table: its columns in order, and the files that hold its rows."""

    fields: list[Field]
    files: list[DataFile]


class _Metadata(msgspec.Struct):
    schema_string: str = msgspec.field(name="schemaString")
    partition_columns: list[str] = msgspec.field(name="partitionColumns", default_factory=list)


class _Protocol(msgspec.Struct):
    reader: int = msgspec.field(name="minReaderVersion")
    features: list[str] | None = msgspec.field(name="readerFeatures", default=None)


class _Added(msgspec.Struct):
    path: str
    size: int
    vector: Any = msgspec.field(name="deletionVector", default=None)


class _Removed(msgspec.Struct):
    path: str


class _Action(msgspec.Struct):
    metadata: _Metadata | None = msgspec.field(name="metaData", default=None)
    protocol: _Protocol | None = None
    add: _Added | None = None
    remove: _Removed | None = None


class _SchemaField(msgspec.Struct):
    name: str
    type: Any
    metadata: dict[str, Any] = {}


class _Schema(msgspec.Struct):
    fields: list[_SchemaField]


_DECODE: Final = msgspec.json.Decoder(_Action).decode


def snapshot_at(table: Path, version: int) -> Snapshot:
    """Return what the Delta table in the folder ``table`` holds at ``version``; VersionGone if that can't be told."""
    log = table / "_delta_log"
    names = {path.name for path in log.iterdir()} if log.is_dir() else set()
    start, parts = _checkpoint(names, version)
    state = _State(table)
    for part in parts:
        for action in pq.read_table(log / part).to_pylist():
            state.take(msgspec.convert(action, _Action))
    for number in range(start + 1, version + 1):
        name = f"{number:020}.json"
        if name not in names:
            raise VersionGone(f"{table}: version {number} of the table is not in its log")
        for line in (log / name).read_bytes().splitlines():
            if line:
                state.take(_DECODE(line))
    return state.snapshot(version)


def _checkpoint(names: set[str], version: int) -> tuple[int, list[str]]:
    """Return the newest checkpoint at or below ``version`` whose parts are all there, with these; -1 if there is none."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in names:
        match = _CHECKPOINT.fullmatch(name)
        if match and int(match[1]) <= version:
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    whole = [(key[0], sorted(parts)) for key, parts in found.items() if len(parts) == key[1]]
    return max(whole, default=(-1, []))


class _State:
    """The log's actions so far."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._metadata: _Metadata | None = None
        self._files: dict[str, _Added] = {}

    def take(self, action: _Action) -> None:
        if action.metadata is not None:
            self._metadata = action.metadata
        elif action.protocol is not None:
            unknown = sorted(set(action.protocol.features or ()) - _FEATURES)
            if unknown:
                raise VersionGone(f"{self._table}: reading it takes {unknown[0]}, which this program can't")
        elif action.add is not None:
            if action.add.vector is not None:
                raise VersionGone(f"{self._table}: it has deletion vectors, which this program can't read")
            self._files[action.add.path] = action.add
        elif action.remove is not None:
            self._files.pop(action.remove.path, None)

    def snapshot(self, version: int) -> Snapshot:
        if self._metadata is None or self._metadata.partition_columns:
            raise VersionGone(f"{self._table}: there is no version {version} that this program can read")
        schema = decode_json(self._metadata.schema_string, _Schema)
        fields = [Field(one.name, one.metadata.get(_PHYSICAL, one.name), one.type) for one in schema.fields]
        files = [
            DataFile(str(self._table / unquote(added.path)), added.size) for added in self._files.values()
        ]
        return Snapshot(fields, sorted(files))


def rows_of(files: Sequence[DataFile], fields: Sequence[Field], schema: Any) -> Iterator[Any]:
    """Yield the rows of ``files`` as record batches with the Arrow schema ``schema``, a field of it for each of ``fields``.

    A column that a file lacks, because it was added later, is null there; one of a narrower type is cast. VersionGone if
    a file is not there.
    """
    for file in files:
        try:
            parquet = pq.ParquetFile(file.path)
        except FileNotFoundError:
            raise VersionGone(f"{file.path} is not there any more") from None
        with parquet:
            present = set(parquet.schema_arrow.names)
            wanted = [field.physical for field in fields if field.physical in present]
            for batch in parquet.iter_batches(ROWS_AT_ONCE, columns=wanted):
                yield _shaped(batch, fields, schema)


def _shaped(batch: Any, fields: Sequence[Field], schema: Any) -> Any:
    arrays = []
    present = set(batch.schema.names)
    for field, target in zip(fields, schema, strict=True):
        if field.physical in present:
            column = batch.column(field.physical)
            arrays.append(column if column.type == target.type else column.cast(target.type))
        else:
            arrays.append(pa.nulls(batch.num_rows, target.type))
    if not arrays:
        return pa.RecordBatch.from_struct_array(pa.nulls(batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
