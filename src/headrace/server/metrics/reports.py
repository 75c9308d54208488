"""What other processes (agents, capture, backup, pipeline jobs) last said of themselves: ``GET /reports`` as metrics."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from prometheus_client.core import Metric

from headrace.runtime.facts import FACTS
from headrace.runtime.metric import gauge
from headrace.server.metrics.measured import Measured, Subject
from headrace.wire.report_documents import ReportView, WorkReport

OVER: Final = frozenset({"failed", "gone"})
"""States of processes that don't run, as far as is known, and were not told so."""
_PROCESS: Final = ("kind", "name")
_WORK: Final = ("kind", "name", "work", "feed")

UP: Final = gauge(
    "headrace_process_up",
    "1 while the process reports, 0 once it has failed or nothing was heard of it for 30 seconds. After 7 days it is "
    "forgotten.",
    *_PROCESS,
)
ENDING: Final = gauge(
    "headrace_process_ending",
    "1 if the last that it said is that it was told to stop, or had done its work; 0 if it failed.",
    *_PROCESS,
)
AGE: Final = gauge("headrace_process_report_age_seconds", "How long ago the process reported.", *_PROCESS)
WAITING: Final = gauge(
    "headrace_process_waiting",
    "What waits in one work of the process: a publisher's backlog in rows; 1 may also mean that the number is not known.",
    *_WORK,
)
OLDEST: Final = gauge(
    "headrace_process_oldest_waiting_seconds",
    "For how long the oldest that waits does, where that is known.",
    *_WORK,
)
STUCK: Final = gauge(
    "headrace_process_stuck", "1 if something waits and does not move (the alarm `stalled`).", *_WORK
)
REACHABLE: Final = gauge(
    "headrace_process_source_reachable",
    "1 if the work's source answers, 0 if not; missing until it was asked.",
    *_WORK,
)


async def _collect(measured: Measured) -> Iterable[Metric]:
    """Numbers of a process that has failed or is gone stay out: they are no longer true."""
    now_ms = measured.clock.wall_ms()
    views = (await measured.reports.view()).reports
    alive = [one for one in views if one.state not in OVER]
    works = [(_labels(one, work), work) for one in alive for work in one.report.works]
    return (
        UP.of(((one.kind, one.name), float(one.state not in OVER)) for one in views),
        ENDING.of(((one.kind, one.name), float(one.report.state == "ending")) for one in views),
        AGE.of(((one.kind, one.name), _seconds_since(one.reported_at, now_ms)) for one in views),
        WAITING.of((labels, work.waiting) for labels, work in works),
        OLDEST.of(
            (labels, _seconds_since(work.oldest_waiting_at, now_ms))
            for labels, work in works
            if work.oldest_waiting_at is not None and _is_time(work.oldest_waiting_at)
        ),
        STUCK.of((labels, float(work.state == "stuck")) for labels, work in works),
        REACHABLE.of((labels, float(work.reachable)) for labels, work in works if work.reachable is not None),
        *(
            fact.of(((one.kind, one.name), one.report.facts[key]) for one in alive if key in one.report.facts)
            for key, fact in FACTS.items()
        ),
    )


def _labels(one: ReportView, work: WorkReport) -> tuple[str, str, str, str]:
    return one.kind, one.name, work.name, work.feed


def _is_time(text: str) -> bool:
    """Another process wrote it: it may be anything."""
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _seconds_since(text: str, now_ms: int) -> float:
    return max(0.0, now_ms / 1000 - datetime.fromisoformat(text).timestamp())


SUBJECT: Final = Subject(
    "Agents, capture, backup, pipeline jobs: what they report",
    (UP, ENDING, AGE, WAITING, OLDEST, STUCK, REACHABLE, *FACTS.values()),
    _collect,
)
