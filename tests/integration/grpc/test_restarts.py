"""A server that is killed again and again while producers append: a subscriber that resumes misses nothing and no order."""

from __future__ import annotations

import asyncio
import random
from contextlib import aclosing
from functools import partial

from headrace.client.log_append import LogAppendClient
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.errors import OffsetMismatch, StreamFailed, Unavailable
from headrace.wire.batch import ReceivedBatch
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX, halves, writes
from tests.scale import SEED, scaled, sized
from tests.servers import Feed, ServerProcess
from tests.waiting import async_wait_until

PRODUCERS = 4


async def until_up(server: ServerProcess) -> None:
    """Wait until the server answers."""

    async def answers() -> bool:
        async with WalClient(server.grpc_address) as wal:
            try:
                await wal.bounds()
            except Unavailable:
                return False
            return True

    await async_wait_until(answers, WAIT_S_MAX, what="the server to answer")


async def produce(server: ServerProcess, feed: Feed, total: int) -> None:
    """Append 1 … ``total`` at named places over streams, until all are known to be there, whatever happens between."""
    source = random.Random(f"{SEED} {feed.name}")
    while True:
        try:
            async with LogAppendClient(server.grpc_address) as client:
                at = (await client.tail(feed.name)).next_sequence_id
                if at > total:
                    return
                async with client.append_stream(writes(feed)) as stream:
                    sent = []
                    while at <= total:
                        last = min(total, at + source.choice((0, 0, 4, 30)))
                        sent.append(await stream.send(halves(at, last), expected_offset=at))
                        at = last + 1
                        if len(sent) % 16 == 0:
                            await sent[-1]
                    for future in sent:
                        await future
        except (Unavailable, OffsetMismatch, StreamFailed):  # not known what is there: ask for the tail again
            await until_up(server)


async def test_nothing_is_missed_over_kills(own: ServerProcess) -> None:
    feeds = [registered(own) for _ in range(PRODUCERS)]
    total, kills = scaled(sized(800, soak=2000)), 3
    wanted = PRODUCERS * total
    read: dict[str, bytes] = {}
    order: list[str] = []
    acked: list[Lsn] = []

    async def subscribe() -> None:
        source = random.Random(SEED)
        while len(read) < wanted:
            try:
                async with WalClient(own.grpc_address, subscriber_id="one") as wal:
                    start = acked[-1] if acked else None
                    async with aclosing(wal.subscribe(start, batch_entries=source.choice((0, 13)))) as items:
                        async for item in items:
                            if isinstance(item, ReceivedBatch):
                                take(item, start)
                                if source.random() < 0.3 or len(read) >= wanted:
                                    await wal.ack(item.last_lsn)
                                    acked.append(item.last_lsn)
                            if len(read) >= wanted:
                                return
            except Unavailable:
                await until_up(own)

    def take(batch: ReceivedBatch, start: Lsn | None) -> None:
        for entry in batch.messages():
            if entry.lsn in read:
                assert read[entry.lsn] == entry.value, "an entry changed after it was read"
                continue
            assert not order or entry.lsn > order[-1], "an entry appeared below what had been read"
            read[entry.lsn] = entry.value
            order.append(entry.lsn)

    def reached(entries: int) -> bool:
        return len(read) >= entries

    async def kill() -> None:
        for number in range(1, kills + 1):
            due = wanted * number // (kills + 1)
            await async_wait_until(partial(reached, due), 2 * WAIT_S_MAX, what="the subscriber to get on")
            await asyncio.to_thread(own.restart)

    async with asyncio.timeout(2 * WAIT_S_MAX):
        await asyncio.gather(*(produce(own, feed, total) for feed in feeds), subscribe(), kill())
    for feed in feeds:
        stored = [entry for first in range(1, total, 1000) for entry in feed.entries(first, first + 999)]
        assert [entry["changes"]["number"] for entry in stored] == list(range(1, total + 1))
        assert all(entry["lsn"] in read for entry in stored)
    assert len(order) == wanted
