"""``GET /metrics``: every subject asked once, in Prometheus' text format. What has a state elsewhere is not kept here."""

from __future__ import annotations

from typing import Final

from headrace.runtime.exposition import exposed
from headrace.server.metrics import (
    alarms,
    appends,
    calls,
    consumers,
    feeds,
    process,
    reports,
    retention,
    streams,
)
from headrace.server.metrics.measured import Measured, Subject

SUBJECTS: Final[tuple[Subject, ...]] = (
    process.SUBJECT,
    appends.SUBJECT,
    feeds.SUBJECT,
    consumers.SUBJECT,
    streams.SUBJECT,
    calls.SUBJECT,
    retention.SUBJECT,
    alarms.SUBJECT,
    reports.SUBJECT,
)


async def exposition(measured: Measured) -> bytes:
    """Return all metrics as they are now. Raises StoreUnavailable, JournalCorrupt."""
    await measured.log.refresh()
    return exposed([family for subject in SUBJECTS for family in await subject.collect(measured)])
