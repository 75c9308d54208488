"""Alarms that stand, by code."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.runtime.metric import gauge
from headrace.server.metrics.measured import Measured, Subject

ALARMS: Final = gauge(
    "headrace_alarms",
    "Alarms that stand, by code (docs/reference/errors.md). A code is 0 while only cleared ones are remembered.",
    "code",
)


async def _collect(measured: Measured) -> Iterable[Metric]:
    log = measured.log
    rows = log.troubles.among(await asyncio.to_thread(log.metadata.alarms))
    standing: Counter[str] = Counter()
    for row in rows:
        standing[row.code] += row.cleared_at_ms is None
    return (ALARMS.of(((code,), number) for code, number in sorted(standing.items())),)


SUBJECT: Final = Subject("Alarms", (ALARMS,), _collect)
