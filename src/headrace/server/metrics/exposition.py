"""``GET /metrics``: every subject asked once, in Prometheus' text format. Nothing is kept between two scrapes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from headrace.log.log import Log
from headrace.server.metrics import consumers, retention
from headrace.server.retention.loop import Retention

Subject = Callable[[Log, Retention], Awaitable[Iterable[Metric]]]

METRICS_TYPE: Final = CONTENT_TYPE_LATEST
"""Media type of the answer."""

SUBJECTS: Final[tuple[Subject, ...]] = (consumers.collect, retention.collect)


class _Collected(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


async def exposition(log: Log, retention: Retention) -> bytes:
    """Return all metrics as they are now. Raises StoreUnavailable, JournalCorrupt."""
    families = [family for subject in SUBJECTS for family in await subject(log, retention)]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(families))
    return generate_latest(registry)
