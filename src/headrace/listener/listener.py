"""The listener: carries out what :mod:`headrace.listener.machine` decides, and moves the bookmark behind the consumer.

Delivery is at least once, in order, without a gap (RFD 5, "Listener agent"): a bookmark is stored only after the consumer
has done with what stands below it. After a crash the changes since the last stored bookmark come again. A consumer that
takes snapshots gets the publisher's state where the feed no longer retains what comes next. With a filter it gets what it
asked for, and its bookmark still moves past the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, cast

from headrace.client.credential import Credential
from headrace.client.hydration import HydrationClient
from headrace.client.observing import Told, healthy, observed, reporter_name
from headrace.entries.bookmark import Bookmark
from headrace.errors import HeadraceError, Usage
from headrace.listener import events
from headrace.listener.bookmarks import BookmarkStore
from headrace.listener.calls import Calls, CallSettings, OnWait
from headrace.listener.change import Change
from headrace.listener.events import Start
from headrace.listener.filtering import check_filter, claim, shard_id
from headrace.listener.handover import Handover, OnRefused, Take
from headrace.listener.machine import Machine
from headrace.listener.parking import refuse_parked
from headrace.listener.parts import (
    Batch,
    Delivery,
    OnProgress,
    Place,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotPart,
    SnapshotRows,
    called,
    no_transaction,
)
from headrace.listener.passing import Passing
from headrace.listener.settings import ListenerSettings
from headrace.listener.storing import StoreCalls
from headrace.listener.works import ListenerWork
from headrace.runtime.logs import get_logger
from headrace.wire.filters import EVERYTHING, EntryFilter

if TYPE_CHECKING:
    from headrace.listener.postgres import PostgresBookmarks

logger = get_logger("listener")

REPORT_EVERY_S: Final = 1.0
"""The server is told of this listener's place at most this often."""

CLOSE_S_MAX: Final = 2.0
"""How long a listener that ends waits for the server, and its store, to take its last place."""

OnSnapshot = Callable[[SnapshotPart], Awaitable[None] | None]
OnChange = Callable[[Change], Awaitable[None] | None]


class Listener:
    """One consumer of one feed. ``async for change in listener`` moves the bookmark when the next change is asked for.

    ``start`` counts only where the store has no bookmark yet. The errors that end it are those the server gives for good
    (FeedRecreated, BeyondHead, FeedNotFound …); what passes is waited for with backoff. Without ``on_snapshot`` it ends with
    SequenceNotAvailable where retention has dropped what comes next; with it, the publisher's snapshot comes instead.

    ``wanted``: only what passes comes; of a snapshot all rows of the keys asked for. The store keeps it beside the bookmark:
    FilterDiffers with another one. With a shard the listener id is that of :func:`shard_id`, so that each has its own place.
    """

    def __init__(
        self,
        server: str,
        feed: str,
        listener_id: str,
        bookmarks: BookmarkStore,
        *,
        start: Start = "oldest",
        wanted: EntryFilter = EVERYTHING,
        token: str | Credential | None = None,
        insecure: bool = False,
        ca_file: Path | None = None,
        settings: ListenerSettings | None = None,
        on_snapshot: OnSnapshot | None = None,
        on_wait: OnWait | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Follow ``feed`` at ``server``; ``on_wait`` is told of each error that is waited out, with the seconds.

        ``token``, ``insecure``, ``ca_file``: as :class:`~headrace.client.http.FeedClient` has them. Usage for a ``start`` at
        a time without a zone; InvalidRequest for a filter that no request can ask for.

        ``on_snapshot`` gets the begin, the rows in batches, and the end of a snapshot; ``on_progress`` hears how far one is.
        """
        if isinstance(start, datetime) and start.tzinfo is None:
            raise Usage("a start at a time needs a zone", hint="Give datetime(..., tzinfo=UTC).")
        wanted.parameters()
        self.feed = feed
        self.listener_id = shard_id(listener_id, wanted.shard)
        self._wanted = wanted
        self._settings = settings if settings is not None else ListenerSettings()
        self._client = HydrationClient(server, token=token, insecure=insecure, ca_file=ca_file)
        self._bookmarks = bookmarks
        self._terms = self._settings.health_terms
        self._progress = self._terms.progress()
        self._work = ListenerWork(self._progress, self.listener_id, feed)
        told = Told("listener", reporter_name(self.listener_id, feed), server, token, ca_file, insecure)
        self._reporter = told if self._settings.reports else None
        self._store = StoreCalls(self._settings.failures_max, self._work)
        self._start: Start = start
        self._on_snapshot = on_snapshot
        self._on_wait = on_wait
        self._on_progress = on_progress
        self._report: asyncio.Task[None] | None = None
        self._reported_at = float("-inf")
        self._place: Bookmark | None = None
        self._told: Bookmark | None = None
        self._outcome: events.Event = events.Applied()
        self._rows = 0

    @property
    def transactional(self) -> PostgresBookmarks:
        """The store, if bookmarks in it can move in a consumer's own transaction; else Usage."""
        if not hasattr(self._bookmarks, "move_in"):
            raise no_transaction()
        return cast("PostgresBookmarks", self._bookmarks)

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
        await self._store(self._bookmarks.store, self.listener_id, self.feed, place)
        self._tell_soon(place)

    def _tell_soon(self, place: Bookmark) -> None:
        """Have the server hear of ``place``, which is stored."""
        self._work.note_stored(place.sequence_id)
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
            return error.may_pass
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
                    await self.move_to(batch.place)
                    done, count, stored_at = None, 0, loop.time()
        finally:
            # Whoever asked for another change has done with the one before it; who left has not said so of the last.
            if done is not None:
                await asyncio.shield(self._move_at_the_end(done))

    async def _move_at_the_end(self, place: Bookmark) -> None:
        """Store ``place`` if the store hears within CLOSE_S_MAX; else whoever comes next is given that change again."""
        try:
            async with asyncio.timeout(CLOSE_S_MAX):
                await self.move_to(place)
        except TimeoutError:
            logger.warning("the last bookmark was not stored", feed=self.feed, sequence_id=place.sequence_id)

    async def run(self, on_change: OnChange, *, on_refused: OnRefused | None = None) -> None:
        """Give each change to ``on_change``, and snapshots to ``on_snapshot``, until the listener ends.

        An exception of ``on_change`` refuses the change; ``settings.refusals`` says what becomes of it, and ``on_refused``
        is told. What was parked and is due comes first. Raises what ends the listener: EntryRefused, ParkedTooMany among it.
        """

        async def take(change: Change) -> None:
            await called(on_change, change)

        handover = self.handover(take, on_refused=on_refused)
        await asyncio.to_thread(self.check_filter)
        await handover.begin()
        snapshots = self._on_snapshot is not None
        async with aclosing(self.deliveries(snapshots=snapshots, holds_parked=True)) as deliveries:
            async for delivery in deliveries:
                if isinstance(delivery, Batch):
                    await handover.hand_all(delivery.changes, behind=delivery.place)
                elif self._on_snapshot is not None:
                    await called(self._on_snapshot, delivery)
                    handover.note(delivery)

    def handover(self, take: Take, *, on_refused: OnRefused | None = None) -> Handover:
        """Return what gives changes to ``take`` one by one and carries out ``settings.refusals``."""
        settings = self._settings
        return Handover(
            self._bookmarks,
            (self.listener_id, self.feed),
            take,
            settings.refusals,
            move=self.move_to,
            moved=self._tell_soon,
            changes_max=settings.bookmark_changes_max,
            seconds_max=settings.bookmark_s_max,
            on_refused=on_refused,
            calls=self._store,
        )

    async def batches(self) -> AsyncGenerator[Batch, None]:
        """Yield changes, batch by batch; the bookmark moves only with :meth:`Batch.done` or :meth:`Batch.move_in`.

        Snapshots go to ``on_snapshot``. Ends at the head if the settings say ``drain``; raises the error that ends the
        listener otherwise: ParkedWaiting among it where something is parked, which only :meth:`run` goes on beside.
        """
        async with aclosing(self.deliveries(snapshots=self._on_snapshot is not None)) as deliveries:
            async for delivery in deliveries:
                if isinstance(delivery, Batch):
                    yield delivery
                elif self._on_snapshot is not None:
                    await called(self._on_snapshot, delivery)

    async def deliveries(
        self, *, snapshots: bool = True, holds_parked: bool = False
    ) -> AsyncGenerator[Delivery, None]:
        """Yield batches and, if ``snapshots``, the parts of a snapshot, as they come.

        Whoever asks for what comes after a :class:`SnapshotEnd` has done with that snapshot. ``holds_parked``: the caller
        gives all of it to a :class:`Handover`, which holds back later entries of parked keys; else ParkedWaiting where
        something is parked, before anything comes.
        """
        with healthy(self._progress, self._terms):
            async with (
                observed(self._progress, self._reporter, lambda stuck: self._client.reconnect()),
                aclosing(self._deliveries(snapshots, holds_parked)) as deliveries,
            ):
                async for delivery in deliveries:
                    with self._work.consumer():
                        yield delivery

    async def _deliveries(self, snapshots: bool, holds_parked: bool) -> AsyncGenerator[Delivery, None]:
        if self._start == "snapshot" and not snapshots:
            raise Usage(
                "a start from a snapshot needs a consumer that takes snapshots", hint="Give on_snapshot."
            )
        settings = self._settings
        with self._work.store():
            saved = await asyncio.to_thread(self._claim, holds_parked)
        if saved is not None:
            self._work.note_stored(saved.sequence_id)
        state = Machine(
            self._start, saved, drain=settings.drain, failures_max=settings.failures_max, hydrates=snapshots,
            filtered=self._wanted != EVERYTHING,
        )  # fmt: skip
        passing = Passing(lambda: self._store(self.bookmark), self.move_to)
        how = CallSettings(settings.poll_timeout_ms, settings.entries_max, settings.hold, self._wanted)
        calls = Calls(
            self._client,
            self.feed,
            self.listener_id,
            how,
            self._work,
            on_wait=self._on_wait,
            on_progress=self._on_progress,
        )
        actions = state.begin()
        try:
            while True:
                applying = False
                for action in actions:
                    match action:
                        case events.Deliver(incarnation, entries, place):
                            changes = [Change(incarnation, entry) for entry in entries]
                            batch = Batch(place, self, changes)
                            passing.give(changes[-1].sequence_id)
                            yield batch
                            await self._note(batch)
                        case events.Apply():
                            applying = True
                        case events.EndLease():
                            calls.end_lease()
                        case events.Pass(place):
                            passing.note(place)
                        case events.Finish():
                            await passing.settle()
                            return
                        case events.Stop(error):
                            raise error
                        case events.Pin(place):
                            await self.move_to(place)
                        case _:
                            calls.start(action)
                if applying:
                    async with aclosing(self._parts(calls)) as parts:
                        async for part in parts:
                            yield part
                    actions = state.take(self._outcome)
                else:
                    while (event := await calls.next(passing.due_in_s())) is None:
                        await passing.settle()
                    actions = state.take(event)
        finally:
            await calls.close()

    def check_filter(self) -> None:
        """FilterDiffers where there is a bookmark that was made with another filter, unless ``change_filter`` allows it."""
        if not self._settings.change_filter:
            check_filter(self._bookmarks, self.listener_id, self.feed, self._wanted)

    def _claim(self, holds_parked: bool) -> Bookmark | None:
        store, place = self._bookmarks, (self.listener_id, self.feed)
        if (
            not holds_parked
        ):  # before the claim, which would fence a listener that has it, and again when nobody else parks
            refuse_parked(store.parked(*place))
        saved = claim(store, *place, self._wanted, change=self._settings.change_filter)
        if not holds_parked:
            refuse_parked(store.parked(*place))
        return saved

    async def _parts(self, calls: Calls) -> AsyncGenerator[SnapshotPart, None]:
        """Yield what is left of the snapshot that is open; how it went is in ``_outcome`` then."""
        fetch = calls.fetch
        found = fetch.found
        if found is None:
            raise RuntimeError("no snapshot is open")
        before = fetch.bytes_done
        try:
            if not fetch.begun:
                self._rows = 0
                yield SnapshotBegin(found.snapshot_id, found.sequence_id, found.incarnation)
            async with aclosing(calls.rows()) as batches:
                async for rows in batches:
                    kept = [row for row in rows if row.is_control or self._wanted.has(row.key.encode())]
                    self._rows += sum(not row.is_control for row in kept)
                    if kept:
                        yield SnapshotRows(kept)
        except HeadraceError as error:
            self._outcome = events.Failed(error, progress=fetch.bytes_done > before)
            return
        place = Bookmark(found.incarnation, found.sequence_id, None, found.snapshot_id)
        yield SnapshotEnd(place, self, found.snapshot_id, self._rows)
        self._outcome = events.Applied()

    async def _note(self, batch: Place) -> None:
        """Learn whether the consumer's own transaction has moved the bookmark: only what is committed is told."""
        if batch.moved_in:
            stored = await self._store(self.bookmark)
            if stored == batch.place:
                self._tell_soon(stored)
