"""``/metrics`` of a long-running process: how its works stand, in Prometheus' text format."""

from __future__ import annotations

from typing import Final

from headrace.runtime import process_metrics
from headrace.runtime.exposition import exposed
from headrace.runtime.metric import gauge
from headrace.runtime.progress import Progress, State

WAITING: Final = gauge("headrace_work_waiting", "What waits to be done.", "work", "feed")
STUCK: Final = gauge("headrace_work_stuck", "1 if it does not move though something waits.", "work", "feed")
OLDEST: Final = gauge(
    "headrace_work_oldest_waiting_seconds", "How long the oldest that waits does.", "work", "feed"
)
READY: Final = gauge("headrace_process_ready", "1 if `/readyz` answers 200, else 0.")
METRICS: Final = (WAITING, STUCK, OLDEST, READY)


def exposition(progress: Progress) -> bytes:
    """Return the metrics of all works as they are now; waits for nothing."""
    now_ms = progress.clock.wall_ms()
    standings = [((one.name, one.feed), one) for one in progress.standings()]
    return exposed((
        WAITING.of((name, one.waiting) for name, one in standings),
        STUCK.of((name, float(one.state is State.STUCK)) for name, one in standings),
        OLDEST.of(
            (name, max(0, now_ms - one.oldest_waiting_ms) / 1000)
            for name, one in standings
            if one.oldest_waiting_ms is not None
        ),
        READY.one(float(not progress.not_ready())),
        *process_metrics.collect(),
    ))  # fmt: skip
