"""Somebody begins to hold at one server while another one drops: what was answered to them stays, or they are told."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt, LsnNotAvailable
from headrace.log.log import Log, LogSettings
from headrace.log.opening import parse_store
from headrace.log.retention.plan import RetentionSettings
from headrace.server.reading import Known
from headrace.server.service import Service
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.wire import documents as doc
from headrace.wire.batch import Batch
from tests.bench import append, register
from tests.postgres import Database
from tests.scale import SEED, scaled, sized
from tests.stores import SMALL_SEGMENT
from tests.waiting import async_wait_until

AT_ONCE = RetentionSettings(retention_s=0.0, bytes_max=1 << 40)
"""Whatever is sealed is old, so that only who holds keeps anything."""
WAIT_S_MAX = 60.0
DROPS_MIN = 10
"""Segments: where fewer are dropped the test has not tested what it is for."""


@dataclass
class Server:
    """A server's use cases without its faces; passes run when a test says so."""

    log: Log
    service: Service
    subscriptions: Subscriptions
    passes: int = 0

    async def run_pass(self) -> None:
        await self.service.retention.run_pass()
        self.passes += 1


@asynccontextmanager
async def running(address: str, retention: RetentionSettings = AT_ONCE) -> AsyncIterator[Server]:
    settings = LogSettings(segment_bytes=SMALL_SEGMENT, retention=retention)
    log = Log.open(Path("unused"), store=parse_store(address), settings=settings)
    await log.start()
    server = Server(log, Service(log), Subscriptions(log))
    await server.subscriptions.start()
    try:
        yield server
    finally:
        await server.subscriptions.close()
        await server.service.close()
        await log.close()


async def stream(server: Server, name: str, start: Lsn | None, last: Lsn | None) -> list[Lsn]:
    """The first LSN of each batch from ``start`` on, up to the one that holds ``last`` (None: what comes first)."""
    found: list[Lsn] = []
    who = Subscriber("anonymous", name)
    items = server.subscriptions.subscribe(who, Ask(start=start, entries_max=1))
    async with asyncio.timeout(WAIT_S_MAX), aclosing(items):
        async for item in items:
            if isinstance(item, Batch):
                found.append(item.first_lsn)
                if last is None or item.last_lsn >= last:
                    return found
    raise AssertionError("the stream ended")


async def meanwhile(server: Server, asked: Coroutine[Any, Any, Any]) -> tuple[asyncio.Task[Any], int]:
    """Ask while ``server`` drops everything and has looked for the last time; returns the task and the oldest position."""
    looking, go_on = threading.Event(), threading.Event()

    def look() -> int:
        looking.set()
        assert go_on.wait(30)
        return server.log.store.end()

    dropping = asyncio.create_task(server.log.drop_before(server.log.store.end(), look=look))
    assert await asyncio.to_thread(looking.wait, 30)
    answer = asyncio.create_task(asked)
    with pytest.raises(AssertionError, match="in vain"):
        await async_wait_until(answer.done, 0.3)
    go_on.set()
    return answer, await dropping


async def test_who_comes_after_the_last_look_is_answered_what_is_left(database: Database) -> None:
    async with running(database.dsn) as a, running(database.dsn) as b:
        await a.log.register(register("f"))
        stored = [await a.log.append(append("f", f"{number}" + "." * 100)) for number in range(60)]
        await a.log.roll()
        ask = doc.RegisterListener(listener_id="l", change_feed_id="f", hold=True)
        answer, oldest = await meanwhile(a, b.service.register_listener(ask))
        assert oldest == a.log.store.end()
        assert (await answer).oldest_sequence_id == 61
        stored += [await a.log.append(append("f", f"{number}" + "." * 100)) for number in range(60)]
        await a.log.roll()
        await b.log.refresh()
        answer, _ = await meanwhile(a, stream(b, "s", stored[70].first_lsn, None))
        with pytest.raises(LsnNotAvailable, match=f"older than oldest_lsn={stored[-1].last_lsn}"):
            await answer
        assert b.log.metadata.subscribers() == [], "who was refused has no place"


async def test_a_plan_made_before_somebody_came_does_not_take_what_he_was_answered(
    database: Database,
) -> None:
    async with running(database.dsn) as a, running(database.dsn) as b:
        await a.log.register(register("f"))
        stored = [await b.log.append(append("f", f"{number}" + "." * 100)) for number in range(60)]
        await a.log.roll()
        survey = await a.service.retention.survey()
        assert survey.plan.position == a.log.store.end()
        assert await stream(b, "s", stored[20].first_lsn, None) == [stored[20].first_lsn]
        await a.service.retention._drop(survey)
        assert stored[0].first_lsn <= a.log.store.dropped_lsn() < stored[20].first_lsn
        assert len(await stream(b, "s", stored[20].first_lsn, stored[-1].last_lsn)) == 40


async def test_where_nobody_can_say_who_holds_nothing_goes_and_the_cap_is_an_alarm(
    database: Database,
) -> None:
    async with running(database.dsn) as before:
        await before.log.register(register("hurt"))
        for number in range(60):
            await before.log.append(append("hurt", f"{number}" + "." * 100))
    database.sql("UPDATE headrace_log.feed SET crc = crc + 1")
    capped = RetentionSettings(retention_s=0.0, bytes_max=SMALL_SEGMENT)
    async with running(database.dsn, capped) as server:
        for _ in range(2):
            with pytest.raises(JournalCorrupt, match="the state of the feed hurt"):
                await server.run_pass()
        assert server.service.retention.segments_dropped.total() == 0
        standing = {one.code for one in server.log.metadata.alarms() if one.cleared_at_ms is None}
        assert standing == {"journal-corrupt", "retention-bytes"}


class Followed(NamedTuple):
    """A stream from ``start`` on: its first entry when it was asked for, and all that it gave after passes had gone by.

    ``first`` is ``start``, or the one after it where ``start`` was the newest dropped entry.
    """

    start: Lsn
    first: Lsn
    found: list[Lsn]


@dataclass
class Flow:
    """Two servers that take appends and drop what they may, and what was appended."""

    a: Server
    b: Server
    database: Database
    rng: random.Random
    stored: list[Lsn] = field(default_factory=list)
    over: bool = False

    async def write(self) -> None:
        number = 0
        while not self.over:
            number += 1
            log = self.rng.choice((self.a, self.b)).log
            done = await log.append(append("f", f"{number}" + "." * self.rng.randint(0, 300)))
            self.stored.append(done.first_lsn)

    async def drop(self, server: Server) -> None:
        while not self.over:
            await server.run_pass()

    async def pass_by(self, passes: int) -> None:
        """Wait until both have begun and ended so many passes."""
        wanted = [server.passes + passes + 1 for server in (self.a, self.b)]
        await async_wait_until(lambda: self.a.passes >= wanted[0] and self.b.passes >= wanted[1], WAIT_S_MAX)

    async def listen(self, name: str) -> None:
        """Register, let passes go by, read from what was answered as the oldest entry on, and let go."""
        server = self.rng.choice((self.a, self.b))
        ask = doc.RegisterListener(listener_id=name, change_feed_id="f", hold=True)
        answer = await server.service.register_listener(ask)
        await self.pass_by(self.rng.randint(0, 2))
        first = answer.oldest_sequence_id
        if first <= answer.head_sequence_id:
            piece = await server.service.read_range("f", first - 1, None, 1, Known(answer.incarnation))
            assert piece.frames[0].header.first_sequence_id <= first
        ask = doc.RegisterListener(listener_id=name, change_feed_id="f", hold=False)
        await server.service.register_listener(ask)

    async def subscribe(self, name: str) -> Followed | None:
        """Subscribe near the oldest entry, let passes go by, read it all again, and let go; None if it is too late."""
        server = self.rng.choice((self.a, self.b))
        bounds = await server.subscriptions.bounds()
        near = [lsn for lsn in self.stored if lsn >= bounds.oldest][:30] or [self.stored[-1]]
        start = self.rng.choice(near)
        try:
            (first,) = await stream(server, name, start, None)
        except LsnNotAvailable:
            return None
        await self.pass_by(self.rng.randint(0, 2))
        last = self.stored[-1]
        found = await stream(server, name, start, max(first, last))
        forget = f"DELETE FROM headrace_log.subscriber WHERE subscriber_id = '{name}'"
        await asyncio.to_thread(self.database.sql, forget)
        return Followed(start, first, found)


async def test_whatever_is_answered_while_two_servers_drop_is_kept(database: Database) -> None:
    rng = random.Random(SEED)
    async with running(database.dsn) as a, running(database.dsn) as b:
        await a.log.register(register("f"))
        flow = Flow(a, b, database, rng)
        tasks = [asyncio.create_task(one) for one in (flow.write(), flow.drop(a), flow.drop(b))]
        await async_wait_until(lambda: len(flow.stored) > 100)
        streams: list[Followed] = []

        def dropped() -> float:
            return sum(one.service.retention.segments_dropped.total() for one in (a, b))

        async def come(newcomer: int) -> None:
            for number in range(scaled(sized(6, soak=12))):
                name = f"n{newcomer}-{number}"
                if rng.random() < 0.4:
                    await flow.listen(name)
                elif (one := await flow.subscribe(name)) is not None:
                    streams.append(one)

        try:
            await asyncio.gather(*(come(newcomer) for newcomer in range(3)))
            await async_wait_until(lambda: dropped() > DROPS_MIN, WAIT_S_MAX, what="segments to be dropped")
        finally:
            flow.over = True
            await asyncio.gather(*tasks)
    for one in streams:
        assert one.found == [lsn for lsn in flow.stored if one.first <= lsn <= one.found[-1]]
        assert not [lsn for lsn in flow.stored if one.start < lsn < one.first]
    sys.stdout.write(
        f"{len(streams)} streams, {a.passes} + {b.passes} passes, {dropped():g} segments dropped\n"
    )
    assert streams
