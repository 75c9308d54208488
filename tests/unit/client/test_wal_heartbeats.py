"""What a subscription makes of heartbeats: where it goes on, and what it acks where nothing comes for it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest
from grpc import StatusCode

from headrace import errors
from headrace.client.wal_acks import AckEvery
from headrace.client.wal_stream import StreamFilter, WalClient
from headrace.client.wal_subscription import WalSubscription
from headrace.entries.lsn import Lsn
from headrace.runtime.backoff import Backoff
from headrace.wire.batch import Heartbeat, ReceivedBatch, encode_heartbeat
from headrace.wire.generated import wal_pb2
from tests.unit.client.wal_server import TS, WalServer, batch, fails, lsn, sends, take_all, wal_server
from tests.waiting import async_wait_until

END = fails(StatusCode.PERMISSION_DENIED, "the end")
SOON = partial(Backoff, 0.001, 0.002)
SINCE_MS = (TS >> 18) + 1


def beat(number: int) -> bytes:
    return encode_heartbeat(Heartbeat(lsn(number)))


async def stands(_: wal_pb2.SubscribeRequest, context: Any) -> None:
    """Send nothing more until the client cancels."""
    await asyncio.Event().wait()


async def items_of(server: WalServer, **given: Any) -> list[ReceivedBatch | Heartbeat]:
    """What is read until the server says that it is the end."""
    found: list[ReceivedBatch | Heartbeat] = []
    async with (
        asyncio.timeout(60),
        WalClient(server.address) as wal,
        WalSubscription(wal, **({"backoff": SOON} | given)) as stream,
    ):
        with pytest.raises(errors.Forbidden, match="the end"):
            await take_all(stream.items(), found)
    return found


# -- a start by time --------------------------------------------------------------------------------------------------


async def test_a_start_by_time_is_kept_over_heartbeats_from_before_it() -> None:
    async with wal_server(sends(beat(5)), sends(beat(6)), END) as server:
        await items_of(server, start_time_ms=SINCE_MS)
    assert [(one.start_lsn, one.start_time_ms) for one in server.asked] == [("", SINCE_MS)] * 3


async def test_once_the_log_is_past_that_time_the_heartbeat_counts() -> None:
    later = Lsn((SINCE_MS << 18) + 5, 1, 1)
    async with wal_server(sends(beat(5)), sends(encode_heartbeat(Heartbeat(later))), END) as server:
        await items_of(server, start_time_ms=SINCE_MS)
    assert [(one.start_lsn, one.start_time_ms) for one in server.asked] == [
        ("", SINCE_MS),
        ("", SINCE_MS),
        (str(later), 0),
    ]


async def test_after_a_batch_the_time_is_not_asked_for_again() -> None:
    async with wal_server(sends(beat(1), batch(2, 3)), END) as server:
        await items_of(server, start_time_ms=TS >> 18)
    assert [(one.start_lsn, one.start_time_ms) for one in server.asked] == [
        ("", TS >> 18),
        (str(lsn(3)), 0),
    ]


# -- acks -------------------------------------------------------------------------------------------------------------

FILTERED: dict[str, Any] = {"only": StreamFilter(key_prefix="main:")}


@pytest.mark.parametrize("policy", ["batch", AckEvery(entries=1000), AckEvery(seconds=0.01)])
async def test_what_was_walked_is_acked_while_the_stream_stands(policy: Any) -> None:
    """Also where the policy's count of entries is never reached: nothing else is there to be waited for."""
    async with (
        asyncio.timeout(60),
        wal_server(sends(batch(1, 3), beat(70), then=stands)) as server,
        WalClient(server.address) as wal,
        WalSubscription(wal, ack=policy, **FILTERED) as stream,
        aclosing(stream.batches()) as batches,
    ):
        await anext(batches)
        reading = asyncio.ensure_future(anext(batches))
        await async_wait_until(lambda: stream.acked == lsn(70), 30)
        assert server.acks in ([lsn(3), lsn(70)], [lsn(70)])
        reading.cancel()
        await asyncio.wait({reading})


@pytest.mark.parametrize("take", ["items", "batches", "records"])
async def test_what_was_walked_is_acked_at_the_end(take: str) -> None:
    async with wal_server(sends(beat(5), batch(6, 7), beat(70), then=END)) as server:
        async with WalClient(server.address) as wal, WalSubscription(wal, **FILTERED) as stream:
            with pytest.raises(errors.Forbidden, match="the end"):
                await take_all(getattr(stream, take)(), [])
        assert server.acks[-1] == lsn(70)


async def test_what_the_consumer_holds_is_not_acked_by_a_heartbeat_before_it() -> None:
    async with wal_server(sends(beat(5), batch(6, 7), then=stands)) as server:
        async with (
            WalClient(server.address) as wal,
            WalSubscription(wal, **FILTERED) as stream,
            aclosing(stream.batches()) as batches,
        ):
            await anext(batches)
        assert server.acks == [lsn(5)]


async def test_manual_acks_leave_heartbeats_alone() -> None:
    async with wal_server(sends(batch(1, 3), beat(70), then=END)) as server:
        await items_of(server, ack="manual", **FILTERED)
    assert server.acks == []


async def test_a_server_that_takes_acks_of_entries_alone_is_no_trouble() -> None:
    refused: list[Lsn] = []

    def refuse(asked: Lsn) -> tuple[StatusCode, str] | None:
        if asked > lsn(3):
            refused.append(asked)
            return StatusCode.INVALID_ARGUMENT, "above what was sent"
        return None

    async with (
        asyncio.timeout(60),
        wal_server(sends(batch(1, 3), beat(70), then=END), refuse_ack=refuse) as server,
        WalClient(server.address) as wal,
        WalSubscription(wal, **FILTERED) as stream,
    ):
        with pytest.raises(errors.Forbidden, match="the end"):
            await take_all(stream.batches(), [])
        await stream.close()
        assert (refused, server.acks) == ([lsn(70)], [lsn(3)])
        assert stream.acked == lsn(3)
        assert stream.ack_error is None
