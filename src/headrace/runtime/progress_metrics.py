"""``/metrics`` of a long-running process: how its works stand, in Prometheus' text format."""

from __future__ import annotations

from prometheus_client.core import GaugeMetricFamily

from headrace.runtime.exposition import exposed
from headrace.runtime.progress import Progress, State


def exposition(progress: Progress) -> bytes:
    """Return the metrics of all works as they are now; waits for nothing."""
    now_ms = progress.clock.wall_ms()
    labels = ["work", "feed"]
    waiting = GaugeMetricFamily("headrace_work_waiting", "What waits to be done.", labels=labels)
    stuck = GaugeMetricFamily(
        "headrace_work_stuck", "1 if it does not move though something waits.", labels=labels
    )
    age = GaugeMetricFamily(
        "headrace_work_oldest_waiting_seconds", "How long the oldest that waits does.", labels=labels
    )
    for one in progress.standings():
        name = (one.name, one.feed)
        waiting.add_metric(name, one.waiting)
        stuck.add_metric(name, float(one.state is State.STUCK))
        if one.oldest_waiting_ms is not None:
            age.add_metric(name, max(0, now_ms - one.oldest_waiting_ms) / 1000)
    return exposed((waiting, stuck, age))
