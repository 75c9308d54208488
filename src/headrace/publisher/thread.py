"""A source and the one thread that uses it, so that a database that waits never holds the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from headrace.errors import SourceUnavailable
from headrace.publisher.source import Source
from headrace.runtime.logs import get_logger

T = TypeVar("T")

CLOSE_S_MAX: Final = 10.0
"""How long the end waits for a call that runs: a database that is cut off may never answer it."""


class SourceThread:
    """Runs calls on a source, one at a time, in their order. Use: :meth:`open`, :meth:`run` …, :meth:`close`."""

    def __init__(self, opener: Callable[[], Source]) -> None:
        """``opener`` opens the source; it is called in the thread, at first and at each :meth:`reopen`."""
        self._opener = opener
        self._source: Source | None = None
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        # Not of an executor: the interpreter waits for those threads at its end, also for one that never comes back.
        self._thread = threading.Thread(target=self._work, name="headrace-source", daemon=True)
        self.generation = 0
        """Grows whenever the source was opened anew: who holds a place in it must compare it again."""

    @property
    def is_open(self) -> bool:
        """Whether the source is open; it isn't after a :meth:`reopen` that failed."""
        return self._source is not None

    async def open(self) -> None:
        """Open the source; raises what the opener raises."""
        self._thread.start()
        await self._submit(self._open)

    async def reopen(self) -> None:
        """Close the source and open it anew; raises what the opener raises, and is then to be called again."""
        await self._submit(self._close)
        await self._submit(self._open)

    async def run(self, call: Callable[[Source], T], *, generation: int | None = None) -> T:
        """Return ``call(source)``. SourceUnavailable while the source is closed, or if ``generation`` is given and over."""
        return await self._submit(lambda: call(self._opened(generation)))

    async def close(self) -> None:
        """Wait for the call that runs, close the source, end the thread.

        A call that does not end within :data:`CLOSE_S_MAX` is left behind with its connection, until the process ends: what
        it may still do is what it might have done before, as if the process had been killed.
        """
        if not self._thread.is_alive():
            return
        closed = self._submit(self._close)
        self._calls.put(None)
        await asyncio.wait({closed}, timeout=CLOSE_S_MAX)
        if closed.done():
            closed.result()
            return
        closed.cancel()
        get_logger("publisher").warning("the source does not answer; its connection is left as it is")

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _opened(self, generation: int | None) -> Source:
        if self._source is None:
            raise SourceUnavailable("the source is closed")
        if generation not in (None, self.generation):
            raise SourceUnavailable("the source was opened anew", hint="It is compared with the feed anew.")
        return self._source

    def _open(self) -> None:
        self._source = self._opener()
        self.generation += 1

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    def _submit(self, call: Callable[[], T]) -> asyncio.Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  # it is raised where the call is waited for
                future.set_exception(error)
            else:
                future.set_result(result)

        self._calls.put(work)
        return asyncio.wrap_future(future)
