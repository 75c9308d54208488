"""How a stream is paced: at once where it is idle, gathered while a send is in flight, bounded where nobody takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.entries.lsn import ZERO
from headrace.errors import BackpressureTimeout
from headrace.log.log import Log
from headrace.log.requests import Appended
from headrace.server.streams.send_queue import SendQueue
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.server.streams.terms import StreamTerms
from headrace.wire.batch import Batch, Heartbeat
from tests.bench import append, register
from tests.waiting import async_wait_until

ONE = Subscriber("anonymous", "one")
LONG_S = 600.0
WAIT_S_MAX = 60.0

Items = AsyncGenerator[Batch | Heartbeat, None]


@asynccontextmanager
async def running(folder: Path, terms: StreamTerms) -> AsyncIterator[tuple[Log, Subscriptions]]:
    log = Log.open(folder)
    subscriptions = Subscriptions(log, terms=terms)
    try:
        await log.start()
        await subscriptions.start()
        await log.register(register("a"))
        yield log, subscriptions
    finally:
        await subscriptions.close()
        await log.close()


async def fill(log: Log, count: int, *, value: str = "v") -> list[Appended]:
    return [await log.append(append("a", f"{number}{value}")) for number in range(count)]


async def following(items: Items) -> Batch | Heartbeat:
    async with asyncio.timeout(WAIT_S_MAX):
        return await anext(items)


async def batch(items: Items) -> Batch:
    found = await following(items)
    assert isinstance(found, Batch)
    return found


def stalled_queue(subscriptions: Subscriptions) -> SendQueue:
    ((stream,),) = subscriptions._streams.values()
    return stream.queue


async def test_an_entry_leaves_at_once_where_the_stream_is_idle(tmp_path: Path) -> None:
    terms = StreamTerms(heartbeat_s=LONG_S, gather_s=LONG_S)
    async with (
        running(tmp_path, terms) as (log, subscriptions),
        aclosing(subscriptions.subscribe(ONE)) as items,
    ):
        for number in range(3):
            asked = asyncio.create_task(following(items))
            await async_wait_until(lambda: subscriptions.open_streams == 1, what="the stream to be open")
            (stored,) = await fill(log, 1, value=str(number))
            found = await asked
            assert isinstance(found, Batch)
            assert (found.entries, found.last_lsn) == (1, stored.last_lsn)


async def test_what_comes_while_a_send_is_in_flight_is_gathered(tmp_path: Path) -> None:
    terms = StreamTerms(heartbeat_s=LONG_S, gather_s=LONG_S)
    async with running(tmp_path, terms) as (log, subscriptions):
        await fill(log, 1)
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            assert (await batch(items)).entries == 1
            await fill(log, 20)  # while the first one is being sent
            assert (await batch(items)).entries == 20


async def test_after_the_gathering_time_what_came_is_read_though_a_send_is_in_flight(tmp_path: Path) -> None:
    terms = StreamTerms(heartbeat_s=LONG_S, gather_s=0.001)
    async with running(tmp_path, terms) as (log, subscriptions):
        await fill(log, 1)
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            await batch(items)
            await fill(log, 5)
            queue = stalled_queue(subscriptions)
            await async_wait_until(lambda: queue.entries == 5, what="the entries to wait in the queue")


async def test_batches_are_as_large_as_the_server_and_the_subscriber_allow(tmp_path: Path) -> None:
    async with running(tmp_path, StreamTerms(batch_entries=7)) as (log, subscriptions):
        await log.append(append("a", *(f"v{number}" for number in range(30))))
        for asked, sizes in ((100, [7, 7, 7, 7, 2]), (4, [4] * 7 + [2])):
            async with aclosing(subscriptions.subscribe(ONE, Ask(entries_max=asked))) as items:
                assert [(await batch(items)).entries for _ in sizes] == sizes


async def test_who_takes_nothing_while_the_queue_is_full_loses_the_stream(tmp_path: Path) -> None:
    terms = StreamTerms(queue_entries=10, batch_entries=4, gather_s=0.001, backpressure_timeout_s=0.05)
    told = asyncio.Event()
    async with running(tmp_path, terms) as (log, subscriptions):
        await log.append(append("a", *(f"v{number}" for number in range(30))))
        async with aclosing(subscriptions.subscribe(ONE, on_stalled=told.set)) as items:
            first = await batch(items)
            await log.append(append("a", *(f"w{number}" for number in range(30))))
            async with asyncio.timeout(WAIT_S_MAX):
                await told.wait()
            assert stalled_queue(subscriptions).entries == 0, "what waits is let go of"
            with pytest.raises(BackpressureTimeout, match=r"^backpressure_timeout: subscriber too slow$"):
                await anext(items)
        assert subscriptions.open_streams == 0
        async with aclosing(subscriptions.subscribe(ONE, Ask(start=first.first_lsn))) as items:
            got = 0
            while got < 60:
                got += (await batch(items)).entries
        assert got == 60, "everything stands in the log still"


async def test_a_queue_that_is_not_full_waits_for_ever(tmp_path: Path) -> None:
    """A subscriber that takes nothing of a quiet log costs nothing and keeps its stream."""
    terms = StreamTerms(gather_s=0.001, backpressure_timeout_s=0.001)
    async with running(tmp_path, terms) as (log, subscriptions):
        await fill(log, 3)
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            await batch(items)
            await fill(log, 3)
            queue = stalled_queue(subscriptions)
            await async_wait_until(lambda: queue.entries == 3, what="the entries to wait in the queue")
            assert (await batch(items)).entries == 3


@pytest.mark.parametrize(
    "bound", [StreamTerms(queue_entries=100), StreamTerms(queue_bytes=4096)], ids=["entries", "bytes"]
)
async def test_a_stalled_stream_holds_no_more_than_its_bound(tmp_path: Path, bound: StreamTerms) -> None:
    terms = replace(bound, gather_s=0.001, backpressure_timeout_s=LONG_S, batch_entries=10)
    async with running(tmp_path, terms) as (log, subscriptions):
        for _ in range(40):
            await log.append(append("a", *("v" * 5000 for _ in range(50))))
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            first = await batch(items)
            queue = stalled_queue(subscriptions)
            await async_wait_until(lambda: queue.is_full, what="the queue to be full")
            read_at_once = 1 << 20
            assert queue.entries * 5000 <= read_at_once + 10 * 5000 + 100 * 5000
            last = first
            got = first.entries
            while got < 40 * 50:
                following_one = await batch(items)
                assert following_one.first_lsn > last.last_lsn
                last, got = following_one, got + following_one.entries
            assert got == 40 * 50


async def test_a_rotation_reaches_every_stream_once(tmp_path: Path) -> None:
    terms = StreamTerms(heartbeat_s=LONG_S)
    async with running(tmp_path, terms) as (log, subscriptions):
        (stored,) = await fill(log, 1)
        two = Subscriber("anonymous", "two")
        async with (
            aclosing(subscriptions.subscribe(ONE)) as items,
            aclosing(subscriptions.subscribe(two)) as others,
        ):
            for stream in (items, others):
                await batch(stream)
            subscriptions.rotate()
            for stream in (items, others):
                assert await following(stream) == Heartbeat(stored.last_lsn, rotate=True)
            (stored,) = await fill(log, 1)
            for stream in (items, others):
                assert (await batch(stream)).last_lsn == stored.last_lsn


async def test_a_heartbeat_names_what_was_sent_though_more_was_read(tmp_path: Path) -> None:
    terms = StreamTerms(gather_s=0.001, heartbeat_s=LONG_S, batch_entries=1, queue_entries=9)
    async with running(tmp_path, terms) as (log, subscriptions):
        await fill(log, 3)
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            sent = [(await batch(items)).last_lsn]
            queue = stalled_queue(subscriptions)
            await async_wait_until(lambda: queue.entries == 2, what="the rest to wait in the queue")
            subscriptions.rotate()
            while len(sent) < 3:
                found = await following(items)
                assert found.lsn == sent[-1] if isinstance(found, Heartbeat) else found.last_lsn > sent[-1]
                sent += [found.last_lsn] if isinstance(found, Batch) else []


async def test_a_stream_from_a_time_begins_with_what_was_committed_then(tmp_path: Path) -> None:
    async with running(tmp_path, StreamTerms()) as (log, subscriptions):
        stored = await fill(log, 40)
        times = [one.first_lsn.global_ts >> 18 for one in stored]
        for time_ms in {times[0] - 1, times[0], times[20], times[-1]}:
            wanted = next(one.first_lsn for one, at in zip(stored, times, strict=True) if at >= time_ms)
            async with aclosing(subscriptions.subscribe(ONE, Ask(start_time_ms=time_ms))) as items:
                assert (await batch(items)).first_lsn == wanted


async def test_a_stream_from_a_time_to_come_waits_and_holds_no_more_than_the_head(tmp_path: Path) -> None:
    async with running(tmp_path, StreamTerms(heartbeat_s=0.01)) as (log, subscriptions):
        stored = await fill(log, 3)
        soon = (stored[-1].last_lsn.global_ts >> 18) + 86_400_000
        async with aclosing(subscriptions.subscribe(ONE, Ask(start_time_ms=soon))) as items:
            assert isinstance(await following(items), Heartbeat)
            assert subscriptions._acks.place(ONE) == stored[-1].last_lsn
        assert (await subscriptions.ack(ONE, stored[-1].last_lsn)) > ZERO


def test_the_defaults_are_the_numbers_of_the_rfc() -> None:
    terms = StreamTerms()
    assert (terms.heartbeat_s, terms.batch_entries, terms.gather_s) == (5.0, 1_000, 0.010)
    assert (terms.queue_entries, terms.backpressure_timeout_s) == (10_000, 30.0)
    assert (terms.compression.snappy_above, terms.compression.zstd_above) == (4096, 65536)
