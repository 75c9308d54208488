"""What the drill folds: the log from the oldest place that the archive can begin at, read file by file without Spark.

A restore begins at the newest base that serves; the drill begins at the oldest one, or at the log's own beginning. So
where the archive still has the segments, the base is checked against them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.segments import Stored
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.histories import Line, lines_of
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt, SegmentCorrupt, TargetUnreachable
from headrace.pipeline.drill.fold import Change, changes_of
from headrace.pipeline.drill.statements import Statements
from headrace.wire.generated import wal_pb2
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_manifest import FeedRange

_BASE_COLUMNS = ["feed", "incarnation", "sequence_id", "lsn", "op", "key", "value", "control", "table"]


class Source(NamedTuple):
    """What is folded up to ``target``: the base, if it begins with one, and segments. ``bytes`` of all of it.

    ``lines``: of each feed, which entries of which histories make it up.
    """

    archive: Archive
    target: Lsn
    start: Lsn
    base: StoredBase | None
    segments: tuple[Stored, ...]
    lines: Mapping[str, Line]

    @property
    def bytes(self) -> int:
        """Bytes that are read."""
        of_base = sum(one.size for one in self.base.manifest.files) if self.base is not None else 0
        return of_base + sum(one.size for one in self.segments)


def source_of(archive: Archive, target: Lsn) -> Source:
    """Return what to fold up to ``target``, from the oldest start behind which nothing is missing. TargetUnreachable."""
    chain = archive.chain
    start, base = oldest_start(archive, target)
    segments = tuple(
        one
        for one in archive.segments
        if one.file in archive.manifests and one.name.last > start and one.name.first <= target
    )
    lines = lines_of(
        base.manifest if base is not None else None,
        [archive.manifests[one.file] for one in segments],
        target,
        from_start=True,
        over_gaps=bool(chain.holes(start, target)),
    )
    return Source(archive, target, start, base, segments, lines)


def oldest_start(archive: Archive, target: Lsn) -> tuple[Lsn, StoredBase | None]:
    """Return the oldest start behind which nothing is missing up to ``target``. TargetUnreachable."""
    for start, base in archive.chain.starts():
        if start <= target <= archive.chain.reach(start) and (base is not None or archive.segments):
            return start, base
    raise TargetUnreachable(f"{archive.folder.shown} has nothing left to rebuild lsn={target} from")


def of_base(source: Source, statements: Statements) -> Iterator[Change]:
    """Yield the changes of the base that the source begins with, if it does, file by file and in no order.

    ``statements`` is told of its control entries. BaseCorrupt, ArchiveUnavailable.
    """
    if source.base is None:
        return
    controls = [row for row in _rows_of(source, source.base) if row["control"]]
    for row in sorted(controls, key=lambda row: int(row["sequence_id"])):
        table = tuple(row["table"] or ())
        statements.see(row["feed"], row["sequence_id"], row["control"], row["value"] or b"", table)
    for row in _rows_of(source, source.base):
        if not row["control"]:
            table, value = tuple(row["table"] or ()), row["value"] or b""
            yield Change(row["feed"], row["key"], row["op"], value, table, row["sequence_id"], row["lsn"])


def of_segments(source: Source, statements: Statements) -> Iterator[Change]:
    """Yield the changes of the source's segments in the order of the log, one file at a time.

    ``statements`` is told of their control entries. SegmentCorrupt, IdentityNeeded, ArchiveUnavailable.
    """
    for stored in source.segments:
        yield from _of_segment(source, stored, statements)


def _rows_of(source: Source, base: StoredBase) -> Iterator[dict[str, Any]]:
    wanted = {(span.feed, span.incarnation) for line in source.lines.values() for span in line.spans}
    folder = source.archive.folder
    for one in base.manifest.files:
        data = folder.read_segment(f"{base.path}/{one.path}")
        if zlib.crc32(data) != one.crc:
            raise BaseCorrupt(f"{folder.where(base.path)}/{one.path} is not as it was written")
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)))
        for batch in file.iter_batches(columns=_BASE_COLUMNS):
            yield from (row for row in batch.to_pylist() if (row["feed"], row["incarnation"]) in wanted)


def _of_segment(source: Source, stored: Stored, statements: Statements) -> Iterator[Change]:
    spans = {(span.feed, span.incarnation): span for line in source.lines.values() for span in line.spans}
    for lsn, part, message in entries_of(source.archive, stored):
        if lsn <= source.start:
            continue
        if lsn > source.target:
            return
        number = part.first_sequence_id + (lsn.raft_index - part.first_sequence_id & 0xFFFFFFFF)
        span = spans.get((part.feed, part.incarnation))
        if span is not None and span.first <= number <= span.last:
            if message.control:
                statements.see(part.feed, number, message.control, message.value, tuple(message.table))
            yield from changes_of(message, part.feed, number)


def entries_of(archive: Archive, stored: Stored) -> Iterator[tuple[Lsn, FeedRange, wal_pb2.WalEntry]]:
    """Yield a segment's entries, each with its LSN, and what the segment's manifest says of the history that it is of.

    SegmentCorrupt, IdentityNeeded, ArchiveUnavailable.
    """
    where = archive.folder.where(stored.file)
    segment = Segment(archive.folder.read_segment(stored.file), where=where, name=stored.name)
    ranges: dict[int, list[tuple[Lsn, FeedRange]]] = {}
    for one in archive.manifests[stored.file].feeds:
        ranges.setdefault(one.region_id, []).append((Lsn.parse(one.first_lsn), one))
    for data in segment.entries():
        message = wal_pb2.WalEntry.FromString(bytes(data))
        lsn = Lsn.parse(message.lsn)
        begun = [one for one in ranges.get(lsn.region_id, []) if one[0] <= lsn]
        if not begun:
            raise SegmentCorrupt(f"{where}: the entry at lsn={lsn} is of a feed that no manifest names")
        yield lsn, max(begun, key=lambda one: one[0])[1], message
