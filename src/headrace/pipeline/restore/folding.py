"""Changes of keys, sorted -> the newest value of each, as record batches. Called on workers by a restore of keys and values.

All changes of a key stand together, in ascending sequence ids; however many they are, one value is held. Rows whose key ends
with a put or a delete are found with array operations; patches (RFC 7396) are merged one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.archive.moments.histories import Span
from headrace.entries.entry import Op
from headrace.entries.lsn import ZERO
from headrace.pipeline.restore.newest import newest_changes
from headrace.pipeline.tables.schemas import TableName, unfit
from headrace.wire.arrays import array_of, arrow_flags, arrow_ints, numpy_flags, numpy_ints, scalar_of
from headrace.wire.merge_patch import apply_patch

CHANGE_DDL: Final = "feed INT, key BINARY, sequence_id BIGINT, commit_ts BIGINT, op STRING, value BINARY"
"""A change of a key; ``feed`` is its place in the list of feeds. A delete has no value."""
CHANGE_SCHEMA: Final = pa.schema(
    [
        ("feed", pa.int32()),
        ("key", pa.binary()),
        ("sequence_id", pa.int64()),
        ("commit_ts", pa.int64()),
        ("op", pa.string()),
        ("value", pa.binary()),
    ]
)

STATE_DDL: Final = (
    "feed STRING, key BINARY, value BINARY, lsn STRING, sequence_id BIGINT, incarnation STRING, "
    "committed_at TIMESTAMP"
)
"""A key as it is at the target: ``sequence_id`` and ``lsn`` of the entry that changed it last."""
_PATCH: Final = scalar_of(Op.PATCH.value)
_STAMP: Final = pa.timestamp("us", tz="UTC")
STATE_SCHEMA: Final = pa.schema(
    [
        ("feed", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("lsn", pa.string()),
        ("sequence_id", pa.int64()),
        ("incarnation", pa.string()),
        ("committed_at", _STAMP),
    ]
)

_LSN_SIZE: Final = len(str(ZERO))
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)
_NIBBLES: Final = np.arange(60, -1, -4, dtype=np.uint64)
_TENS: Final = 10 ** np.arange(9, -1, -1, dtype=np.int64)


class RestoredFeed(NamedTuple):
    """A feed as workers know it: its histories, one above the other. ``cleared``: table -> the sequence id below which
    its rows are gone.
    """

    feed: str
    spans: tuple[Span, ...]
    cleared: Mapping[TableName, int]


def change_batches(batches: Iterator[Any], feeds: Sequence[RestoredFeed]) -> Iterator[Any]:
    """Turn entries (feed, sequence_id, commit_ts, op, key, value, control, table) into changes (:data:`CHANGE_SCHEMA`).

    Control entries go, and rows of tables that were cleared behind them.
    """
    names = array_of([one.feed for one in feeds], pa.string())
    clears = {(one.feed, table): place for one in feeds for table, place in one.cleared.items()}
    cleared = array_of([_joined_name(*name) for name in clears], pa.string())
    places = np.asarray([*clears.values(), 0], np.int64)
    for batch in batches:
        kept = batch.filter(pc.is_null(batch.column("control")))
        if clears and kept.num_rows:
            at = pc.fill_null(
                pc.index_in(_joined_names(kept), cleared).cast(pa.int64()), scalar_of(len(clears), pa.int64())
            )
            floors = places[numpy_ints(at)]
            kept = kept.filter(arrow_flags(numpy_ints(kept.column("sequence_id")) > floors))
        if not kept.num_rows:
            continue
        gone = pc.equal(kept.column("op"), scalar_of(Op.DELETE.value))
        arrays = [
            pc.index_in(kept.column("feed"), names),
            kept.column("key"),
            kept.column("sequence_id"),
            kept.column("commit_ts"),
            kept.column("op"),
            pc.if_else(gone, scalar_of(None, pa.binary()), kept.column("value")),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA)


def group_batches(segments: Iterator[Iterator[Any]], feeds: Sequence[RestoredFeed]) -> Iterator[Any]:
    """Turn the entries of neighbouring segments, the newest segment first, into those changes that may still matter."""
    return newest_changes(change_batches(batches, feeds) for batches in segments)


def _joined_name(feed: str, table: TableName) -> str:
    return "\x1f".join((feed, *table))


def _joined_names(batch: Any) -> Any:
    """Feed and table of each row as one text; null where it has no table."""
    tables = pc.binary_join(batch.column("table"), scalar_of("\x1f"))
    return pc.binary_join_element_wise(batch.column("feed"), tables, scalar_of("\x1f"))


class _Key:
    """One key on its way: the last change, and what it came to; ``value`` is None where it is gone."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.feed, self.key = row["feed"], row["key"]
        self.value: bytes | None = None
        self.sequence_id = self.commit_ts = 0

    def change(self, row: Mapping[str, Any], feeds: Sequence[RestoredFeed]) -> None:
        self.sequence_id, self.commit_ts = row["sequence_id"], row["commit_ts"]
        if row["op"] == Op.DELETE:
            self.value = None
        elif row["op"] != Op.PATCH:
            self.value = row["value"]
        else:
            try:
                self.value = apply_patch(self.value, row["value"])
            except ValueError as error:
                problem = f"a patch of this key can't be merged: {error}"
                raise unfit(feeds[self.feed].feed, self.sequence_id, (), "", problem) from None


def state_batches(batches: Iterator[Any], feeds: Sequence[RestoredFeed]) -> Iterator[Any]:
    """Turn sorted changes (:data:`CHANGE_SCHEMA`; by feed, key and sequence id) into keys' states (:data:`STATE_SCHEMA`).

    ValueUnfit, naming feed and entry, where a patch can't be merged.
    """
    held: _Key | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        ends = _last_of_keys(batch)
        ops = batch.column("op")
        # The batch's last key may go on in the next batch, and the first one may have begun in the one before.
        first = int(ends[0])
        tail = int(ends[-2]) + 1 if len(ends) > 1 else 0
        if held is not None and not _is_key(batch, held):
            yield from _shown([held], feeds)
            held = None
        if len(ends) > 1:
            done: list[_Key] = []
            begin = 0
            if held is not None:
                done.append(_folded(held, batch, 0, first, feeds))
                begin, held = 1, None
            middle = ends[begin:-1]
            taken = ops.take(arrow_ints(middle))
            patched = np.flatnonzero(numpy_flags(pc.equal(taken, _PATCH)))
            for one in patched.tolist():
                start = int(ends[begin + one - 1]) + 1 if begin + one else 0
                done.append(_folded(None, batch, start, int(middle[one]), feeds))
            puts = middle[numpy_flags(pc.equal(taken, scalar_of(Op.PUT.value)))]
            yield _told(batch.take(arrow_ints(puts)), feeds)
            yield from _shown(done, feeds)
        held = _folded(held, batch, tail, batch.num_rows - 1, feeds)
    if held is not None:
        yield from _shown([held], feeds)


def _last_of_keys(batch: Any) -> Any:
    """Return the row that is the last of each key in the batch."""
    total = batch.num_rows
    if total == 1:
        return np.zeros(1, np.int64)
    same = pc.and_(
        pc.equal(batch.column("key").slice(1), batch.column("key").slice(0, total - 1)),
        pc.equal(batch.column("feed").slice(1), batch.column("feed").slice(0, total - 1)),
    )
    return np.append(np.flatnonzero(~numpy_flags(same)), total - 1).astype(np.int64)


def _is_key(batch: Any, held: _Key) -> bool:
    return bool(batch.column("feed")[0].as_py() == held.feed and batch.column("key")[0].as_py() == held.key)


def _folded(held: _Key | None, batch: Any, first: int, last: int, feeds: Sequence[RestoredFeed]) -> _Key:
    """Fold the rows ``first`` … ``last``, all of one key, into it; only what follows the last put or delete is looked at."""
    part = batch.slice(first, last - first + 1)
    whole = np.flatnonzero(numpy_flags(pc.not_equal(part.column("op"), _PATCH)))
    rows = part.slice(int(whole[-1]) if len(whole) else 0).to_pylist()
    key = held or _Key(rows[0])
    for row in rows:
        key.change(row, feeds)
    return key


def _told(rows: Any, feeds: Sequence[RestoredFeed]) -> Any:
    """Return changes that are puts as states."""
    places = _span_numbers(rows, feeds)
    spans = [span for one in feeds for span in one.spans]
    regions = np.asarray([span.region_id for span in spans], np.int64)[places]
    stamps = numpy_ints(rows.column("commit_ts"))
    index = rows.column("feed")
    arrays = [
        array_of([one.feed for one in feeds], pa.string()).take(index),
        rows.column("key"),
        rows.column("value"),
        lsn_texts(stamps, regions, numpy_ints(rows.column("sequence_id"))),
        rows.column("sequence_id"),
        array_of([span.incarnation for span in spans], pa.string()).take(arrow_ints(places)),
        arrow_ints((stamps >> 18) * 1000).view(_STAMP),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=STATE_SCHEMA)


def lsn_texts(stamps: Any, regions: Any, sequence_ids: Any) -> Any:
    """Return the LSNs of entries as Arrow text, of these times, numbers of feeds and sequence ids (each int64)."""
    total = len(stamps)
    text = np.empty((total, _LSN_SIZE), np.uint8)
    text[:, :16] = _HEX[(stamps.view(np.uint64)[:, None] >> _NIBBLES) & np.uint64(15)]
    text[:, 16] = text[:, 27] = ord(".")
    text[:, 17:27] = ord("0") + regions[:, None] // _TENS % 10
    text[:, 28:] = ord("0") + (sequence_ids & 0xFFFFFFFF)[:, None] // _TENS % 10
    ends = np.arange(0, (total + 1) * _LSN_SIZE, _LSN_SIZE, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), total, [None, pa.py_buffer(ends), pa.py_buffer(text)])


def _span_numbers(rows: Any, feeds: Sequence[RestoredFeed]) -> Any:
    """Return each row's place among all spans of all feeds, as its sequence id has it."""
    counts = np.asarray([len(one.spans) for one in feeds], np.int64)
    starts = np.cumsum(counts) - counts
    numbers = numpy_ints(rows.column("feed").cast(pa.int64()))
    found = starts[numbers]
    if (counts > 1).any():
        ids = numpy_ints(rows.column("sequence_id"))
        for number in np.flatnonzero(counts > 1).tolist():
            mine = numbers == number
            firsts = np.asarray([span.first for span in feeds[number].spans[1:]], np.int64)
            found[mine] += np.searchsorted(firsts, ids[mine], "right")
    return found


def _shown(keys: Sequence[_Key], feeds: Sequence[RestoredFeed]) -> Iterator[Any]:
    there = [one for one in keys if one.value is not None]
    if not there:
        return
    arrays = [
        array_of([one.feed for one in there], pa.int32()),
        array_of([one.key for one in there], pa.binary()),
        array_of([one.sequence_id for one in there], pa.int64()),
        array_of([one.commit_ts for one in there], pa.int64()),
        array_of([Op.PUT.value] * len(there), pa.string()),
        array_of([one.value for one in there], pa.binary()),
    ]
    yield _told(pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA), feeds)
