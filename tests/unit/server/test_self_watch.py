"""Whose alarms a server clears when it begins to look at itself: its own, and those of machines that are long gone."""

from __future__ import annotations

from pathlib import Path

from headrace.log.log import Log
from headrace.server.self_watch import GONE_AFTER_MS, SelfWatch, server_name
from headrace.testing.clock import ManualClock


async def test_a_start_clears_its_own_alarm_and_those_of_machines_that_are_gone(tmp_path: Path) -> None:
    clock, own = ManualClock(), server_name(8470)
    log = Log.open(tmp_path / "data")
    await log.start()
    now_ms = clock.wall_ms()
    raised = {
        own: now_ms,
        "server other:8470": now_ms - GONE_AFTER_MS,
        "server replaced:8470": now_ms - GONE_AFTER_MS - 1,
        "listener a": now_ms - 2 * GONE_AFTER_MS,
        "servers": now_ms - 2 * GONE_AFTER_MS,
    }
    for who, at_ms in raised.items():
        log.metadata.raise_alarm("stalled", "appends wait", at_ms, agent_id=who)
    log.metadata.raise_alarm("disk-reserve", "another kind", 1, agent_id=own)
    watch = SelfWatch(log, clock, own)
    await watch.start()
    await watch.close()
    standing = {(row.code, row.agent_id) for row in log.metadata.alarms() if row.cleared_at_ms is None}
    stalled = {("stalled", who) for who in ("server other:8470", "listener a", "servers")}
    assert standing == {("disk-reserve", own), *stalled}
    await log.close()
