"""SIGINT and SIGTERM set the event that a process waits on; and the system's clocks."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from headrace.runtime.clock import SystemClock
from headrace.runtime.shutdown import stop_event, wait_for_stop


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
async def test_signals_set_the_event(number: signal.Signals) -> None:
    event = stop_event()
    try:
        assert not await wait_for_stop(event, 0.01)
        os.kill(os.getpid(), number)
        assert await wait_for_stop(event, 10)
        assert await wait_for_stop(event, 0)
    finally:
        for handled in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(handled)


def test_system_clock() -> None:
    clock = SystemClock()
    assert abs(clock.wall_ms() - time.time() * 1000) < 60_000
    assert clock.monotonic() <= clock.monotonic()
