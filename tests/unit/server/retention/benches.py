"""A service over a real log with a clock set by hand, whose passes run when a test says so."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from headrace.log.log import Log, LogSettings
from headrace.log.metadata.contract import AlarmRow
from headrace.log.retention.plan import RetentionSettings
from headrace.runtime.disk import Disk
from headrace.server.service import Service
from headrace.testing.clock import ManualClock
from headrace.wire import documents as doc
from tests.bench import append, register

HOUR = 3_600_000


class Bench:
    """A service that runs no passes by itself, and the clock that it goes by."""

    def __init__(self, folder: Path, clock: ManualClock, disk: Disk | None, **settings: Any) -> None:
        self.clock = clock
        self.log = Log.open(
            folder,
            settings=LogSettings(segment_bytes=2000, retention=RetentionSettings(**settings)),
            clock=clock,
            disk=disk,
        )
        self.service = Service(self.log, clock=clock)

    async def write(self, feed: str, count: int = 10) -> None:
        for number in range(count):
            await self.log.append(append(feed, f"{number}" + "." * 100))

    def wait(self, hours: float) -> None:
        """Let time pass."""
        self.clock.ms += round(hours * HOUR)
        self.clock.seconds += hours * 3600

    async def later(self, hours: float) -> None:
        """Let time pass, and a pass run."""
        self.wait(hours)
        await self.service.retention.run_pass()

    async def listen(self, name: str, place: int | None, *, hold: bool = False, feed: str = "a") -> None:
        """Register a listener, and report its place."""
        await self.service.register_listener(
            doc.RegisterListener(listener_id=name, change_feed_id=feed, hold=hold)
        )
        if place is not None:
            await self.report(name, place, feed=feed)

    async def report(self, name: str, place: int, *, feed: str = "a") -> None:
        incarnation = self.log.tail(feed).incarnation
        await self.service.put_position(
            name, feed, doc.PositionIn(incarnation=incarnation, sequence_id=place)
        )

    async def listener(self, name: str, feed: str = "a") -> doc.ListenerView:
        view = await self.service.feed(feed)
        return next(one for one in view.listeners if one.listener_id == name)

    async def loss(self, name: str) -> doc.TimeToLoss:
        found = (await self.listener(name)).time_to_loss
        assert found is not None
        return found

    def oldest(self, feed: str = "a") -> int:
        return self.log.tail(feed).oldest

    def standing(self) -> list[AlarmRow]:
        return [one for one in self.log.metadata.alarms() if one.cleared_at_ms is None]


@contextlib.asynccontextmanager
async def opened(
    folder: Path, clock: ManualClock | None = None, disk: Disk | None = None, **settings: Any
) -> AsyncIterator[Bench]:
    """A bench over ``folder`` with the feed ``a``; passes run when the test says so."""
    bench = Bench(folder, clock or ManualClock(), disk, **settings)
    await bench.log.start()
    await bench.log.register(register("a"))
    try:
        yield bench
    finally:
        await bench.service.close()
        await bench.log.close()
