"""The end of a token in a call that goes on."""

from __future__ import annotations

import asyncio

import pytest

from headrace.access.expiry import seconds_left, until_expired
from headrace.access.grants import Grant
from headrace.errors import Unauthenticated
from headrace.testing.clock import ManualClock


def test_seconds_left() -> None:
    clock = ManualClock(ms=10_500)
    assert seconds_left(Grant(expires_at=12), clock) == 1.5
    assert seconds_left(Grant(expires_at=10), clock) == 0
    assert seconds_left(Grant(), clock) is None


async def test_stream_is_ended_with_the_token() -> None:
    ended: list[bool] = []

    async def stream() -> None:
        async with until_expired(Grant(expires_at=10.05), ManualClock(ms=10_000)):
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

    with pytest.raises(Unauthenticated, match="expired"):
        await stream()
    assert ended


async def test_expired_token_opens_no_stream() -> None:
    with pytest.raises(Unauthenticated, match="expired"):
        async with until_expired(Grant(expires_at=9), ManualClock(ms=10_000)):
            await asyncio.Event().wait()


async def test_stream_that_ends_before_is_left_alone() -> None:
    async with until_expired(Grant(expires_at=1e9), ManualClock(ms=0)):
        await asyncio.to_thread(lambda: None)
    async with until_expired(Grant(), ManualClock()):
        pass


async def test_other_time_outs_pass_through() -> None:
    with pytest.raises(TimeoutError):
        async with until_expired(Grant(expires_at=1e9), ManualClock(ms=0)):
            raise TimeoutError


async def test_cancelling_a_stream_stays_a_cancellation() -> None:
    async def stream() -> None:
        async with until_expired(Grant(expires_at=1e9), ManualClock(ms=0)):
            await asyncio.Event().wait()

    task = asyncio.create_task(stream())
    await asyncio.to_thread(lambda: None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
