"""The alarms of processes that report: ``stalled`` while one is stuck, and of one that failed, the error that it died of.

They stand in the metadata database, where people and every server look; here is which of them are whose.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from headrace.errors import HeadraceError, Stalled
from headrace.log.metadata.contract import AlarmRow, Metadata
from headrace.wire.report_documents import ReportIn

AlarmKey = tuple[str, str, str]
"""Code, feed and agent of an alarm."""


def due_alarms(kind: str, name: str, report: ReportIn) -> dict[AlarmKey, str]:
    """Return the alarms that are to stand by a report, with their details."""
    due: dict[AlarmKey, str] = {}
    if report.state == "ending":
        return due
    for work in report.works:
        if work.state == "stuck":
            key = (Stalled.code, work.feed, _whose_stalled(kind, name))
            why = f"the {kind} {name} on {report.host}: {work.name} does not move since {work.since}: {work.detail}"
            due[key] = f"{due[key]}; {why}" if key in due else why
    if report.state == "failed":
        feeds = {work.feed for work in report.works}
        # A process has died once, whatever it worked at: an alarm for each of an agent's thousand feeds says no more.
        feed = feeds.pop() if len(feeds) == 1 else ""
        key = (report.code or HeadraceError.code, feed, _whose_failed(kind, name))
        due[key] = f"the {kind} {name} on {report.host} has ended with an error: {report.detail}"
    return due


def own_alarms(rows: Iterable[AlarmRow], kind: str, name: str) -> dict[AlarmKey, str]:
    """Return those alarms of ``rows`` that are a process's and stand, with their details."""
    return {
        (row.code, row.feed, row.agent_id): row.detail
        for row in rows
        if row.cleared_at_ms is None and _is_of(row, kind, name)
    }


async def change_alarms(
    metadata: Metadata, now_ms: int, standing: Mapping[AlarmKey, str], due: Mapping[AlarmKey, str]
) -> None:
    """Clear what stands and is not due, raise what is due and does not stand so; StoreUnavailable."""
    for code, feed, agent_id in standing.keys() - due.keys():
        await asyncio.to_thread(metadata.clear_alarms, code, agent_id=agent_id, now_ms=now_ms, feed=feed)
    for key, detail in due.items():
        if standing.get(key) != detail:
            code, feed, agent_id = key
            await asyncio.to_thread(metadata.raise_alarm, code, detail, now_ms, feed=feed, agent_id=agent_id)


def _whose_stalled(kind: str, name: str) -> str:
    """An agent is known by its bare name wherever it publishes."""
    return name if kind == "agent" else f"{kind} {name}"


def _whose_failed(kind: str, name: str) -> str:
    """Never a bare name: under that the server has alarms of its own, such as of a quarantine, that no report may clear."""
    return f"{kind} {name}"


def _is_of(row: AlarmRow, kind: str, name: str) -> bool:
    """No feed's publisher, listener or subscriber is called so: a name has no space."""
    stalled = row.code == Stalled.code and row.agent_id == _whose_stalled(kind, name)
    return stalled or row.agent_id == _whose_failed(kind, name)
