"""Entries of several mutations (OP_BATCH) -> one row for each key. For all that fold an archive. Pure: Arrow, no JVM."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from headrace.entries.entry import Op, WireOp
from headrace.errors import SegmentCorrupt
from headrace.wire.arrays import array_of, arrow_ints, scalar_of
from headrace.wire.generated import wal_pb2
from headrace.wire.kwal_columns import SCHEMA

_OPS: Final[dict[int, str]] = {WireOp.PUT: Op.PUT.value, WireOp.DELETE: Op.DELETE.value}


def taken_apart(batch: Any, where: str) -> Any:
    """Return the rows with one for each key of an entry of several mutations: the last one of that key. Control
    entries stay.

    The rows of one entry have its sequence id, so a key has one row at each. SegmentCorrupt, naming ``where`` and the
    LSN, for bytes that are no mutations.
    """
    several = pc.equal(batch.column("op"), scalar_of(Op.BATCH.value))
    if "control" in batch.schema.names:
        several = pc.and_(several, pc.is_null(batch.column("control")))
    if not pc.any(several).as_py():
        return batch
    flags = several.to_pylist()
    columns = {name: batch.column(name) for name in ("key", "op", "value")}
    index: list[int] = []
    made: dict[str, list[Any]] = {"key": [], "op": [], "value": []}
    for row, flagged in enumerate(flags):
        rows = (
            _mutations(columns["value"][row].as_py(), batch.column("lsn")[row].as_py(), where)
            if flagged
            else [tuple(columns[name][row].as_py() for name in ("key", "op", "value"))]
        )
        for values in rows:
            index.append(row)
            for name, value in zip(("key", "op", "value"), values, strict=True):
                made[name].append(value)
    wide = batch.take(arrow_ints(np.asarray(index, np.int64)))
    arrays = [
        array_of(made[name], SCHEMA.field(name).type) if name in made else wide.column(name)
        for name in batch.schema.names
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _mutations(value: bytes, lsn: str, where: str) -> list[tuple[Any, ...]]:
    try:
        mutations = wal_pb2.BatchWrite.FromString(value).mutations
    except DecodeError:
        mutations = None
    if mutations is None or any(one.op not in _OPS for one in mutations):
        raise SegmentCorrupt(f"{where}: the entry at lsn={lsn} holds no mutations that can be read")
    last = {one.key: (one.key, _OPS[one.op], one.value) for one in mutations}
    return list(last.values())
