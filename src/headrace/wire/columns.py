"""Stored frames -> one Arrow record batch, with array operations over the buffer and no Python per entry.

The pipeline's source calls it on workers with what the server answered. Entries that a foreign writer laid out in a way
that :mod:`headrace.wire.walk` doesn't know go through protobuf, which is also the oracle of the tests. Its parts serve
:mod:`headrace.wire.batch_columns` too. Needs numpy and pyarrow, which the core does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa

from headrace.errors import JournalCorrupt
from headrace.wire import entry as wal_entry
from headrace.wire.arrays import arrow_flags, arrow_ints, batch_of_rows, bits, scalar_of
from headrace.wire.walk import Flags, Found, Ints, Places, find_places, walk

DDL: Final = (
    "feed STRING, sequence_id BIGINT, lsn STRING, commit_ts BIGINT, committed_at TIMESTAMP, tenant_id STRING, "
    "op STRING, key BINARY, value BINARY, control STRING, `table` ARRAY<STRING>, source_tx BINARY, tx_last BOOLEAN, "
    "append_end BOOLEAN, copy BOOLEAN, source_time TIMESTAMP"
)
"""The columns as Spark SQL. ``control``, ``table``, ``source_tx`` and ``source_time`` are null where an entry has none;
``op`` is put, patch, delete or batch; ``commit_ts`` is the ``global_ts`` of the LSN."""

_STAMP: Final = pa.timestamp("us", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("feed", pa.string()),
        ("sequence_id", pa.int64()),
        ("lsn", pa.string()),
        ("commit_ts", pa.int64()),
        ("committed_at", _STAMP),
        ("tenant_id", pa.string()),
        ("op", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("control", pa.string()),
        ("table", pa.list_(pa.field("element", pa.string()))),
        ("source_tx", pa.binary()),
        ("tx_last", pa.bool_()),
        ("append_end", pa.bool_()),
        ("copy", pa.bool_()),
        ("source_time", _STAMP),
    ]
)
"""The same columns as Arrow; equal to what Spark makes of :data:`DDL`."""

BUFFER_BYTES_MAX: Final = (1 << 31) - 1
"""Largest buffer decoded at once: Arrow's offsets are 32 bits. The server answers with at most one frame or 8 MiB."""

_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999. A source time beyond it is no time and becomes null."""

_OPS: Final = ("put", "delete", "batch", "patch")
_PATCH_CODE: Final = 3


def record_batch(
    data: bytes | memoryview,
    *,
    feed: str,
    first: int = 0,
    last: int = (1 << 63) - 1,
    names: Sequence[str] | None = None,
    where: str = "",
) -> pa.RecordBatch:
    """Return the entries ``first`` … ``last`` (sequence ids, inclusive) of the whole frames that stand in ``data``.

    One row an entry, in order; the columns are those of :data:`SCHEMA`, or the ones in ``names``. Frames are verified by
    their own checksums; JournalCorrupt, naming ``where``, if one is damaged. ``feed`` fills the column of that name.
    """
    if len(data) > BUFFER_BYTES_MAX:
        raise JournalCorrupt(f"{where or 'a buffer'}: {len(data)} bytes can't be decoded at once")
    places = find_places(data, first, last, where)
    found = walk(np.frombuffer(data, np.uint8), places)
    wanted = tuple(names) if names is not None else tuple(SCHEMA.names)
    return walked_batch(data, places, found, feed, wanted)


def walked_batch(
    data: bytes | memoryview,
    places: Places,
    found: Found,
    feed: Any,
    wanted: tuple[str, ...],
    *,
    bare: bool = False,
) -> pa.RecordBatch:
    """Return the entries at ``places`` as rows, after the walk over all of them; ``bare`` as the walk was told.

    ``feed``: of all entries, or an Arrow array of text with one value for each.
    """
    if not found.odd.any():
        return _assemble(data, places, found, feed, wanted)
    return _with_odd(data, places, found.odd, feed, wanted, bare=bare)


def _assemble(
    data: bytes | memoryview, places: Places, found: Found, feed: Any, wanted: tuple[str, ...]
) -> pa.RecordBatch:
    """Make the record batch of entries that the walk understood."""
    source = pa.py_buffer(data)
    arrays = [_column(name, source, places, found, feed) for name in wanted]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([SCHEMA.field(name) for name in wanted]))


def _column(name: str, source: Any, places: Places, found: Found, feed: Any) -> Any:
    total = len(places.starts)
    match name:
        case "feed":
            return pa.repeat(scalar_of(feed), total) if isinstance(feed, str) else feed
        case "sequence_id":
            return arrow_ints(places.sequence_ids)
        case "commit_ts":
            return arrow_ints(places.global_ts)
        case "committed_at":
            return arrow_ints((places.global_ts >> 18) * 1000).view(_STAMP)
        case "op":
            return op_column(found)
        case "source_time":
            return moments(found.numbers["source_time"])
        case "table":
            return text_lists(source, total, found.lists["table"])
        case "tx_last" | "append_end" | "copy":
            return arrow_flags(found.numbers[name] != 0)
    starts, sizes = found.slices[name]
    nullable = name in {"control", "source_tx"}
    column = byte_slices(source, starts, sizes, SCHEMA.field(name).type, sizes > 0 if nullable else None)
    return checked_text(column, name) if name == "control" else column


def op_column(found: Found) -> Any:
    """Return what each entry does, as text: put, patch, delete or batch."""
    codes = np.where(found.numbers["patch"] != 0, _PATCH_CODE, found.numbers["op"])
    return _op_names().take(arrow_ints(codes))


def op_text(op_type: int, *, patch: bool) -> str:
    """Return the same for one entry."""
    return _OPS[_PATCH_CODE if patch else op_type]


def moments(ms: Ints) -> Any:
    """Return milliseconds since 1970 as moments; null where there is none, or it lies beyond the year 9999."""
    known = (ms > 0) & (ms <= _MS_MAX)
    return arrow_ints(np.where(known, ms, 0) * 1000, known).view(_STAMP)


def moment_us(ms: int) -> int | None:
    """Return the same for one entry, in microseconds."""
    return ms * 1000 if 0 < ms <= _MS_MAX else None


def _op_names() -> Any:
    text = np.frombuffer("".join(_OPS).encode(), np.uint8)
    offsets = np.cumsum([0, *map(len, _OPS)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(_OPS), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def byte_slices(source: Any, starts: Ints, sizes: Ints, kind: Any, valid: Flags | None = None) -> Any:
    """Gather byte ranges that stand in ascending order in ``source`` into a string or binary array.

    The ranges and the gaps between them are taken as the elements of one array over the buffer itself; ``take`` then
    copies out every second one.
    """
    total = len(starts)
    if not total or (valid is not None and not valid.any()):
        return pa.nulls(total, kind)
    offsets = np.empty(2 * total + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = starts + sizes
    offsets[-1] = offsets[-2]
    both = pa.Array.from_buffers(kind, 2 * total, [None, pa.py_buffer(offsets), source])
    index = np.arange(0, 2 * total, 2, dtype=np.int64)
    return both.take(arrow_ints(index, valid))


def text_lists(source: Any, total: int, names: list[tuple[Ints, Ints, Ints]]) -> Any:
    """Return a list column of texts; null where an entry has none."""
    kind = SCHEMA.field("table").type
    if not names:
        return pa.nulls(total, kind)
    rows, starts, sizes = (np.concatenate(part) for part in zip(*names, strict=True))
    order = np.argsort(starts, kind="stable")  # entries stand in order, so this sorts by entry too
    values = checked_text(byte_slices(source, starts[order], sizes[order], pa.string()), "list of names")
    counts = np.bincount(rows, minlength=total)
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    named = counts > 0
    buffers = [bits(named), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, total, buffers, int(total - named.sum()), children=[values])


def checked_text(column: Any, name: str) -> Any:
    """Return ``column`` if its text is UTF-8; JournalCorrupt if not (protobuf would refuse it too)."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        raise JournalCorrupt(f"a stored entry's {name} is not UTF-8: {error}") from None
    return column


def _with_odd(
    data: bytes | memoryview, places: Places, odd: Flags, feed: Any, wanted: tuple[str, ...], *, bare: bool
) -> pa.RecordBatch:
    """Decode the odd entries by protobuf, the others by arrays, and put them back in order."""
    plain = Places(*(part[~odd] for part in places))
    feeds = (
        (feed, feed) if isinstance(feed, str) else (feed.filter(arrow_flags(part)) for part in (~odd, odd))
    )
    feed_of_plain, feed_of_odd = feeds
    found = walk(np.frombuffer(data, np.uint8), plain, bare=bare)
    regular = _assemble(data, plain, found, feed_of_plain, wanted)
    rest = _by_protobuf(data, Places(*(part[odd] for part in places)), feed_of_odd, bare)
    return interleaved(regular, rest.select(list(wanted)), odd)


def interleaved(regular: pa.RecordBatch, rest: pa.RecordBatch, odd: Flags) -> pa.RecordBatch:
    """Put the rows of both into one, in order: those of ``rest`` stand where ``odd`` is true."""
    both = pa.Table.from_batches([regular, rest])
    order = np.argsort(np.concatenate((np.flatnonzero(~odd), np.flatnonzero(odd))), kind="stable")
    return both.take(arrow_ints(order)).combine_chunks().to_batches()[0]


def _by_protobuf(data: bytes | memoryview, places: Places, feed: Any, bare: bool) -> pa.RecordBatch:
    """Decode entries one by one; JournalCorrupt where one is no entry."""
    view = memoryview(data)
    rows: list[dict[str, Any]] = []
    feeds = repeat(feed) if isinstance(feed, str) else feed.to_pylist()
    message_of = wal_entry.bare_message_of if bare else wal_entry.message_of
    for start, end, sequence_id, global_ts, name in zip(
        *(part.tolist() for part in places), feeds, strict=False
    ):
        message = message_of(view[start:end])
        if not 0 <= message.op_type < _PATCH_CODE or not message.lsn:
            raise JournalCorrupt(f"entry {sequence_id} has op {message.op_type} and LSN {message.lsn!r}")
        rows.append(
            {
                "feed": name,
                "sequence_id": sequence_id,
                "lsn": message.lsn,
                "commit_ts": global_ts,
                "committed_at": (global_ts >> 18) * 1000,
                "tenant_id": message.tenant_id,
                "op": op_text(message.op_type, patch=message.patch),
                "key": message.key,
                "value": message.value,
                "control": message.control or None,
                "table": list(message.table) or None,
                "source_tx": message.source_tx or None,
                "tx_last": message.tx_last,
                "append_end": message.append_end,
                "copy": message.copy,
                "source_time": moment_us(message.source_time_ms),
            }
        )
    return batch_of_rows(rows, SCHEMA)
