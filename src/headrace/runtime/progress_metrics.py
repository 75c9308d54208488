"""``/metrics`` of a long-running process: how its works stand, in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headrace.runtime.progress import Progress, State


class _Collected(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


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
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected((waiting, stuck, age)))
    return generate_latest(registry)
