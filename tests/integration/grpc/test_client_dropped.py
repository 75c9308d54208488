"""Subscriptions opened and dropped by the hundred, in every way there is: nothing of them stays, on neither side."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from contextlib import aclosing, suppress

from headrace.client.log_append import LogAppendClient
from headrace.client.wal_stream import WalClient
from headrace.client.wal_subscription import WalSubscription
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX, halves, writes
from tests.scale import scaled, sized
from tests.servers import ServerProcess
from tests.waiting import async_wait_until

AT_ONCE = 25
ROUNDS = sized(2, soak=8)
TRIES = 3
"""Something else may fill a cache of its own once or twice. What stays of a subscription stays every time."""
SERVER_BYTES_MAX = 128 << 20
"""How far its memory may swing: its allocator keeps some 60 MiB now and then. 500 queues would hold 125 MiB."""


async def take_one(wal: WalClient, _: str) -> None:
    async with WalSubscription(wal) as stream, aclosing(stream.batches()) as batches:
        await anext(batches)


async def leave_the_generator(wal: WalClient, _: str) -> None:
    async with WalSubscription(wal) as stream:
        await anext(stream.records())


async def be_cancelled(wal: WalClient, _: str) -> None:
    begun = asyncio.Event()

    async def read_all() -> None:
        async with WalSubscription(wal, ack="manual") as stream:
            async for _ in stream.items():
                begun.set()

    reading = asyncio.create_task(read_all())
    await begun.wait()
    reading.cancel()
    with suppress(asyncio.CancelledError):
        await reading


async def close_the_client(_: WalClient, address: str) -> None:
    async with WalClient(address, subscriber_id="dropped") as own, WalSubscription(own) as stream:
        await anext(stream.batches())


WAYS = (take_one, leave_the_generator, be_cancelled, close_the_client)


def tasks() -> Counter[str]:
    """How many tasks there are of each kind."""
    return Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks())  # type: ignore[union-attr]  # each has a coroutine


async def test_dropped_subscriptions_leave_nothing_behind(own: ServerProcess) -> None:
    feed = registered(own)
    async with LogAppendClient(own.grpc_address) as appender:
        await appender.append(writes(feed), halves(1, 500, value=b"text " * 100))

    def open_streams() -> int:
        return int(own.http.post("/streams/rotate").json()["streams"])

    async with WalClient(own.grpc_address, subscriber_id="dropped") as wal:

        async def drop(rounds: int) -> tuple[int, int]:
            """Open and drop, until no stream and no task is left; then this process' objects and the server's memory."""
            for _ in range(rounds):
                async with asyncio.timeout(WAIT_S_MAX):
                    await asyncio.gather(
                        *(way(wal, own.grpc_address) for way in WAYS for _ in range(AT_ONCE))
                    )
            await async_wait_until(lambda: tasks() == alone, WAIT_S_MAX, what=f"the tasks to be {alone}")
            await async_wait_until(lambda: open_streams() == 0, WAIT_S_MAX)
            gc.collect()
            return len(gc.get_objects()), own.memory_bytes()

        alone = tasks()
        before_objects, before_bytes = await drop(2)
        rounds = max(2, scaled(ROUNDS))
        grown = []
        for _ in range(TRIES):
            after_objects, after_bytes = await drop(rounds)
            assert after_bytes - before_bytes < SERVER_BYTES_MAX
            grown.append(after_objects - before_objects)
            if grown[-1] < rounds * AT_ONCE:
                break
            before_objects = after_objects
        assert min(grown) < rounds * AT_ONCE, "not one object for each of any way"
