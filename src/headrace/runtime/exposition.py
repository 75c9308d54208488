"""Metrics in Prometheus' text format, made when they are asked for. For every ``/metrics``: the server's and others'."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

METRICS_TYPE: Final = CONTENT_TYPE_LATEST
"""Media type of the text."""


class _Collected(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def exposed(families: Sequence[Metric]) -> bytes:
    """Return these metrics as text. Nothing is kept between two calls."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))
    return generate_latest(registry)
