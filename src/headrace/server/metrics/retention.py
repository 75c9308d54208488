"""What the journal takes of its byte cap, how old it is, what is held, and what was dropped."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headrace.entries.hlc import to_ms
from headrace.log.log import Log
from headrace.log.retention.plan import Fate
from headrace.server.retention.loop import Retention


async def collect(log: Log, retention: Retention) -> Iterable[Metric]:
    """Return the metrics of one journal's retention."""
    survey = await retention.survey()
    plan, terms = survey.plan, survey.terms
    held = [one.segment.size for one in plan.fates if one.fate is Fate.HELD]
    oldest_s = max(0, terms.now_ms - to_ms(survey.segments[0].newest_global_ts)) / 1000
    dropped = CounterMetricFamily(
        "headrace_retention_dropped_bytes", "Journal bytes dropped since the start.", labels=["reason"]
    )
    segments = CounterMetricFamily(
        "headrace_retention_dropped_segments", "Journal segments dropped since the start.", labels=["reason"]
    )
    for fate in (Fate.AGED, Fate.BYTE_CAP):
        dropped.add_metric((fate.value,), retention.dropped[fate])
        segments.add_metric((fate.value,), retention.segments_dropped[fate])
    return (
        _gauge("headrace_retention_bytes", "Bytes that the journal takes.", plan.bytes_before),
        _gauge(
            "headrace_retention_bytes_max",
            "The byte cap, which wins over everyone who holds.",
            terms.bytes_max,
        ),
        _gauge("headrace_retention_segments", "Journal segments, the open one included.", len(plan.fates)),
        _gauge(
            "headrace_retention_held_bytes",
            "Bytes older than the retention that are kept because somebody holds them.",
            sum(held),
        ),
        _gauge(
            "headrace_retention_oldest_segment_age_seconds",
            "Age of the newest entry of the oldest segment: that segment goes when this reaches the retention, unless it is "
            "held or open.",
            oldest_s,
        ),
        dropped,
        segments,
    )


def _gauge(name: str, help_text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, help_text, value=value)
