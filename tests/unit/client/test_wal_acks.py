"""When acks are due, and what the task that sends them makes of whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from headrace import errors
from headrace.client.wal_acks import Acker, AckEvery
from headrace.client.wal_stream import WalClient
from headrace.client.wal_subscription import WalSubscription
from headrace.entries.lsn import Lsn
from headrace.runtime.backoff import Backoff
from headrace.wire.generated import wal_pb2
from tests.unit.client.wal_server import batch, lsn, sends, wal_server
from tests.waiting import async_wait_until

SOON = partial(Backoff, 0.001, 0.002)


class Sent(list[Lsn]):
    """What was acked; ``fails`` says what is raised in place of it."""

    fails: Callable[[Lsn], Exception | None] = staticmethod(lambda _: None)

    async def send(self, asked: Lsn) -> Lsn:
        failure = self.fails(asked)
        if failure is not None:
            raise failure
        self.append(asked)
        return asked


@asynccontextmanager
async def acking(sent: Sent, policy: Any, **given: Any) -> AsyncIterator[Acker]:
    acker = Acker(sent.send, policy, SOON(), **given)
    acker.start()
    try:
        yield acker
    finally:
        await acker.close(5.0)


async def settled() -> None:
    """Let the loop go round some times: then the acker has done what there was to do, and waits."""
    for _ in range(20):
        turn = asyncio.Event()
        asyncio.get_running_loop().call_soon(turn.set)
        await turn.wait()


async def test_entries_are_counted_anew_after_each_ack() -> None:
    sent = Sent()
    async with acking(sent, AckEvery(entries=3)) as acker:
        for number in range(1, 12):
            acker.finish(lsn(number), 1)
            await settled()
        assert sent == [lsn(3), lsn(6), lsn(9)]


async def test_what_is_finished_while_an_ack_is_under_way_counts_for_the_next() -> None:
    sent, may_go = Sent(), asyncio.Event()

    async def send(asked: Lsn) -> Lsn:
        await may_go.wait()
        return await sent.send(asked)

    acker = Acker(send, AckEvery(entries=3), SOON())
    acker.start()
    for number in range(1, 6):
        acker.finish(lsn(number), 1)
        await settled()
    may_go.set()
    await settled()
    assert sent == [lsn(3)], "two are finished since, which is not enough"
    acker.finish(lsn(6), 1)
    await settled()
    assert sent == [lsn(3), lsn(6)]
    await acker.close(5.0)


async def test_an_ack_by_a_heartbeat_counts_the_entries_below_it() -> None:
    sent = Sent()
    async with acking(sent, AckEvery(entries=3), quiet_s=0.0) as acker:
        acker.finish(lsn(1), 2)
        acker.walk(lsn(5))
        await settled()
        assert sent == [lsn(5)]
        acker.finish(lsn(6), 2)
        await settled()
        assert sent == [lsn(5)]
        acker.finish(lsn(7), 1)
        await settled()
        assert sent == [lsn(5), lsn(7)]


async def test_a_heartbeat_gives_way_to_what_is_finished_behind_it() -> None:
    sent = Sent()
    async with acking(sent, AckEvery(entries=3), quiet_s=0.0) as acker:
        acker.finish(lsn(1), 1)
        acker.walk(lsn(2))
        acker.finish(lsn(3), 1)
        await settled()
        assert sent == [], "its LSN would be acked, and both entries taken off the count"
        acker.finish(lsn(4), 1)
        await settled()
        assert sent == [lsn(4)]


async def test_heartbeats_alone_are_acked_no_more_often_than_said() -> None:
    sent = Sent()
    async with acking(sent, "batch", quiet_s=3600.0) as acker:
        for number in range(1, 50):
            acker.walk(lsn(number))
            await settled()
        assert sent == []
        acker.finish(lsn(50), 1)
        await settled()
        acker.walk(lsn(51))
        await settled()
        assert sent == [lsn(50)]
    assert sent == [lsn(50), lsn(51)], "what is left goes at the end"


async def test_a_heartbeat_below_what_is_acked_is_no_reason() -> None:
    sent = Sent()
    async with acking(sent, "batch", quiet_s=0.0) as acker:
        acker.finish(lsn(5), 1)
        await settled()
        for number in (3, 5):
            acker.walk(lsn(number))
            await settled()
    assert sent == [lsn(5)]


async def test_whatever_goes_wrong_is_told_once_and_does_not_end_the_acks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sent, odd = Sent(), iter(range(3))
    sent.fails = lambda _: ZeroDivisionError("odd") if next(odd, None) is not None else None
    async with acking(sent, "batch") as acker:
        acker.finish(lsn(1), 1)
        await async_wait_until(lambda: acker.error is not None, 30)
        assert "ZeroDivisionError: odd" in str(acker.error)
        await async_wait_until(lambda: sent == [lsn(1)], 30)
        assert acker.error is None
        acker.finish(lsn(2), 1)
        await async_wait_until(lambda: sent == [lsn(1), lsn(2)], 30)
    assert "".join(capsys.readouterr()).count("an ack was not taken") == 1


async def test_the_end_of_a_subscription_does_not_raise_what_an_ack_did() -> None:
    sent = Sent()
    sent.fails = lambda _: ZeroDivisionError("odd")
    acker = Acker(sent.send, "batch", SOON())
    acker.start()
    acker.finish(lsn(1), 1)
    await acker.close(0.05)
    assert acker.acked is None


# -- a client that is closed under its subscription -------------------------------------------------------------------


async def _stands(_: wal_pb2.SubscribeRequest, context: Any) -> None:
    await asyncio.Event().wait()


async def test_a_closed_client_is_told_and_the_subscription_ends_in_peace() -> None:
    async with asyncio.timeout(60), wal_server(sends(batch(1, 3), then=_stands)) as server:
        wal = WalClient(server.address)
        stream = WalSubscription(wal, backoff=SOON)
        await stream.__aenter__()
        async with aclosing(stream.batches()) as batches:
            await anext(batches)
            reading = asyncio.ensure_future(anext(batches))
            await async_wait_until(lambda: server.acks == [lsn(3)], 30)
            await wal.close()
            with pytest.raises(errors.Usage, match="client is closed"):
                await reading
        with pytest.raises(errors.Usage, match="client is closed"):
            await stream.ack(lsn(3))
        await stream.close()


async def test_an_ack_after_the_client_was_closed_ends_the_acks_at_once() -> None:
    async with asyncio.timeout(60), wal_server(sends(batch(1, 3), batch(4, 5), then=_stands)) as server:
        wal = WalClient(server.address)
        stream = WalSubscription(wal, backoff=SOON)
        await stream.__aenter__()
        async with aclosing(stream.batches()) as batches:
            await anext(batches)
            await wal.close()
            with pytest.raises(errors.Usage, match="client is closed"):
                await anext(batches)
        await async_wait_until(lambda: isinstance(stream.ack_error, errors.Usage), 30)
        await stream.close(within_s=3600.0)


CALLS: dict[str, Callable[[WalClient], Awaitable[Any]]] = {
    "subscribe": lambda wal: anext(wal.subscribe()),
    "ack": lambda wal: wal.ack(lsn(1)),
    "bounds": lambda wal: wal.bounds(),
    "place": lambda wal: wal.place(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_each_call_of_a_closed_client_is_told(call: str) -> None:
    wal = WalClient("127.0.0.1:1")
    await wal.close()
    with pytest.raises(errors.Usage, match="client is closed"):
        await CALLS[call](wal)


async def test_a_cancelled_reader_is_still_cancelled() -> None:
    async with asyncio.timeout(60), wal_server(_stands) as server, WalClient(server.address) as wal:
        reading = asyncio.ensure_future(anext(wal.subscribe()))
        await async_wait_until(lambda: server.open_streams, 30)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
