"""Decides which snapshot an ask gets, and makes a new one where none fits: one at a time, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from headrace.errors import FeedNotFound, HeadraceError, SnapshotUnavailable
from headrace.publisher.snapshot.draft import Draft
from headrace.publisher.snapshot.guard import Ask
from headrace.publisher.snapshot.settings import SnapshotSettings
from headrace.publisher.snapshot.spool import Spool, Whole
from headrace.publisher.state import StatePlace, StateReader, StateSink
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.runtime.shutdown import wait_for_stop

logger = get_logger("snapshot")

AT_ONCE_S: Final = 0.5
"""An ask waits so long for a snapshot that is begun for it: a small one is whole by then."""

FAILED_S: Final = 2.0
"""For how long a first failure is told to who asks, before it is tried again."""

FAILED_S_MAX: Final = 60.0
"""Each failure that follows a failure is told for twice as long, up to this: reading a source for nothing costs it much."""

CANCEL_EVERY_S: Final = 0.2
"""How often an ending agent cancels what is being read: a statement may have begun just after."""

EXPIRE_EVERY_S: Final = 5.0
"""How often snapshots that are over are looked for."""


class FeedSource(Protocol):
    """What the maker asks of a feed's relay."""

    async def begin_snapshot(self, reader: StateReader, sink: StateSink) -> StatePlace:
        """Fix what ``reader`` reads, and mark what it sees; see :meth:`headrace.publisher.source.Source.begin_snapshot`."""

    @property
    def incarnation(self) -> str | None:
        """The incarnation of the feed as it was last joined, None before."""


ReaderMaker = Callable[[str], StateReader]
"""Gives a reader of a feed's state, not yet opened."""


class Making(NamedTuple):
    """A snapshot that fits is being made: so many rows are read."""

    rows: int


class _Job:
    """One snapshot of one feed in the making; afterwards how it failed, if it did, and at which sequence id it stands.

    ``failures``: how many before it failed in a row.
    """

    def __init__(self, at_least: int, failures: int) -> None:
        self.failures = failures
        self.at_least = at_least
        """What was asked for when it was begun: it may stand for less, then asking again at once is of no use."""
        self.task: asyncio.Task[None] | None = None
        self.draft: Draft | None = None
        self.reader: StateReader | None = None
        self.error: HeadraceError | None = None
        self.stands_for: int | None = None
        self.ended_at = 0.0

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()

    @property
    def pause_s(self) -> float:
        """How long after its end the next one may begin."""
        return min(FAILED_S_MAX, FAILED_S * 2.0 ** min(self.failures - 1, 32)) if self.failures else FAILED_S

    @property
    def rows(self) -> int:
        return 0 if self.draft is None else self.draft.rows

    def fail(self, error: HeadraceError) -> None:
        """Note why there is none, and that it is one failure more."""
        self.error = error
        self.failures += 1


class SnapshotMaker:
    """Snapshots of several feeds of one source. Use: :meth:`find` at will, :meth:`run` beside, :meth:`close` at the end."""

    def __init__(
        self,
        feeds: Mapping[str, FeedSource],
        readers: ReaderMaker,
        spool: Spool,
        settings: SnapshotSettings,
        clock: Clock,
    ) -> None:
        self._feeds = feeds
        self._readers = readers
        self._spool = spool
        self._settings = settings
        self._clock = clock
        self._jobs: dict[str, _Job] = {}
        # The source is read once at a time: it has other work to do.
        self._turn = asyncio.Semaphore(1)
        self._ending = False

    async def find(self, ask: Ask) -> Whole | Making:
        """Return the snapshot for ``ask``, or how far it is; begins one where none fits.

        Raises FeedNotFound, SnapshotGone (the one named), SnapshotUnavailable.
        """
        if ask.feed not in self._feeds:
            raise FeedNotFound(f"this agent does not publish {ask.feed[:200]!r}")
        if ask.snapshot_id is not None:
            return self._spool.named(ask.snapshot_id, ask.feed)
        found = self._fitting(ask)
        if found is not None:
            return found
        if self._feeds[ask.feed].incarnation is None:
            raise SnapshotUnavailable(f"the agent has not joined {ask.feed} yet")
        job = self._jobs.get(ask.feed)
        if job is None or not job.is_running:
            if job is not None:
                self._tell_failure(job, ask)
            job = self._begin(ask.feed, ask.at_least)
        if job.task is not None:
            await asyncio.wait({job.task}, timeout=AT_ONCE_S)
        found = self._fitting(ask)
        if found is not None:
            return found
        if not job.is_running:
            self._tell_failure(job, ask)
        return Making(job.rows)

    async def run(self, ending: asyncio.Event) -> None:
        """Make snapshots on the interval that the settings name, and let those go that are over."""
        while not await wait_for_stop(ending, EXPIRE_EVERY_S):
            try:
                await asyncio.to_thread(self._spool.expire)
            except OSError as error:
                logger.warning("a snapshot that is over could not be removed", detail=str(error))
            for feed in self._due():
                self._begin(feed)

    async def close(self) -> None:
        """End what is being made; nothing of it stays."""
        self._ending = True
        self._spool.close()
        running = {job.task for job in self._jobs.values() if job.task is not None and not job.task.done()}
        while running:
            for job in self._jobs.values():
                if job.reader is not None:
                    await asyncio.to_thread(job.reader.cancel)
            _, running = await asyncio.wait(running, timeout=CANCEL_EVERY_S)

    def _due(self) -> Iterable[str]:
        interval_s = self._settings.interval_s
        for feed in self._feeds if interval_s is not None else ():
            job = self._jobs.get(feed)
            newest = next((one for one in self._spool.all() if one.change_feed_id == feed), None)
            made_ms = 0 if newest is None else newest.taken_at_ms
            is_old = self._clock.wall_ms() >= made_ms + 1000 * (interval_s or 0)
            if is_old and (job is None or (not job.is_running and self._is_over(job))):
                yield feed

    def _fitting(self, ask: Ask) -> Whole | None:
        """Return the newest whole snapshot, if it is young enough and stands for enough."""
        newest = next((one for one in self._spool.all() if one.change_feed_id == ask.feed), None)
        if newest is None or newest.sequence_id < ask.at_least:
            return None
        incarnation = self._feeds[ask.feed].incarnation
        is_young = self._clock.wall_ms() - newest.whole_at_ms < 1000 * self._settings.max_age_s
        return newest if is_young and incarnation in {None, newest.incarnation} else None

    def _is_over(self, job: _Job) -> bool:
        return self._clock.monotonic() - job.ended_at >= job.pause_s

    def _tell_failure(self, job: _Job, ask: Ask) -> None:
        """Raise why the last one is of no use to ``ask``, until it is worth another try."""
        if self._is_over(job):
            return
        if job.error is not None:
            raise job.error
        if job.stands_for is not None and job.stands_for < ask.at_least <= job.at_least:
            raise SnapshotUnavailable(
                f"{ask.feed} stands at {job.stands_for} in the source, which is less than {ask.at_least}",
                hint="Was the source restored? `headrace agent status` says how its feeds stand.",
            )

    def _begin(self, feed: str, at_least: int = 0) -> _Job:
        if self._ending:
            raise SnapshotUnavailable("the agent ends")
        before = self._jobs.get(feed)
        job = self._jobs[feed] = _Job(at_least, 0 if before is None else before.failures)
        job.task = asyncio.create_task(self._make(feed, job))
        return job

    async def _make(self, feed: str, job: _Job) -> None:
        """Make one snapshot; what goes wrong is noted in ``job`` for who asks, and logged."""
        async with self._turn:
            try:
                if self._ending:
                    raise SnapshotUnavailable("the agent ends")
                whole = await self._made(feed, job)
                job.stands_for, job.failures = whole.sequence_id, 0
                logger.info(
                    "a snapshot is whole",
                    feed=feed,
                    snapshot_id=whole.snapshot_id,
                    sequence_id=whole.sequence_id,
                    rows=whole.rows,
                    bytes=whole.size,
                )
            except (HeadraceError, OSError) as error:
                detail = error.detail if isinstance(error, HeadraceError) else f"the spool: {error}"
                hint = error.advice if isinstance(error, HeadraceError) else None
                job.fail(SnapshotUnavailable(f"no snapshot of {feed} could be made: {detail}", hint=hint))
                logger.error("no snapshot could be made", feed=feed, detail=detail, again_after_s=job.pause_s)
            except (
                Exception
            ) as error:  # a fault of ours, or of the source's driver: who asks must hear that there is one
                kind = type(error).__name__
                job.fail(
                    SnapshotUnavailable(
                        f"no snapshot of {feed} could be made: {kind}",
                        hint="The agent's log has the traceback.",
                    )
                )
                logger.exception("no snapshot could be made", feed=feed, again_after_s=job.pause_s)
            finally:
                job.ended_at = self._clock.monotonic()
                job.draft = None

    async def _made(self, feed: str, job: _Job) -> Whole:
        draft = job.draft = await asyncio.to_thread(self._spool.begin, feed)
        try:
            await self._read(feed, draft, job)
            return await asyncio.to_thread(self._finish, draft)
        finally:
            await asyncio.to_thread(self._spool.drop, draft)

    async def _read(self, feed: str, draft: Draft, job: _Job) -> None:
        """Read the source into ``draft``. Its transaction there is over when this returns."""
        reader = job.reader = self._readers(feed)

        def sink(place: StatePlace, lines: Iterable[bytes]) -> None:
            draft.write_state(place, lines, self._clock.wall_ms())

        try:
            await asyncio.to_thread(reader.open)
            place = await self._feeds[feed].begin_snapshot(reader, sink)
            if not reader.was_read:
                await asyncio.to_thread(lambda: sink(place, reader.lines()))
        finally:
            job.reader = None
            await asyncio.to_thread(reader.close)

    def _finish(self, draft: Draft) -> Whole:
        draft.encode()
        return self._spool.keep(draft)
