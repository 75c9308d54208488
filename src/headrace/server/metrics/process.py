"""Whether this server is ready, which version it is, and what its process takes of the machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.runtime import process_metrics
from headrace.runtime.metric import gauge
from headrace.server.metrics.measured import Measured, Subject

READY: Final = gauge("headrace_ready", "1 if the server takes appends (`/readyz` answers 200), else 0.")


async def _collect(measured: Measured) -> Iterable[Metric]:
    return (READY.one(float(not measured.not_ready())), *process_metrics.collect())


SUBJECT: Final = Subject("The server's process", (READY, *process_metrics.METRICS), _collect)
