"""A task's rows as Arrow batches -> the entries of one append for each feed, in the declared order. Pure.

Equal rows give equal bytes in equal order, however Spark handed them over: ties in the declared order are broken by the
bytes themselves. So a batch that comes again is recognised.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.entries.entry import CONTROL_PREFIX, Change, Op
from headrace.entries.feed import check_feed_id
from headrace.errors import BatchTooLarge, InvalidRequest, RowUnfit
from headrace.pipeline.sink.options import OrderKey, SinkOptions
from headrace.wire.arrays import scalar_of
from headrace.wire.entry import encode_half
from headrace.wire.halves import Joined, join_halves

ENTRIES_MAX: Final = 50_000
"""Entries of one append: what a server takes."""
ENTRY_BYTES_MAX: Final = 1 << 20
"""Bytes of one entry as its producer's half: what a server takes."""
APPEND_BYTES_MAX: Final = 16 << 20
"""Bytes of one append's entries; a server takes requests of 17 MiB."""
TASK_BYTES_MAX: Final = 128 << 20
"""Bytes of rows that one task holds as Arrow, for all its feeds: they are sorted in memory."""

_KEY_CHARS_SHOWN: Final = 120
_OPS: Final = {None: Op.PUT, "put": Op.PUT, "patch": Op.PATCH, "delete": Op.DELETE}
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class FeedRows(NamedTuple):
    """One task's rows for one feed: ``entries`` are the ``rows`` producer's halves, joined as an append carries them."""

    feed: str
    rows: int
    entries: Joined


def collect(batches: Iterable[Any], batch: int) -> Any:
    """Return a task's record batches as one table; None if there is no row. BatchTooLarge beyond TASK_BYTES_MAX."""
    kept: list[Any] = []
    size = 0
    for part in batches:
        if part.num_rows:
            kept.append(part)
            size += part.nbytes
        if size > TASK_BYTES_MAX:
            raise BatchTooLarge(
                f"batch {batch}: a task has more than {TASK_BYTES_MAX:,} bytes of rows; an append takes {APPEND_BYTES_MAX:,}"
            )
    return pa.Table.from_batches(kept).combine_chunks() if kept else None


def feed_rows(table: Any, options: SinkOptions, batch: int) -> list[FeedRows]:
    """Return the rows of ``table`` as one append for each feed, by feed name.

    Raises RowUnfit, naming feed, batch and key, and BatchTooLarge, naming feed and batch.
    """
    if not options.feed_column:
        return [_one_feed(table, options.feed, options.order, batch)]
    names = table.column(options.feed_column)
    if names.null_count:
        raise RowUnfit(f"batch {batch}: {names.null_count} rows have no feed in {options.feed_column}")
    found = []
    for name in sorted(pc.unique(names).to_pylist()):
        try:
            check_feed_id(name)
        except InvalidRequest as error:
            raise RowUnfit(f"batch {batch}: {options.feed_column}: {error.detail}") from None
        part = table.filter(pc.equal(names, scalar_of(name, names.type))).combine_chunks()
        found.append(_one_feed(part, name, options.order, batch))
    return found


def _one_feed(table: Any, feed: str, order: Sequence[OrderKey], batch: int) -> FeedRows:
    where = f"the feed {feed}, batch {batch}"
    if table.num_rows > ENTRIES_MAX:
        raise BatchTooLarge(f"{where}: {table.num_rows} rows; one append takes {ENTRIES_MAX}")
    halves = _halves(table, where)
    size = sum(map(len, halves))
    if size > APPEND_BYTES_MAX:
        raise BatchTooLarge(
            f"{where}: its {len(halves)} entries have {size:,} bytes; one append takes {APPEND_BYTES_MAX:,}"
        )
    ranks = [_ranks(table, key, where) for key in order]
    sequence = sorted(range(len(halves)), key=lambda row: (*(rank[row] for rank in ranks), halves[row]))
    return FeedRows(feed, len(halves), join_halves(halves[row] for row in sequence))


def _ranks(table: Any, key: OrderKey, where: str) -> list[int]:
    """Return the place of each row by one column; equal values have equal places, nulls come last."""
    column = table.column(key.column)
    direction = "descending" if key.descending else "ascending"
    ranks = pc.rank(column, sort_keys=direction, tiebreaker="dense")
    if key.column == "ordinal" and (column.null_count or pc.count_distinct(ranks).as_py() < len(ranks)):
        raise RowUnfit(f"{where}: ordinal must be another number in each row")
    return list(ranks.to_pylist())


def _halves(table: Any, where: str) -> list[bytes]:
    """Return each row's producer's half, in the table's order."""
    count = table.num_rows
    has = set(table.column_names)
    keys, values = table.column("key").to_pylist(), table.column("value").to_pylist()
    ops = table.column("op").to_pylist() if "op" in has else [None] * count
    tables = table.column("table").to_pylist() if "table" in has else [None] * count
    return [
        _half(key, value, op, names, where)
        for key, value, op, names in zip(keys, values, ops, tables, strict=True)
    ]


def _half(
    key: str | bytes | None,
    value: str | bytes | None,
    op: str | None,
    names: list[str | None] | None,
    where: str,
) -> bytes:
    if key is None:
        raise RowUnfit(f"{where}: a row has no key")
    if op not in _OPS:
        raise _unfit(where, key, f"op is {op!r}; it must be put, patch or delete")
    name = key.encode() if isinstance(key, str) else key
    if name.startswith(CONTROL_PREFIX):
        raise _unfit(where, key, "a key may not begin with a zero byte")
    if names is not None and (not names or None in names):
        raise _unfit(where, key, "table must be names, or null")
    half = encode_half(
        Change(
            value=_value(value, _OPS[op], where, key),
            key=name,
            op=_OPS[op],
            table=tuple(part for part in names or () if part is not None),
        )
    )
    if len(half) > ENTRY_BYTES_MAX:
        raise _unfit(where, key, f"the entry takes {len(half):,} bytes; the most is {ENTRY_BYTES_MAX:,}")
    return half


def _value(value: str | bytes | None, op: Op, where: str, key: str | bytes) -> bytes:
    """Return a value's bytes: text must be a JSON object, bytes are what they are; a delete may have none."""
    if value is None:
        if op is Op.DELETE:
            return b"{}"
        raise _unfit(where, key, f"a {op} has no value")
    if isinstance(value, bytes):
        return value
    data = value.encode()
    try:
        _OBJECT.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _unfit(where, key, f"the value is not a JSON object: {error}") from None
    return data


def _unfit(where: str, key: str | bytes, why: str) -> RowUnfit:
    shown = key[:_KEY_CHARS_SHOWN]
    return RowUnfit(f"{where}, key {shown if isinstance(shown, str) else repr(shown)}: {why}")
