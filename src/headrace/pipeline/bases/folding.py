"""Sorted entries -> what a base keeps of them, as record batches. Called on workers. Pure: Arrow and numpy, no JVM.

All entries of a key stand together, in ascending sequence ids. Keys whose last entry says all, nearly all of them, are
found with array operations; the others (patches, captured tables' keys with several entries) go one by one through
:mod:`~headrace.pipeline.bases.keys`. A captured table goes by its messages: where a key is none of capture's own, entries of
several rows may have it, so all of them are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.entries.entry import Op
from headrace.errors import QueryFailed
from headrace.pipeline.bases.generations import FeedGenerations, TableGenerations
from headrace.pipeline.bases.keys import HELD_BYTES_MAX, Kept, Key
from headrace.pipeline.bases.naming import are_named
from headrace.wire.arrays import array_of, arrow_flags, arrow_ints, numpy_flags, numpy_ints, scalar_of
from headrace.wire.kwal_columns import SCHEMA
from headrace.wire.walk import Flags, Ints

SORTED_BY: Final = ("feed", "key", "sequence_id")
"""How rows must stand. No two of them are equal in all three."""

_SEPARATOR: Final = "\x1f"


def kept_batches(
    batches: Iterator[Any], feeds: Mapping[str, FeedGenerations], *, held_bytes_max: int = HELD_BYTES_MAX
) -> Iterator[Any]:
    """Yield what a base keeps of rows that are sorted by :data:`SORTED_BY`; both have the columns ``kwal_columns.SCHEMA``.

    None of the rows is a control entry or an entry of several mutations. QueryFailed for a feed that is not in ``feeds``.
    A batch and what single keys came to is in memory, however many entries a key has: of the one that goes on in the next
    batch at most ``held_bytes_max``.
    """
    held: _Held | None = None
    for batch in batches:
        rows = _Rows.of(batch, feeds)
        if not rows.batch.num_rows:
            continue
        ends = rows.last_of_keys()
        starts = np.append(0, ends[:-1] + 1)
        done: list[Kept] = []
        begin = 0
        if held is not None:
            if held.is_of(rows.batch, 0):
                held.add(rows, 0, int(ends[0]))
                begin = 1
            if not begin or len(ends) > 1:
                done += held.key.kept()
                held = None
        if begin < len(ends):
            # The last key may go on in the next batch.
            quick, slow = rows.sorted_out(starts[begin:-1], ends[begin:-1])
            yield rows.batch.take(arrow_ints(quick))
            for start, end in slow:
                one = _Held(rows, start)
                one.add(rows, start, end)
                done += one.key.kept()
            held = _Held(rows, int(starts[-1]))
            held.add(rows, int(starts[-1]), int(ends[-1]))
        if held is not None:
            done += held.key.settled(held_bytes_max)
        yield from _assembled(done)
        if held is not None:
            held.key.detach()
    if held is not None:
        yield from _assembled(held.key.kept())


class _Rows(NamedTuple):
    """A batch without its void rows. ``names``: each row's index into ``tables`` and ``generations``: its feed and table.

    ``is_captured``, ``tells_deletes``: of each row; ``is_last``: it is its feed's last entry; ``is_every``: it is of a
    captured table, and its key is none of capture's: it is kept.
    """

    batch: Any
    names: Ints
    tables: Sequence[tuple[str, tuple[str, ...]]]
    feeds: Sequence[FeedGenerations]
    is_captured: Flags
    tells_deletes: Flags
    is_last: Flags
    is_every: Flags

    @classmethod
    def of(cls, batch: Any, feeds: Mapping[str, FeedGenerations]) -> _Rows:
        tables = pc.fill_null(
            pc.binary_join(batch.column("table"), scalar_of(_SEPARATOR)),
            scalar_of(""),
        )
        joined = pc.binary_join_element_wise(
            batch.column("feed"), tables, scalar_of(_SEPARATOR)
        ).dictionary_encode()
        names = numpy_ints(joined.indices.cast(pa.int64()))
        ids = numpy_ints(batch.column("sequence_id"))
        known: list[tuple[str, tuple[str, ...]]] = []
        of_feeds: list[FeedGenerations] = []
        facts = np.zeros((4, len(names)), np.bool_)
        for index in range(len(joined.dictionary)):
            here = np.flatnonzero(names == index)
            feed, table = _name_at(batch, int(here[0]))
            if feed not in feeds:
                raise QueryFailed(f"the feed {feed} is none of those that the base is made of")
            known.append((feed, table))
            of_feeds.append(feeds[feed])
            facts[:, here] = _facts(feeds[feed], table, ids[here])
        void = facts[0]
        if void.any():
            keep = ~void
            batch = batch.filter(arrow_flags(keep))
            names, facts = names[keep], facts[:, keep]
        _, is_captured, tells, is_last = facts
        simple = [name for name, feed in feeds.items() if feed.captured]
        is_every = ~numpy_flags(are_named(batch, simple))
        return cls(batch, names, known, of_feeds, is_captured, tells, is_last, is_every)

    def last_of_keys(self) -> Ints:
        """Return the row that is the last of each key in the batch."""
        total = self.batch.num_rows
        same = np.zeros(total, np.bool_)
        if total > 1:
            same[:-1] = numpy_flags(
                pc.and_(*(_equal_to_next(self.batch.column(name)) for name in ("key", "feed")))
            )
        return np.flatnonzero(~same).astype(np.int64)

    def sorted_out(self, starts: Ints, ends: Ints) -> tuple[Ints, list[tuple[int, int]]]:
        """Return the rows that are kept as they are, and the first and last row of each key to be looked at."""
        ops = self.batch.column("op").take(arrow_ints(ends))
        is_put = numpy_flags(pc.equal(ops, scalar_of(Op.PUT.value)))
        is_delete = numpy_flags(pc.equal(ops, scalar_of(Op.DELETE.value)))
        is_single = starts == ends
        captured = self.is_captured[ends]
        # Of a key in one table: the last row is all that there is of it, unless it is a patch or one of several messages.
        changes = np.append(0, np.cumsum(self.names[1:] != self.names[:-1]))
        in_one_table = changes[starts] == changes[ends]
        is_every = in_one_table & self.is_every[ends]
        is_quick = in_one_table & (is_put | is_delete) & (is_single | ~captured) & ~is_every
        is_told = self.is_last[ends] | (captured & self.tells_deletes[ends])
        quick = ends[is_quick & (is_put | is_told)]
        if is_every.any():
            quick = np.append(quick, _between(starts[is_every], ends[is_every]))
        slow = np.flatnonzero(~is_quick & ~is_every)
        return quick, list(zip(starts[slow].tolist(), ends[slow].tolist(), strict=True))


class _Held:
    """A key whose entries are added batch by batch."""

    def __init__(self, rows: _Rows, row: int) -> None:
        name = int(rows.names[row])
        self._feed = rows.tables[name][0]
        self._bytes = rows.batch.column("key")[row].as_py()
        self.key = Key(rows.feeds[name], rows.tables[name][1], every=bool(rows.is_every[row]))

    def is_of(self, batch: Any, row: int) -> bool:
        """Tell whether a row is of this key."""
        return bool(
            batch.column("feed")[row].as_py() == self._feed
            and batch.column("key")[row].as_py() == self._bytes
        )

    def add(self, rows: _Rows, first: int, last: int) -> None:
        """Add the rows ``first`` … ``last`` of a batch."""
        part = rows.batch.slice(first, last - first + 1)
        names = rows.names[first : last + 1]
        ops = part.column("op")
        start = 0
        if (
            not rows.is_captured[first]
            and (names == names[0]).all()
            and rows.tables[names[0]][1] == self.key.table
        ):
            whole = np.flatnonzero(numpy_flags(pc.not_equal(ops, scalar_of(Op.PATCH.value))))
            start = int(whole[-1]) if len(whole) else 0
        ids, values = part.column("sequence_id"), part.column("value")
        for index in range(start, len(part)):
            entry = Kept(
                rows.batch, first + index, ids[index].as_py(), ops[index].as_py(), values[index].as_py()
            )
            self.key.add(entry, rows.tables[int(names[index])][1])


def _facts(feed: FeedGenerations, table: tuple[str, ...], ids: Ints) -> Any:
    """Return of rows of one table: whether they are void, captured, their deletions needed, the feed's last entry."""
    found: TableGenerations = feed.of(table)
    places = np.searchsorted(np.asarray(found.cuts, np.int64), ids, side="left")
    void = np.asarray([one.void for one in found.generations], np.bool_)[places]
    tells = np.asarray([one.tells_deletes for one in found.generations], np.bool_)[places]
    captured = np.full(len(ids), feed.captured and bool(table), np.bool_)
    return np.stack((void, captured, tells, ids == feed.last))


def _between(starts: Ints, ends: Ints) -> Ints:
    """Return the rows of ranges, both ends inclusive: ascending, none in two of them."""
    counts = ends - starts + 1
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(counts.sum())


def _name_at(batch: Any, row: int) -> tuple[str, tuple[str, ...]]:
    return batch.column("feed")[row].as_py(), tuple(batch.column("table")[row].as_py() or ())


def _assembled(entries: Sequence[Kept]) -> Iterator[Any]:
    """Yield entries as one record batch; those of one batch are taken from it at once."""
    if not entries:
        return
    ordered = sorted(entries, key=lambda one: id(one.batch))
    parts, start = [], 0
    for index in range(1, len(ordered) + 1):
        if index == len(ordered) or ordered[index].batch is not ordered[start].batch:
            rows = np.asarray([one.index for one in ordered[start:index]], np.int64)
            parts.append(ordered[start].batch.take(arrow_ints(rows)))
            start = index
    whole = pa.concat_batches(parts) if len(parts) > 1 else parts[0]
    if any(one.is_changed for one in ordered):
        made = {
            "op": array_of([str(one.op) for one in ordered], pa.string()),
            "value": array_of([one.value for one in ordered], pa.binary()),
        }
        arrays = [made.get(field.name, column) for field, column in zip(SCHEMA, whole.columns, strict=True)]
        whole = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
    yield whole


def _equal_to_next(column: Any) -> Any:
    return pc.equal(column.slice(1), column.slice(0, len(column) - 1))
