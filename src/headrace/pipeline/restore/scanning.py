"""Segments of a plan -> rows, on Spark's workers: each segment is read whole and verified before a row of it goes out.

``format("headrace.wal")`` does the same for users. A restore reads exactly the segments that its plan names, looks at
them once before it writes anything, and takes entries of several mutations apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from headrace.archive.files.folder import Folder
from headrace.entries.lsn import Lsn
from headrace.pipeline.bases.mutations import taken_apart
from headrace.pipeline.bases.scanning import Spans, in_spans
from headrace.pipeline.wal.spreading import spread
from headrace.wire.arrays import arrow_flags
from headrace.wire.kwal_columns import Segment, Wanted
from headrace.wire.kwal_manifest import FeedRange, Manifest


class Part(NamedTuple):
    """A segment to read: its file, its size in bytes there, and its manifest (without the registry: it travels)."""

    file: str
    size: int
    manifest: Manifest


class Range(NamedTuple):
    """The folder, the file of identities that opens its segments, and the LSNs wanted, both inclusive."""

    url: str
    identity: str
    first: Lsn
    last: Lsn


Task = Callable[[Range, Part], Iterator[Any]]
"""What a worker does with one segment: yields record batches."""


def scan(
    spark: SparkSession, wanted: Range, groups: Sequence[Sequence[Part]], task: Task, ddl: str
) -> DataFrame:
    """Return what ``task`` makes of the segments, one task of Spark's for each group. It is read anew by each action."""
    return spread(spark, groups, partial(task, wanted), ddl)


def opened(wanted: Range, part: Part) -> Segment:
    """Return a segment, verified. SegmentCorrupt, IdentityNeeded, ArchiveUnavailable."""
    folder = Folder(wanted.url, wanted.identity)
    data = folder.read_segment(part.file, part.manifest)
    return Segment(data, where=folder.where(part.file), name=part.manifest.name, manifest=part.manifest)


def entries_task(wanted: Range, part: Part, *, spans: Spans, names: tuple[str, ...]) -> Iterator[Any]:
    """Yield the entries in ``spans``, by feed and history, with the columns ``names``; none has several mutations."""
    needed = tuple(dict.fromkeys((*names, "feed", "incarnation", "sequence_id", "op", "key", "value", "lsn")))
    feeds = frozenset(feed for feed, _ in spans)
    selection = Wanted(wanted.first, wanted.last, feeds)
    is_whole = all(_is_inside(one, spans) for one in part.manifest.feeds if one.feed in feeds)
    for batch in opened(wanted, part).batches(needed, selection):
        kept = batch if is_whole else of_spans(batch, spans)
        if kept.num_rows:
            yield taken_apart(kept, part.file).select(list(names))


def _is_inside(one: FeedRange, spans: Spans) -> bool:
    span = spans.get((one.feed, one.incarnation))
    return span is not None and span.first <= one.first_sequence_id and one.last_sequence_id <= span.last


def of_spans(batch: Any, spans: Spans) -> Any:
    """Return the rows whose feed, incarnation and sequence id are in ``spans``."""
    mask = in_spans(batch, spans)
    return batch if mask.all() else batch.filter(arrow_flags(mask))
