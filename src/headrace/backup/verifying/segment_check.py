"""One segment, looked at byte for byte: file, entries, and what its manifest says of both. Runs in worker processes."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from headrace.archive.files.encryption import check_encrypted, decrypt
from headrace.archive.files.folder import Folder
from headrace.backup.verifying.findings import Finding, finding
from headrace.backup.verifying.transactions import RangeTransactions
from headrace.entries.entry import Op, WireOp
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt, HeadraceError, JournalCorrupt, SegmentCorrupt
from headrace.wire.base_manifest import MANIFEST
from headrace.wire.entry_checksums import check_block
from headrace.wire.kwal import ENCRYPTED, SegmentName, fault
from headrace.wire.kwal_blocks import Block
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_damage import first_fault
from headrace.wire.kwal_feeds import FeedTable, Rows
from headrace.wire.kwal_manifest import FeedRange, Manifest
from headrace.wire.kwal_transactions import TxMarks
from headrace.wire.walk import Ints

_USAGE: Final = 2
"""Exit code of errors about how a command was called."""
_OPS: Final[dict[int, str]] = {WireOp.PUT: Op.PUT.value, WireOp.DELETE: Op.DELETE.value}


class KnownEntry(NamedTuple):
    """An entry that a base names: it must stand in a segment so. ``base``: the base's folder."""

    incarnation: str
    region_id: int
    sequence_id: int
    lsn: str
    base: str


class KnownRow(NamedTuple):
    """A row of a base: the entry at ``lsn`` must be of the same ``op`` and have this CRC-32C of key and value.

    ``file``: the base's file below the archive's folder.
    """

    lsn: Lsn
    op: str
    crc: int
    file: str


class SegmentTask(NamedTuple):
    """A segment to look at. ``known``: entries that must be in it. ``rows``: of bases, of LSNs in its range, in LSN order.

    ``fast``: its entries are not looked at. ``waiting``: transactions (hex) that are open before each of its ranges, by the
    range's first LSN.
    """

    file: str
    size: int
    manifest: Manifest | None
    known: tuple[KnownEntry, ...] = ()
    fast: bool = False
    rows: tuple[KnownRow, ...] = ()
    waiting: Mapping[str, Collection[str]] = {}


class Checked(NamedTuple):
    """What was looked at of one file, and what is wrong with it. ``unread``: it is encrypted, and no key was given.

    Of a base's file: ``rows`` by (feed, incarnation), and some of them to be found in segments.
    """

    file: str
    bytes: int
    entries: int
    findings: list[Finding]
    unread: bool = False
    rows: dict[tuple[str, str], int] | None = None
    some: tuple[KnownRow, ...] = ()


def check_segment(folder: Folder, task: SegmentTask, identity: str = "") -> Checked:
    """Look at one segment; what is wrong is in the answer. Only what concerns keys raises: IdentityNeeded, Usage.

    One in the clear costs its size in memory, an encrypted one twice that.
    """
    where = folder.where(task.file)
    try:
        data = _read(folder, task, identity)
        if data is None:
            return Checked(task.file, task.size, 0, [], unread=True)
        name = SegmentName.parse(task.file)
        segment = Segment(data, where=where, name=name, manifest=task.manifest)
        if task.fast:
            return Checked(task.file, task.size, 0, [])
        return Checked(task.file, task.size, len(segment), _check_entries(segment, data, task, where))
    except HeadraceError as error:
        if error.exit_code == _USAGE:
            raise
        return Checked(task.file, task.size, 0, [finding(error, task.file)])


def _read(folder: Folder, task: SegmentTask, identity: str) -> memoryview | None:
    """Return the segment in the clear; None if it is encrypted and there is no key. Then its ciphertext is checked alone."""
    if not task.file.endswith(ENCRYPTED):
        return folder.read_segment(task.file)
    data, where = memoryview(folder.read(task.file)), folder.where(task.file)
    if task.manifest is not None:
        check_encrypted(data, task.manifest, where)
    return decrypt(data, identity, where) if identity else None


def _check_entries(segment: Segment, data: memoryview, task: SegmentTask, where: str) -> list[Finding]:
    """Check every entry against its checksum, the order of LSNs, and the manifest's ranges against all of them.

    SegmentCorrupt; what bases say otherwise is returned.
    """
    table = FeedTable(task.manifest.feeds if task.manifest is not None else None)
    ranges = [_Range(one, task.known, task.waiting.get(one.first_lsn, ())) for one in table.ranges]
    contradicted: list[Finding] = []
    waiting = deque(task.rows)
    try:
        for block in segment.blocks():
            check_block(block)
            contradicted += _contradicted(block, waiting)
            rows = table.rows(block)
            if ranges:
                marks = TxMarks(block)
                for at, own in _parts(rows):
                    ranges[at].take(block, rows, own)
                    ranges[at].transactions.take(marks, own)
        for one in ranges:
            one.end()
    except JournalCorrupt as error:
        raise first_fault(data, where) or fault(error, where) from None
    except SegmentCorrupt:
        # Arrays tell that something is wrong; a walk from the first entry on tells at which byte.
        if (found := first_fault(data, where)) is not None:
            raise found from None
        raise
    return [*contradicted, *(found for one in ranges for found in one.contradictions)]


def _contradicted(block: Block, waiting: deque[KnownRow]) -> Iterator[Finding]:
    """Take the rows up to the block's end, and yield a finding for each that is not what the block has at its LSN.

    A row whose entry is a patch or several mutations was folded from that: what it should be nobody can tell here.
    """
    lsns, numbers, last = block.lsns, block.found.numbers, block.lsns.at(-1)
    starts, sizes = block.found.slices["checksum"]
    while waiting and waiting[0].lsn <= last:
        known = waiting.popleft()
        stamp, low = np.uint64(known.lsn.global_ts), np.uint64(int(known.lsn) & (1 << 64) - 1)
        begin, end = (int(np.searchsorted(lsns.global_ts, stamp, side)) for side in ("left", "right"))
        at = begin + int(np.searchsorted(lsns.low[begin:end], low))
        if at == end or lsns.low[at] != low:
            yield _wrong_row(known, "the log has no entry there")
            continue
        op = _OPS.get(int(numbers["op"][at]))
        if op is None or numbers["patch"][at]:
            continue
        stored = bytes(block.data[int(starts[at]) : int(starts[at] + sizes[at])])
        if op != known.op or int.from_bytes(stored, "big") != known.crc:
            yield _wrong_row(known, "the log has another entry there")


def _wrong_row(known: KnownRow, what: str) -> Finding:
    return Finding(BaseCorrupt.code, known.file, f"it has a row ({known.op}) of lsn={known.lsn}: {what}")


def _parts(rows: Rows) -> Iterator[tuple[int, Ints]]:
    """Yield (index of a range, its rows in order) for all that a block has."""
    order = np.argsort(rows.rows, kind="stable")
    used, firsts = np.unique(rows.rows[order], return_index=True)
    yield from zip(used.tolist(), np.split(order, firsts[1:]), strict=True)


class _Range:
    """One of a manifest's ranges, compared with the entries that come."""

    def __init__(self, told: FeedRange, known: Sequence[KnownEntry], waiting: Collection[str]) -> None:
        self._told = told
        self.transactions = RangeTransactions(told, waiting)
        self._next = told.first_sequence_id
        self._last: Lsn | None = None
        self._times: list[int] = []
        self.contradictions: list[Finding] = []
        """Where a base says otherwise."""
        history = told.region_id, told.incarnation
        self._known = [one for one in known if (one.region_id, one.incarnation) == history]

    def take(self, block: Block, rows: Rows, own: Ints) -> None:
        """Take the entries ``own`` of a block; JournalCorrupt where they don't follow those before."""
        told = self._told
        ids = rows.sequence_ids
        if ids is None or not len(own):
            return
        ids = ids[own]
        if self._last is None and str(block.lsns.at(int(own[0]))) != told.first_lsn:
            raise self._wrong(f"its first entry has the lsn={block.lsns.at(int(own[0]))}", block, own[0])
        expected = self._next + np.arange(len(ids))
        if (ids != expected).any():
            at = int(np.argmax(ids != expected))
            raise self._wrong(f"the entry {int(expected[at])} is not where it should be", block, own[at])
        for known in self._known:
            at = known.sequence_id - self._next
            if 0 <= at < len(ids) and (found := str(block.lsns.at(int(own[at])))) != known.lsn:
                detail = f"it says that the entry {known.sequence_id} of {told.feed} has lsn={known.lsn}; it has lsn={found}"
                self.contradictions.append(Finding(BaseCorrupt.code, f"{known.base}/{MANIFEST}", detail))
        self._next += len(ids)
        self._last = block.lsns.at(int(own[-1]))
        times = block.found.numbers["source_time"][own]
        times = times[times > 0]
        if len(times):
            self._times += [int(times.min()), int(times.max())]

    def end(self) -> None:
        """Raise JournalCorrupt unless the entries were all that the manifest says."""
        told = self._told
        if self._next != told.last_sequence_id + 1 or str(self._last) != told.last_lsn:
            raise JournalCorrupt(
                f"its entries of {told.feed} end with {self._next - 1} at lsn={self._last}; the manifest says "
                f"{told.last_sequence_id} at lsn={told.last_lsn}"
            )
        times = (min(self._times), max(self._times)) if self._times else (None, None)
        if times != (told.source_time_first_ms, told.source_time_last_ms):
            raise JournalCorrupt(
                f"its entries of {told.feed} have source times {times[0]} to {times[1]}; the manifest says "
                f"{told.source_time_first_ms} to {told.source_time_last_ms}"
            )
        self.transactions.end()

    def _wrong(self, what: str, block: Block, row: int) -> JournalCorrupt:
        told, lsn = self._told, block.lsns.at(int(row))
        return JournalCorrupt(
            f"{what} among {told.first_sequence_id} to {told.last_sequence_id} of {told.feed}, which the manifest begins at "
            f"lsn={told.first_lsn}",
            lsn=str(lsn),
        )
