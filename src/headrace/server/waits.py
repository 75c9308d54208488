"""Waits that a stopping server ends at once: long polls, and streams that have nothing to send."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Waits:
    """The waits of one face of the server, in one event loop."""

    def __init__(self) -> None:
        self.stopping = False
        """Whether :meth:`stop` was called."""
        self._timeouts: set[asyncio.Timeout] = set()

    def stop(self) -> None:
        """End every wait now, and every later one at once."""
        self.stopping = True
        now = asyncio.get_running_loop().time()
        for timeout in self._timeouts:
            if not timeout.expired():
                timeout.reschedule(now)

    async def until(self, wait: Callable[[float], Awaitable[bool]], timeout_s: float) -> bool:
        """Return what ``wait(timeout_s)`` answers; False after ``timeout_s`` seconds and when the server stops."""
        if timeout_s <= 0 or self.stopping:
            return False
        timeout = asyncio.timeout(timeout_s)
        self._timeouts.add(timeout)
        try:
            async with timeout:
                return await wait(timeout_s)
        except TimeoutError:
            return False
        finally:
            self._timeouts.discard(timeout)
