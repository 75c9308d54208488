"""A client of gRPC that connects anew: what is under way ends as unclear, and whoever retries loses and doubles nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient
from headrace.client.stream_producer import StreamProducer
from headrace.client.wal_stream import WalClient
from headrace.client.wal_subscription import WalSubscription
from headrace.errors import ServerUnreachable, Usage
from headrace.wire.batch import ReceivedBatch
from tests.integration.grpc.streams import WAIT_S_MAX
from tests.integration.grpc.test_stream_producer import FEED, put
from tests.proxy import Proxy
from tests.servers import Feed, ServerProcess
from tests.waiting import async_wait_until


def proxied(server: ServerProcess) -> Proxy:
    assert server.grpc_address is not None
    return Proxy("127.0.0.1", int(server.grpc_address.rpartition(":")[2]))


async def drain(items: AsyncGenerator[object, None]) -> None:
    """Take all that comes."""
    while True:
        await anext(items)


async def test_appends_on_a_frozen_line_go_over_a_new_one(own: ServerProcess) -> None:
    with proxied(own) as proxy:
        async with FeedClient(own.url) as http, LogAppendClient(f"127.0.0.1:{proxy.port}") as appends:
            producer = await StreamProducer.register(http, appends, FEED, "agent-1")
            await producer.append([put(1)])
            proxy.freeze()
            waiting = [await producer.send([put(number)]) for number in range(2, 12)]
            assert producer.unanswered == 10
            asked = asyncio.create_task(appends.tail(FEED))
            turn = asyncio.get_running_loop().create_future()  # it has been sent in the loop's next turn
            asyncio.get_running_loop().call_soon(turn.set_result, None)
            await turn
            await appends.reconnect()
            with pytest.raises(ServerUnreachable, match="given up for a new one"):
                await asked
            proxy.thaw()
            async with asyncio.timeout(WAIT_S_MAX):
                await producer.flush()
            assert [(await one).first_sequence_id for one in waiting] == list(range(2, 12))
            assert producer.unanswered == 0
            await producer.close()
    assert [entry["sequence-id"] for entry in Feed(own, FEED).entries()] == list(range(1, 12))


async def test_a_subscription_goes_on_over_a_new_connection(own: ServerProcess) -> None:
    feed = Feed(own, FEED)
    feed.register()
    feed.post({"changes": {"n": 1}})
    got: list[int] = []

    async def read(stream: WalSubscription) -> None:
        async with aclosing(stream.batches()) as batches:
            while True:
                got.append(len((await anext(batches)).sizes))

    async with WalClient(own.grpc_address or "", subscriber_id="s") as wal, WalSubscription(wal) as stream:
        reading = asyncio.create_task(read(stream))
        await async_wait_until(lambda: got == [1] or reading.done(), WAIT_S_MAX)
        await wal.reconnect()
        feed.post({"changes": {"n": 2}})
        await async_wait_until(lambda: got == [1, 1] or reading.done(), WAIT_S_MAX)
        await wal.reconnect()
        feed.post({"changes": {"n": 3}})
        await async_wait_until(lambda: got == [1, 1, 1] or reading.done(), WAIT_S_MAX)
        assert not reading.done()
        reading.cancel()
        await asyncio.wait({reading})
        assert reading.cancelled(), "a cancellation of the reader is one still"


async def test_a_stream_that_is_not_being_read_ends_as_unreachable(own: ServerProcess) -> None:
    feed = Feed(own, FEED)
    feed.register()
    feed.post({"changes": {"n": 1}})
    async with WalClient(own.grpc_address or "") as wal:
        async with aclosing(wal.subscribe()) as items:
            assert isinstance(await anext(items), ReceivedBatch)
            await wal.reconnect()
            with pytest.raises(ServerUnreachable):
                await drain(items)
        await wal.close()
        with pytest.raises(Usage):
            await wal.bounds()
