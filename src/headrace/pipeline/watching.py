"""How far a restore or a base in the making is: Spark is asked how many of the tasks of the running step are done."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession

_LOOK_S: Final = 0.5


class Standing(NamedTuple):
    """Where the work is. ``share``: 0 to 1 of all its work; ``bytes_done`` is that share of ``bytes_total``, which
    are read.
    """

    step: str
    share: float
    bytes_total: int
    seconds: float

    @property
    def bytes_done(self) -> int:
        """Bytes of the archive that the work done so far stands for."""
        return int(self.bytes_total * self.share)

    @property
    def seconds_left(self) -> float | None:
        """How long it will go on at this rate; None while nobody can tell."""
        return self.seconds * (1 - self.share) / self.share if self.share > 0 else None


Tell = Callable[[Standing], None]


class Watching:
    """Tells how the work goes on, some times a second, from a thread of its own while a step runs."""

    def __init__(self, spark: SparkSession, bytes_total: int, tell: Tell | None) -> None:
        self._context = spark.sparkContext
        self._bytes = bytes_total
        self._tell = tell
        self._started = time.monotonic()
        self._done = 0.0

    @contextmanager
    def step(self, name: str, share: float) -> Iterator[None]:
        """Run a step, which is ``share`` of the whole work."""
        if self._tell is None:
            yield
            return
        group, ended = f"headrace-watched-{uuid4().hex}", threading.Event()
        self._context.setJobGroup(group, name)
        thread = threading.Thread(target=self._look, args=(name, group, share, ended), daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None takes it away
        self._done += share
        self._say(name, self._done)

    def part(self, name: str, share: float) -> None:
        """A step whose parts are told by who does them is done up to ``share`` of the whole work."""
        self._say(name, self._done + share)

    def passed(self, share: float) -> None:
        """Such a step is over."""
        self._done += share

    def _look(self, name: str, group: str, share: float, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_S):
            self._say(name, self._done + share * self._tasks_done(group))

    def _tasks_done(self, group: str) -> float:
        tracker = self._context.statusTracker()
        done = total = 0
        for job in tracker.getJobIdsForGroup(group):
            info: Any = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                told: Any = tracker.getStageInfo(stage)
                if told is not None:
                    done, total = done + told.numCompletedTasks, total + told.numTasks
        return done / total if total else 0.0

    def _say(self, name: str, share: float) -> None:
        if self._tell is not None:
            seconds = time.monotonic() - self._started
            self._tell(Standing(name, min(1.0, share), self._bytes, seconds))
