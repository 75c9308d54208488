"""Which feed, history and sequence id each entry of a segment has: its LSN has the feed's number and half of the id.

The manifest tells the rest. Without one, the feed's name is taken from an entry's key prefix, and there are no sequence ids:
half of one is not one. Called by :mod:`headrace.wire.kwal_columns`; :func:`survey` by whoever writes a manifest.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt
from headrace.wire.arrays import array_of, arrow_ints, scalar_of
from headrace.wire.entry import bare_message_of
from headrace.wire.kwal_blocks import Block
from headrace.wire.kwal_left_open import told_names
from headrace.wire.kwal_manifest import FeedRange
from headrace.wire.kwal_transactions import TxMarks
from headrace.wire.walk import Flags, Ints

_HALF: Final = 0xFFFFFFFF


class Rows(NamedTuple):
    """Of each entry of a block: ``rows`` has its index into ``feeds`` and ``incarnations``; its sequence id, if known."""

    rows: Ints
    feeds: Sequence[str | None]
    incarnations: Sequence[str | None]
    sequence_ids: Ints | None

    def feed(self) -> Any:
        """The feeds' names as an Arrow array."""
        return _taken(self.feeds, self.rows)

    def incarnation(self) -> Any:
        """The incarnations as an Arrow array."""
        return _taken(self.incarnations, self.rows)

    def is_of(self, feeds: Collection[str]) -> Flags:
        """Tell which are of one of these feeds."""
        return np.asarray([feed in feeds for feed in self.feeds], np.bool_)[self.rows]

    def is_of_incarnation(self, incarnation: str) -> Flags:
        """Tell which are of this history."""
        return np.asarray([one == incarnation for one in self.incarnations], np.bool_)[self.rows]


def _taken(values: Sequence[str | None], index: Ints) -> Any:
    if len(values) == 1:
        return pa.repeat(scalar_of(values[0]), len(index))
    return array_of(values, pa.string()).take(arrow_ints(index))


class FeedTable:
    """What is known of a segment's feeds; ``ranges`` are its manifest's, None if it has none. For one segment."""

    def __init__(self, ranges: Sequence[FeedRange] | None) -> None:
        self._known = ranges is not None
        ordered = sorted(ranges or (), key=lambda one: (one.region_id, Lsn.parse(one.first_lsn)))
        self.ranges: Sequence[FeedRange] = ordered
        """The ranges in the order in which :attr:`Rows.rows` counts them."""
        self._feeds = [one.feed for one in ordered]
        self._incarnations = [one.incarnation for one in ordered]
        self._first_ids = np.asarray([one.first_sequence_id for one in ordered], np.int64)
        self._last_ids = np.asarray([one.last_sequence_id for one in ordered], np.int64)
        self._stamps = np.asarray([Lsn.parse(one.first_lsn).global_ts for one in ordered], np.uint64)
        self._last_stamps = np.asarray([Lsn.parse(one.last_lsn).global_ts for one in ordered], np.uint64)
        self._regions, self._begins = np.unique(
            np.asarray([one.region_id for one in ordered], np.int64), return_index=True
        )
        self._names: dict[int, str | None] = {}
        self._seen = np.zeros(len(ordered), np.bool_)

    def rows(self, block: Block) -> Rows:
        """Return what each entry of the block is; JournalCorrupt for one that the manifest does not have."""
        return self._told(block) if self._known else self._untold(block)

    def _told(self, block: Block) -> Rows:
        stamps, regions = block.lsns.global_ts, block.lsns.regions
        if not len(self._regions):
            raise _stranger(block, np.zeros(len(regions), np.bool_))
        slot = np.minimum(np.searchsorted(self._regions, regions), len(self._regions) - 1)
        index = self._begins[slot]
        counts = np.diff(np.append(self._begins, len(self._feeds)))
        for several in np.flatnonzero(counts > 1):
            begin = int(self._begins[several])
            here = slot == several
            for later in range(begin + 1, begin + int(counts[several])):
                index = np.where(here & (stamps >= self._stamps[later]), later, index)
        first = self._first_ids[index]
        ids = first + ((block.lsns.raft_indexes - first) & _HALF)
        fits = (self._regions[slot] == regions) & (ids <= self._last_ids[index])
        fits &= (stamps >= self._stamps[index]) & (stamps <= self._last_stamps[index])
        if not fits.all():
            raise _stranger(block, fits)
        if not self._seen.all():
            self._check_names(block, index)
        return Rows(index, self._feeds, self._incarnations, ids)

    def _check_names(self, block: Block, index: Ints) -> None:
        """Compare the manifest's names with what entries say, one of each range."""
        used, firsts = np.unique(index, return_index=True)
        for one, row in zip(used.tolist(), firsts.tolist(), strict=True):
            if not self._seen[one] and (named := _feed_of(block, row)) not in {None, self._feeds[one]}:
                lsn = block.lsns.at(row)
                raise JournalCorrupt(
                    f"the entry at lsn={lsn} is of the feed {named}; the manifest says {self._feeds[one]}",
                    lsn=str(lsn),
                )
        self._seen[used] = True

    def _untold(self, block: Block) -> Rows:
        regions, firsts, index = np.unique(block.lsns.regions, return_index=True, return_inverse=True)
        for region, row in zip(regions.tolist(), firsts.tolist(), strict=True):
            if region not in self._names:
                self._names[region] = _feed_of(block, row)
        feeds = [self._names[region] for region in regions.tolist()]
        return Rows(index.reshape(-1), feeds, [None] * len(feeds), None)


def _stranger(block: Block, fits: Flags) -> JournalCorrupt:
    lsn = block.lsns.at(int(np.argmin(fits)))
    return JournalCorrupt(f"the entry at lsn={lsn} is in no range of the manifest", lsn=str(lsn))


def _feed_of(block: Block, row: int) -> str | None:
    """The feed that an entry's key prefix names: it is region, tenant and feed, each with a colon behind it."""
    start, end = int(block.places.starts[row]), int(block.places.ends[row])
    parts = bare_message_of(memoryview(block.data)[start:end]).key_prefix.split(":", 2)
    return parts[2].removesuffix(":") if len(parts) == 3 and parts[2].endswith(":") else None


class FeedRun(msgspec.Struct):
    """Entries of one feed, as they are found in a segment: none left out between first and last. Times in ms, 0: none.

    ``append_end``: of the last one. ``unended``: transactions of which none of the entries behind the last one ends it.
    ``continued``: those of them that were waited for and have entries here.
    """

    region_id: int
    feed: str
    first_lsn: Lsn
    last_lsn: Lsn
    entries: int
    source_time_first_ms: int = 0
    source_time_last_ms: int = 0
    append_end: bool = True
    unended: set[bytes] = msgspec.field(default_factory=set)
    continued: set[bytes] = msgspec.field(default_factory=set)

    def placed(self, incarnation: str, near: int, waiting: Collection[str] | None = None) -> FeedRange:
        """Return it as a manifest has it. ``near``: a sequence id of that history, less than 2**31 away from the first.

        ``waiting``: names (hex) of that history's transactions that were open before it, for which the survey looked; None:
        nobody knows, and the manifest does not tell which go on.
        """
        apart = (self.first_lsn.raft_index - near + (1 << 31) & _HALF) - (1 << 31)
        first = near + apart
        return FeedRange(
            feed=self.feed,
            region_id=self.region_id,
            incarnation=incarnation,
            first_sequence_id=first,
            last_sequence_id=first + self.entries - 1,
            first_lsn=str(self.first_lsn),
            last_lsn=str(self.last_lsn),
            source_time_first_ms=self.source_time_first_ms or None,
            source_time_last_ms=self.source_time_last_ms or None,
            ends_whole=self.append_end and not self.unended,
            left_open=None if waiting is None else told_names(self.unended),
            continued=None
            if waiting is None
            else tuple(sorted({name.hex() for name in self.continued}.intersection(waiting))),
        )


def survey(blocks: Iterable[Block], waiting: Mapping[int, Collection[bytes]] | None = None) -> list[FeedRun]:
    """Return what a segment holds, a run of sequence ids after the other, in the order of their first entries.

    ``waiting``: by region id, transactions that were open before it.
    """
    found: list[FeedRun] = []
    newest: dict[int, FeedRun] = {}
    open_before = {region: set(names) for region, names in (waiting or {}).items()}
    for block in blocks:
        regions, marks = block.lsns.regions, TxMarks(block)
        for region in np.unique(regions).tolist():
            rows = np.flatnonzero(regions == region)
            raft = block.lsns.raft_indexes[rows]
            cuts = np.flatnonzero((np.diff(raft) & _HALF) != 1) + 1
            for part in np.split(rows, cuts):
                run = _run(block, region, part)
                before = newest.get(region)
                if before is not None and _joins(before, run):
                    _extend(before, run)
                    run = before
                else:
                    if before is not None:
                        open_before.setdefault(region, set()).update(before.unended)
                    found.append(run)
                    newest[region] = run
                run.append_end = marks.ends_append(int(part[-1]))
                marks.mark(run.unended, part, run.continued, open_before.get(region, ()))
    return sorted(found, key=lambda run: run.first_lsn)


def _run(block: Block, region: int, rows: Ints) -> FeedRun:
    times = block.found.numbers["source_time"][rows]
    times = times[times > 0]
    first, last = block.lsns.at(int(rows[0])), block.lsns.at(int(rows[-1]))
    run = FeedRun(region, _feed_of(block, int(rows[0])) or "", first, last, len(rows))
    if len(times):
        run.source_time_first_ms, run.source_time_last_ms = int(times.min()), int(times.max())
    return run


def _joins(before: FeedRun, run: FeedRun) -> bool:
    return (run.first_lsn.raft_index - before.last_lsn.raft_index) & _HALF == 1


def _extend(before: FeedRun, run: FeedRun) -> None:
    times = [
        time for one in (before, run) for time in (one.source_time_first_ms, one.source_time_last_ms) if time
    ]
    before.last_lsn, before.entries = run.last_lsn, before.entries + run.entries
    if times:
        before.source_time_first_ms, before.source_time_last_ms = min(times), max(times)
