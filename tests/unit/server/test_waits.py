"""Waits end at their answer, at their time-out, or when the server stops."""

from __future__ import annotations

import asyncio

import pytest

from headrace.server.waits import Waits

LONG_S = 60.0


async def forever(_: float) -> bool:
    await asyncio.Event().wait()
    return True


async def at_once(_: float) -> bool:
    return True


async def test_the_answer_is_the_waits_own() -> None:
    waits = Waits()
    assert await waits.until(at_once, LONG_S)
    assert not await waits.until(forever, 0.01)
    assert not await waits.until(at_once, 0.0), "nothing is waited for where there is no time"


async def test_a_stop_ends_every_wait_and_every_later_one() -> None:
    waits = Waits()
    waiting = [asyncio.create_task(waits.until(forever, LONG_S)) for _ in range(3)]
    await asyncio.wait(waiting, timeout=0)
    waits.stop()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 30) == [False, False, False]
    assert waits.stopping
    assert not await waits.until(at_once, LONG_S)


async def test_who_gives_up_is_cancelled_and_not_answered() -> None:
    waits = Waits()
    waiting = asyncio.create_task(waits.until(forever, LONG_S))
    await asyncio.wait({waiting}, timeout=0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    waits.stop()
