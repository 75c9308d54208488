"""What the journal takes of its byte cap, how old it is, what is held, and what was dropped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import Metric

from headrace.entries.hlc import to_ms
from headrace.log.retention.plan import Fate
from headrace.runtime.metric import counter, gauge
from headrace.server.metrics.measured import Measured, Subject

BYTES: Final = gauge("headrace_retention_bytes", "Bytes that the journal takes.")
BYTES_MAX: Final = gauge("headrace_retention_bytes_max", "The byte cap, which wins over everyone who holds.")
SEGMENTS: Final = gauge("headrace_retention_segments", "Journal segments, the open one included.")
HELD: Final = gauge(
    "headrace_retention_held_bytes",
    "Bytes older than the retention that are kept because somebody holds them.",
)
AGE: Final = gauge(
    "headrace_retention_oldest_segment_age_seconds",
    "Age of the newest entry of the oldest segment: that segment goes when this reaches the retention, unless it is held or "
    "open.",
)
DROPPED: Final = counter(
    "headrace_retention_dropped_bytes_total",
    "Journal bytes dropped since the start, as `older-than-retention` or by the `byte-cap`.",
    "reason",
)
DROPPED_SEGMENTS: Final = counter(
    "headrace_retention_dropped_segments_total", "Journal segments dropped since the start.", "reason"
)
INDEX: Final = gauge(
    "kdb_wal_retention_index_bytes",
    "In-memory index size (RFC-010): at most 16 MB. 0 where the log is in PostgreSQL, which finds frames itself.",
)


async def _collect(measured: Measured) -> Iterable[Metric]:
    retention = measured.retention
    survey = await retention.survey()
    plan, terms = survey.plan, survey.terms
    held = [one.segment.size for one in plan.fates if one.fate is Fate.HELD]
    oldest_s = max(0, terms.now_ms - to_ms(survey.segments[0].newest_global_ts)) / 1000
    fates = (Fate.AGED, Fate.BYTE_CAP)
    return (
        BYTES.one(plan.bytes_before),
        BYTES_MAX.one(terms.bytes_max),
        SEGMENTS.one(len(plan.fates)),
        HELD.one(sum(held)),
        AGE.one(oldest_s),
        DROPPED.of(((fate.value,), retention.dropped[fate]) for fate in fates),
        DROPPED_SEGMENTS.of(((fate.value,), retention.segments_dropped[fate]) for fate in fates),
        INDEX.one(measured.log.store.index_bytes()),
    )


SUBJECT: Final = Subject(
    "Retention", (BYTES, BYTES_MAX, SEGMENTS, HELD, AGE, DROPPED, DROPPED_SEGMENTS, INDEX), _collect
)
