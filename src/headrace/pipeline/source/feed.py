"""``spark.read`` and ``spark.readStream`` over a feed: ``format("headrace")``. Users and the tables job read through it.

Columns: :data:`headrace.wire.columns.DDL`, or those of them that ``.schema(...)`` names. Options::

    server              http://HOST:PORT (default: HEADRACE_SERVER, else http://127.0.0.1:8470)
    feed                the feed's name; required
    token-file          a file with a bearer token, at this path on the driver and on all workers
    ca-file             a PEM file of the authorities to trust, likewise
    from                oldest (default), head (streams), or the sequence id of the first entry
    to                  the sequence id of the last entry, or head (default); batch reads only
    incarnation, lsn    of a bookmark: the only history to read, and the LSN of the entry before ``from``
    max-entries         entries of one micro-batch at most (1000000)
    max-bytes           stored bytes of one micro-batch, about (536870912)
    partition-entries   entries of one partition at most (250000)
    retry-seconds       how long to wait for a server that is away (120)

A micro-batch ends where a source transaction ends, if that is within reach (see :mod:`headrace.pipeline.source.planner`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.pipeline.connection import RETRY_S, Endpoint, connection
from headrace.pipeline.source import offset as offsets
from headrace.pipeline.source.offset import FeedOffset, FeedStart, Place
from headrace.pipeline.source.planner import BYTES_MAX, ENTRIES_MAX, PARTITION_ENTRIES, Planner, Range
from headrace.pipeline.source.reading import read_batches
from headrace.wire.columns import DDL, SCHEMA

FORMAT: Final = "headrace"
DEFAULT_SERVER: Final = "http://127.0.0.1:8470"
WAIT_S: Final = 1.0
"""How long one look for new entries lasts; Spark can stop the query meanwhile."""
LOOK_S: Final = 0.05
"""Time between two questions to the server during a look."""

_OPTIONS: Final = {
    "server", "feed", "token-file", "ca-file", "from", "to", "incarnation", "lsn", "max-entries", "max-bytes",
    "partition-entries", "retry-seconds",
}  # fmt: skip


def register(spark: SparkSession) -> None:
    """Make ``format("headrace")`` known to a session; idempotent."""
    spark.dataSource.register(HeadraceSource)


class FeedPartition(InputPartition):
    """One task's range of entries."""

    def __init__(self, part: Range) -> None:
        super().__init__(part)
        self.part = part


class Options:
    """The source's options, checked: InvalidRequest names the one that is wrong."""

    def __init__(self, given: MutableMapping[str, str]) -> None:
        unknown = sorted(name for name in given if name.lower() not in _OPTIONS)
        if unknown:
            raise InvalidRequest(
                f"{FORMAT} has no option {unknown[0]!r}",
                hint=f"The options are: {', '.join(sorted(_OPTIONS))}.",
            )
        self._given = {name.lower(): value for name, value in given.items()}
        self.feed = self._given.get("feed", "")
        if not self.feed:
            raise InvalidRequest(f"{FORMAT} needs the option feed", hint="Add .option('feed', NAME).")
        server = self._given.get("server") or os.environ.get("HEADRACE_SERVER") or DEFAULT_SERVER
        retry_s = float(self._number("retry-seconds", int(RETRY_S)))
        token_file, ca_file = self._given.get("token-file", ""), self._given.get("ca-file", "")
        self.endpoint = Endpoint(server, token_file, ca_file, retry_s)
        self.incarnation = self._given.get("incarnation", "")
        self.entries_max = self._number("max-entries", ENTRIES_MAX)
        self.bytes_max = self._number("max-bytes", BYTES_MAX)
        self.partition_entries = self._number("partition-entries", PARTITION_ENTRIES)

    def start(self) -> Place:
        """Return where to begin, as it was asked for."""
        text = self._given.get("from", "oldest")
        if text == "oldest":
            return FeedStart(feed=self.feed, begin="oldest")
        if text == "head":
            return FeedStart(feed=self.feed, begin="head")
        lsn = self._given.get("lsn", "")
        return FeedOffset(
            feed=self.feed,
            incarnation=self.incarnation,
            sequence_id=self._number("from", 1) - 1,
            lsn=str(Lsn.parse(lsn)) if lsn else "",
        )

    def last(self) -> int | None:
        """Return the last sequence id of a batch read; None for the head."""
        return None if self._given.get("to", "head") == "head" else self._number("to", 1)

    def planner(self) -> Planner:
        """Return a planner on a connection of this thread."""
        return Planner(
            connection(self.endpoint),
            self.feed,
            incarnation=self.incarnation,
            entries_max=self.entries_max,
            bytes_max=self.bytes_max,
        )

    def _number(self, name: str, default: int) -> int:
        text = self._given.get(name, str(default))
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise InvalidRequest(
                f"{FORMAT}: {name} must be a number from 1 up, not {text[:80]!r}", member=name
            )
        return int(text)


class HeadraceSource(DataSource):
    """The data source ``headrace``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> DataSourceReader:
        return FeedReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FeedStreamReader(self.options, schema)


class _Reads:
    """What both readers do on workers. Spark pickles a reader to there: it holds values only, no connection."""

    def __init__(self, options: MutableMapping[str, str], schema: StructType) -> None:
        self._options = Options(options)
        self._names = schema.fieldNames()
        unknown = [name for name in self._names if name not in SCHEMA.names]
        if unknown:
            raise InvalidRequest(f"{FORMAT} has no column {unknown[0]!r}", hint=f"The columns are: {DDL}.")

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the partition's entries as record batches."""
        if not isinstance(partition, FeedPartition):
            raise TypeError(f"{partition!r} is no partition of {FORMAT}")
        return read_batches(connection(self._options.endpoint), partition.part, self._names)


class FeedReader(_Reads, DataSourceReader):
    """A batch read: the range is fixed when Spark plans the read."""

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        planner = options.planner()
        parts = planner.whole(options.start(), options.last(), options.partition_entries)
        return [FeedPartition(part) for part in parts]


class FeedStreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream. One instance plans all batches in one process; others, unpickled on workers, only read."""

    def __init__(self, options: MutableMapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        self._planner: Planner | None = None
        self._draining = False

    def initialOffset(self) -> dict[str, Any]:
        # What was asked for, not what it means now: see headrace.pipeline.source.offset.
        return offsets.to_json(self._options.start())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._options.entries_max)

    def prepareForTriggerAvailableNow(self) -> None:
        self._draining = True
        self._plan().stop_at_head()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        entries_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        place = self._place(start)
        deadline = time.monotonic() + WAIT_S
        while True:
            end = self._plan().next_end(place, entries_max)
            # Spark asks again at once: waiting here for a moment keeps an idle query from hammering the server.
            if end != place or self._draining or time.monotonic() >= deadline:
                return offsets.to_json(end)
            time.sleep(LOOK_S)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        last = self._place(end)
        if not isinstance(last, FeedOffset):
            return []
        parts = self._plan().ranges(self._place(start), last, self._options.partition_entries)
        return [FeedPartition(part) for part in parts]

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls this one batch late and never for the last one. Who writes acknowledges."""

    def stop(self) -> None:
        """Do nothing: Spark kills this process instead of calling it, so nothing may depend on it."""

    def _place(self, document: dict[str, Any]) -> Place:
        return offsets.from_json(document, self._options.feed)

    def _plan(self) -> Planner:
        if self._planner is None:
            self._planner = self._options.planner()
        return self._planner
