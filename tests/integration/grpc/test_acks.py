"""Acks: forward only, durable, never above what was sent or what there is; and the watermark is the least of them."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from headrace.client.log_append import LogAppendClient, Stored
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import InvalidRequest
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX, halves, next_batch, read_until, writes
from tests.servers import ServerProcess
from tests.waiting import async_wait_until


async def append(server: ServerProcess, count: int) -> list[Stored]:
    feed = registered(server)
    async with LogAppendClient(server.grpc_address) as client:
        return [await client.append(writes(feed), halves(number, number)) for number in range(1, count + 1)]


async def ack_once_forgotten(wal: WalClient, lsn: Lsn) -> None:
    """Ack until it counts whole: what was sent on streams that were cancelled bounds it no longer."""

    async def moved() -> bool:
        try:
            return await wal.ack(lsn) == lsn
        except InvalidRequest:
            return False

    await async_wait_until(moved, what="the cancelled streams to be forgotten")


async def test_an_ack_moves_forward_only_and_outlives_the_server(own: ServerProcess) -> None:
    stored = await append(own, 5)
    async with WalClient(own.grpc_address, subscriber_id="one") as wal:
        await read_until(wal, None, stored[-1].last_lsn)
        assert await wal.ack(stored[2].last_lsn) == stored[2].last_lsn
        assert await wal.ack(stored[0].last_lsn) == stored[2].last_lsn
        await asyncio.to_thread(own.restart)
        assert await wal.ack(ZERO) == stored[2].last_lsn
        # With no open stream here, anything up to the head is taken.
        assert await wal.ack(stored[4].last_lsn) == stored[4].last_lsn
        with pytest.raises(InvalidRequest, match="above head_lsn"):
            await wal.ack(stored[4].last_lsn._replace(raft_index=6))


async def test_a_place_begins_just_below_the_first_start_and_stays(own: ServerProcess) -> None:
    stored = await append(own, 5)
    async with WalClient(own.grpc_address, subscriber_id="one") as wal:
        await read_until(wal, stored[2].first_lsn, stored[4].last_lsn)
        below = Lsn.from_int(int(stored[2].first_lsn) - 1)
        assert await wal.ack(ZERO) == below
        await read_until(wal, stored[4].first_lsn, stored[4].last_lsn)
        assert await wal.ack(ZERO) == below


async def test_the_watermark_is_the_least_place(own: ServerProcess) -> None:
    stored = await append(own, 5)
    last = stored[4].last_lsn
    async with (
        WalClient(own.grpc_address, subscriber_id="one") as one,
        WalClient(own.grpc_address, subscriber_id="two") as two,
        WalClient(own.grpc_address) as unnamed,
    ):
        for wal in (one, two, unnamed):
            await read_until(wal, None, last)
        assert await one.ack(last) == ZERO
        assert await two.ack(stored[1].last_lsn) == ZERO
        assert await unnamed.ack(stored[3].last_lsn) == stored[1].last_lsn
        assert await two.ack(last) == stored[3].last_lsn


async def test_what_was_not_sent_can_not_be_acked(own: ServerProcess) -> None:
    stored = await append(own, 5)
    async with WalClient(own.grpc_address, subscriber_id="one") as wal:
        async with aclosing(wal.subscribe(stored[4].first_lsn)) as items:
            await next_batch(items)
            later = (await append(own, 1))[0]
            await next_batch(items)
            assert await wal.ack(stored[4].last_lsn) == stored[4].last_lsn
        # A cancelled stream is gone: nothing of it bounds what may be acked.
        async with asyncio.timeout(WAIT_S_MAX), aclosing(wal.subscribe(ZERO, batch_entries=1)) as items:
            await next_batch(items)
        await ack_once_forgotten(wal, later.last_lsn)


async def test_with_two_streams_an_ack_counts_up_to_what_both_have_sent(own: ServerProcess) -> None:
    stored = await append(own, 3)
    last = stored[2].last_lsn
    async with (
        WalClient(own.grpc_address, subscriber_id="one") as wal,
        WalClient(own.grpc_address, subscriber_id="one") as slow,
    ):
        await read_until(wal, stored[0].first_lsn, last)
        feed = registered(own)
        async with LogAppendClient(own.grpc_address) as client:
            for number in range(0, 40, 4):  # more than a connection holds
                await client.append(writes(feed), halves(number, number + 3, value=b" " * 900_000))
        head, _ = await wal.bounds()
        async with aclosing(slow.subscribe(batch_entries=1)) as behind:
            await next_batch(behind)
            with pytest.raises(InvalidRequest, match="the last LSN that was sent"):
                await wal.ack(head)
        async with (
            aclosing(wal.subscribe(head)) as ahead,
            aclosing(slow.subscribe(batch_entries=1)) as behind,
        ):
            assert (await next_batch(ahead)).last_lsn == head
            await next_batch(behind)
            place = await wal.ack(head)
            assert stored[0].last_lsn <= place < head
        await ack_once_forgotten(wal, head)


async def test_many_acks_at_once_are_all_kept(own: ServerProcess) -> None:
    stored = await append(own, 30)
    async with WalClient(own.grpc_address, subscriber_id="one") as wal:
        await read_until(wal, None, stored[-1].last_lsn)
        places = await asyncio.gather(*(wal.ack(one.last_lsn) for one in stored for _ in range(5)))
        assert max(places) == stored[-1].last_lsn
        await asyncio.to_thread(own.restart)
        assert await wal.ack(ZERO) == stored[-1].last_lsn
