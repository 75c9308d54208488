"""The backup agent: one process that archives the stream over all feeds until it is told to stop.

The open segment is gathered while the one before is written: two segments in memory, and none more is taken from the server
until the older one is archived. Nothing is acked before segment and manifest are durable under their names.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, Final

from headrace.backup.deposits import Deposits, Given, surveyed
from headrace.backup.following import Follower, Lost, Turn, patiently
from headrace.backup.gathering import Finished, Gatherer
from headrace.backup.registry import Registry
from headrace.backup.settings import BackupSettings
from headrace.backup.standing import Standing
from headrace.client.http import FeedClient
from headrace.client.wal_acks import Acker
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import (
    ArchiveFull,
    ArchiveUnavailable,
    BackupGap,
    BeyondHead,
    HeadraceError,
    ServerUnreachable,
)
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger
from headrace.runtime.progress import Progress
from headrace.runtime.shutdown import wait_for_stop
from headrace.wire.batch import Heartbeat, ReceivedBatch

logger = get_logger("backup")

ANSWER_TIMEOUT_S: Final = 10.0
"""How long the server may take to say what feeds it has."""
ACK_S_MAX: Final = 10.0
"""How long the end waits for the last ack. What is archived and not acked does no harm: the archive decides."""
SILENCE_S_MAX: Final = 60.0
"""How long ``once`` waits for what the server had at the start, if nothing comes of it, not even a heartbeat."""
FULL_DELAY_S_MAX: Final = 30.0
"""Longest pause between two tries to write where there is no room, or nobody answers."""


HEARTBEAT_S_MAX: Final = 15.0
"""A stream that is silent for so long, three times a server's default heartbeat, counts as one that something waits in."""

Item = ReceivedBatch | Heartbeat | Turn
"""What a stream gives."""


class Agent:
    """Archives what one server has. Use it for one run."""

    def __init__(
        self,
        settings: BackupSettings,
        deposits: Deposits,
        wal: WalClient,
        http: FeedClient,
        stop: asyncio.Event,
        *,
        clock: Clock | None = None,
        progress: Progress | None = None,
        silence_s: float = SILENCE_S_MAX,
    ) -> None:
        self._settings = settings
        self._deposits = deposits
        self._wal = wal
        self._stop = stop
        self._clock = clock or SystemClock()
        progress = progress or Progress(clock=self._clock)
        self._streaming, self._archiving = progress.work("stream"), progress.work("archive")
        self._acker = Acker(wal.ack, "batch")
        self.registry: Final = Registry(http, self._clock)
        self._gatherer = Gatherer(settings.segment_bytes)
        self._follower = Follower(wal, deposits.end, deposits.histories.incarnations, self._judge)
        self._begins = True
        self._is_greeted = False
        self._seen = ZERO
        self._since_s = 0.0
        self._silence_s = silence_s
        self._writing: asyncio.Task[None] | None = None
        self._writing_entries, self._writing_first = 0, ZERO
        self._segments = self._entries = self._bytes = 0
        self._trouble = ""

    @property
    def standing(self) -> Standing:
        """How it stands now."""
        gathered = self._gatherer.entries + self._writing_entries
        first, last = self._deposits.first, self._deposits.end
        oldest = self._writing_first if self._writing_entries else self._gatherer.first
        return Standing(
            self._segments, self._entries, self._bytes, first, last, gathered, self._trouble, oldest
        )

    @property
    def acked(self) -> Lsn | None:
        """The last LSN whose ack the server took from this process."""
        return self._acker.acked

    async def behind(self) -> tuple[int, float]:
        """Return how many entries of the server are not archived, and by how many seconds its newest one is newer."""
        feeds = await self.registry.asked()
        head, _ = await self._wal.bounds()
        last = self._deposits.end or ZERO
        seconds = max(0, head.committed_at_ms - last.committed_at_ms) / 1000 if head > last else 0.0
        return self._deposits.histories.behind(feeds), seconds if last != ZERO else 0.0

    async def run(self) -> None:
        """Archive until told to stop; with ``once``, until all is archived that was there at the start.

        What is gathered at the end is archived and acked, also where the stream ends with an error, which is then raised:
        BackupGap, BeyondHead, JournalCorrupt, Forbidden, Unauthenticated. ArchiveOwned, ArchiveConflict of the archive;
        ArchiveFull and ArchiveUnavailable with ``once``, or when told to stop meanwhile, else they are waited for.
        ServerUnreachable with ``once``, if it does not answer at the start, or gives nothing any more before the end.
        """
        self._acker.start()
        try:
            if self._settings.once:
                await self.registry.checked()
                goal = await self._goal()
                if goal > (self._deposits.end or ZERO):
                    await self._follow(goal)
                elif self._deposits.end is not None:
                    self._acker.finish(self._deposits.end, 0)
            elif await self._begin():
                await self._follow(None)
        finally:
            if self._writing is not None:
                # Something else has failed. What is being written must not be cut off.
                self._stop.set()
                await asyncio.wait({self._writing})
            await self._acker.close(ACK_S_MAX)

    async def _begin(self) -> bool:
        """Learn the server's feeds, for as long as that takes; False if it is time to stop first."""
        asked = asyncio.create_task(patiently(self.registry.checked))
        try:
            with self._streaming.during("the server's answer to the question for its feeds"):
                await self._either(asked)
            if asked.done():
                asked.result()
            return asked.done()
        finally:
            await _cancelled(asked)

    async def _goal(self) -> Lsn:
        """The server's newest LSN; BeyondHead if the archive has a newer one."""
        head, _ = await self._wal.bounds()
        if self._deposits.end is not None and head < self._deposits.end:
            raise BeyondHead(
                f"the archive ends with lsn={self._deposits.end}, and the server's newest entry is lsn={head}: it has "
                "an older copy of the log that was archived, or another log",
                head_lsn=str(head),
            )
        return head

    async def _follow(self, goal: Lsn | None) -> None:
        """Archive what comes, until it is time to stop, the entry ``goal`` is there, or the stream ends with an error."""
        end: HeadraceError | None = None
        coming: asyncio.Task[Item] | None = None
        items = self._follower.items()
        silent_since_s = 0.0
        try:
            while not self._stop.is_set() and not (goal is not None and self._seen >= goal):
                if coming is None:
                    coming, silent_since_s = asyncio.create_task(self._next(items)), self._clock.monotonic()
                bounds_s = [self._left_s(), self._silence_s if goal is not None else None]
                within_s = min((bound for bound in bounds_s if bound is not None), default=None)
                await self._either(coming, self._writing, within_s=within_s)
                self._raise_if_failed()
                if self._left_s() == 0.0:
                    await self._rotate()
                if coming.done():
                    try:
                        item, coming = coming.result(), None
                    except HeadraceError as error:
                        end = error
                        break
                    await self._take(item)
                elif goal is not None and self._clock.monotonic() >= silent_since_s + self._silence_s:
                    end = ServerUnreachable(
                        f"the server has given nothing for {self._silence_s:.0f} s: of what it had, up to lsn={goal}, the "
                        f"last that came is lsn={self._seen}"
                    )
                    break
        finally:
            if coming is not None:
                await _cancelled(coming)
            await items.aclose()
        if end is not None:
            if isinstance(end, BeyondHead):
                self.registry.hold(self._follower.incarnations)
            logger.error("the backup stops, once what it has is archived", code=end.code, detail=end.detail)
        await self._finish()
        if end is not None:
            raise end

    async def _next(self, items: AsyncGenerator[Item, None]) -> Item:
        """Return what the stream gives next: entries, or after a while of silence a heartbeat."""
        with self._streaming.during("the server's stream", within_s=HEARTBEAT_S_MAX):
            item = await anext(items)
        self._streaming.set_reachable(True)
        self._streaming.set_waiting(0)
        return item

    async def _take(self, item: Item) -> None:
        if isinstance(item, ReceivedBatch):
            self._acknowledge_start()
            self._seen = item.last_lsn
            self._streaming.set_position(self._seen)
            is_new = not self._gatherer.entries
            for finished in self._gatherer.add(item):
                is_new = True
                await self._hand_over(finished)
            if is_new and self._gatherer.entries:
                self._since_s = self._clock.monotonic()
                logger.info("a segment is begun", entries=self._gatherer.entries)
        elif isinstance(item, Turn):
            logger.warning(
                "a feed has another history: it was made anew, restored or repaired",
                region_id=item.region_id,
                incarnation=item.incarnation,
            )
            if self._gatherer.entries:
                await self._hand_over(self._gatherer.seal())
        else:
            self._seen = max(self._seen, item.lsn)
            self._streaming.set_position(self._seen)
            if item.rotate:
                await self._rotate()

    def _acknowledge_start(self) -> None:
        """Ack what was archived in an earlier life: the server was found to go on there."""
        if not self._is_greeted and self._deposits.end is not None:
            self._acker.finish(self._deposits.end, 0)
        self._is_greeted = True

    async def _rotate(self) -> None:
        """Have the open segment written, at once or as soon as its last append is whole."""
        self._since_s = self._clock.monotonic()
        if (finished := self._gatherer.rotate()) is not None:
            await self._hand_over(finished)

    def _left_s(self) -> float | None:
        """Seconds until the open segment is due; None if there is none."""
        if not self._gatherer.entries:
            return None
        return max(0.0, self._since_s + self._settings.segment_s - self._clock.monotonic())

    async def _hand_over(self, finished: Finished) -> None:
        """Have a segment written, once the one before is."""
        follower = self._follower
        given = Given(
            follower.incarnations,
            {},
            follower.walked_from if self._begins else None,
            follower.lost if self._begins else None,
        )
        self._begins = False
        if self._writing is not None:
            await asyncio.wait({self._writing})
            self._raise_if_failed()
        self._writing_entries, self._writing_first = finished.sealed.entries, finished.sealed.name.first
        self._writing = asyncio.create_task(self._write(finished, given), name="headrace segment")

    async def _finish(self) -> None:
        """Archive what is gathered; raises why that can't be."""
        if self._writing is not None:
            await asyncio.wait({self._writing})
            self._raise_if_failed()
        if self._gatherer.entries:
            await self._hand_over(self._gatherer.seal())
            await self._finish()

    async def _write(self, finished: Finished, given: Given) -> None:
        self._archiving.set_waiting(finished.sealed.entries, what="the archive to take a segment")
        runs = await asyncio.to_thread(surveyed, finished, self._deposits.histories)
        feeds = await self.registry.for_segment(
            lambda known: self._deposits.histories.knows(runs, given.incarnations, known),
            self._stop,
            patient=not self._settings.once,
        )
        given = given._replace(registry=feeds)
        files = await asyncio.to_thread(self._deposits.files_of, finished, runs, given)
        backoff = Backoff(first_s=1.0, delay_s_max=FULL_DELAY_S_MAX)
        while True:
            try:
                now_ms = self._clock.wall_ms()
                await asyncio.to_thread(self._deposits.put, files, given.lost, now_ms=now_ms)
                break
            except (ArchiveFull, ArchiveUnavailable) as error:
                self._trouble = error.detail
                self._archiving.set_trouble(error)
                self._archiving.set_reachable(False)
                if self._settings.once or self._stop.is_set():
                    raise
                delay_s = backoff.next_delay()
                logger.error(
                    "a segment can't be archived; it is kept in memory and tried again, and nothing of it is acked",
                    code=error.code,
                    detail=error.detail,
                    again_in_s=round(delay_s, 1),
                )
                await self._stay_known()
                await wait_for_stop(self._stop, delay_s)
        self._trouble = ""
        self._written(finished, files.manifest.file)

    def _written(self, finished: Finished, file: str) -> None:
        sealed = finished.sealed
        self._segments += 1
        self._entries += sealed.entries
        self._bytes += sealed.size
        self._writing_entries = 0
        self._archiving.set_position(self._deposits.end)
        self._archiving.set_reachable(True)
        self._archiving.set_waiting(0)
        self._acker.finish(sealed.name.last, sealed.entries)
        logger.info("a segment is archived", segment=file, entries=sealed.entries, bytes=sealed.size)

    async def _stay_known(self) -> None:
        """Tell the server that this subscriber is there: nothing is taken from the stream now, so it may have ended."""
        end = self._deposits.end
        if end is not None and self._follower.is_begun:
            with suppress(HeadraceError, TimeoutError):
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    await self._wal.ack(end)

    async def _judge(self, lost: Lost) -> None:
        """Return if a loss is accepted; BackupGap, naming both ends and what is lost of each feed, if it is not."""
        if self._deposits.accepts(lost):
            logger.warning(
                "entries are missing from here on; that was accepted",
                after=str(lost.after),
                before=str(lost.before),
            )
            return
        feeds = await patiently(self.registry.asked)
        ranges = self._deposits.histories.lost(feeds)
        raise BackupGap(
            f"the archive ends with lsn={lost.after}, and the server has nothing of what follows before lsn={lost.before}"
            + (": lost are " + ", ".join(ranges) if ranges else ""),
            after_lsn=str(lost.after),
            before_lsn=str(lost.before),
            lost=ranges,
            hint="They are lost for this archive. --accept-gap REASON goes on behind them, with the gap on record. "
            "Then make a base snapshot from a source that has them.",
        )

    def _raise_if_failed(self) -> None:
        """Raise why the segment before could not be archived: nothing may come behind it then."""
        if self._writing is not None and self._writing.done():
            done, self._writing = self._writing, None
            done.result()

    async def _either(self, *tasks: asyncio.Task[Any] | None, within_s: float | None = None) -> None:
        """Wait until one of them is done, or it is time to stop."""
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait(
                {stopping, *(one for one in tasks if one is not None)},
                timeout=within_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            await _cancelled(stopping)


async def _cancelled(task: asyncio.Task[Any]) -> None:
    """Return once the task has ended, which it does now; what it would have raised is of no use any more."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
