"""``GET /metrics``: every subject asked once, in Prometheus' text format. Nothing is kept between two scrapes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.log.log import Log
from headrace.runtime.exposition import exposed
from headrace.server.metrics import consumers, retention
from headrace.server.retention.loop import Retention

Subject = Callable[[Log, Retention], Awaitable[Iterable[Metric]]]

SUBJECTS: Final[tuple[Subject, ...]] = (consumers.collect, retention.collect)


async def exposition(log: Log, retention: Retention) -> bytes:
    """Return all metrics as they are now. Raises StoreUnavailable, JournalCorrupt."""
    families = [family for subject in SUBJECTS for family in await subject(log, retention)]
    return exposed(families)
