"""The use case behind ``headrace trace``: what became of one entry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.access.grants import EVERYTHING, Grant
from headrace.entries.hlc import to_ms
from headrace.errors import DiskReserve
from headrace.log.metadata.contract import ListenerRow, ProgressRow, SubscriberRow
from headrace.log.tail import FeedTail
from headrace.server.operators import OperatorCases
from headrace.server.recording import JOURNAL, LISTENER, SUBSCRIBER, Recorder
from headrace.server.reports import Reports
from headrace.server.tracing.consumers import Sought, archived_steps, listener_trace, subscriber_trace
from headrace.server.tracing.finding import (
    Found,
    Missing,
    Scan,
    find_entry,
    place_of,
    producer_of,
    scan_key,
    steps_of,
)
from headrace.server.tracing.scanning import Scans
from headrace.server.tracing.source import source_of
from headrace.wire.documents import rfc3339
from headrace.wire.passages import decode_points, passage
from headrace.wire.rendering import entry_out
from headrace.wire.trace_documents import Trace, TraceConsumer, TraceStep


class _Known(NamedTuple):
    """What is written down of those who read a feed, and of those who go along all."""

    listeners: list[ListenerRow]
    subscribers: list[SubscriberRow]
    progress: list[ProgressRow]


class TraceCases(OperatorCases):
    """What became of an entry. A part of the service."""

    progress: Recorder
    scans: Scans
    reports: Reports

    async def trace(self, feed: str, sequence_id: int, grant: Grant = EVERYTHING) -> Trace:
        """Return one entry's life, as far as it is known; an entry that is not there is an answer too. FeedNotFound."""
        tail = await self._fresh(feed)
        trace = await asyncio.to_thread(self._trace, tail, sequence_id, grant, None)
        return await self._with_reports(trace, tail, grant)

    async def trace_key(self, feed: str, key: bytes, grant: Grant = EVERYTHING) -> Trace:
        """Return the life of the newest entry with this key, and which other entries have it. FeedNotFound, ServerBusy."""
        tail = await self._fresh(feed)
        scan = await self.scans.run(scan_key, self.log.store, tail, key, self.scans.is_ending)
        if scan.sequence_ids:
            trace = await asyncio.to_thread(self._trace, tail, scan.sequence_ids[0], grant, scan)
        else:
            trace = self._empty(tail, None, "not-found", "no entry with this key was met")
            trace.scanned_from = scan.scanned_from
        return await self._with_reports(trace, tail, grant)

    async def _fresh(self, feed: str) -> FeedTail:
        await self.log.find(feed)
        await self.log.refresh()
        await self.progress.write()  # what was done a moment ago counts
        return self.log.tail(feed)

    async def _with_reports(self, trace: Trace, tail: FeedTail, grant: Grant) -> Trace:
        """Add what processes say: of what is not appended yet, where that may be the answer, and of archives."""
        reports = (await self.reports.view()).reports
        if trace.state == "beyond-head" or trace.scanned_from is not None:
            shown = reports if grant.may_administer() else None
            alarms = (await self.alarms()).alarms if grant.may_administer() else None
            not_ready = [*self.readiness().reasons, *await asyncio.to_thread(self._no_room)]
            trace.source = source_of(tail, shown, alarms, not_ready)
        backups = {one.name for one in reports if one.kind == "backup"}
        trace.steps = [*trace.steps, *archived_steps(trace.consumers, backups)]
        return trace

    def _no_room(self) -> list[str]:
        """A full disk refuses appends and leaves the server ready: readers go on."""
        try:
            self.log.store.check_room(1)
        except DiskReserve as error:
            return [f"{error.detail} ({error.code})"]
        return []

    def _trace(self, tail: FeedTail, sequence_id: int, grant: Grant, scan: Scan | None) -> Trace:
        store = self.log.store
        found = find_entry(store, tail, sequence_id)
        known = self._known(tail.name)
        if isinstance(found, Missing):
            trace = self._empty(tail, sequence_id, found.state, found.detail)
            lsn = found.lsn
        else:
            lsn = found.lsn
            out = entry_out(found.message, sequence_id)
            trace = self._empty(tail, sequence_id, "retained", _detail(found))
            trace.key = out.key if isinstance(out.key, str) else None
            trace.op = out.op
            trace.control = found.message.control or None
            trace.tx = out.tx if isinstance(out.tx, str) else None
            trace.producer = producer_of(tail, found)
            trace.place = place_of(store, found)
            trace.steps = [*steps_of(found), self._durable(found, known.progress)]
        trace.lsn = str(lsn) if lsn is not None else None
        if trace.state != "beyond-head":
            sought = Sought(
                sequence_id,
                lsn,
                tail.incarnation,
                found if isinstance(found, Found) else None,
                lsn.committed_at_ms if lsn is not None else None,
                bounded=not store.several_servers,
            )
            trace.consumers = list(_consumers(sought, known, grant))
        if scan is not None:
            trace.same_key, trace.scanned_from = scan.sequence_ids, scan.scanned_from
        return trace

    def _known(self, feed: str) -> _Known:
        metadata = self.log.metadata
        return _Known(
            metadata.listeners(feed),
            metadata.subscribers(),
            [*metadata.progress.of_feed(feed), *metadata.progress.of_feed("")],
        )

    def _empty(self, tail: FeedTail, sequence_id: int | None, state: str, detail: str) -> Trace:
        return Trace(
            change_feed_id=tail.name,
            incarnation=tail.incarnation,
            sequence_id=sequence_id,
            state=state,
            detail=detail,
            oldest_sequence_id=tail.oldest,
            head_sequence_id=tail.head,
            at=rfc3339(self._clock.wall_ms()),
        )

    def _durable(self, found: Found, progress: Sequence[ProgressRow]) -> TraceStep:
        """Durable by when the journal's visible end was next written down; at the latest now, as it can be read."""
        header = found.frame.header
        appended_ms = to_ms(header.global_ts)
        bounds = [self._clock.wall_ms()]
        rows = [row for row in progress if row.consumer == JOURNAL.consumer]
        done = [passage(decode_points(row.points), header.end) for row in rows]
        bounds += [one.by_ms for one in done if one is not None]
        by_ms = min((bound for bound in bounds if bound >= appended_ms), default=None)
        return TraceStep(
            step="durable",
            after=rfc3339(appended_ms),
            by=rfc3339(by_ms) if by_ms is not None else None,
            detail="before anybody could read it",
        )


def _detail(found: Found) -> str:
    if found.message.control == "parked":
        return "the publisher's row was refused, and an operator parked it: this control entry has its place"
    return "a control entry, which carries no row" if found.message.control else ""


def _consumers(sought: Sought, known: _Known, grant: Grant) -> Iterable[TraceConsumer]:
    for listener in known.listeners:
        rows = [
            one for one in known.progress if one.consumer == LISTENER and one.name == listener.listener_id
        ]
        yield listener_trace(sought, listener, rows)
    for row in known.subscribers:
        if not grant.may_administer() and row.subject != grant.subject:
            continue
        rows = [
            one
            for one in known.progress
            if one.consumer == SUBSCRIBER and (one.subject, one.name) == (row.subject, row.subscriber_id)
        ]
        told = subscriber_trace(sought, row, rows)
        if told is not None:
            yield told
