"""Producers of benches: appends over gRPC streams to a real server, each naming its place, a bounded number on their way."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence

import grpc

from bench.support import bare_server
from headrace.client.channel import open_channel
from headrace.client.log_append import LogAppendClient, Stored, Writes
from headrace.wire.halves import join_puts
from tests.servers import Feed, ServerProcess

PRODUCER = Feed.agent


def make_feed(server: ServerProcess, name: str) -> Writes:
    """Register the producer with a new feed."""
    answer = Feed(server, name).register()
    answer.raise_for_status()
    return Writes(name, PRODUCER, answer.json()["epoch"], answer.json()["incarnation"])


async def append_batches(
    server: ServerProcess, feeds: Sequence[str], values: Sequence[bytes], until: float, ahead: int
) -> int:
    """Append batches of these values to new feeds until ``time.perf_counter()`` says ``until``; returns how many.

    A stream to each feed, with up to ``ahead`` batches on their way; all share one connection.
    """
    writes = [make_feed(server, feed) for feed in feeds]
    async with LogAppendClient(server.grpc_address) as client:
        return sum(await asyncio.gather(*(_fill(client, one, values, until, ahead) for one in writes)))


async def _fill(
    client: LogAppendClient, writes: Writes, values: Sequence[bytes], until: float, ahead: int
) -> int:
    waiting: deque[asyncio.Future[Stored]] = deque()
    place = 1
    async with client.append_stream(writes) as stream:
        while time.perf_counter() < until:
            puts = join_puts((b"key-%08d" % number, value) for number, value in enumerate(values))
            waiting.append(await stream.send(puts, expected_offset=place))
            place += len(values)
            if len(waiting) >= ahead:
                await waiting.popleft()
        await asyncio.gather(*waiting)
    return (place - 1) // len(values)


async def append_singles(
    address: str, writes: Sequence[Writes], value: bytes, until: float
) -> list[list[float]]:
    """Append entries one by one, a stream to each feed, each after the answer to the one before.

    Returns how long each took in seconds, feed by feed. All streams share one connection, to a Headrace server or to
    :mod:`bench.support.bare_server`.
    """
    async with LogAppendClient(address) as client:
        return await asyncio.gather(*(_one_by_one(client, one, value, until) for one in writes))


async def _one_by_one(client: LogAppendClient, writes: Writes, value: bytes, until: float) -> list[float]:
    took: list[float] = []
    async with client.append_stream(writes) as stream:
        begun = time.perf_counter()
        while begun < until:
            put = join_puts([(b"key-%08d" % len(took), value)])
            await (await stream.send(put, expected_offset=len(took) + 1))
            now = time.perf_counter()
            took.append(now - begun)
            begun = now
    return took


async def call_empty(address: str, streams: int, message: bytes, until: float) -> list[list[float]]:
    """Send ``message`` one by one to :mod:`bench.support.bare_server`, by a client that does nothing else either."""
    async with open_channel(address) as channel:
        return await asyncio.gather(*(_call_empty(channel, message, until) for _ in range(streams)))


async def _call_empty(channel: grpc.aio.Channel, message: bytes, until: float) -> list[float]:
    took: list[float] = []
    call = channel.stream_stream(bare_server.APPEND)()
    begun = time.perf_counter()
    while begun < until:
        await call.write(message)
        await call.read()
        now = time.perf_counter()
        took.append(now - begun)
        begun = now
    await call.done_writing()
    return took
