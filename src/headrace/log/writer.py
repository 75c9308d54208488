"""The one writer of a journal: a thread that takes the requests that wait as one group, judges, puts, then answers.

While one group is being synced the next one gathers, so the number of syncs does not grow with the number of feeds or
producers. Nobody is answered before the store says that the group is durable; refusals wait as well, because they may
rest on a frame of their own group.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar, overload

from headrace.errors import DiskReserve, HeadraceError, JournalCorrupt, StoreUnavailable, WriterStopped
from headrace.errors.root import printable
from headrace.log import rules
from headrace.log.answering import Settled, W, Waiter, answer_in, work_for
from headrace.log.contract import Store
from headrace.log.history import entries_in_steps
from headrace.log.measures import AppendMeasures
from headrace.log.requests import Append, Appended, Configure, Outcome, Register, Release, Request
from headrace.log.tail import FeedTail
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.wire.frame import FrameHeader

logger = get_logger("log")

T = TypeVar("T")

GROUP_REQUESTS_MAX: Final = 1024
"""Requests that wait together; bounds how long the first of them waits for the last to be judged. The bytes that they come
to, registrations and settings included, are bounded by ``rules``: what no longer fits is the next group."""


Answer = Callable[[Outcome | HeadraceError], None]
"""Is given a request's outcome once that is durable, or its refusal; called from the thread that writes."""


class _InLoop(NamedTuple):
    """What waits in an event loop for an outcome. A group wakes each loop once, however many wait there."""

    loop: asyncio.AbstractEventLoop
    waiter: Waiter


class _Waiting(NamedTuple):
    """``since``: when it was queued, by the monotonic clock. What is queued later has no earlier one."""

    request: Request
    answer: Answer | _InLoop
    since: float


class _Work(NamedTuple):
    """What is to be done between two groups, on the thread that writes; ``fail`` gives it up instead."""

    do: Callable[[], None]
    fail: Callable[[HeadraceError], None]


class Writer:
    """Give requests to :meth:`submit` from any event loop; each is answered once, in the order of the journal."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        region: str,
        clock_lead_ms_max: int,
        group_bytes_max: int = rules.GROUP_BYTES_MAX,
        on_trouble: Callable[[type[HeadraceError], str | None], None] | None = None,
        on_put: Callable[[Sequence[tuple[FrameHeader, bytes]]], None] | None = None,
    ) -> None:
        """Write to ``store``; nothing runs before :meth:`start`.

        ``on_trouble`` is told, from the thread that writes and after the answers, what keeps the store from taking appends
        (WriterStopped, DiskReserve) and why; None as the reason when the disk has clear room again. ``on_put`` gets the
        frames of each group, once they are durable and before the answers. Neither may take long.
        """
        self._on_trouble, self._on_put = on_trouble, on_put
        self.measures = AppendMeasures()
        self._store = store
        self._clock = clock
        self._region = region
        self._clock_lead_ms_max = clock_lead_ms_max
        self._group_bytes_max = group_bytes_max
        self._queue: queue.SimpleQueue[_Waiting | _Work | None] = queue.SimpleQueue()
        self._work: list[_Work] = []
        self._taken: Sequence[_Waiting] = ()
        """Those of the group that is being handled that are not answered yet."""
        self._is_short_of_room = False
        self._thread: threading.Thread | None = None
        self._closed = False
        self._failure: str | None = None
        self._busy_since: float | None = None
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
    async def submit(self, request: Register | Release | Configure) -> FeedTail: ...

    async def submit(self, request: Request) -> Outcome:
        """Return the outcome once it is durable, or raise the refusal.

        A caller that is cancelled gives up the answer only: the request may still be written.
        """
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        return await self.submit_soon(request, future)

    def submit_soon(self, request: Request, waiter: W) -> W:
        """Queue the request; ``waiter``, which is returned, gets in this loop what :meth:`submit` returns or raises."""
        loop = asyncio.get_running_loop()
        with self._guard:
            self._check_running("no append is taken")
            self._queue.put(_Waiting(request, _InLoop(loop, waiter), self._clock.monotonic()))
        return waiter

    def not_running(self) -> str | None:
        """Return why the thread ended though nobody stopped it, or None: no append is taken until a restart then."""
        return self._failure

    def busy_s(self) -> float:
        """For how many seconds the group that is being handled has not been answered; 0 if there is none."""
        since = self._busy_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def waiting(self) -> int:
        """Return about how many requests are not answered yet: queued ones, and those of the group that is handled."""
        return self._queue.qsize() + len(self._taken)

    def enqueue(self, request: Request, answer: Answer) -> None:
        """Let ``request`` wait for :meth:`handle_waiting`: for who has no event loop, such as a simulator."""
        self._queue.put(_Waiting(request, answer, self._clock.monotonic()))

    def handle_waiting(self) -> None:
        """Handle what waits as the thread would, in the caller's; only while there is no thread."""
        while not self._queue.empty():
            if (first := self._queue.get()) is not None:
                self._take(first)

    async def run(self, work: Callable[[], T]) -> T:
        """Return ``work()``, done by the thread that writes, between two groups: for what only the one writer may do.

        Raises what it raises, and WriterStopped once the writer has ended.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        with self._guard:
            self._check_running("the log's writer has ended")
            fail = partial(answer_in, loop)
            self._queue.put(
                _Work(partial(work_for, loop, future, work), lambda error: fail([(future, error)]))
            )
        return await future

    def _check_running(self, what: str) -> None:
        """Raise WriterStopped, beginning with ``what``, unless the thread takes requests."""
        if self._failure is not None:
            raise WriterStopped(f"{what}: {self._failure}")
        if self._closed or self._thread is None:
            raise WriterStopped(f"{what}: the server is stopping")

    def _run(self) -> None:
        try:
            while (first := self._queue.get()) is not None:
                if self._take(first):
                    return
        except BaseException as error:
            logger.exception("the writer's thread ended; no append is taken until this server is restarted")
            self._give_up(f"the log's writer ended by itself: {type(error).__name__}: {error}")

    def _give_up(self, why: str) -> None:
        """Answer everything that waits, and have later requests refused at once: nobody is to wait for a thread that ended.

        Who was in the group that failed may have been written, and is told so.
        """
        stopped = partial(WriterStopped, printable(why), side_effects="possible")
        with self._guard:
            self._failure = printable(why)
            waiting: list[_Waiting | _Work] = [*self._taken, *self._work]
            while not self._queue.empty():
                if (one := self._queue.get()) is not None:
                    waiting.append(one)
        for one in waiting:
            try:
                if isinstance(one, _Work):
                    one.fail(stopped())
                else:
                    _give(one, stopped())
            except Exception:
                logger.exception("a request that the writer gave up could not be answered")
        try:
            if self._on_trouble is not None:
                self._on_trouble(WriterStopped, f"{why}; no append is taken until this server is restarted")
        except Exception:
            logger.exception("that the writer ended could not be told")

    def _take(self, first: _Waiting | _Work) -> bool:
        """Handle ``first`` and what waits behind it as one group; True if nothing comes after that."""
        ending = False
        if isinstance(first, _Work):
            self._work.append(first)
        else:
            group, ending = self._gather(first)
            self._busy_since = self._clock.monotonic()
            self._handle(group)
            self._busy_since = None
        while self._work:
            self._work[0].do()
            del self._work[0]
        return ending

    def _gather(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        self._taken = group = [first]
        while len(group) < GROUP_REQUESTS_MAX:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                break
            if waiting is None:
                return group, True
            if isinstance(waiting, _Work):
                self._work.append(waiting)
                break
            group.append(waiting)
        return group, False

    def _handle(self, waiting: Sequence[_Waiting]) -> None:
        """Handle what waits: as one group, or as several where one would be too large."""
        while waiting:
            outcomes: Sequence[Outcome | HeadraceError]
            try:
                outcomes = self._decide([each.request for each in waiting])
            except HeadraceError as error:
                outcomes = [error] * len(waiting)
            except Exception as error:
                logger.exception("the writer failed on a group; nothing of it was acknowledged")
                failed = StoreUnavailable(f"the writer failed: {error}", side_effects="possible")
                outcomes = [failed] * len(waiting)
            answered = waiting[: len(outcomes)]
            self.measures.note([each.since for each in answered], outcomes, self._clock.monotonic())
            if len(answered) == len(waiting):  # all is durable: whoever is answered now sees so
                self._busy_since = None
            self._answer(answered, outcomes)
            self._taken = waiting = waiting[len(outcomes) :]
            self._tell(outcomes)

    def _answer(self, group: Sequence[_Waiting], outcomes: Sequence[Outcome | HeadraceError]) -> None:
        in_loops: dict[asyncio.AbstractEventLoop, list[Settled]] = {}
        for waiting, outcome in zip(group, outcomes, strict=True):
            _note_in_chain(waiting.request, outcome)
            if isinstance(waiting.answer, _InLoop):
                loop, waiter = waiting.answer
                in_loops.setdefault(loop, []).append((waiter, outcome))
            else:
                waiting.answer(outcome)
        for loop, settled in in_loops.items():
            answer_in(loop, settled)

    def _decide(self, requests: Sequence[Request]) -> Sequence[Outcome | HeadraceError]:
        """Judge the requests, as many as fit into one group, and put what they come to; returns their outcomes.

        A feed whose state is damaged fails its own requests only.
        """
        try:
            begin = self._store.begin({request.feed for request in requests})
        except JournalCorrupt as damage:
            hurt = [request.feed == damage.members.get("change-feed-id") for request in requests]
            if not any(hurt):
                raise
            # In the order of the requests: of a chain what stands before is taken, and what stands behind is not.
            whole = hurt.index(True)
            if whole:
                return self._decide(requests[:whole])
            return [damage] * (hurt.index(False) if not all(hurt) else len(hurt))
        try:
            terms = rules.Terms(
                self._clock.wall_ms(), self._region, self._clock_lead_ms_max, self._group_bytes_max
            )
            verdict = rules.judge(requests, begin, terms, partial(entries_in_steps, self._store))
        except BaseException:
            self._store.abandon(begin)
            raise
        try:
            with self.measures.puts.timed():
                self._store.put(begin, verdict.group)
        except HeadraceError as error:
            self._store.abandon(begin)
            return rules.not_put(error, requests[: len(verdict.outcomes)], begin)
        except BaseException:
            self._store.abandon(begin)
            raise
        if self._on_put is not None:
            self._on_put(verdict.group.frames)
        return verdict.outcomes

    def _tell(self, outcomes: Sequence[Outcome | HeadraceError]) -> None:
        """After the answers: an alarm is for people, and one that can't be raised must not end the writer."""
        try:
            self._raise_alarms(outcomes)
        except Exception:
            logger.exception("what troubles the writer could not be told")

    def _raise_alarms(self, outcomes: Sequence[Outcome | HeadraceError]) -> None:
        if self._on_trouble is None:
            return
        stopped = self._store.not_writable()
        if stopped is not None:
            self._on_trouble(WriterStopped, f"{stopped}; no append is taken until this server is restarted")
        full = next((outcome for outcome in outcomes if isinstance(outcome, DiskReserve)), None)
        if full is not None:
            self._is_short_of_room = True
            self._on_trouble(DiskReserve, full.detail)
        elif self._is_short_of_room and any(map(_is_written, outcomes)) and self._store.has_clear_room():
            self._on_trouble(DiskReserve, None)
            self._is_short_of_room = False


def _is_written(outcome: Outcome | HeadraceError) -> bool:
    return isinstance(outcome, Appended) and not outcome.duplicate


def _give(waiting: _Waiting, outcome: Outcome | HeadraceError) -> None:
    """Answer one request alone; one that was answered before keeps its answer."""
    _note_in_chain(waiting.request, outcome)
    if isinstance(waiting.answer, _InLoop):
        loop, waiter = waiting.answer
        answer_in(loop, [(waiter, outcome)])
    else:
        waiting.answer(outcome)


def _note_in_chain(request: Request, outcome: Outcome | HeadraceError) -> None:
    """Before the answer is given: what follows in this chain must not be judged as if nothing had failed."""
    if isinstance(outcome, HeadraceError) and isinstance(request, Append) and request.chain is not None:
        request.chain.failed = True
