"""What a metric is: its name, labels and meaning, declared once. ``docs/reference/metrics.md`` is made of the declarations.

Whoever exposes a metric makes its samples by its declaration, so none can be exposed that is not declared.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headrace.runtime.histogram import Histogram


class Kind(StrEnum):
    """``GAUGE``: as it is now. ``COUNTER``: only grows, from 0 at the process's start. ``HISTOGRAM``: counts by bound."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Described:
    """The declaration of one metric. A counter's ``name`` ends in ``_total``."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a name that Prometheus would show as another."""
        if (self.kind is Kind.COUNTER) != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: a counter's name ends in _total, and no other's does")

    def of(self, samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
        """Return the metric with these values, each behind its labels' values."""
        make = CounterMetricFamily if self.kind is Kind.COUNTER else GaugeMetricFamily
        family = make(self.name, self.meaning, labels=self.labels)
        for labels, value in samples:
            family.add_metric(labels, value)
        return family

    def one(self, value: float) -> Metric:
        """Return the metric, which has no labels, with its value."""
        return self.of([((), value)])

    def histograms(self, samples: Iterable[tuple[tuple[str, ...], Histogram]]) -> Metric:
        """Return the metric with these histograms, each behind its labels' values."""
        family = HistogramMetricFamily(self.name, self.meaning, labels=self.labels)
        for labels, histogram in samples:
            bounds = [
                ("+Inf" if bound == math.inf else repr(bound), float(times))
                for bound, times in histogram.buckets()
            ]
            family.add_metric(labels, bounds, histogram.sum)
        return family


def gauge(name: str, meaning: str, *labels: str) -> Described:
    """Declare what stands at a value."""
    return Described(name, Kind.GAUGE, meaning, labels)


def counter(name: str, meaning: str, *labels: str) -> Described:
    """Declare what only grows."""
    return Described(name, Kind.COUNTER, meaning, labels)


def histogram(name: str, meaning: str, *labels: str) -> Described:
    """Declare what is counted by bounds."""
    return Described(name, Kind.HISTOGRAM, meaning, labels)
