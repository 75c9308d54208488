"""Segments -> what a base is folded from, on Spark's workers: each is read whole and verified before a row of it goes
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from headrace.archive.files.folder import Folder
from headrace.archive.moments.histories import Span
from headrace.entries.lsn import Lsn
from headrace.pipeline.bases.generations import WATERMARK
from headrace.pipeline.bases.mutations import taken_apart
from headrace.pipeline.bases.naming import OtherKeys
from headrace.pipeline.wal.spreading import spread
from headrace.wire.arrays import array_of, arrow_flags, numpy_ints, scalar_of
from headrace.wire.kwal_columns import DDL, SCHEMA, Segment, Wanted
from headrace.wire.kwal_manifest import Manifest
from headrace.wire.walk import Flags

END: Final = "\0end"
"""In place of a control entry's name: the row tells the last entry that a segment has of a history. Its value: the tables
with rows there whose keys are none of capture's (:mod:`~headrace.pipeline.bases.naming`), as JSON."""


Spans = Mapping[tuple[str, str], Span]
"""(feed, incarnation) -> which of its entries count."""


class Part(NamedTuple):
    """A segment to read: its file, its size in bytes there, and its manifest (without the registry: it travels)."""

    file: str
    size: int
    manifest: Manifest


class Reading(NamedTuple):
    """What workers read: the archive's folder, the file of identities that opens it, LSNs (inclusive), and of each history
    of a feed, (feed, incarnation), which entries.
    """

    url: str
    identity: str
    first: Lsn
    last: Lsn
    spans: Spans


Task = Callable[[Reading, Part], Iterator[Any]]
"""What a worker does with one segment: yields record batches with the columns of an archive."""


def scan(spark: SparkSession, reading: Reading, groups: Sequence[Sequence[Part]], task: Task) -> DataFrame:
    """Return what ``task`` makes of the segments, one task of Spark's for each group. It is read anew by each action."""
    return spread(spark, groups, partial(task, reading), DDL)


def rows_task(reading: Reading, part: Part) -> Iterator[Any]:
    """Yield the segment's rows, those of several mutations taken apart; no control entries."""
    for batch in _wanted(reading, part):
        rows = batch.filter(pc.is_null(batch.column("control")))
        if rows.num_rows:
            yield taken_apart(rows, part.file)


def survey_task(reading: Reading, part: Part) -> Iterator[Any]:
    """Yield the segment's control entries, and a row (:data:`END`) for the last entry of each history that it has.

    Of WATERMARKs with no other control entry of the feed between them only the first and the last go out.
    """
    ends: dict[tuple[str, str], Any] = {}
    thin, keys = _Thinned(), OtherKeys()
    for batch in _wanted(reading, part):
        keys.look(batch)
        for one in _last_entries(batch):
            ends[one.column("feed")[0].as_py(), one.column("incarnation")[0].as_py()] = one
        controls = batch.filter(pc.is_valid(batch.column("control")))
        if controls.num_rows:
            yield from thin.passed(controls)
    yield from thin.rest()
    for (feed, incarnation), row in ends.items():
        yield _end(row, [one.table for one in keys.found if one[:2] == (feed, incarnation)])


def _wanted(reading: Reading, part: Part) -> Iterator[Any]:
    """Yield the entries of a segment that count: of the histories and sequence ids in ``spans``."""
    folder = Folder(reading.url, reading.identity)
    data = folder.read_segment(part.file, part.manifest)
    segment = Segment(data, where=folder.where(part.file), name=part.manifest.name, manifest=part.manifest)
    selection = Wanted(reading.first, reading.last, frozenset(feed for feed, _ in reading.spans))
    for batch in segment.batches(wanted=selection):
        mask = in_spans(batch, reading.spans)
        kept = batch if mask.all() else batch.filter(arrow_flags(mask))
        if kept.num_rows:
            yield kept


def in_spans(batch: Any, spans: Spans) -> Flags:
    """Tell of each row whether its feed, incarnation and sequence id are in ``spans``."""
    ids = numpy_ints(batch.column("sequence_id"))
    mask = np.zeros(len(ids), np.bool_)
    for (feed, incarnation), rows in _by_history(batch):
        span = spans.get((feed, incarnation))
        if span is not None:
            mask[rows] = (ids[rows] >= span.first) & (ids[rows] <= span.last)
    return mask


def _by_history(batch: Any) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yield each (feed, incarnation) of a batch, with its rows."""
    joined = pc.binary_join_element_wise(
        batch.column("feed"), batch.column("incarnation"), scalar_of("\x1f")
    ).dictionary_encode()
    places = numpy_ints(joined.indices.cast(pa.int64()))
    for index in range(len(joined.dictionary)):
        rows = np.flatnonzero(places == index)
        at = int(rows[0])
        yield (batch.column("feed")[at].as_py(), batch.column("incarnation")[at].as_py()), rows


def _last_entries(batch: Any) -> Iterator[Any]:
    """Yield the last entry of each history in a batch."""
    for _, rows in _by_history(batch):
        yield batch.slice(int(rows[-1]), 1)


def _end(row: Any, other_keys: Sequence[tuple[str, ...]]) -> Any:
    """Return an entry, marked, with what is told of its history in place of its value."""
    told = msgspec.json.encode(sorted(other_keys))
    made = {"control": array_of([END], pa.string()), "value": array_of([told], pa.binary())}
    arrays = [made.get(field.name, column) for field, column in zip(SCHEMA, row.columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


class _Thinned:
    """The control entries of a segment, in order, without WATERMARKs that nobody needs."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], Any] = {}

    def passed(self, batch: Any) -> Iterator[Any]:
        """Yield the control entries of a batch that can be told already."""
        for row in range(batch.num_rows):
            one = batch.slice(row, 1)
            history = one.column("feed")[0].as_py(), one.column("incarnation")[0].as_py()
            if one.column("control")[0].as_py() != WATERMARK:
                if (before := self._newest.pop(history, None)) is not None:
                    yield before
                yield one
            elif history in self._newest:
                self._newest[history] = one
            else:
                # The first one behind a statement matters; a later one takes the newest one's place.
                yield one
                self._newest[history] = one

    def rest(self) -> Iterator[Any]:
        """Yield the newest ones that were not told yet, or told as the first one: who takes them passes over repeats."""
        yield from self._newest.values()
