"""How a streaming job on Spark shows whether it moves: its driver tells that, and starts a stuck query anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from headrace.cli.health_options import HealthOptions
from headrace.cli.spark_jobs import Progressing, tell_restart
from headrace.client.credential import Credential
from headrace.client.observing import Told, healthy, job_name, observed_beside
from headrace.client.reporting import PATIENCE_S_MAX
from headrace.runtime import facts
from headrace.runtime.progress import Standing, Work

if TYPE_CHECKING:
    from headrace.pipeline.supervision import Restart


class Streaming(Progressing, Protocol):
    """What a streaming job tells of its progress."""

    @property
    def sequence_id(self) -> int:
        """Up to where the feed is done."""

    @property
    def done(self) -> int:
        """Rows or entries that this process has done."""

    @property
    def batch_seconds(self) -> float | None:
        """How long the newest batch took; None before the first."""


P = TypeVar("P", bound=Streaming)

LOOK_S_MAX: Final = 15.0
"""A running query is looked at every second; without a look for so long, it counts as one that something waits for."""


class JobSeen:
    """A job as it is seen. What waits are the entries that the feed has beyond the last batch.

    ``anew`` is set when the query is to be started again. Within a batch each task that Spark has done counts as progress.
    A query that was started again repeats its batch, and its tasks: so until a batch has ended it is left alone for twice as
    long each time, or one that only takes long would never end.
    """

    def __init__(self, work: Work, stalled_after_s: float) -> None:
        self._work = work
        self._stalled_after_s = self._patience_s = stalled_after_s
        self._batch = self._begun_anew_at_batch = -1
        self._begun_anew_at = float("-inf")
        self._turn: AbstractContextManager[None] | None = None
        self._restarts = 0
        self._last: Streaming | None = None
        self.anew = threading.Event()
        self.spark: Any = None

    def telling(self, progress: Callable[[P], None]) -> Callable[[P], None]:
        """Return what takes a job's progress over, and gives it to ``progress``."""

        def tell(now: P) -> None:
            self._note(now)
            progress(now)

        return tell

    def restarting(self, restart: Restart) -> None:
        """The query failed, and is started again."""
        self._restarts = restart.number
        self._work.set_waiting(1, what="the query to be started again")
        self._work.set_trouble(restart.error)
        tell_restart(restart)

    def facts(self) -> dict[str, float]:
        """Return the job's numbers for its reports; what is not known is left out."""
        found: dict[str, float | None] = {facts.PIPELINE_RESTARTS.name: self._restarts}
        if (last := self._last) is not None:
            found |= {
                facts.PIPELINE_BATCHES.name: last.batches,
                facts.PIPELINE_ROWS.name: last.done,
                facts.PIPELINE_BATCH_SECONDS.name: last.batch_seconds,
                facts.PIPELINE_LAG_ENTRIES.name: last.lag,
                facts.PIPELINE_LAG_SECONDS.name: last.lag_seconds,
            }
        return {name: value for name, value in found.items() if value is not None}

    def reconnect(self, stuck: list[Standing]) -> None:
        """Have the query started again: all its connections are new then, and its checkpoint says where it goes on."""
        now = time.monotonic()
        if self._batch != self._begun_anew_at_batch:
            self._patience_s = self._stalled_after_s
        elif now < self._begun_anew_at + self._patience_s:
            return
        self._begun_anew_at, self._begun_anew_at_batch = now, self._batch
        self._patience_s = min(2 * self._patience_s, max(PATIENCE_S_MAX, self._stalled_after_s))
        self.anew.set()

    def _note(self, now: Streaming) -> None:
        from headrace.pipeline.supervision import tasks_done

        if self._turn is not None:
            self._turn.__exit__(None, None, None)
        # Ended by the next look, which a Java that stands still never lets come.
        self._turn = self._work.during("Spark's answer", within_s=LOOK_S_MAX)
        self._turn.__enter__()
        if self.spark is not None:
            self._work.set_step(tasks_done(self.spark))
        self._last = now
        self._batch = now.batches
        self._work.set_position(now.sequence_id)
        self._work.set_reachable(now.lag is not None)
        if now.lag is None:
            self._work.set_waiting(1, what="the server's answer")
        else:
            self._work.set_waiting(now.lag, what="a batch to end")
            if not now.lag:
                self._work.set_trouble(None)


@contextmanager
def observed_job(
    kind: str, health: HealthOptions | None, place: str, job: dict[str, Any]
) -> Iterator[JobSeen]:
    """Within the body a job ``kind`` tells its health, and the server how it stands unless it runs ``once``.

    ``place`` is where it keeps its state, ``job`` what it is called with. Raises ConfigInvalid, PortInUse.
    """
    terms = (health or HealthOptions()).terms()
    progress = terms.progress()
    feed = job["feed"]
    seen = JobSeen(progress.work(f"{kind} of {feed}", feed=feed), terms.stalled_after_s)
    token, ca = (Path(job[name]) if job[name] else None for name in ("token_file", "ca_file"))
    progress.tell(seen.facts)
    told = Told("pipeline", job_name(kind, feed, place), job["server"], Credential.find(token), ca)
    with healthy(progress, terms):
        if job["once"]:
            yield seen
            return
        with observed_beside(progress, told, seen.reconnect):
            yield seen
