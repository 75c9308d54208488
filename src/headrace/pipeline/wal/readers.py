"""What Spark calls. ``plan`` and ``reading`` do the work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from headrace.archive.files.folder import Folder
from headrace.archive.files.segments import Range, check_gaps, grouped, touched
from headrace.errors import InvalidRequest
from headrace.pipeline.wal import FORMAT
from headrace.pipeline.wal.options import Options
from headrace.pipeline.wal.pushdown import narrowed
from headrace.pipeline.wal.reading import SegmentTask, read_segments, task_of
from headrace.wire.kwal_columns import DDL, EVERYTHING, SCHEMA, Wanted
from headrace.wire.kwal_manifest import Manifest


class SegmentGroup(InputPartition):
    """One task's segments."""

    def __init__(self, tasks: Sequence[SegmentTask]) -> None:
        super().__init__(None)
        self.tasks = list(tasks)


class WalReader(DataSourceReader):
    """A batch read: the segments are those that stand in the folder when Spark plans it. Holds values only."""

    def __init__(self, options: Options, names: Sequence[str]) -> None:
        """``names``: the columns asked for, in order; InvalidRequest for one that there isn't."""
        self._options = options
        self._names = list(names)
        unknown = [name for name in self._names if name not in SCHEMA.names]
        if unknown:
            raise InvalidRequest(f"{FORMAT} has no column {unknown[0]!r}; the columns are {DDL}")
        first, last = self._options.range
        self.wanted = Wanted(first or EVERYTHING.first, last or EVERYTHING.last, self._options.feeds)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        folder = Folder(options.path)
        segments = folder.segments()
        held, behind = touched(segments, options.range)
        row = held if behind is None else [*held, behind]
        manifests = folder.manifests(row)
        if not options.accepts_gaps:
            # What was asked for in options: a filter may rule out segments, but no gap.
            check_gaps(held, behind, options.range, manifests)
        chosen, _ = touched(held, Range(self.wanted.first, self.wanted.last))
        chosen = [one for one in chosen if _may_hold(manifests.get(one.file), self.wanted)]
        groups = [
            SegmentGroup([task_of(one.file, manifests.get(one.file)) for one in group])
            for group in grouped(chosen, options.task_bytes)
        ]
        # Of no partition at all Spark makes one of its own, which is none of ours.
        return groups or [SegmentGroup([])]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, SegmentGroup):
            raise TypeError(f"{partition!r} is no partition of {FORMAT}")
        return read_segments(
            self._options.path, partition.tasks, self._names, self.wanted, identity=self._options.identity
        )


class FilteredWalReader(WalReader):
    """A read to which Spark pushes filters: segments and entries that they rule out are left out."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of the filters. Spark applies all of them again."""
        self.wanted = narrowed(self.wanted, filters)
        return filters


def _may_hold(manifest: Manifest | None, wanted: Wanted) -> bool:
    """Tell whether a segment can hold a wanted entry; without a manifest it can."""
    if manifest is None:
        return True
    return any(
        (wanted.feeds is None or one.feed in wanted.feeds)
        and one.first_sequence_id <= wanted.last_id
        and one.last_sequence_id >= wanted.first_id
        for one in manifest.feeds
    )
