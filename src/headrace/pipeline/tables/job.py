"""Delta tables of a feed: one per source table, the latest row of each key, deletes gone, kept up to date as a stream.

Called by ``headrace pipeline tables``, the demo and tests. ``docs/formats/tables.md`` describes what is on disk,
:mod:`headrace.pipeline.tables.batches` what a micro-batch does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
from msgspec import UNSET
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import NothingPublished, SequenceNotAvailable
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.failures import error_of
from headrace.pipeline.lag import lag_of
from headrace.pipeline.source.feed import DEFAULT_SERVER, FORMAT, register
from headrace.pipeline.source.planner import BYTES_MAX, ENTRIES_MAX
from headrace.pipeline.supervision import FOLLOWING, ONCE, Restart, Seen, start_query, supervise
from headrace.pipeline.tables.batches import BatchDone, Batches, publish_again, publish_moment
from headrace.pipeline.tables.beginning import begin_at, check_checkpoint
from headrace.pipeline.tables.catching_up import CatchingUp
from headrace.pipeline.tables.given import keep_given, read_ddl, schema_of
from headrace.pipeline.tables.holding import Holding, listener_of
from headrace.pipeline.tables.hydrating import LeftOff, begin_with_snapshot, end_lease
from headrace.pipeline.tables.ledger import Ledger, PublishedFile, local_folder, read_published
from headrace.pipeline.tables.origins import SNAPSHOT
from headrace.pipeline.tables.reader import delta_frame, published_moment
from headrace.pipeline.tables.schemas import TableName
from headrace.runtime.logs import get_logger

logger = get_logger("pipeline")

__all__ = [
    "NothingPublished",
    "Progress",
    "Summary",
    "entries_waiting",
    "read_tables",
    "run_tables",
]

INTERVAL: Final = "1 second"
"""Least time between two micro-batches of a job that goes on: each costs a commit per table that changed."""


class Progress(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where a running job is. ``watermark``: the commitTs that is published, None on feeds without one.

    ``lag``: entries that the feed has beyond it, ``lag_seconds``: how long ago the last one that is merged was appended, 0
    at the head; None while they are not known. ``batch_seconds``: how long the newest batch with entries took.
    """

    batches: int
    entries: int
    sequence_id: int
    watermark: int | None
    lag: int | None
    lag_seconds: float | None
    entries_per_second: float
    batch_seconds: float | None = None

    @property
    def done(self) -> int:
        """Return how many entries this process has done."""
        return self.entries


class StoppedTable(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A stopped table: its name, the last sequence id that is in it, why it is stopped, and what helps."""

    table: list[str]
    after: int
    code: str
    reason: str
    hint: str


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a job did, and what its tables show now (None: nothing was ever published); the tables that are stopped.

    ``started_from``: what the tables begin with (:class:`~headrace.pipeline.tables.states.Start`), None if an older version
    began them.
    """

    feed: str
    to: str
    batches: int
    entries: int
    seconds: float
    published: PublishedFile | None
    started_from: str | None = None
    stopped: list[StoppedTable] = []


def run_tables(
    spark: SparkSession,
    *,
    feed: str,
    to: str,
    server: str = DEFAULT_SERVER,
    once: bool = False,
    checkpoint: str | None = None,
    token_file: str = "",
    ca_file: str = "",
    entries_max: int = ENTRIES_MAX,
    bytes_max: int = BYTES_MAX,
    retry_s: float | None = None,
    archive: str = "",
    schema: str = "",
    progress: Callable[[Progress], None] | None = None,
    restarting: Callable[[Restart], None] | None = None,
    stop: threading.Event | None = None,
    anew: threading.Event | None = None,
) -> Summary:
    """Keep the tables of ``feed`` in the folder ``to`` up to date; until ``stop`` is set, or with ``once`` up to the head.

    ``to`` is a folder that driver and workers reach by the same path; ``checkpoint`` (default: inside it) is Spark's
    record of how far the query is. Safe to stop or kill at any point: the next run goes on exactly there. A batch holds
    about ``entries_max`` entries. ``archive``: URL of a folder of KWAL segments that hold what the server has dropped.
    ``schema``: Spark DDL of the members of entries that name no table; the first run's is kept.
    ``progress`` is called every second, on the caller's thread. A job without ``once`` outlives failures that pass:
    ``restarting`` is told of each; ``anew``: see :func:`supervise`. A captured table that can't be followed is stopped, and
    the others go on.

    Raises ValueUnfit (nothing is published that does not hold it), FeedRecreated, SequenceNotAvailable,
    CheckpointAhead, ServerUnreachable, FeedNotFound, DataFolderLocked, ConfigInvalid, FormatTooNew, QueryFailed.
    """
    register(spark)
    endpoint = Endpoint(server, token_file, ca_file, *(() if retry_s is None else (retry_s,)))
    folder = local_folder(to)
    with Connection(endpoint) as server_now:
        ledger = Ledger(folder, feed, server_now.feed(feed).incarnation)
    stop = stop or threading.Event()
    place = str(checkpoint or ledger.folder / "checkpoint")
    run = _Run(endpoint, ledger, place, progress, stop)
    try:
        if schema:
            keep_given(ledger, schema_of(read_ddl(schema)))
        common = _options(endpoint, ledger, archive)
        limits = {"max-entries": str(entries_max), "max-bytes": str(bytes_max)}
        _begin(spark, ledger, endpoint, run, archive=bool(archive))
        check_checkpoint(ledger, place)
        coming_back = CatchingUp(ledger, common, entries_max)
        if coming_back.serve(spark, run.goes_on) and _is_whole(ledger):
            publish_again(ledger)
        options = common | _start(ledger) | limits
        entries = spark.readStream.format(FORMAT).options(**options).load()
        writer = entries.writeStream.foreachBatch(Batches(ledger, run.batch_done, coming_back))
        writer = writer.queryName(f"headrace tables of {feed}")
        trigger = writer.trigger(availableNow=True) if once else writer.trigger(processingTime=INTERVAL)
        start = partial(start_query, spark, trigger, place)
        terms = ONCE if once else FOLLOWING
        supervise(start, stop=stop, anew=anew, look=run.look, restarting=restarting, terms=terms)
        run.told()
        return run.summary()
    except LeftOff:
        return run.summary()
    except PySparkException as error:
        raise error_of(error) from None
    finally:
        run.close()
        ledger.close()


def entries_waiting(server: str, feed: str, to: str, token_file: str = "", ca_file: str = "") -> int:
    """Return how many entries of ``feed`` the tables in ``to`` have not been published with, before Spark is started.

    Raises ConfigInvalid, FeedNotFound, and ServerUnreachable after ten seconds.
    """
    published = read_published(local_folder(to))
    with Connection(Endpoint(server, token_file, ca_file, 10.0)) as now:
        head = now.feed(feed).head_sequence_id
    return max(0, head - (published.sequence_id if published else 0))


def _options(endpoint: Endpoint, ledger: Ledger, archive: str) -> dict[str, str]:
    """Return the source's options that every read of this job has."""
    options = {
        "endpoint": endpoint.server,
        "feeds": ledger.feed,
        "incarnation": ledger.incarnation,
        "retry-seconds": str(max(1, round(endpoint.retry_s))),
    }
    more = {"token-file": endpoint.token_file, "ca-file": endpoint.ca_file, "archive": archive}
    return options | {name: value for name, value in more.items() if value}


def _start(ledger: Ledger) -> dict[str, str]:
    """Return where the stream begins without a checkpoint: after what is merged, so a lost checkpoint does no harm."""
    place = ledger.merged or ledger.published
    if place is not None:
        return {"start": str(place.sequence_id + 1)} | ({"lsn": place.lsn} if place.lsn else {})
    return {"start": str(ledger.start.after + 1)} if ledger.start is not None else {}


def _begin(spark: SparkSession, ledger: Ledger, endpoint: Endpoint, run: _Run, *, archive: bool) -> None:
    """Decide with what the tables begin, say it, and bring a snapshot in if it is that."""
    fresh = ledger.merged is None and not ledger.begun
    listener = listener_of(ledger)
    try:
        with Connection(endpoint) as server:
            start = begin_at(ledger, server, archive=archive)
    except SequenceNotAvailable as unreached:
        try:
            start = begin_with_snapshot(
                spark, ledger, endpoint, listener, unreached=unreached, stop=run.stopping
            )
        except LeftOff:
            end_lease(endpoint, listener, ledger.feed)
            raise
    if start is not None and fresh:
        logger.info("tables begin", feed=ledger.feed, started_from=start.source, after=start.after)
    merged = ledger.merged
    if start is None or start.source != SNAPSHOT or ledger.published is not None or merged is None:
        return
    # Until something is published: whoever was killed before this has a lease still.
    run.told()
    end_lease(endpoint, listener, ledger.feed)
    # Where the feed has more than the snapshot, the next batch shows it with that.
    if merged.lsn and merged.sequence_id == start.after and ledger.may_publish(start.after):
        publish_moment(ledger, merged)


def _is_whole(ledger: Ledger) -> bool:
    """Tell whether what is merged is what is published: then tables that come back can be shown with it.

    Not after a batch that was cut: some tables are merged further then.
    """
    published, reached = ledger.published, ledger.merged
    if published is None or reached is None or published.sequence_id != reached.sequence_id:
        return False
    return ledger.may_publish(published.sequence_id)


class _Run:
    """One run of the job: counts its batches and tells how it goes."""

    def __init__(
        self,
        endpoint: Endpoint,
        ledger: Ledger,
        checkpoint: str,
        progress: Callable[[Progress], None] | None,
        stopping: threading.Event,
    ) -> None:
        self.stopping = stopping
        # Progress must not wait for a server that is away.
        self._server = Connection(endpoint._replace(retry_s=0.0))
        self._ledger = ledger
        self._holding = Holding(self._server, ledger, checkpoint)
        self._progress = progress
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._batches = 0
        self._entries = 0
        self._sequence_id = ledger.published.sequence_id if ledger.published else 0

    def batch_done(self, done: BatchDone) -> None:
        with self._lock:
            self._batches += 1
            self._entries += done.entries
            self._sequence_id = done.sequence_id

    def told(self) -> None:
        """Tell the server what the tables still need."""
        self._holding.tell()

    def goes_on(self) -> bool:
        """Tell the server what the tables still need, and return whether the job is to go on."""
        self._holding.tell()
        return not self.stopping.is_set()

    def look(self, seen: Seen) -> None:
        self._holding.tell()
        if self._progress is not None:
            self._progress(self._now(seen))

    def _now(self, seen: Seen) -> Progress:
        with self._lock:
            batches, entries, sequence_id = self._batches, self._entries, self._sequence_id
        try:
            head = self._server.feed(self._ledger.feed).head_sequence_id
        except Exception:  # noqa: BLE001  # progress is told as far as it is known; the query itself judges the server
            head = None
        lag = lag_of(seen.ends, self._ledger.feed, head, sequence_id, time.time())
        elapsed = time.monotonic() - self._started
        published = self._ledger.published
        mark = published.commit_ts if published is not None else UNSET
        return Progress(
            batches=batches,
            entries=entries,
            sequence_id=sequence_id,
            watermark=None if mark is UNSET else mark,
            lag=lag.entries,
            lag_seconds=lag.seconds,
            entries_per_second=round(entries / elapsed, 1) if elapsed else 0.0,
            batch_seconds=seen.batch_seconds,
        )

    def close(self) -> None:
        self._server.close()

    def summary(self) -> Summary:
        return Summary(
            feed=self._ledger.feed,
            to=str(self._ledger.to),
            batches=self._batches,
            entries=self._entries,
            seconds=round(time.monotonic() - self._started, 3),
            published=self._ledger.published,
            started_from=self._ledger.start.source if self._ledger.start is not None else None,
            stopped=[
                StoppedTable(
                    table=list(one.table),
                    after=note.after,
                    code=note.code,
                    reason=note.reason,
                    hint=note.hint,
                )
                for one in self._ledger.known
                if (note := one.stopped) is not None and note.counts
            ],
        )


def read_tables(spark: SparkSession, to: str, *, stopped: bool = False) -> dict[TableName, DataFrame]:
    """Return the published tables by name, exactly at the versions that show one moment, with the source's columns alone.

    Stopped tables show an older moment: they are there with ``stopped`` only.

    The name () is the table of entries that name no table: its columns are key, value and value_binary. Dates and timestamps
    may be such as Python has none of (infinities, years BC and above 9999): ``collect()`` would fail there. Filters,
    ``unix_micros(column)``, ``unix_date(column)`` and ``toArrow()`` do not. NothingPublished if there is no such moment yet.
    """
    moment = published_moment(to)
    return {
        tuple(one.table): delta_frame(spark, to, one)
        for one in moment.tables
        if stopped or one.stopped_after is UNSET
    }
