"""What is known of an entry that is not there: who would append it, and what keeps it from that. Pure.

This is the publisher's half of "why has a listener not seen a change" (RFD 5, failure scenarios).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.log.tail import FeedTail
from headrace.wire.documents import AlarmView, rfc3339
from headrace.wire.report_documents import ReportView, WorkReport
from headrace.wire.trace_documents import TraceQuarantine, TraceSource, TraceWork

_ENDS = frozenset({"gone", "ending", "failed"})
"""States of a process in which what its works said last holds no more."""


def source_of(
    tail: FeedTail,
    reports: Sequence[ReportView] | None,
    alarms: Sequence[AlarmView] | None,
    not_ready: Sequence[str],
) -> TraceSource:
    """Return what is known of the feed's source. ``reports``, ``alarms`` None: whoever asks may not see them."""
    works = None if reports is None else [*_works(tail.name, reports)]
    quarantines = [
        TraceQuarantine(agent_id=one.agent_id, sequence_id=one.sequence_id, since=rfc3339(one.at_ms))
        for one in tail.quarantines.values()
    ]
    return TraceSource(
        owner=tail.owner,
        epoch=tail.epoch,
        shared=tail.shared,
        quarantines=quarantines,
        works=works,
        alarms=None if alarms is None else [*_alarms(tail.name, works or (), alarms)],
        not_ready=not_ready,
        words=[*_server_words(tail, not_ready, quarantines), *_works_words(tail, works)],
    )


def _works(feed: str, reports: Sequence[ReportView]) -> Iterator[TraceWork]:
    for one in reports:
        if one.kind not in {"agent", "capture"}:
            continue
        for work in one.report.works:
            if work.feed == feed:
                state = one.state if one.state in _ENDS else work.state
                yield TraceWork(
                    kind=one.kind, name=one.name, state=state, reported_at=one.reported_at, work=work
                )


def _alarms(feed: str, works: Sequence[TraceWork], alarms: Sequence[AlarmView]) -> Iterator[AlarmView]:
    """Those that stand and are about the feed, or about no feed and a process that works at it."""
    names = {name for one in works for name in (one.name, f"{one.kind} {one.name}")}
    for alarm in alarms:
        of_process = not alarm.change_feed_id and alarm.agent_id in names
        if alarm.cleared_at is None and (alarm.change_feed_id == feed or of_process):
            yield alarm


def _server_words(
    tail: FeedTail, not_ready: Sequence[str], quarantines: Sequence[TraceQuarantine]
) -> Iterator[str]:
    for reason in not_ready:
        yield f"the server takes no appends: {reason}"
    for one in quarantines:
        yield (
            f"the publisher {one.agent_id} is quarantined since {one.since}: it posted sequence id {one.sequence_id} "
            "again. Nothing of it is appended before an operator releases it"
        )
    if not tail.owner and not tail.shared:
        yield "nobody owns the feed: no publisher has registered with it"


def _works_words(tail: FeedTail, works: Sequence[TraceWork] | None) -> Iterator[str]:
    if works is None:
        yield "which processes work at the feed, and what waits there, is shown to an admin"
    elif not works:
        yield "no agent and no capture has reported that it works at the feed"
    for one in works or ():
        who = f"the {one.kind} {one.name}"
        if one.kind == "agent" and tail.owner and one.name != tail.owner:
            yield f"{who} does not own the feed: {tail.owner} does, with epoch {tail.epoch}"
        yield f"{who} {_work_words(one)}"


def _work_words(one: TraceWork) -> str:
    work, at = one.work, one.reported_at
    trouble = f"{work.detail} ({work.code})" if work.code else work.detail
    waits = _waits(work)
    if one.state == "gone":
        known = [trouble, waits if work.oldest_waiting_at is not None else ""]
        last = "; ".join(part for part in known if part)
        return f"has not reported since {at}: it does not run, or can't reach the server" + (
            f". Its last report: {last}" if last else ""
        )
    if one.state == "failed":
        return f"ended by an error at {at}" + (f": {trouble}" if trouble else "")
    if one.state == "ending":
        return f"ended at {at}" + (f": {trouble}" if trouble else ": it was told to stop")
    if work.reachable is False:
        return f"does not reach its source, as it said at {at}" + (f": {trouble}" if trouble else "")
    if one.state == "stuck":
        return f"does not move since {work.since}: {trouble}" + (f"; {waits}" if waits else "")
    if trouble:
        return f"does not get on, as it said at {at}: {trouble}" + (f"; {waits}" if waits else "")
    if waits:
        return f"is at work, as it said at {at}: {waits}"
    return f"has posted all that it found in its source, as it said at {at}"


def _waits(work: WorkReport) -> str:
    if not work.waiting:
        return ""
    since = f", the oldest since {work.oldest_waiting_at}" if work.oldest_waiting_at is not None else ""
    return f"{work.waiting} {'waits' if work.waiting == 1 else 'wait'} there{since}"
