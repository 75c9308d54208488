"""What processes say of themselves (``PUT /reports/…``): kept for people, with an alarm while one is stuck or has failed.

Nothing is decided by a report. The newest stand in memory and are written now and then, so that many processes cost little.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from headrace.access.grants import EVERYTHING, Grant, require
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import ConfigInvalid, Forbidden, InvalidRequest, ServerBusy, StoreUnavailable
from headrace.log.log import Log
from headrace.log.metadata.contract import ReportRow
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.runtime.settings import parse_duration
from headrace.runtime.typed_json import decode_json
from headrace.server.guard import May, check_call, tenant_of
from headrace.server.process_alarms import AlarmKey, change_alarms, due_alarms, own_alarms
from headrace.wire.documents import rfc3339
from headrace.wire.report_documents import KINDS, Reported, ReportIn, ReportList, ReportView

logger = get_logger("server")

GONE_AFTER_S: Final = 30.0
"""A process that has not reported for so long is gone, or can't reach this server."""
GONE_AFTER_S_MIN: Final = 10.0
"""Processes report every five seconds; one report may be late."""
WRITE_EVERY_MS: Final = 10_000
"""A report that says what the last one said is written so often: other servers, and this one restarted, read it there."""
FORGET_MS: Final = 7 * 24 * 3600 * 1000
"""Reports of processes that are gone for so long are removed, with their alarms."""
FORGOTTEN_MAX: Final = 1_000
REPORTERS_MAX: Final = 10_000
"""Processes whose reports are known at once."""

Key = tuple[str, str]
"""Kind and name."""


@dataclass(slots=True)
class _Known:
    """The newest report of a process. ``alarms``: what stands, with its detail; None: not looked at since the start.

    ``telling`` is held while alarms are written, so that of two reports the later one has the last word.
    """

    row: ReportRow
    states: tuple[object, ...] = ()
    written_at_ms: int = 0
    alarms: dict[AlarmKey, str] | None = None
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)


class Reports:
    """The reports that one server got, and those that other servers on the same store wrote down."""

    def __init__(self, log: Log, clock: Clock, *, gone_after_s: float = GONE_AFTER_S) -> None:
        """Nothing is read before the first call. ``gone_after_s``: how long a process may be silent."""
        self._log, self._clock = log, clock
        self._gone_after_ms = gone_after_s * 1000
        self._known: dict[Key, _Known] = {}

    async def keep(self, kind: str, name: str, report: ReportIn, grant: Grant = EVERYTHING) -> Reported:
        """Keep what the process ``name`` says of itself; raise or clear its alarms.

        Forbidden unless ``grant`` is good for what such a process does with each feed that it names, or while another
        subject reports under this name; InvalidRequest for a kind, name or feed that can't be; ServerBusy for too many
        processes; StoreUnavailable if it could not be written: it is known all the same.
        """
        await self._check(kind, name, report, grant)
        now_ms = self._clock.wall_ms()
        key = (kind, name)
        known = self._known.get(key)
        if (
            known is not None
            and known.row.subject != grant.subject
            and not grant.may_administer()
            and not self._is_gone(known.row, now_ms)
        ):
            raise Forbidden(f"another subject reports as the {kind} {name}")
        if known is None and len(self._known) >= REPORTERS_MAX:
            self._forget(now_ms)
            if len(self._known) >= REPORTERS_MAX:
                raise ServerBusy(f"{REPORTERS_MAX} processes report to this server")
        row = ReportRow(kind, name, grant.subject, now_ms, msgspec.json.encode(report).decode())
        states = (report.state, report.pid, *((work.name, work.state) for work in report.works))
        if known is None:
            known = self._known[key] = _Known(row)
        known.row = row
        if known.states != states or now_ms - known.written_at_ms >= WRITE_EVERY_MS:
            forgotten = await asyncio.to_thread(self._write, row)
            known.states, known.written_at_ms = states, now_ms
            await self._end_alarms(forgotten)
        async with known.telling:
            await self._tell(known, report)
        return Reported(reported_at=rfc3339(now_ms))

    async def view(self) -> ReportList:
        """Return the last report of every process, by kind and name."""
        now_ms = self._clock.wall_ms()
        rows = {row[:2]: row for row in await asyncio.to_thread(self._log.metadata.reports.all)}
        for key, known in list(self._known.items()):
            stored = rows.get(key)
            if stored is None and known.written_at_ms and self._is_gone(known.row, now_ms):
                del self._known[key]  # another server on the store has removed it
            elif stored is None or stored.reported_at_ms < known.row.reported_at_ms:
                rows[key] = known.row
        return ReportList(
            reports=[_view(rows[key], gone=self._is_gone(rows[key], now_ms)) for key in sorted(rows)]
        )

    async def remove(self, kind: str, name: str, grant: Grant = EVERYTHING) -> None:
        """Forget a process that is gone for good, and clear its alarms; nothing happens if nothing is known of it.

        One that still runs is back with its next report. InvalidRequest for a kind or name that can't be; StoreUnavailable.
        """
        _check_who(kind, name)
        await asyncio.to_thread(self._log.metadata.reports.drop, kind, name)
        await self._clear([(kind, name)])
        logger.info("a report is removed", kind=kind, name=name, subject=grant.subject)

    async def _clear(self, keys: Sequence[Key]) -> None:
        """Clear the alarms of processes whose reports are removed, and forget them here too; StoreUnavailable."""
        for key in keys:
            self._known.pop(key, None)
        metadata, now_ms = self._log.metadata, self._clock.wall_ms()
        rows = await asyncio.to_thread(metadata.alarms)
        for kind, name in keys:
            await change_alarms(metadata, now_ms, own_alarms(rows, kind, name), {})

    async def _end_alarms(self, forgotten: Sequence[Key]) -> None:
        """Clear what no report of a process that is forgotten will clear any more. One that has just come back is let be."""
        now_ms = self._clock.wall_ms()
        forgotten = [
            key for key in forgotten if key not in self._known or self._is_gone(self._known[key].row, now_ms)
        ]
        if not forgotten:
            return
        try:
            await self._clear(forgotten)
        except StoreUnavailable as error:
            logger.error("the metadata database can't be written", detail=error.detail)

    async def _check(self, kind: str, name: str, report: ReportIn, grant: Grant) -> None:
        _check_who(kind, name)
        feeds = {work.feed for work in report.works if work.feed}
        for feed in feeds:
            check_feed_id(feed)
        if grant.may_administer():
            return
        if kind == "backup":
            check_call(grant, May.REPLICATE)
            return
        require(bool(feeds), f"report as a {kind} that works at no feed")
        for feed in feeds:
            tenant = await tenant_of(self._log, feed)
            if kind in {"agent", "capture"}:
                may = grant.may_publish(feed, tenant)
            else:
                may = grant.may_listen(feed, tenant) or (
                    tenant is not None and grant.may_replicate(tenant, feed)
                )
            require(may, f"report as a {kind} of the feed {feed[:200]}")

    def _write(self, row: ReportRow) -> list[Key]:
        """Write it down, and remove what is too old; returns what was."""
        reports = self._log.metadata.reports
        reports.keep([row])
        return reports.forget(row.reported_at_ms - FORGET_MS, FORGOTTEN_MAX)

    def _forget(self, now_ms: int) -> None:
        gone = [key for key, one in self._known.items() if self._is_gone(one.row, now_ms)]
        for key in gone:
            del self._known[key]

    def _is_gone(self, row: ReportRow, now_ms: int) -> bool:
        return now_ms - row.reported_at_ms > self._gone_after_ms

    async def _tell(self, known: _Known, report: ReportIn) -> None:
        """Raise the alarms that the report is reason for, and clear those that are over; what fails is done by the next."""
        kind, name = known.row.kind, known.row.name
        due = due_alarms(kind, name, report)
        if known.alarms == due:
            return
        metadata = self._log.metadata
        try:
            if known.alarms is None:
                known.alarms = own_alarms(await asyncio.to_thread(metadata.alarms), kind, name)
            await change_alarms(metadata, self._clock.wall_ms(), known.alarms, due)
        except StoreUnavailable as error:
            logger.error("the metadata database can't be written", detail=error.detail)
        else:
            known.alarms = due


def _check_who(kind: str, name: str) -> None:
    if kind not in KINDS:
        raise InvalidRequest(f"kind: {kind[:80]!r} is none of {', '.join(KINDS)}", member="kind")
    check_agent_id(name, "name")


def parse_gone_after(text: str) -> float:
    """Return what ``--gone-after`` means, in seconds; ConfigInvalid."""
    seconds = parse_duration(text, "--gone-after")
    if seconds < GONE_AFTER_S_MIN:
        raise ConfigInvalid(
            f"--gone-after: it must not be less than {GONE_AFTER_S_MIN:g} s",
            hint="Processes report every five seconds.",
        )
    return seconds


def _view(row: ReportRow, *, gone: bool) -> ReportView:
    report = decode_json(row.document, ReportIn)
    return ReportView(
        kind=row.kind,
        name=row.name,
        state="gone" if gone and report.state != "failed" else report.state,
        reported_at=rfc3339(row.reported_at_ms),
        report=report,
    )
