"""Listeners that have held nothing for long are forgotten, by a pass of retention; never right after a start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headrace.log.log import Log, LogSettings
from headrace.log.metadata.owners import Claimant
from headrace.log.retention.plan import FORGET_MS, RetentionSettings
from headrace.server.retention.loop import Retention
from headrace.testing.clock import ManualClock
from tests.bench import register

EXPIRY_S = 24 * 3600
LATER_MS = EXPIRY_S * 1000 + FORGET_MS


async def note_nothing() -> None:
    """Nobody is heard of in these tests but by what they write."""


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Log, Retention, ManualClock]]:
    """A log with a feed, and its retention."""
    clock = ManualClock()
    settings = LogSettings(retention=RetentionSettings(retention_s=3600, subscriber_expiry_s=EXPIRY_S))
    log = Log.open(folder, clock=clock, settings=settings)
    try:
        await log.start()
        await log.register(register("f"))
        yield log, Retention(log, clock, note_nothing), clock
    finally:
        await log.close()


def pass_ms(clock: ManualClock, milliseconds: int) -> None:
    clock.ms += milliseconds
    clock.seconds += milliseconds / 1000


async def test_who_was_not_seen_for_long_is_forgotten_whether_it_held_or_not(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, retention, clock):
        for name, hold in (("plain", False), ("holder", True), ("here", True)):
            log.metadata.register_listener(name, "f", hold, clock.wall_ms(), Claimant("alice", False))
        pass_ms(clock, LATER_MS - 2_000)
        log.metadata.seen([("here", "f")], clock.wall_ms())
        await retention.run_pass()
        assert len(log.metadata.listeners("f")) == 3
        pass_ms(clock, 2_001)
        await retention.run_pass()
        assert [row.listener_id for row in log.metadata.listeners("f")] == ["here"]
        assert log.metadata.owner("holder", "f") is None


async def test_right_after_a_start_nobody_is_forgotten(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, _, clock):
        log.metadata.register_listener("l", "f", False, clock.wall_ms())
        pass_ms(clock, 10 * LATER_MS)
        await Retention(log, clock, note_nothing).run_pass()
        assert len(log.metadata.listeners("f")) == 1
