"""What Spark calls: the readers of batch reads and of streams. They translate; ``planner`` and ``reading`` do the work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from headrace.errors import InvalidRequest
from headrace.pipeline.connection import connection
from headrace.pipeline.source import offset as offsets
from headrace.pipeline.source.acking import Acks
from headrace.pipeline.source.ends import Limits
from headrace.pipeline.source.names import FORMAT
from headrace.pipeline.source.offset import Asked, Offset
from headrace.pipeline.source.options import Options
from headrace.pipeline.source.planner import Planner, Range
from headrace.pipeline.source.pushdown import Bounds, bounds_of
from headrace.pipeline.source.reading import read_batches
from headrace.wire.columns import DDL, SCHEMA

WAIT_S: Final = 1.0
"""How long one look for new entries lasts: a process whose query was stopped meanwhile ends within it."""


class FeedPartition(InputPartition):
    """One task's range of entries."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


class _Reads:
    """What all readers do on workers. Spark pickles a reader to there: it holds values only, no connection."""

    bounds = Bounds()

    def __init__(self, given: Mapping[str, str], schema: StructType, *, streaming: bool) -> None:
        self._options = Options(given, streaming=streaming)
        self._names = schema.fieldNames()
        unknown = [name for name in self._names if name not in SCHEMA.names]
        if unknown:
            raise InvalidRequest(f"{FORMAT} has no column {unknown[0]!r}; the columns are {DDL}")

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the partition's entries as record batches."""
        if not isinstance(partition, FeedPartition):  # Spark makes one of its own where none is planned
            return iter(())
        options = self._options
        batches = read_batches(connection(options.endpoint), partition.part, self._names, options.archive())
        return map(self.bounds.chosen, batches)


class FeedReader(_Reads, DataSourceReader):
    """A batch read: the range is fixed when Spark plans the read."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        super().__init__(given, schema, streaming=False)

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        parts = options.planner().whole(
            options.start_moment(), options.end_moment(), self.bounds, options.partition_entries
        )
        return [FeedPartition(part) for part in parts]


class FilteredFeedReader(FeedReader):
    """A batch read to which Spark pushes filters: only what they can want is planned, and read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take note of the filters. Spark applies all of them again: the bounds that they give are not exact."""
        self.bounds = bounds_of(filters)
        return filters


class FeedStreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. One instance plans all batches in one process; others, unpickled on workers, only read."""

    def __init__(self, given: Mapping[str, str], schema: StructType) -> None:
        super().__init__(given, schema, streaming=True)
        self._planner: Planner | None = None
        self._acks: Acks | None = None
        self._draining = False

    def initialOffset(self) -> dict[str, Any]:
        # What was asked for, not what it means now: see headrace.pipeline.source.offset.
        return offsets.to_json(Asked(self._options.feeds, self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.entries_max)  # the limit of bytes holds too, in latestOffset

    def prepareForTriggerAvailableNow(self) -> None:
        self._draining = True
        self._plan().stop_at_head()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        place = self._offset(start)
        planner, limits = self._plan(), self._limits(limit)
        self._hold(place)
        deadline = time.monotonic() + WAIT_S
        while True:
            end = planner.next_end(place, limits)
            left = deadline - time.monotonic()
            if end is not place or self._draining or left <= 0:
                break
            self._wait(planner, left)
        if isinstance(place, Asked) and self._acks is not None:
            self._acks.report(_begun(end))
        # The very same document where nothing is new: Spark compares the texts.
        return start if end is place else offsets.to_json(end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        newest = self._planner.newest() if self._planner is not None else None
        return None if newest is None else offsets.to_json(newest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        last = self._offset(end)
        if not isinstance(last, Offset):
            return []
        parts = self._plan().ranges(self._offset(start), last, self._options.partition_entries)
        return [FeedPartition(part) for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        """Report what the sink has committed: Spark says so one batch late. A drained stream says it by asking for more."""
        done = self._offset(end)
        if self._acks is not None and isinstance(done, Offset):
            self._acks.report(done)

    def stop(self) -> None:
        """Do nothing: Spark kills this process instead of calling it, so nothing may depend on it."""

    def _hold(self, place: Offset | Asked) -> None:
        """See to it that retention waits for this query, from before its first entry is looked for."""
        options = self._options
        if not options.listener:
            return
        if self._acks is None:
            self._acks = Acks(connection(options.endpoint), options.listener)
            self._acks.register(options.feeds)
        elif not self._draining:
            return
        # Spark asks what follows a batch only once the sink has committed that batch; a query that writes its progress
        # down later than that (asynchronous progress tracking) has another trigger.
        if isinstance(place, Offset):
            self._acks.report(place)

    def _wait(self, planner: Planner, timeout_s: float) -> None:
        newest, listener = planner.newest(), self._options.listener
        if newest is not None:
            after = {name: place.sequence_id for name, place in newest.feeds.items()}
            server = connection(self._options.endpoint)
            server.wait_past(after, listener, timeout_s, hold=bool(listener))

    def _limits(self, limit: ReadLimit) -> Limits:
        own = self._options.limits
        match limit:
            case ReadAllAvailable():
                return Limits(None, None)
            case ReadMaxRows():
                return own._replace(entries=limit.max_rows)
            case ReadMaxBytes():
                return own._replace(bytes=limit.max_bytes)
        return own

    def _offset(self, document: dict[str, Any]) -> Offset | Asked:
        return offsets.from_json(document, self._options.feeds)

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = self._options.planner()
        return self._planner


def _begun(end: Offset) -> Offset:
    """Return the places at which the query began, from its first batch's end."""
    return Offset(
        {
            name: offsets.Place(
                incarnation=place.incarnation,
                sequence_id=place.sequence_id if place.began_after is None else place.began_after,
            )
            for name, place in end.feeds.items()
        }
    )
