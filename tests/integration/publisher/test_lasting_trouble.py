"""What keeps a feed from going on is an alarm of ``agent status`` once it lasts, and none before."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace.client.http import FeedClient
from headrace.publisher.outbox import Outbox
from headrace.publisher.relay import TROUBLE_S, FeedRelay
from headrace.publisher.sqlite.source import SqliteSource
from headrace.publisher.thread import SourceThread
from headrace.runtime.backoff import Backoff
from headrace.testing.clock import ManualClock
from tests.ports import free_port
from tests.servers import serving
from tests.unit.publisher.outboxes import application, opened
from tests.waiting import async_wait_until

FEED = "shop"


class CountedBackoff(Backoff):
    """Counts the tries that failed; the next is at once."""

    def __init__(self) -> None:
        super().__init__(first_s=0.001, delay_s_max=0.002)
        self.count = 0

    def next_delay(self) -> float:
        self.count += 1
        return super().next_delay()


def alarm(path: Path) -> str | None:
    with opened(path) as source:
        found = source.alarm_of(FEED)
    return None if found is None else found.code


async def test_a_server_that_is_away_is_an_alarm_after_ten_seconds(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with application(path) as app:
        Outbox.create(app)
    clock, backoff = ManualClock(), CountedBackoff()
    source = SourceThread(lambda: SqliteSource(path))
    await source.open()

    async def fail_again() -> None:
        tries = backoff.count + 2
        await async_wait_until(lambda: backoff.count >= tries)

    async with FeedClient(f"http://127.0.0.1:{free_port()}") as nobody:
        relay = FeedRelay(FEED, "agent-1", source, nobody, clock=clock, backoff=backoff)
        ending = asyncio.Event()
        running = asyncio.create_task(relay.run(ending))
        await fail_again()
        clock.seconds += TROUBLE_S - 0.1
        await fail_again()
        assert alarm(path) is None
        clock.seconds += TROUBLE_S + 0.1  # nothing was tried for so long: this is another trouble
        await fail_again()
        assert alarm(path) is None
        clock.seconds += TROUBLE_S / 2
        await fail_again()
        assert alarm(path) is None
        clock.seconds += TROUBLE_S / 2
        await fail_again()
        assert alarm(path) == "server-unreachable"
        ending.set()
        await running
    with serving(tmp_path / "server") as server:
        async with FeedClient(server.url) as there:
            relay = FeedRelay(FEED, "agent-1", source, there, clock=clock, backoff=backoff)
            ending = asyncio.Event()
            running = asyncio.create_task(relay.run(ending))
            await async_wait_until(lambda: alarm(path) is None, what="the alarm to be taken back")
            ending.set()
            relay.wake.set()
            await running
    await source.close()
