"""A call in a worker thread ends before whoever waits for it goes on, cancelled or not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from headrace.runtime.threads import in_thread

WAIT_S_MAX = 60.0


async def test_the_answer_and_the_error_are_the_calls_own() -> None:
    assert await in_thread(lambda: 7) == 7

    def fails() -> None:
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own"):
        await in_thread(fails)


async def test_who_is_cancelled_again_and_again_learns_so_once_the_call_has_ended() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def call() -> None:
        begun.set()
        go_on.wait(WAIT_S_MAX)

    caller = asyncio.create_task(in_thread(call))
    assert await asyncio.to_thread(begun.wait, WAIT_S_MAX)
    for _ in range(3):
        caller.cancel()
        await asyncio.wait({caller}, timeout=0.01)
        assert not caller.done()
    go_on.set()
    await asyncio.wait({caller})
    assert caller.cancelled()
