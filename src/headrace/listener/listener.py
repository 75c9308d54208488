"""The listener: carries out what :mod:`headrace.listener.machine` decides, and moves the bookmark behind the consumer.

Delivery is at least once, in order, without a gap (RFD 5, "Listener agent"): a bookmark is stored only after the consumer
has done with what stands below it. After a crash the changes since the last stored bookmark come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, assert_never

from headrace.client.http import FeedClient
from headrace.entries.bookmark import Bookmark
from headrace.errors import HeadraceError
from headrace.listener import machine
from headrace.listener.bookmarks import BookmarkStore
from headrace.listener.change import Change
from headrace.listener.machine import Start
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger

logger = get_logger("listener")

REPORT_EVERY_S: Final = 1.0
"""The server is told of this listener's place at most this often: it is for people, not for correctness."""

CLOSE_S_MAX: Final = 2.0
"""How long a listener that ends waits for the server to take its last place."""


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """How a listener asks and how often it writes its bookmark.

    ``bookmark_changes_max``, ``bookmark_s_max``: while single changes are taken, the bookmark is stored after so many of
    them or seconds, whichever comes first; so much comes again after a crash. ``failures_max``: give up after so many
    failures without progress; None never does. ``drain``: end at the head that the registration named.
    """

    poll_timeout_ms: int = 30_000
    entries_max: int = 1_000
    bookmark_changes_max: int = 100
    bookmark_s_max: float = 1.0
    failures_max: int | None = None
    drain: bool = False
    hold: bool = False


@dataclass(slots=True)
class Batch:
    """Changes that came together. Await :meth:`done` once the consumer has done with all of them."""

    changes: list[Change]
    _listener: Listener = field(repr=False)

    async def done(self) -> None:
        """Store the bookmark behind the last change; durable when this returns."""
        await self._listener.move_to(self.changes[-1].place)


class Listener:
    """One consumer of one feed. ``async for change in listener`` moves the bookmark when the next change is asked for.

    ``start`` counts only where the store has no bookmark yet. The errors that end it are those the server gives for good
    (FeedRecreated, BeyondHead, SequenceNotAvailable, FeedNotFound …); what passes is waited for with backoff.
    """

    def __init__(
        self,
        server: str,
        feed: str,
        listener_id: str,
        bookmarks: BookmarkStore,
        *,
        start: Start = "oldest",
        token: str | None = None,
        settings: ListenerSettings | None = None,
        on_wait: Callable[[HeadraceError, float], None] | None = None,
    ) -> None:
        """Follow ``feed`` at ``server``; ``on_wait`` is told of each error that is waited out, with the seconds."""
        self.feed = feed
        self.listener_id = listener_id
        self._settings = settings if settings is not None else ListenerSettings()
        self._client = FeedClient(server, token=token)
        self._bookmarks = bookmarks
        self._start: Start = start
        self._on_wait = on_wait
        self._backoff = Backoff()
        self._report: asyncio.Task[None] | None = None
        self._reported_at = float("-inf")
        self._place: Bookmark | None = None
        self._told: Bookmark | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Tell the server the last place if it will hear, and close the connections. The store is the caller's."""
        try:
            if self._report is not None:
                self._report.cancel()
                await asyncio.wait({self._report})
            if self._place is not None and self._place != self._told:
                async with asyncio.timeout(CLOSE_S_MAX):
                    await self._tell_server(self._place)
        except TimeoutError:
            logger.debug("the last position was not reported", seconds=CLOSE_S_MAX)
        finally:
            await self._client.close()

    def bookmark(self) -> Bookmark | None:
        """Return the stored bookmark."""
        return self._bookmarks.load(self.listener_id, self.feed)

    async def move_to(self, place: Bookmark) -> None:
        """Store ``place`` as the bookmark; durable when this returns. The server hears of it within about a second."""
        await asyncio.to_thread(self._bookmarks.store, self.listener_id, self.feed, place)
        self._place = place
        if self._report is None or self._report.done():
            self._report = asyncio.create_task(self._tell_newest())

    async def _tell_newest(self) -> None:
        """Tell the newest place until it is told: the last one of a burst too, else an idle listener seems to lag."""
        loop = asyncio.get_running_loop()
        while self._place is not None and self._place != self._told:
            await asyncio.sleep(max(0.0, self._reported_at + REPORT_EVERY_S - loop.time()))
            self._reported_at = loop.time()
            if not await self._tell_server(self._place):
                return

    async def _tell_server(self, place: Bookmark) -> bool:
        """Report ``place``; False if trying again is no use."""
        try:
            await self._client.put_position(self.listener_id, self.feed, place)
        except HeadraceError as error:
            logger.debug("the position was not reported", code=error.code, detail=error.detail)
            return error.retryable
        self._told = place
        return True

    async def __aiter__(self) -> AsyncIterator[Change]:
        loop = asyncio.get_running_loop()
        done: Bookmark | None = None
        count, stored_at = 0, loop.time()
        try:
            async for batch in self.batches():
                for change in batch.changes:
                    late = loop.time() - stored_at >= self._settings.bookmark_s_max
                    if done is not None and (late or count >= self._settings.bookmark_changes_max):
                        await self.move_to(done)
                        done, count, stored_at = None, 0, loop.time()
                    yield change
                    done, count = change.place, count + 1
                if done is not None:
                    await self.move_to(done)
                    done, count, stored_at = None, 0, loop.time()
        finally:
            # Whoever asked for another change has done with the one before it; who left has not said so of the last.
            if done is not None:
                await asyncio.shield(self.move_to(done))

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield what comes, batch by batch; the bookmark moves only with :meth:`Batch.done`.

        Ends at the head if the settings say ``drain``; raises the error that ends the listener otherwise.
        """
        saved = await asyncio.to_thread(self.bookmark)
        state = machine.Machine(
            self._start, saved, drain=self._settings.drain, failures_max=self._settings.failures_max
        )
        actions = state.begin()
        while True:
            event: machine.Event | None = None
            for action in actions:
                match action:
                    case machine.Deliver(incarnation, entries):
                        yield Batch([Change(incarnation, entry) for entry in entries], self)
                    case machine.Finish():
                        return
                    case machine.Stop(error):
                        raise error
                    case machine.Pin(place):
                        await self.move_to(place)
                    case machine.Register() | machine.Read() | machine.Poll() | machine.Wait():
                        event = await self._perform(action)
                    case _:
                        assert_never(action)
            if event is None:
                raise RuntimeError("the state machine asked for nothing to wait for")
            actions = state.take(event)

    async def _perform(
        self, action: machine.Register | machine.Read | machine.Poll | machine.Wait
    ) -> machine.Event:
        if isinstance(action, machine.Wait):
            self._backoff.failures = action.failures - 1  # the machine counts, and knows what progress is
            delay = self._backoff.next_delay()
            if self._on_wait is not None:
                self._on_wait(action.error, delay)
            logger.warning(
                "waiting", code=action.error.code, detail=action.error.detail, seconds=round(delay, 2)
            )
            await asyncio.sleep(delay)
            return machine.Waited()
        try:
            return await self._call(action)
        except HeadraceError as error:
            return machine.Failed(error)

    async def _call(self, action: machine.Register | machine.Read | machine.Poll) -> machine.Event:
        settings = self._settings
        if isinstance(action, machine.Register):
            found = await self._client.register_listener(self.listener_id, self.feed, hold=settings.hold)
            return machine.Registered(found.incarnation, found.oldest_sequence_id, found.head_sequence_id)
        if isinstance(action, machine.Read):
            page = await self._client.read(
                self.feed, action.first, limit=settings.entries_max, bookmark=_known(action.bookmark)
            )
        else:
            page = await self._client.poll(
                self.feed,
                self.listener_id,
                action.after,
                bookmark=_known(action.bookmark),
                timeout_ms=settings.poll_timeout_ms,
                limit=settings.entries_max,
            )
        return machine.Received(
            page.incarnation, page.oldest_sequence_id, page.head_sequence_id, page.changes_list
        )


def _known(bookmark: Bookmark) -> Bookmark | None:
    return bookmark if bookmark.incarnation else None
