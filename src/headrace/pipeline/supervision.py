"""A streaming query that goes on: started again after what passes, ended by what does not. Called by every streaming job.

A query dies for good as soon as its source or its batch raises once. :class:`Failures` (pure) says what then: again after a
while, or the end with the cause's own code and exit code. :func:`supervise` does it, and tells how the query goes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headrace.errors import HeadraceError, QueryFailed, SparkBusy, SparkEnded, Stalled
from headrace.pipeline.checkpoint_folder import MANAGER, manager_of, url_of
from headrace.pipeline.failures import error_of
from headrace.runtime.backoff import Backoff

T = TypeVar("T")

LOOK_S: Final = 1
"""How often a running query is looked at."""
FIRST_DELAY_S: Final = 1.0
"""Wait before the first start again; it doubles from there."""
BUSY_MAX: Final = 10
"""So often a machine that is too busy to start Spark's Python processes is waited for by a job whose first failure would end
it: nothing of its work had begun."""
_JAVA_SAYS: Final = "Trace:"
_starting = threading.Lock()


class Terms(NamedTuple):
    """How long a query is started again while no batch of it ends.

    ``patience_s``: for so many seconds after a cause that passes by itself (a server that is away); None: for ever.
    ``failures_max``: so many failures in a row of a cause that nobody knows (a lost executor, a full disk).
    ``delay_s_max``: longest wait between two starts.
    """

    patience_s: float | None = None
    failures_max: int = 5
    delay_s_max: float = 60.0


FOLLOWING: Final = Terms()
"""A job that runs until it is told to stop."""
ONCE: Final = Terms(patience_s=0.0, failures_max=0)
"""A job that whoever called it will call again: the first failure ends it."""


class Restart(NamedTuple):
    """The query failed with ``error`` and is started again, for the ``number``-th time, after ``delay_s`` seconds."""

    error: HeadraceError
    number: int
    delay_s: float


class Seen(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """How a query goes, as Spark tells it.

    ``batch_id``: of the newest batch that ended with rows since the job was started, None before the first one.
    ``rows_per_second``: of what Spark did last; 0 while nothing comes. ``ends``: where each of the query's sources stands,
    as its offset's JSON. ``restarts``: how often the query was started again. ``batch_seconds``: how long the newest batch
    with rows took, from its trigger to its commit.
    """

    batch_id: int | None = None
    rows_per_second: float = 0.0
    ends: tuple[str, ...] = ()
    restarts: int = 0
    batch_seconds: float | None = None


def start_query(spark: SparkSession, writer: DataStreamWriter, checkpoint: str) -> StreamingQuery:
    """Start ``writer`` with its checkpoint there, kept as fits the place: see :func:`checkpoint_folder.manager_of`.

    ``spark`` must be the session of the writer's frame; its own setting is what it was again afterwards.
    """
    with _starting:
        before = spark.conf.get(MANAGER, None)
        _set_manager(spark, manager_of(checkpoint))
        try:
            # A query takes over its session's settings when it is made.
            return writer.option("checkpointLocation", url_of(checkpoint)).start()
        finally:
            _set_manager(spark, before)


def tasks_done(spark: SparkSession) -> tuple[tuple[int, int], ...]:
    """Return how many tasks of each stage that runs now are done, as (stage, tasks); none if Spark does not say."""
    try:
        tracker = spark.sparkContext.statusTracker()
        found = [(number, tracker.getStageInfo(number)) for number in tracker.getActiveStageIds()]
    except (OSError, Py4JError):
        return ()
    return tuple((number, stage.numCompletedTasks) for number, stage in found if stage is not None)


def _set_manager(spark: SparkSession, manager: str | None) -> None:
    if manager is None:
        spark.conf.unset(MANAGER)
    else:
        spark.conf.set(MANAGER, manager)


class Failures:
    """What follows a failure, in one job's life. Pure: the time is passed in."""

    def __init__(self, terms: Terms, backoff: Backoff | None = None) -> None:
        self._terms = terms
        self._backoff = backoff or Backoff(FIRST_DELAY_S, terms.delay_s_max)
        self._since: float | None = None
        self._unknown = self._busy = 0

    def next_delay(self, error: HeadraceError, *, progressed: bool, now: float) -> float | None:
        """Return how many seconds to wait before the query is started again; None if ``error`` is the end.

        ``progressed``: a batch ended since the failure before. ``now``: seconds on a clock that runs evenly.
        """
        if progressed or self._since is None:
            self._backoff.reset()
            self._since, self._unknown, self._busy = now, 0, 0
        patience_s = self._terms.patience_s
        if isinstance(error, SparkBusy) and patience_s is not None:
            self._busy += 1
            again = self._busy <= BUSY_MAX
        elif isinstance(error, QueryFailed):
            self._unknown += 1
            again = self._unknown <= self._terms.failures_max
        else:
            again = error.retryable and (patience_s is None or now - self._since < patience_s)
        return self._backoff.next_delay() if again else None


def supervise(
    start: Callable[[], StreamingQuery],
    *,
    stop: threading.Event | None = None,
    anew: threading.Event | None = None,
    look: Callable[[Seen], None] | None = None,
    restarting: Callable[[Restart], None] | None = None,
    terms: Terms = FOLLOWING,
) -> Seen:
    """Run a query until it ends by itself or ``stop`` is set; start it again after failures, as ``terms`` say.

    ``start`` makes and starts the query, each time with the same checkpoint. If it fails the first time for a cause that
    nobody knows, that is the end; later it is a failure like others. ``look`` is called every second, ``restarting`` before
    each wait; both on the caller's thread. Whoever sets ``anew`` has the query ended and started again, as after a failure
    that passes. Raises the error that no start mends: our own, if a worker, the source or the batch raised one, else
    QueryFailed; SparkEnded if Spark's Java is gone, so that only a new process goes on.
    """
    stop = stop or threading.Event()
    failures = Failures(terms)
    watch = _Watch(look, anew or threading.Event())
    while True:
        error, progressed = watch.run(start, stop)
        if error is None:
            return watch.seen
        passes = error.retryable or isinstance(error, QueryFailed)
        if stop.is_set() and passes:  # it was cut off in the middle of a batch, which the next run repeats
            return watch.seen
        delay = failures.next_delay(error, progressed=progressed, now=time.monotonic())
        if delay is None:
            raise error
        watch.seen = msgspec.structs.replace(watch.seen, restarts=watch.seen.restarts + 1)
        if restarting is not None:
            restarting(Restart(error, watch.seen.restarts, delay))
        if stop.wait(delay):
            return watch.seen


class _Watch:
    """Looks at a query once a second, through all its lives."""

    def __init__(self, look: Callable[[Seen], None] | None, anew: threading.Event) -> None:
        self._anew = anew
        self._look = look or (lambda seen: None)
        self._began = False
        self.seen = Seen()

    def run(
        self, start: Callable[[], StreamingQuery], stop: threading.Event
    ) -> tuple[HeadraceError | None, bool]:
        """Run one life of the query; returns what ended it (None: it ended in order), and whether a batch of it ended."""
        if stop.is_set():
            return None, False
        query, error = _asked(start)
        if query is None:
            if isinstance(error, QueryFailed) and not self._began:
                raise error  # nothing has run: a query that can't be planned now can't be planned later either
            return error, False
        self._began = True
        self._anew.clear()
        ended: bool | None = False
        progressed = False
        try:
            while not ended and error is None:
                ended, error = _asked(lambda: query.awaitTermination(LOOK_S))
                progressed |= self._note(_asked(lambda: query.lastProgress)[0])
                if error is None:
                    self._look(self.seen)
                if (stop.is_set() or self._anew.is_set()) and not ended:
                    _asked(query.stop)
                    error = error if stop.is_set() else Stalled("the query was ended, to be started anew")
        except BaseException:
            _asked(query.stop)
            raise
        return error, progressed

    def _note(self, progress: Mapping[str, Any] | None) -> bool:
        """Take over what Spark tells; returns whether a batch with rows has ended."""
        if progress is None:
            return False
        speed = float(progress.get("processedRowsPerSecond") or 0.0)
        if not progress[
            "numInputRows"
        ]:  # a look that found nothing, with the id that the next batch will have
            self.seen = msgspec.structs.replace(self.seen, rows_per_second=0.0)
            return False
        ends = tuple(str(source["endOffset"]) for source in progress["sources"])
        took_ms = progress["durationMs"].get("triggerExecution")
        self.seen = msgspec.structs.replace(
            self.seen,
            batch_id=int(progress["batchId"]),
            rows_per_second=speed,
            ends=ends,
            batch_seconds=None if took_ms is None else took_ms / 1000,
        )
        return True


def _asked(call: Callable[[], T | None]) -> tuple[T | None, HeadraceError | None]:
    """Return what Spark answers, or why the query failed; SparkEnded if nobody answers."""
    try:
        return call(), None
    except PySparkException as failure:
        return None, error_of(failure)
    except (OSError, Py4JError) as failure:
        # An answer that is empty is told like one that says what Java lacks, but for Java's own account.
        if isinstance(failure, Py4JJavaError) or _JAVA_SAYS in str(failure):
            return None, error_of(failure)
        raise SparkEnded(f"Spark's Java process has ended: {failure}") from None
