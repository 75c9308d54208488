"""The log as servers use it: one journal with its writer, its readers, and those who wait for more."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from headrace.entries.feed import check_tenant
from headrace.entries.lsn import Lsn
from headrace.errors import FeedNotFound, HeadraceError, JournalCorrupt, Stalled
from headrace.errors.root import printable
from headrace.log import history
from headrace.log.answering import W
from headrace.log.contract import Store
from headrace.log.files.store import SEGMENT_BYTES
from headrace.log.looking_again import DamageWatch
from headrace.log.measures import AppendMeasures
from headrace.log.metadata.contract import SubscriberRow
from headrace.log.opening import Opened, StoreAddress, open_address, open_files
from headrace.log.requests import Append, Appended, Configure, Register, Release
from headrace.log.retention.plan import RetentionSettings
from headrace.log.schemas.index import SchemaIndex
from headrace.log.tail import FeedTail
from headrace.log.troubles import Troubles
from headrace.log.writer import Writer
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk
from headrace.runtime.progress import STALLED_AFTER_S
from headrace.wire.frame import Frame


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The log's own settings. ``region`` is the server region name that key prefixes begin with.

    ``disk_reserve_bytes``: with less free space appends are refused; None for the larger of 1 GB and 5 % of the volume.
    ``stalled_after_s``: how long a group of appends may take to become durable before that is an alarm.
    """

    region: str = "local"
    segment_bytes: int = SEGMENT_BYTES
    clock_lead_ms_max: int = 3_600_000
    disk_reserve_bytes: int | None = None
    retention: RetentionSettings = RetentionSettings()
    stalled_after_s: float = STALLED_AFTER_S


class Log:
    """A data folder's log, used from one event loop. Make it with :meth:`open`, then :meth:`start`."""

    def __init__(self, opened: Opened, settings: LogSettings, clock: Clock) -> None:
        """Join the parts; :meth:`open` is the usual way."""
        store, metadata = opened.store, opened.metadata
        self.metadata = metadata
        self.troubles = Troubles(metadata, clock)
        self.damage = DamageWatch(store, self.troubles, found_at_opening=opened.found)
        metadata.damages.tell_to(self.troubles.tell_of_row)
        self.retention = settings.retention
        self.stalled_after_s = settings.stalled_after_s
        self._store = store
        self.schemas = SchemaIndex(store, metadata)
        self._writer = Writer(
            store,
            clock,
            region=settings.region,
            clock_lead_ms_max=settings.clock_lead_ms_max,
            on_trouble=self.troubles.tell_soon,
            on_put=self.schemas.note,
        )
        self.present: list[Callable[[], Sequence[SubscriberRow]]] = []
        """Tell which subscribers are there at this moment, each with its place: they hold whatever is stored of them."""
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        self._seen: dict[str, int] = {}
        self._walkers: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = False

    @classmethod
    def open(
        cls,
        data_dir: Path,
        *,
        store: StoreAddress | None = None,
        settings: LogSettings | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> Self:
        """Open and recover the log in ``data_dir``, made if it isn't there; or the one in the database ``store``.

        Raises DataFolderLocked, FormatTooNew, JournalLoss, JournalCorrupt, StoreUnavailable, and InvalidRequest for a
        region that is no name; of a database also DsnInvalid, StoreForbidden, StoreUnsafe, SetupMissing. What recovery
        found odd becomes an alarm.
        """
        settings = settings if settings is not None else LogSettings()
        check_tenant(settings.region, "region")
        clock = clock if clock is not None else SystemClock()
        size = settings.segment_bytes
        if store is not None:
            opened = open_address(store, segment_bytes=size, clock=clock)
        else:
            opened = open_files(
                data_dir,
                segment_bytes=size,
                clock=clock,
                disk=disk,
                disk_reserve_bytes=settings.disk_reserve_bytes,
            )
        retention = settings.retention
        if opened.volume_bytes is not None:
            retention = retention.for_volume(opened.volume_bytes)
        given = msgspec.structs.replace(settings, retention=retention)
        return cls(opened, given, clock)

    async def start(self) -> None:
        """Begin to take appends; call it from the loop that serves."""
        self._loop = asyncio.get_running_loop()
        self._store.on_moved(self._moved)
        self._writer.start()

    async def close(self) -> None:
        """Answer what waits, then let go of the data folder."""
        self._closing = True
        self._loop = None
        for future in [*self._walkers, *(future for waiting in self._waiting.values() for future in waiting)]:
            _wake(future)
        await asyncio.to_thread(self._writer.stop)
        await asyncio.to_thread(self.troubles.close)
        with contextlib.suppress(HeadraceError):  # then the next start reads more of the journal back
            await asyncio.to_thread(self.schemas.settle)
        self._store.close()
        self.metadata.close()

    async def append(self, append: Append) -> Appended:
        """Append atomically; answers only after durability. Raises the refusals of ``rules``, or Unavailable."""
        return await self._writer.submit(append)

    def append_soon(self, append: Append, waiter: W) -> W:
        """Queue an append, in the order of the calls; ``waiter`` gets what :meth:`append` returns or raises."""
        return self._writer.submit_soon(append, waiter)

    async def register(self, register: Register) -> FeedTail:
        """Let a publisher claim a feed, made if it isn't there; the tail answered is durable."""
        return await self._writer.submit(register)

    async def configure(self, configure: Configure) -> FeedTail:
        """Change a feed's settings; they hold for every append that is judged afterwards. FeedNotFound."""
        return await self._writer.submit(configure)

    async def release(self, agent_id: str) -> list[str]:
        """Lift the quarantine of ``agent_id`` wherever it stands; returns the feeds."""
        await self.refresh()
        held = [tail.name for tail in self.feeds() if agent_id in tail.quarantines]
        for feed in held:
            await self._writer.submit(Release(feed, agent_id))
        return held

    async def drop_before(self, position: int, *, look: Callable[[], int] | None = None) -> int:
        """Drop the journal's segments below ``position``: see :meth:`Store.drop_before`. Returns the oldest position.

        Schemas of tables that stand there are kept first.
        """
        await asyncio.to_thread(self.schemas.read_up_to, position)
        drop = partial(self._store.drop_before, min(position, self.schemas.position), look=look)
        if self._store.several_servers:
            return await asyncio.to_thread(drop)
        return await self._writer.run(drop)

    async def roll(self) -> None:
        """Seal the open segment, so that it can be dropped later: see :meth:`Store.roll`."""
        await self._writer.run(self._store.roll)

    def tail(self, feed: str) -> FeedTail:
        """Return the durable tail of ``feed``; FeedNotFound."""
        tail = self._store.tail(feed)
        if tail is None:
            raise FeedNotFound(f"there is no feed {feed}", change_feed_id=feed)
        return tail

    async def find(self, feed: str) -> FeedTail:
        """Return the durable tail of ``feed``, made here or at another server of the same store; FeedNotFound."""
        if self._store.tail(feed) is None:
            await self.refresh()
        return self.tail(feed)

    async def refresh(self) -> None:
        """Bring :meth:`tail` and :meth:`feeds` up to what the other servers of the store have appended; StoreUnavailable.

        To be awaited before anything is refused because of where a feed ends: a client may have been elsewhere before.
        """
        if self._store.several_servers:
            await asyncio.to_thread(self._store.refresh)

    def feeds(self) -> list[FeedTail]:
        """Return the durable tails of all feeds, by region id."""
        return list(self._store.tails())

    async def read(
        self, feed: str, first: int, last: int, *, entries_max: int, bytes_max: int
    ) -> list[Frame]:
        """Return the stored frames that overlap ``first`` … ``last``: see :func:`history.frames_of_range`."""
        tail = self.tail(feed)
        try:
            return await asyncio.to_thread(
                history.frames_of_range,
                self._store,
                tail,
                first,
                last,
                entries_max=entries_max,
                bytes_max=bytes_max,
            )
        except JournalCorrupt as damage:
            await asyncio.to_thread(self.troubles.tell, JournalCorrupt, damage.detail, feed=feed)
            raise

    async def lsn_at(self, feed: str, sequence_id: int) -> Lsn | None:
        """Return the LSN of a retained entry or of the newest dropped one; None below that."""
        tail = self.tail(feed)
        if sequence_id in (tail.head, tail.dropped_sequence_id):
            return history.lsn_at(self._store, tail, sequence_id)
        return await asyncio.to_thread(history.lsn_at, self._store, tail, sequence_id)

    async def wait_past(self, feed: str, sequence_id: int, timeout_s: float) -> bool:
        """Return True as soon as the feed's head is above ``sequence_id``; False at the time-out or when closing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while (head := self.tail(feed).head) <= sequence_id:
            if self._closing or loop.time() >= deadline:
                return False
            await self._wait_for_move(feed, head, deadline)
        return True

    @property
    def store(self) -> Store:
        """The journal itself, for who walks along it: :meth:`Store.walk` and its kin block, so call them from a thread."""
        return self._store

    def present_subscribers(self) -> list[SubscriberRow]:
        """Return the subscribers that are there at this moment: see :attr:`present`. From any thread."""
        return [row for told in list(self.present) for row in told()]

    async def wait_end_past(self, position: int, timeout_s: float) -> bool:
        """Return True as soon as the journal's visible end is above ``position``; False at the time-out or when closing."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while self._store.end() <= position:
            if self._closing or loop.time() >= deadline:
                return False
            future: asyncio.Future[None] = loop.create_future()
            self._walkers.add(future)
            timer = loop.call_at(deadline, _wake, future)
            try:
                if self._store.end() <= position and not self._closing:
                    await future
            finally:
                timer.cancel()
                self._walkers.discard(future)
        return True

    async def _wait_for_move(self, feed: str, head: int, deadline: float) -> None:
        """Return once the feed's head is no longer ``head``, at the deadline, or when closing."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        waiting = self._waiting.setdefault(feed, set())
        self._seen.setdefault(feed, head)
        waiting.add(future)
        timer = loop.call_at(deadline, _wake, future)
        try:
            # The writer's thread moves the head and then looks for who waits; here it is the other way round, so one of
            # the two sees the other.
            if self.tail(feed).head == head and not self._closing:
                await future
        finally:
            timer.cancel()
            waiting.discard(future)

    @property
    def measures(self) -> AppendMeasures:
        """What the writer has counted since the start."""
        return self._writer.measures

    def appends_waiting(self) -> int:
        """Return about how many requests of the writer are not answered yet."""
        return self._writer.waiting()

    def group_busy_s(self) -> float:
        """Return for how many seconds the group that is being written is not durable; 0 if there is none."""
        return self._writer.busy_s()

    @property
    def not_ready(self) -> list[str]:
        """Why appends can't be taken; empty when they can."""
        reasons = (
            self._store.not_writable(),
            self._writer.not_running(),
            self.stalled(),
            *self.not_readable,
        )
        return [printable(reason) for reason in reasons if reason is not None]

    def stalled(self) -> str | None:
        """Why appends wait in vain, None if they don't: what the writer hands to the store does not become durable."""
        busy_s = self._writer.busy_s()
        if busy_s < self.stalled_after_s or self._writer.not_running() is not None:
            return None
        return f"appends wait: the store has not made a group durable for {busy_s:.0f} s ({Stalled.code})"

    @property
    def not_readable(self) -> list[str]:
        """Why nothing can be read at this moment; empty when it can."""
        reason = self._store.unreachable()
        return [printable(reason)] if reason is not None else []

    def _moved(self) -> None:
        loop = self._loop
        if loop is not None and (self._waiting or self._walkers):
            try:
                loop.call_soon_threadsafe(self._wake_waiting)
            except RuntimeError:  # the loop has ended: nobody is left to wake
                self._loop = None

    def _wake_waiting(self) -> None:
        for future in list(self._walkers):
            _wake(future)
        for feed in list(self._waiting):
            try:
                head = self.tail(feed).head
            except (
                HeadraceError
            ):  # its waiters meet the same, each for itself; the others must not wait for it
                head = sys.maxsize
            if head > self._seen.get(feed, head):
                del self._seen[feed]
                for future in self._waiting.pop(feed):
                    _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
