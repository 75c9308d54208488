"""Segments -> appends, as a journal has them: array operations find their ends, and their bytes are slices. Pure.

An append is what stands up to an entry that says ``append_end``, in one segment or over several. Its entries are those of
one feed, their sequence ids one behind the other, their LSNs as the server stamped them: all of that is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError, JournalCorrupt, RestoreInexact, TargetInsideAppend
from headrace.wire.entry import bare_message_of
from headrace.wire.kwal import fault
from headrace.wire.kwal_blocks import Block
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_feeds import FeedTable, Rows
from headrace.wire.kwal_manifest import Manifest
from headrace.wire.walk import Flags, Ints

_TAG: Final = 0x0A


class StoredAppend(NamedTuple):
    """One append. ``body``: its ``entries`` fields; ``lengths``: the size of each as u32 little-endian.

    ``transaction_ends``: indexes of the entries that end a source transaction, u32 little-endian.
    """

    region_id: int
    first_sequence_id: int
    global_ts: int
    count: int  # type: ignore[assignment]  # an entry count says more here than tuple.count
    body: bytes
    lengths: bytes
    transaction_ends: bytes

    @property
    def next_sequence_id(self) -> int:
        """The sequence id behind its last entry."""
        return self.first_sequence_id + self.count


class Bounds(NamedTuple):
    """Which entries are wanted: above ``after``, up to ``last``, of these (region id, feed, incarnation)."""

    after: Lsn
    last: Lsn
    histories: Collection[tuple[int, str, str]]


class Appends:
    """Finds the wanted appends of one segment after the other."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._open: list[StoredAppend] = []
        self._last_ts = 0
        self._left_open: tuple[int, int, int] | None = None
        """Where the append goes on (region, sequence id, time) that the block before leaves open, if its last row is not
        wanted."""

    def of(
        self, segment: Segment, data: memoryview, manifest: Manifest, where: str
    ) -> Iterator[StoredAppend]:
        """Yield the appends that end in ``segment``, whose bytes are ``data`` and stand in the file ``where``.

        Raises SegmentCorrupt; TargetInsideAppend if only a part of an append is wanted; RestoreInexact if its entries don't
        stand one behind the other.
        """
        heads, ends = segment.fields()
        table = FeedTable(manifest.feeds)
        buffer, at = np.frombuffer(data, np.uint8), 0
        for block in segment.blocks():
            stop = at + len(block.lsns.low)
            try:
                rows = table.rows(block)
            except JournalCorrupt as error:
                raise fault(error, where) from None
            fields = _Fields(buffer, heads[at:stop], ends[at:stop])
            yield from self._of_block(block, rows, fields)
            at = stop

    def finish(self) -> None:
        """Raise TargetInsideAppend if the last append is not whole."""
        if self._open:
            raise self._inside()

    def _inside(self) -> TargetInsideAppend:
        first = self._open[0]
        return TargetInsideAppend(
            f"the append of region {first.region_id} that begins at sequence id {first.first_sequence_id} goes on behind "
            "the target; a journal has whole appends only"
        )

    def _cut(self, block: Block, row: int) -> HeadraceError:
        """The error about an append whose end does not come where it must."""
        return self._inside() if block.lsns.at(row) > self._bounds.last else _torn(block, row)

    def _of_block(self, block: Block, rows: Rows, fields: _Fields) -> Iterator[StoredAppend]:
        ids = rows.sequence_ids
        if ids is None:  # never: there is a manifest
            raise RestoreInexact("the segment has no sequence ids")
        ends_append, tx_last = _ends(block)
        wanted = self._wanted(block, rows)
        inside = ~ends_append[:-1]
        _check_joined(block, ids, wanted, inside, self._bounds)
        if wanted[0] and self._left_open == _row_of(block, ids, 0):
            raise _begun_below(block.lsns.at(0), self._bounds)
        self._left_open = None if wanted[-1] or ends_append[-1] else _row_of(block, ids, -1, ahead=1)
        if not wanted.any():
            if self._open:
                raise self._cut(block, 0)
            return
        stops = np.flatnonzero(ends_append) + 1
        starts = np.append(0, stops)
        if len(stops) and stops[-1] == len(ids):
            starts = starts[:-1]
        else:
            stops = np.append(stops, len(ids))
        last_rows = np.flatnonzero(tx_last)
        lows, highs = np.searchsorted(last_rows, starts), np.searchsorted(last_rows, stops)
        regions, stamps = block.lsns.regions, block.lsns.global_ts
        for start, stop, low, high in zip(
            *(one.tolist() for one in (starts, stops, lows, highs)), strict=True
        ):
            is_wanted = wanted[start]
            if not is_wanted:
                if self._open:
                    raise self._cut(block, start)
                continue
            part = StoredAppend(
                int(regions[start]),
                int(ids[start]),
                int(stamps[start]),
                stop - start,
                *fields.part(start, stop),
                (last_rows[low:high] - start).astype("<u4").tobytes() if low < high else b"",
            )
            last_ts = int(stamps[stop - 1])
            if ends_append[stop - 1]:
                yield self._closed(part, block, start)
            else:
                self._continue(part, block, start)
                self._last_ts = last_ts

    def _wanted(self, block: Block, rows: Rows) -> Flags:
        after, last, histories = self._bounds
        known = [
            any((feed, incarnation) == (name, history) for _, name, history in histories)
            for feed, incarnation in zip(rows.feeds, rows.incarnations, strict=True)
        ]
        of_history: Flags = np.asarray(known, np.bool_)[rows.rows]
        regions = {region for region, _, _ in histories}
        of_region = np.isin(block.lsns.regions, list(regions))
        return of_history & of_region & block.lsns.between(Lsn.from_int(int(after) + 1), last)

    def _continue(self, part: StoredAppend, block: Block, row: int) -> None:
        if self._open:
            before = self._open[-1]
            wraps = part.first_sequence_id & 0xFFFFFFFF == 0
            if (before.region_id, before.next_sequence_id, self._last_ts + wraps) != part[:3]:
                raise _torn(block, row)
        self._open.append(part)

    def _closed(self, part: StoredAppend, block: Block, row: int) -> StoredAppend:
        """Return the append that ends with ``part``."""
        if not self._open:
            return part
        self._continue(part, block, row)
        parts, self._open = self._open, []
        ends = [
            np.frombuffer(one.transaction_ends, "<u4") + (one.first_sequence_id - parts[0].first_sequence_id)
            for one in parts
        ]
        return parts[0]._replace(
            count=sum(one.count for one in parts),
            body=b"".join(one.body for one in parts),
            lengths=b"".join(one.lengths for one in parts),
            transaction_ends=np.concatenate(ends).astype("<u4").tobytes(),
        )


class _Fields:
    """The ``entries`` fields of neighbouring entries: the bytes of a segment, with a tag before each."""

    def __init__(self, buffer: Any, heads: Ints, ends: Ints) -> None:
        begin = heads[0] if len(heads) else 0
        self._body: bytes = np.insert(buffer[begin : ends[-1]], heads - begin, _TAG).tobytes()
        self._lengths: bytes = (ends - heads + 1).astype("<u4").tobytes()
        self._at = np.append(heads, ends[-1]) - begin + np.arange(len(heads) + 1)

    def part(self, start: int, stop: int) -> tuple[bytes, bytes]:
        """Return body and lengths of the entries ``start`` … ``stop`` - 1."""
        return self._body[int(self._at[start]) : int(self._at[stop])], self._lengths[4 * start : 4 * stop]


def _ends(block: Block) -> tuple[Flags, Flags]:
    """Tell which entries end an append, and which a source transaction. Those that the walk does not know are parsed."""
    numbers = block.found.numbers
    ends_append, tx_last = numbers["append_end"] != 0, numbers["tx_last"] != 0
    for row in np.flatnonzero(block.found.odd).tolist():
        start, end = int(block.places.starts[row]), int(block.places.ends[row])
        message = bare_message_of(memoryview(block.data)[start:end])
        ends_append[row], tx_last[row] = message.append_end, message.tx_last
    return ends_append, tx_last


def _check_joined(block: Block, ids: Ints, wanted: Flags, inside: Flags, bounds: Bounds) -> None:
    """Raise unless entries that no append's end parts are of one feed, follow one another, and are all wanted or none.

    ``inside``: between which neighbours there is no append's end.
    """
    regions, stamps = block.lsns.regions, block.lsns.global_ts.astype(np.int64)
    wraps = (block.lsns.raft_indexes[1:] == 0).astype(np.int64)
    apart = (np.diff(regions) != 0) | (np.diff(ids) != 1) | (np.diff(stamps) != wraps)
    wrong = inside & apart & (wanted[1:] | wanted[:-1])
    if wrong.any():
        raise _torn(block, int(np.argmax(wrong)) + 1)
    halved = inside & (wanted[1:] != wanted[:-1])
    if halved.any():
        at = int(np.argmax(halved))
        if wanted[at + 1]:
            raise _begun_below(block.lsns.at(at + 1), bounds)
        raise TargetInsideAppend(
            f"the target is inside an append: lsn={block.lsns.at(at)} and lsn={block.lsns.at(at + 1)} are of one; a journal "
            "has whole appends only"
        )


def _row_of(block: Block, ids: Ints, row: int, *, ahead: int = 0) -> tuple[int, int, int]:
    """Return region, sequence id and time of a row, or of the one ``ahead`` of it in the same append."""
    low = int(block.lsns.raft_indexes[row]) + ahead
    ts = int(block.lsns.global_ts[row]) + (low >> 32)
    return int(block.lsns.regions[row]), int(ids[row]) + ahead, ts


def _begun_below(first: Lsn, bounds: Bounds) -> RestoreInexact:
    return RestoreInexact(
        f"the append of lsn={first} begins with entries that are left out (the journal begins above lsn={bounds.after}, or "
        "they are of an older history); a journal has whole appends only"
    )


def _torn(block: Block, row: int) -> RestoreInexact:
    return RestoreInexact(
        f"an append that begins before lsn={block.lsns.at(row)} has no end in the archive: its last entries are missing"
    )
