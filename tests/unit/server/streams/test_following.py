"""What a subscriber's place says: it follows what a filtered stream walked, and never over what was sent and not acked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, Unavailable
from headrace.log.log import Log, LogSettings
from headrace.log.requests import Appended
from headrace.server.streams.selection import Selection
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.server.streams.terms import StreamTerms
from headrace.wire.batch import Batch, Heartbeat
from tests.bench import append, register

ONE = Subscriber("anonymous", "one")
NOTHING = Selection(key_prefix="nothing-begins-so")
A_FEED = Selection(key_prefix="local:default:a:")
WAIT_S_MAX = 60.0

Items = AsyncGenerator[Batch | Heartbeat, None]


@asynccontextmanager
async def running(folder: Path, *, heartbeat_s: float = 0.01) -> AsyncIterator[tuple[Log, Subscriptions]]:
    log = Log.open(folder, settings=LogSettings(segment_bytes=4096))
    subscriptions = Subscriptions(log, terms=StreamTerms(heartbeat_s=heartbeat_s))
    try:
        await log.start()
        await subscriptions.start()
        for feed in ("a", "b"):
            await log.register(register(feed))
        yield log, subscriptions
    finally:
        await subscriptions.close()
        await log.close()


async def fill(log: Log, feed: str, count: int) -> list[Appended]:
    return [await log.append(append(feed, f"{number}" * 50)) for number in range(count)]


async def beat(items: Items) -> Heartbeat:
    async with asyncio.timeout(WAIT_S_MAX):
        while not isinstance(found := await anext(items), Heartbeat):
            pass
    return found


async def batch(items: Items) -> Batch:
    async with asyncio.timeout(WAIT_S_MAX):
        while not isinstance(found := await anext(items), Batch):
            pass
    return found


async def following_one(items: Items) -> Batch | Heartbeat:
    return await anext(items)


async def place(subscriptions: Subscriptions) -> Lsn:
    found = await subscriptions.place(ONE)
    assert found is not None
    return found


async def test_a_quiet_stream_moves_nothing_that_another_stream_was_sent(tmp_path: Path) -> None:
    """Both are one subscriber's. What the other one was sent is not acked, so it is held."""
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, "a", 5)
        async with (
            aclosing(subscriptions.subscribe(ONE, Ask(selection=NOTHING))) as quiet,
            aclosing(subscriptions.subscribe(ONE, Ask(selection=A_FEED))) as busy,
        ):
            sent = await batch(busy)
            for _ in range(3):
                await beat(quiet)
                assert await place(subscriptions) < sent.first_lsn
            await subscriptions.ack(ONE, sent.last_lsn)
            (later,) = await fill(log, "b", 1)
            while await place(subscriptions) < later.last_lsn:
                await beat(quiet)
                await beat(busy)
        assert done[-1].last_lsn < later.last_lsn


async def test_what_a_heartbeat_names_may_be_acked(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions):
        await fill(log, "a", 3)
        (last,) = await fill(log, "b", 1)
        async with aclosing(subscriptions.subscribe(ONE, Ask(selection=A_FEED))) as items:
            sent = await batch(items)
            while (said := await beat(items)).lsn < last.last_lsn:
                pass
            assert await place(subscriptions) < sent.first_lsn, "what was sent is not acked yet"
            await subscriptions.ack(ONE, said.lsn)
            assert await place(subscriptions) == last.last_lsn
            (more,) = await fill(log, "b", 1)
            with pytest.raises(InvalidRequest, match="above"):
                await subscriptions.ack(ONE, Lsn.from_int(int(more.last_lsn) + 1))


async def test_who_begins_above_its_place_moves_it_by_an_ack(tmp_path: Path) -> None:
    """A later subscription does not move a place; so a quiet stream from further on must be able to say that it is done."""
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, "a", 4)
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            await batch(items)
        held = await place(subscriptions)
        async with aclosing(
            subscriptions.subscribe(ONE, Ask(start=done[-1].last_lsn, selection=NOTHING))
        ) as items:
            said = [await beat(items) for _ in range(3)][-1]
            assert await place(subscriptions) == held
            await subscriptions.ack(ONE, said.lsn)
            assert await place(subscriptions) == done[-1].last_lsn


async def test_who_lost_its_place_begins_anew_behind_a_base_snapshot(tmp_path: Path) -> None:
    """What it held is gone, whatever it does; RFC-010 §4.3 sends it to the head, and there it is from now on."""
    async with running(tmp_path) as (log, subscriptions):
        await fill(log, "a", 60)
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            first = await batch(items)
        await log.drop_before(log.store.segments()[-1].first_position)
        head = log.tail("a").newest_lsn
        assert log.store.dropped_lsn() > first.first_lsn
        async with aclosing(
            subscriptions.subscribe(ONE, Ask(start=Lsn.parse(head), selection=NOTHING))
        ) as items:
            await beat(items)
            await beat(items)
            assert await place(subscriptions) == Lsn.parse(head)


async def test_a_stream_from_a_time_to_come_holds_nothing_meanwhile(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, "a", 2)
        soon = (done[-1].last_lsn.global_ts >> 18) + 86_400_000
        async with aclosing(subscriptions.subscribe(ONE, Ask(start_time_ms=soon))) as items:
            await beat(items)
            (later,) = await fill(log, "a", 1)
            while await place(subscriptions) < later.last_lsn:
                await beat(items)


async def test_a_read_that_is_under_way_ends_before_the_log_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as (log, subscriptions):
        await fill(log, "a", 2)
        reading, go_on, ended = threading.Event(), threading.Event(), threading.Event()
        walk = log.store.walk

        def slow(position: int, *, bytes_max: int) -> object:
            reading.set()
            go_on.wait(WAIT_S_MAX)
            try:
                return walk(position, bytes_max=bytes_max)
            finally:
                ended.set()

        monkeypatch.setattr(log.store, "walk", slow)
        items = subscriptions.subscribe(ONE)
        following = asyncio.ensure_future(following_one(items))
        assert await asyncio.to_thread(reading.wait, WAIT_S_MAX)
        following.cancel()
        closing = asyncio.create_task(subscriptions.close())
        await asyncio.wait({closing}, timeout=0.05)
        assert not closing.done()
        go_on.set()
        await closing
        assert ended.is_set()
        await asyncio.wait({following})


async def test_streams_have_a_bound(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    subscriptions = Subscriptions(log, terms=StreamTerms(streams_max=2, heartbeat_s=0.01))
    await log.start()
    await subscriptions.start()
    try:
        async with (
            aclosing(subscriptions.subscribe(ONE)) as one,
            aclosing(subscriptions.subscribe(ONE)) as two,
        ):
            await beat(one)
            await beat(two)
            with pytest.raises(Unavailable, match="2 streams are open"):
                await anext(subscriptions.subscribe(ONE))
        async with aclosing(subscriptions.subscribe(ONE)) as again:
            await beat(again)
    finally:
        await subscriptions.close()
        await log.close()
