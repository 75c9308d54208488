"""The one writer of a journal: a thread that takes the requests that wait as one group, judges, puts, then answers.

While one group is being synced the next one gathers, so the number of syncs does not grow with the number of feeds or
producers. Nobody is answered before the store says that the group is durable; refusals wait as well, because they may
rest on a frame of their own group.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, overload

from headrace.errors import HeadraceError, StoreUnavailable, WriterStopped
from headrace.log import rules
from headrace.log.contract import Store
from headrace.log.history import stored_entries
from headrace.log.requests import Append, Appended, Outcome, Register, Release, Request
from headrace.log.tail import FeedTail
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger

logger = get_logger("log")

GROUP_REQUESTS_MAX: Final = 1024
"""Requests judged together; bounds how long the first of them waits for the last to be judged."""
GROUP_BYTES_MAX: Final = 32 << 20
"""Entry bytes written together; bounds the size of one write and what a crash can tear."""


class _Waiting(NamedTuple):
    request: Request
    answer: asyncio.Future[Outcome]
    loop: asyncio.AbstractEventLoop


class Writer:
    """Give requests to :meth:`submit` from any event loop; each is answered once, in the order of the journal."""

    def __init__(self, store: Store, clock: Clock, *, region: str, clock_lead_ms_max: int) -> None:
        """Write to ``store``; nothing runs before :meth:`start`."""
        self._store = store
        self._clock = clock
        self._region = region
        self._clock_lead_ms_max = clock_lead_ms_max
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._guard = threading.Lock()
        """Held while a request is queued, so that none can follow the one that ends the thread."""

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="headrace-writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, then end the thread; later requests are refused."""
        with self._guard:
            self._closed = True
            self._queue.put(None)
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    @overload
    async def submit(self, request: Append) -> Appended: ...

    @overload
    async def submit(self, request: Register | Release) -> FeedTail: ...

    async def submit(self, request: Request) -> Outcome:
        """Return the outcome once it is durable, or raise the refusal.

        A caller that is cancelled gives up the answer only: the request may still be written.
        """
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Outcome] = loop.create_future()
        with self._guard:
            if self._closed or self._thread is None:
                raise WriterStopped("no append is taken: the server is stopping")
            self._queue.put(_Waiting(request, answer, loop))
        return await answer

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group, ending = self._gather(first)
            self._handle(group)
            if ending:
                return

    def _gather(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        group, size = [first], _size(first.request)
        while len(group) < GROUP_REQUESTS_MAX and size < GROUP_BYTES_MAX:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                break
            if waiting is None:
                return group, True
            group.append(waiting)
            size += _size(waiting.request)
        return group, False

    def _handle(self, group: Sequence[_Waiting]) -> None:
        requests = [waiting.request for waiting in group]
        outcomes: Sequence[Outcome | HeadraceError]
        try:
            begin = self._store.begin({request.feed for request in requests})
            terms = rules.Terms(self._clock.wall_ms(), self._region, self._clock_lead_ms_max)
            verdict = rules.judge(requests, begin, terms, lambda tail, first, last: stored_entries(
                self._store, tail, first, last
            ))  # fmt: skip
            self._store.put(begin, verdict.group)
            outcomes = verdict.outcomes
        except HeadraceError as error:
            outcomes = [error] * len(group)
        except Exception as error:
            logger.exception("the writer failed on a group; nothing of it was acknowledged")
            outcomes = [StoreUnavailable(f"the writer failed: {error}")] * len(group)
        for waiting, outcome in zip(group, outcomes, strict=True):
            try:
                waiting.loop.call_soon_threadsafe(_resolve, waiting.answer, outcome)
            except RuntimeError:
                logger.warning("a request was answered after its event loop had ended")


def _size(request: Request) -> int:
    return sum(map(len, request.halves)) if isinstance(request, Append) else 0


def _resolve(answer: asyncio.Future[Outcome], outcome: Outcome | HeadraceError) -> None:
    if answer.done():
        return
    if isinstance(outcome, HeadraceError):
        answer.set_exception(outcome)
    else:
        answer.set_result(outcome)
