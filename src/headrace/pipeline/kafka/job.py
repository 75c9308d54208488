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
from headrace.pipeline.kafka.brokers import Brokers
from headrace.pipeline.kafka.client import connection_properties, producer_properties
from headrace.pipeline.kafka.routing import READ_DDL
from headrace.pipeline.kafka.schemas import FeedSchemas
from headrace.pipeline.kafka.sink import KafkaSink
from headrace.pipeline.source.feed import DEFAULT_SERVER, FORMAT, register
from headrace.pipeline.supervision import FOLLOWING, ONCE, Restart, Seen, Terms, start_query, supervise

ENTRIES_MAX: Final = 200_000
"""Default limit of entries in a batch. A consumer keeps in memory what lies between two WATERMARKs, and a batch that was cut
comes again."""
PARTITION_ENTRIES: Final = 50_000
"""Entries that one task routes at most: with more, a batch would keep one core busy and leave the others idle."""


class Progress(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where a running job is. ``watermark``: commitTs of the last WATERMARK sent by this process, None before the first.

    ``lag``: entries that the feed has beyond it, None while the server does not answer.
    """

    batches: int
    rows: int
    sequence_id: int
    watermark: int | None
    lag: int | None
    rows_per_second: float


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a job did. ``warnings``: what was asked for and can surprise."""

    feed: str
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
    entries_max: int = ENTRIES_MAX,
    retry_s: float = RETRY_S,
    progress: Callable[[Progress], None] | None = None,
    restarting: Callable[[Restart], None] | None = None,
    stop: threading.Event | None = None,
    terms: Terms | None = None,
) -> Summary:
    """Send the entries of ``feed`` to Kafka; until ``stop`` is set, or with ``once`` up to the head.

    ``checkpoint`` is a folder of this job's alone, Spark's record of how far it is: an empty one begins at the oldest entry
    that is retained, or with ``archive`` at the first one. ``listener``: a name under which retention waits for it.
    ``archive``: URL of the KWAL segments that hold what the server retains no longer. Safe to stop or kill at any point: the
    next run goes on there, and repeats at most one batch.

    ``terms``: how long it is started again after failures (default: for ever, and with ``once`` never).
    ``progress`` is called every second and ``restarting`` before the query is started again, on the caller's thread.

    Raises ConfigInvalid, TopicUnfit, MessageTooLarge, SimpleInvalid, SimpleSchemaMissing, BrokerUnavailable, FeedNotFound,
    FeedRecreated, SequenceNotAvailable, ServerUnreachable, QueryFailed.
    """
    register(spark)
    endpoint = Endpoint(server, token_file, ca_file, retry_s)
    with Connection(endpoint) as now:
        view = now.feed(feed)
    schemas = FeedSchemas(endpoint, feed, view.incarnation)
    options = source_options(endpoint, feed, entries_max, listener=listener, archive=archive)
    with (
        Brokers(spark, connection_properties(sink), producer_properties(sink)) as brokers,
        _Counts(endpoint, feed, progress) as counts,
    ):
        batches = Batches(schemas, sink, brokers, counts.batch_sent)
        # What is wrong with the topics is said before the first batch.
        batches.topics.learn([])

        def start() -> StreamingQuery:
            entries = spark.readStream.format(FORMAT).options(**options).schema(READ_DDL).load()
            writer = entries.writeStream.foreachBatch(batches).queryName(f"headrace kafka of {feed}")
            if once:
                writer = writer.trigger(availableNow=True)
            return start_query(spark, writer, checkpoint)

        supervise(
            start,
            stop=stop,
            look=counts.look,
            restarting=restarting,
            terms=terms or (ONCE if once else FOLLOWING),
        )
        return counts.summary(batches)


def source_options(
    endpoint: Endpoint, feed: str, entries_max: int, *, listener: str, archive: str
) -> dict[str, str]:
    """Return the source's options. Without a checkpoint it begins at the oldest entry, with an archive at the first one."""
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
        "start": "1" if archive else "",
    }
    return {name: value for name, value in options.items() if value}


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
            lag = max(0, self._server.feed(self._feed).head_sequence_id - known["sequence_id"])
        except Exception:  # noqa: BLE001  # progress is told as far as it is known; the query itself judges the server
            lag = None
        self._progress(Progress(**known, lag=lag, rows_per_second=round(seen.rows_per_second, 1)))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()

    def summary(self, batches: Batches) -> Summary:
        topics = {topic: place.partitions for topic, place in batches.topics.places.items()}
        return Summary(
            feed=self._feed,
            batches=self._batches,
            rows=self._rows,
            statements=self._statements,
            sequence_id=self._sequence_id,
            watermark=self._watermark,
            topics=topics,
            warnings=batches.topics.warnings,
            seconds=round(time.monotonic() - self._began, 3),
        )
