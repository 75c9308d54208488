"""A source and the one thread that uses it, so that a database that waits never holds the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Final, TypeVar

from headrace.errors import HeadraceError, SourceUnavailable
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
        self._lane = _Lane()
        self.generation = 0
        """Grows whenever the source was opened anew: who holds a place in it must compare it again."""

    @property
    def is_open(self) -> bool:
        """Whether the source is open; it isn't after a :meth:`reopen` that failed, nor after :meth:`abandon`."""
        return self._lane.source is not None

    @property
    def busy_s(self) -> float:
        """For how long the call that runs has not come back; 0 if none runs, or one that may take long."""
        return self._lane.busy_s

    async def open(self) -> None:
        """Open the source; raises what the opener raises."""
        self._lane.start()
        await self._open()

    async def reopen(self) -> None:
        """Close the source and open it anew; raises what the opener raises, and is then to be called again."""
        await asyncio.wrap_future(self._lane.submit(self._lane.close))
        await self._open()

    async def run(
        self, call: Callable[[Source], T], *, generation: int | None = None, patient: bool = False
    ) -> T:
        """Return ``call(source)``. SourceUnavailable while the source is closed, or if ``generation`` is given and over.

        ``patient``: the call may well take long, and nobody is to take that for a source that does not answer.
        """
        lane = self._lane
        return await asyncio.wrap_future(
            lane.submit(lambda: call(self._opened(lane, generation)), patient=patient)
        )

    def abandon(self, reason: HeadraceError) -> None:
        """Leave the call that runs behind with its connection and thread; it, and all that wait, end with ``reason``.

        The source is closed then: :meth:`reopen` it. What the call may still do is what it might have done before, as if the
        process had been killed: who goes on claims the feed anew, and a marking of the older epoch is refused.
        """
        lane, self._lane = self._lane, _Lane()
        self._lane.start()
        lane.abandon(reason)

    async def close(self) -> None:
        """Wait for the call that runs, close the source, end the thread.

        A call that does not end within :data:`CLOSE_S_MAX` is left behind with its connection, until the process ends: what
        it may still do is what it might have done before, as if the process had been killed.
        """
        if not self._lane.is_alive:
            return
        closed = asyncio.wrap_future(self._lane.submit(self._lane.close))
        self._lane.end()
        await asyncio.wait({closed}, timeout=CLOSE_S_MAX)
        if closed.done():
            closed.result()
            return
        closed.cancel()
        get_logger("publisher").warning("the source does not answer; its connection is left as it is")

    async def _open(self) -> None:
        lane = self._lane

        def opening() -> None:
            # Both in the thread: no call that waits behind may meet the one without the other.
            lane.source = self._opener()
            self.generation += 1

        await asyncio.wrap_future(lane.submit(opening))

    def _opened(self, lane: _Lane, generation: int | None) -> Source:
        if lane.source is None:
            raise SourceUnavailable("the source is closed")
        if generation not in (None, self.generation):
            raise SourceUnavailable("the source was opened anew", hint="It is compared with the feed anew.")
        return lane.source


class _Lane:
    """One thread with its source and the calls that wait for it; a thread that hangs is left with all of its own."""

    def __init__(self) -> None:
        self.source: Source | None = None
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._futures: set[Future[Any]] = set()
        self._began: float | None = None
        # Not of an executor: the interpreter waits for those threads at its end, also for one that never comes back.
        self._thread = threading.Thread(target=self._work, name="headrace-source", daemon=True)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def busy_s(self) -> float:
        began = self._began
        return 0.0 if began is None else time.monotonic() - began

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        source, self.source = self.source, None
        if source is not None:
            source.close()

    def end(self) -> None:
        self._calls.put(None)

    def abandon(self, reason: HeadraceError) -> None:
        """End all that wait, and close the source once the call that runs has come back, if it ever does."""
        for future in list(self._futures):
            with suppress(InvalidStateError):
                future.set_exception(reason)
        self.submit(self.close)
        self.end()

    def submit(self, call: Callable[[], T], *, patient: bool = False) -> Future[T]:
        future: Future[T] = Future()

        def work() -> None:
            if future.done() or not future.set_running_or_notify_cancel():
                return
            if patient:
                self._began = None
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  # it is raised where the call is waited for
                with suppress(InvalidStateError):
                    future.set_exception(error)
            else:
                with suppress(InvalidStateError):  # it was abandoned: nobody waits any more
                    future.set_result(result)

        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        self._calls.put(work)
        return future

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            self._began = time.monotonic()
            call()
            self._began = None
