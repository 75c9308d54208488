"""A captured feed to Kafka, as a stream. Called by ``headrace pipeline kafka``, tests and the bench.

At least once: a batch that was cut is sent again as a whole. ``docs/howto/kafka.md`` says what consumers may rely on,
:mod:`headrace.pipeline.kafka.batches` what a micro-batch does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipeline.connection import RETRY_S, Connection, Endpoint
from headrace.pipeline.kafka.batches import Batches, BatchSent
from headrace.pipeline.kafka.beginning import Beginning, find_beginning
from headrace.pipeline.kafka.brokers import ANSWER_S_MAX, Brokers
from headrace.pipeline.kafka.client import PATIENCE_S, connection_properties, producer_properties
from headrace.pipeline.kafka.routing import READ_DDL
from headrace.pipeline.kafka.schemas import FeedSchemas
from headrace.pipeline.kafka.sink import KafkaSink
from headrace.pipeline.lag import lag_of
from headrace.pipeline.source.feed import DEFAULT_SERVER, FORMAT, register
from headrace.pipeline.supervision import FOLLOWING, ONCE, Restart, Seen, Terms, start_query, supervise
from headrace.runtime.logs import get_logger

log = get_logger("pipeline")

ENTRIES_MAX: Final = 200_000
"""Default limit of entries in a batch. A consumer keeps in memory what lies between two WATERMARKs, and a batch that was cut
comes again."""
PARTITION_ENTRIES: Final = 50_000
"""Entries that one task routes at most: with more, a batch would keep one core busy and leave the others idle."""


class Progress(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where a running job is. ``watermark``: commitTs of the last WATERMARK sent by this process, None before the first.

    ``lag``: entries that the feed has beyond it, ``lag_seconds``: how long ago the last one that was sent was appended, 0 at
    the head; None while they are not known.
    """

    batches: int
    rows: int
    sequence_id: int
    watermark: int | None
    lag: int | None
    lag_seconds: float | None
    rows_per_second: float
    batch_seconds: float | None = None

    @property
    def done(self) -> int:
        """Return how many rows this process has sent."""
        return self.rows


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a job did. ``began_at``: the first sequence id that it read, None if a checkpoint said where to go on.

    ``warnings``: what was asked for and can surprise.
    """

    feed: str
    began_at: int | None
    batches: int
    rows: int
    statements: int
    sequence_id: int
    watermark: int | None
    topics: dict[str, int]
    warnings: list[str]
    seconds: float


def run_kafka(
    spark: SparkSession,
    *,
    feed: str,
    sink: KafkaSink,
    checkpoint: str,
    server: str = DEFAULT_SERVER,
    once: bool = False,
    token_file: str = "",
    ca_file: str = "",
    listener: str = "",
    archive: str = "",
    start: str = "",
    entries_max: int = ENTRIES_MAX,
    retry_s: float = RETRY_S,
    patience_s: float = PATIENCE_S,
    progress: Callable[[Progress], None] | None = None,
    restarting: Callable[[Restart], None] | None = None,
    stop: threading.Event | None = None,
    anew: threading.Event | None = None,
    terms: Terms | None = None,
) -> Summary:
    """Send the entries of ``feed`` to Kafka; until ``stop`` is set, or with ``once`` up to the head.

    ``checkpoint`` is a folder of this job's alone, Spark's record of how far it is: an empty one begins at ``start``, in the
    words of the source's option of this name, or ``first``. Without it: at the oldest entry that is retained, or with
    ``archive`` at the first one. ``listener``: a name under which retention waits for it. ``archive``: URL of the KWAL
    segments that hold what the server retains no longer. Safe to stop or kill at any point: the next run goes on there, and
    repeats at most one batch.

    ``terms``: how long it is started again after failures (default: for ever, and with ``once`` never). ``patience_s``: how
    long brokers may take nothing before that counts as one. ``progress`` is called every second and ``restarting`` before
    the query is started again, on the caller's thread; ``anew`` is :func:`supervise`'s.

    Raises ConfigInvalid, TopicUnfit, MessageTooLarge, SimpleInvalid, SimpleSchemaMissing, BrokerUnavailable, FeedNotFound,
    FeedRecreated, SequenceNotAvailable, ServerUnreachable, TopicGone, QueryFailed.
    """
    register(spark)
    endpoint = Endpoint(server, token_file, ca_file, retry_s)
    with Connection(endpoint) as now:
        view = now.feed(feed)
    schemas = FeedSchemas(endpoint, feed, view.incarnation)
    options = source_options(endpoint, feed, entries_max, listener=listener, archive=archive)
    beginning = find_beginning(options, start, checkpoint)
    options |= _said(beginning)
    connection, producer = connection_properties(sink), producer_properties(sink, patience_s)
    with (
        Brokers(spark, connection, producer, answer_s=min(ANSWER_S_MAX, patience_s)) as brokers,
        _Counts(endpoint, feed, progress) as counts,
    ):
        batches = Batches(schemas, sink, brokers, counts.batch_sent, patience_s=patience_s)
        # What is wrong with the topics is said before the first batch.
        batches.topics.learn([])

        def start_once() -> StreamingQuery:
            entries = spark.readStream.format(FORMAT).options(**options).schema(READ_DDL).load()
            writer = entries.writeStream.foreachBatch(batches).queryName(f"headrace kafka of {feed}")
            if once:
                writer = writer.trigger(availableNow=True)
            return start_query(spark, writer, checkpoint)

        terms = terms or (ONCE if once else FOLLOWING)
        supervise(start_once, stop=stop, anew=anew, look=counts.look, restarting=restarting, terms=terms)
        return counts.summary(batches, beginning)


def source_options(
    endpoint: Endpoint, feed: str, entries_max: int, *, listener: str, archive: str
) -> dict[str, str]:
    """Return the source's options, but for where it begins."""
    options = {
        "endpoint": endpoint.server,
        "feeds": feed,
        "token-file": endpoint.token_file,
        "ca-file": endpoint.ca_file,
        "max-entries": str(entries_max),
        "partition-entries": str(PARTITION_ENTRIES),
        "retry-seconds": str(max(1, round(endpoint.retry_s))),
        "listener": listener,
        "archive": archive,
    }
    return {name: value for name, value in options.items() if value}


def _said(beginning: Beginning) -> dict[str, str]:
    """Say what can surprise, and return the option that makes the source begin there."""
    for warning in beginning.warnings:
        log.warning("the beginning may surprise", detail=warning)
    return {"start": beginning.start} if beginning.start else {}


class _Counts:
    """What a job has done, and how it goes."""

    def __init__(self, endpoint: Endpoint, feed: str, progress: Callable[[Progress], None] | None) -> None:
        # Progress must not wait for a server that is away.
        self._server = Connection(endpoint._replace(retry_s=0.0))
        self._feed = feed
        self._progress = progress
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._batches = self._rows = self._statements = self._sequence_id = 0
        self._watermark: int | None = None

    def batch_sent(self, sent: BatchSent) -> None:
        with self._lock:
            self._batches += 1
            self._rows += sent.rows
            self._statements += sent.statements
            self._sequence_id = max(self._sequence_id, sent.sequence_id)
            if sent.watermark is not None:
                self._watermark = sent.watermark

    def look(self, seen: Seen) -> None:
        if self._progress is None:
            return
        with self._lock:
            known: dict[str, Any] = {
                "batches": self._batches,
                "rows": self._rows,
                "sequence_id": self._sequence_id,
                "watermark": self._watermark,
            }
        try:
            head = self._server.feed(self._feed).head_sequence_id
        except Exception:  # noqa: BLE001  # progress is told as far as it is known; the query itself judges the server
            head = None
        lag = lag_of(seen.ends, self._feed, head, known["sequence_id"], time.time())
        speed = round(seen.rows_per_second, 1)
        known |= {"lag": lag.entries, "lag_seconds": lag.seconds, "batch_seconds": seen.batch_seconds}
        self._progress(Progress(**known, rows_per_second=speed))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def summary(self, batches: Batches, beginning: Beginning) -> Summary:
        topics = {topic: place.partitions for topic, place in batches.topics.places.items()}
        return Summary(
            feed=self._feed,
            began_at=beginning.at,
            batches=self._batches,
            rows=self._rows,
            statements=self._statements,
            sequence_id=self._sequence_id,
            watermark=self._watermark,
            topics=topics,
            warnings=[*beginning.warnings, *batches.topics.warnings],
            seconds=round(time.monotonic() - self._began, 3),
        )
