"""SIGINT and SIGTERM as one event that a long-running process waits on."""

from __future__ import annotations

import asyncio
import signal


def stop_event() -> asyncio.Event:
    """Return an event of the running loop that SIGINT or SIGTERM sets; the process then ends in its own order."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, event.set)
    return event


async def wait_for_stop(event: asyncio.Event, seconds: float) -> bool:
    """Wait up to ``seconds`` for ``event``; True if it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
