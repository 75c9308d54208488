"""What a restore works with: its plan as segments and feeds that workers can be sent, and frames over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.archive.files.bases import StoredBase, place_of
from headrace.archive.files.segments import TASK_BYTES, grouped
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import RestorePlan
from headrace.entries.lsn import Lsn
from headrace.errors import RestoreInexact, SegmentGap
from headrace.pipeline.bases.reading import base_frame
from headrace.pipeline.bases.scanning import Spans
from headrace.pipeline.restore.folding import RestoredFeed
from headrace.pipeline.restore.lines import Kept, entries_of, kept_feeds, ranges_of
from headrace.pipeline.restore.scanning import Part, Range, Task, entries_task, of_spans, scan
from headrace.pipeline.restore.surveying import Held, Survey
from headrace.pipeline.tables.schemas import TableName
from headrace.pipeline.wal.spreading import spread_groups
from headrace.wire.kwal_columns import SCHEMA as ARCHIVE_SCHEMA

Making = Callable[[Iterator[Any]], Iterator[Any]]
"""Record batches to record batches, on workers."""

GroupMaking = Callable[[Iterator[Iterator[Any]]], Iterator[Any]]
"""The same of the batches of neighbouring segments, the newest segment first."""

GROUP_BYTES_MAX: Final = 4 << 30
"""Bytes of segments that one task reads at most: what has to be done again where a worker is lost."""


class Work(NamedTuple):
    """One restore. ``url``: the archive's, as workers reach it."""

    spark: SparkSession
    url: str
    identity: str
    plan: RestorePlan
    parts: tuple[Part, ...]
    feeds: tuple[Kept, ...]

    @property
    def spans(self) -> Spans:
        """The entries wanted, by feed and history."""
        return {(span.feed, span.incarnation): span for one in self.feeds for span in one.spans}

    @property
    def range(self) -> Range:
        """The LSNs that segments are read for."""
        first = Lsn.from_int(int(self.plan.after_lsn) + 1)
        return Range(self.url, self.identity, first, self.plan.target_lsn)

    @property
    def base_bytes(self) -> int:
        """Bytes of the base's files."""
        return sum(one.size for one in self.plan.base.manifest.files) if self.plan.base is not None else 0

    @property
    def bytes(self) -> int:
        """Bytes that are read at least once."""
        return self.base_bytes + sum(part.size for part in self.parts)

    def groups(self, task_bytes: int = TASK_BYTES) -> list[list[Part]]:
        """The segments as one group a task, of at least ``task_bytes`` each where there are so many."""
        by_file = {part.file: part for part in self.parts}
        return [[by_file[one.file] for one in group] for group in grouped(self.plan.segments, task_bytes)]

    def large_groups(self) -> list[list[Part]]:
        """The segments as about one group for each core that Spark has."""
        each = -(-sum(part.size for part in self.parts) // self.spark.sparkContext.defaultParallelism)
        return self.groups(max(TASK_BYTES, min(GROUP_BYTES_MAX, each)))

    def base(self, names: Sequence[str]) -> DataFrame | None:
        """Return the base's rows with these columns, of all feeds; None if there is no base."""
        if self.plan.base is None:
            return None
        return base_frame(self.spark, *base_place(self.plan), self.identity, names)

    def entries(
        self, names: Sequence[str], make: Making, ddl: str, *, of_group: GroupMaking | None = None
    ) -> DataFrame:
        """Return what ``make`` makes of record batches with the columns ``names``, of base and segments, in no order.

        It gets the entries that are restored (:attr:`spans`), those of several mutations taken apart. ``of_group`` is
        used instead of it for all entries of a large group of segments.
        """
        names = tuple(names)
        spans = self.spans
        if of_group is None:
            task: Task = partial(_made, spans=spans, names=names, make=make)
            found = scan(self.spark, self.range, self.groups(), task, ddl)
        else:
            of_parts = partial(_made_of_group, wanted=self.range, spans=spans, names=names, make=of_group)
            found = spread_groups(self.spark, self.large_groups(), of_parts, ddl)
        needed = tuple(dict.fromkeys((*names, "feed", "incarnation", "sequence_id")))
        base = self.base(needed)
        if base is None:
            return found
        # What a publisher's snapshot gave a base may stand below the entries of its history.
        below = {history: span._replace(first=0) for history, span in spans.items()}
        of_base = partial(_made_of_base, spans=below, names=names, make=make)
        return found.unionByName(base.mapInArrow(of_base, ddl))


def _made(
    wanted: Range,
    part: Part,
    *,
    spans: Spans,
    names: tuple[str, ...],
    make: Making,
) -> Iterator[Any]:
    return make(entries_task(wanted, part, spans=spans, names=names))


def _made_of_group(
    parts: Sequence[Part], *, wanted: Range, spans: Spans, names: tuple[str, ...], make: GroupMaking
) -> Iterator[Any]:
    return make(entries_task(wanted, part, spans=spans, names=names) for part in reversed(parts))


def _made_of_base(
    batches: Iterator[Any],
    *,
    spans: Spans,
    names: tuple[str, ...],
    make: Making,
) -> Iterator[Any]:
    return make(of_spans(batch, spans).select(list(names)) for batch in batches)


def base_place(plan: RestorePlan) -> tuple[str, StoredBase]:
    """Return the address that a plan's base stands in, and the base with its place there."""
    if plan.base is None:
        raise RestoreInexact("the plan names no base")
    url, name = place_of(plan.base_url)
    return url, plan.base._replace(path=name)


def work_of(
    spark: SparkSession,
    archive: Archive,
    plan: RestorePlan,
    *,
    url: str,
    identity: str,
    only: Sequence[str],
) -> Work:
    """Return a plan as a work. ``only``: the feeds wanted, () for all; Usage names one that there is none of.

    SegmentGap for a segment without a manifest: nothing else tells its entries' sequence ids. RestoreInexact for a feed
    that the archive does not have from its beginning.
    """
    parts = []
    for one in plan.segments:
        manifest = archive.manifests.get(one.file)
        if manifest is None:
            raise SegmentGap(
                f"{archive.folder.where(one.file)} has no manifest: nobody can tell whose entries it holds"
            )
        parts.append(Part(one.file, one.size, msgspec.structs.replace(manifest, registry=())))
    feeds = kept_feeds(plan, [archive.manifests[one.file] for one in plan.segments], only)
    return Work(spark, url, identity, plan, tuple(parts), feeds)


def check_survey(work: Work, segments: Survey, base: Survey | None) -> None:
    """Raise RestoreInexact where what was read is not what the plan says is there, feed by feed."""
    found = {(one.feed, one.incarnation): one for one in segments.held}
    stored = work.plan.base.manifest if work.plan.base is not None else None
    ends = {(one.feed, one.incarnation): one for one in stored.feeds} if stored is not None else {}
    if base is not None:
        _check_base(work, base, {key: one.entries for key, one in ends.items()})
    untold = found.keys() - {(one.feed, one.incarnation) for one in work.plan.feeds}
    if untold:
        raise RestoreInexact(f"the segments hold entries of {min(untold)[0]} that the plan does not tell of")
    spans = work.spans
    for one in work.plan.feeds:
        key = (one.feed, one.incarnation)
        held = found.get(key)
        before = ends[key].sequence_id if key in ends else None
        last = held.last if held is not None else before
        if last != one.last_sequence_id:
            raise RestoreInexact(
                f"{one.feed} ends at the entry {last} in the archive; the plan says {one.last_sequence_id}"
            )
        if key in spans:
            first = one.first_sequence_id if before is None else before + 1
            _check_whole(work, key, held, first, last)


def _check_base(work: Work, base: Survey, told: Mapping[tuple[str, str], int]) -> None:
    counted = {(one.feed, one.incarnation): one.entries for one in base.held}
    for key, entries in told.items():
        if counted.pop(key, 0) != entries:
            raise RestoreInexact(
                f"the base {work.plan.base_url} has not the {entries} entries of {key[0]} it says"
            )
    if counted:
        raise RestoreInexact(
            f"the base {work.plan.base_url} has entries of {min(counted)[0]}, which it does not tell of"
        )


def _check_whole(work: Work, key: tuple[str, str], held: Held | None, first: int, last: int) -> None:
    """Raise RestoreInexact unless the segments hold each entry from ``first`` to ``last``, those in accepted gaps left
    out.
    """
    after, target = work.plan.after_lsn, work.plan.target_lsn
    ranges = list(ranges_of((part.manifest for part in work.parts), key, after, target))
    wanted = entries_of(ranges, first, last, work.plan.gaps, after)
    begins = max(first, ranges[0].first_sequence_id) if ranges else first
    entries = held.entries if held is not None else 0
    if entries != wanted or (held is not None and held.first != begins):
        at = f"{entries}, from {held.first} on" if held is not None else "none"
        raise RestoreInexact(f"{key[0]}: of {wanted} entries, {begins} to {last}, the segments hold {at}")


def restored_feeds(work: Work, cleared: dict[str, dict[TableName, int]]) -> tuple[RestoredFeed, ...]:
    """Return the feeds as workers take them."""
    return tuple(RestoredFeed(one.feed, one.spans, cleared.get(one.feed, {})) for one in work.feeds)


def column_types(names: Sequence[str]) -> pa.Schema:
    """Return the types of an archive's columns."""
    return pa.schema([ARCHIVE_SCHEMA.field(name) for name in names])
