"""Searches of a log for a key: each reads up to 256 MiB, so few run at once, on threads that nothing else waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, ParamSpec, TypeVar

from headrace.errors import ServerBusy

P = ParamSpec("P")
T = TypeVar("T")

SCANS_MAX: Final = 2
"""Searches at once. Two that read and decode leave the disk and the interpreter to those who append and read."""


class Scans:
    """The searches of one server. Used from the loop that serves."""

    def __init__(self) -> None:
        """Begin without any thread: the first search starts one."""
        self._threads = ThreadPoolExecutor(SCANS_MAX, thread_name_prefix="headrace-scan")
        self._running: set[Future[Any]] = set()
        self._ending = threading.Event()

    def is_ending(self) -> bool:
        """Tell whether the server is about to stop: a search ends with what it has then. Asked from any thread."""
        return self._ending.is_set()

    async def run(self, search: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
        """Return ``search(...)``; ServerBusy at once if as many run as may.

        A caller that goes away leaves its search running, and it counts until its thread is done with it.
        """
        self._running = {one for one in self._running if not one.done()}
        if len(self._running) >= SCANS_MAX:
            raise ServerBusy(f"{SCANS_MAX} searches for a key run on this server, the most that may at once")
        task = self._threads.submit(search, *given, **named)
        self._running.add(task)
        return await asyncio.wrap_future(task)

    async def close(self) -> None:
        """End the searches that run; call it before the log is closed."""
        self._ending.set()
        await asyncio.to_thread(self._threads.shutdown)
