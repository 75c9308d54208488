"""The stream over all feeds and its subscribers: subscribe, acknowledge, ask for the bounds (RFC-010 §4). Faces translate.

Everything is called from the one asyncio loop that also uses the log; what blocks is done in worker threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, InvalidRequest, StoreUnavailable, Unavailable
from headrace.log.log import Log
from headrace.log.metadata.rows import SUBSCRIBER
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger
from headrace.server.waits import Waits
from headrace.server.walking import Chunk, Start, find_start, head_of, oldest_of, read_chunk
from headrace.wire.batch import BATCH_ENTRIES_MAX, Batch, Heartbeat

logger = get_logger("server")

HEARTBEAT_S: Final = 5.0
"""How long a stream may be silent (RFC-010: a heartbeat every 5 s when idle)."""
SEEN_EVERY_S: Final = 60.0
"""How often it is written down that subscribers with an open stream are there."""
SEEN_PARTS: Final = 4
"""And at least so many times within ``subscriber-expiry``: other servers of the store go by what is written down."""


class Subscriber(NamedTuple):
    """Who subscribes: the token's subject (``anonymous`` without one), and the name it gave itself (empty if none)."""

    subject: str
    subscriber_id: str


class Bounds(NamedTuple):
    """The newest and the oldest retained LSN; both ZERO on an empty log."""

    head: Lsn
    oldest: Lsn


@dataclass(eq=False, slots=True)
class _Stream:
    """An open stream. ``sent``: the last LSN that was handed to its face; before that, just below where it began."""

    subscriber: Subscriber
    sent: Lsn


class Subscriptions:
    """The subscribers of one log."""

    def __init__(self, log: Log, *, clock: Clock | None = None, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._log = log
        self._clock = clock or SystemClock()
        self._heartbeat_s = heartbeat_s
        self._streams: dict[Subscriber, set[_Stream]] = {}
        self._acks = _Acks(log, self._clock)
        self._oldest: tuple[int, Lsn] = (-1, ZERO)
        self._waits = Waits()
        self._noting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the subscribers' places; call it once, before anything else."""
        await self._acks.load()
        self._noting = asyncio.create_task(self._note_seen())

    async def close(self) -> None:
        """Write down what waits; call it before the log is closed, once the streams have ended."""
        self.stop_waiting()
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.wait({self._noting})
        await self._acks.settle()

    def stop_waiting(self) -> None:
        """End every stream with Unavailable, and every later one at once: the server is about to stop."""
        self._waits.stop()

    @property
    def open_streams(self) -> int:
        """How many streams are open."""
        return sum(map(len, self._streams.values()))

    async def bounds(self) -> Bounds:
        """Return the newest and the oldest retained LSN."""
        await self._log.refresh()
        position = self._log.store.oldest_position()
        if self._oldest[0] != position or self._oldest[1] <= self._log.store.dropped_lsn():
            self._oldest = (position, await asyncio.to_thread(oldest_of, self._log.store))
        return Bounds(head_of(self._log.store), self._oldest[1])

    async def subscribe(
        self, who: Subscriber, start: Lsn | None, *, entries_max: int = BATCH_ENTRIES_MAX
    ) -> AsyncGenerator[Batch | Heartbeat, None]:
        """Yield every entry at ``start`` or later (None: from the oldest retained on), in LSN order, without end.

        What stands in the log comes in batches as large as they may be; new entries come as soon as the one who iterates
        asks for more. A heartbeat comes after :data:`HEARTBEAT_S` of silence. The subscriber's place begins just below
        where it first subscribed, durably, before the first batch; a later subscription does not move it.

        Raises LsnNotAvailable (at the start, or where retention overtook the stream), BeyondHead, JournalCorrupt (with
        ``resume_lsn``), Unavailable when the server stops. Close the generator: an open stream bounds what may be acked.
        """
        begin = await asyncio.to_thread(self._log.store.without_drops, partial(self._begin, who, start))
        stream = _Stream(who, begin.below)
        self._streams.setdefault(who, set()).add(stream)
        try:
            async with aclosing(self._walk(stream, begin, min(entries_max, BATCH_ENTRIES_MAX))) as items:
                async for item in items:
                    yield item
        finally:
            self._streams[who].discard(stream)
            if not self._streams[who]:
                del self._streams[who]

    async def ack(self, who: Subscriber, lsn: Lsn) -> Lsn:
        """Note durably that ``who`` needs nothing up to ``lsn`` any more; returns the least place of all that hold.

        A place moves forward only. With several open streams it moves to what was sent on all of them at most. Raises
        InvalidRequest above the head and above what was sent on this subscriber's open streams.
        """
        sent = [stream.sent for stream in self._streams.get(who, ())]
        if not sent or lsn > max(sent):
            await self._log.refresh()
            head = head_of(self._log.store)
            if lsn > head:
                raise InvalidRequest(f"ack_lsn={lsn} is above head_lsn={head}", member="ack_lsn")
        if sent and lsn > max(sent):
            raise InvalidRequest(
                f"ack_lsn={lsn} is above {max(sent)}, the last LSN that was sent on this subscriber's open streams",
                member="ack_lsn",
            )
        return await self._acks.keep(who, min([lsn, *sent]))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _begin(self, who: Subscriber, start: Lsn | None) -> Start:
        """Find where the stream begins, and hold it durably: nothing that was found may be dropped in between."""
        store = self._log.store
        store.refresh()
        begin = find_start(store, start)
        self._acks.begin(who, begin.below, self._clock.wall_ms())
        return begin

    async def _walk(
        self, stream: _Stream, begin: Start, entries_max: int
    ) -> AsyncGenerator[Batch | Heartbeat, None]:
        """Walk along the journal; while a chunk is being sent the next one is read."""
        loop, store = asyncio.get_running_loop(), self._log.store
        position, walked, quiet_since = begin.position, begin.walked, loop.time()
        reading: asyncio.Task[Chunk] | None = None

        def read() -> asyncio.Task[Chunk]:
            return asyncio.create_task(
                asyncio.to_thread(read_chunk, store, position, walked, begin.lsn, entries_max)
            )

        try:
            while True:
                if self._waits.stopping:
                    raise Unavailable(
                        "the server is stopping", hint="Subscribe again from the last LSN that was acked."
                    )
                if reading is None:
                    if not await self._wait_past(position, quiet_since + self._heartbeat_s - loop.time()):
                        if not self._waits.stopping:
                            yield Heartbeat(walked)
                            quiet_since = loop.time()
                        continue
                    reading = read()
                chunk = await asyncio.shield(reading)
                position, walked = chunk.end, chunk.walked
                reading = read() if position < store.end() else None
                for batch in chunk.batches:
                    stream.sent = batch.last_lsn
                    yield batch
                    quiet_since = loop.time()
        finally:
            if reading is not None:
                # Not cancelled: a thread that reads can't be, and the store must outlive it.
                await asyncio.wait({reading})
                _ = reading.cancelled() or reading.exception()

    async def _wait_past(self, position: int, timeout_s: float) -> bool:
        """True as soon as the journal's end is above ``position``; False at the time-out and when the server stops."""
        if self._log.store.end() > position:
            return True
        return await self._waits.until(partial(self._log.wait_end_past, position), timeout_s)

    async def _note_seen(self) -> None:
        while True:
            await asyncio.sleep(min(SEEN_EVERY_S, self._log.retention.subscriber_expiry_s / SEEN_PARTS))
            try:
                await self._acks.seen(self._streams)
            except StoreUnavailable as error:
                logger.error("it can't be written down which subscribers are there", detail=error.detail)


class _Acks:
    """The subscribers' places: known in memory, kept in the metadata database, many acks in one transaction."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._started_ms = clock.wall_ms()
        self._places: dict[Subscriber, Lsn] = {}
        self._watermark = ZERO
        self._pending: dict[Subscriber, Lsn] = {}
        self._answers: list[asyncio.Future[None]] = []
        self._keeping: asyncio.Task[None] | None = None

    async def load(self) -> None:
        await asyncio.to_thread(self._load)

    def begin(self, who: Subscriber, below: Lsn, now_ms: int) -> None:
        """Note a subscriber durably with its first place, or that a known one is back. Blocks."""
        self._log.metadata.begin_subscriber(who.subject, who.subscriber_id, str(below), now_ms)
        self._load()

    async def keep(self, who: Subscriber, lsn: Lsn) -> Lsn:
        """Move a place forward, durably; returns the watermark. MetadataCorrupt if the subscriber's row is damaged."""
        if who not in self._places:  # it acks before it ever subscribed here
            await asyncio.to_thread(self.begin, who, lsn, self._clock.wall_ms())
        if lsn > self._places[who]:
            self._pending[who] = max(lsn, self._pending.get(who, ZERO))
            answer = asyncio.get_running_loop().create_future()
            self._answers.append(answer)
            if self._keeping is None:
                self._keeping = asyncio.create_task(self._keep_pending())
            await answer
        self._log.metadata.damages.raise_if_damaged(SUBSCRIBER, (who.subject, who.subscriber_id))
        return self._watermark

    async def settle(self) -> None:
        """Wait until nothing waits to be kept."""
        if self._keeping is not None:
            await asyncio.wait({self._keeping})

    async def seen(self, subscribers: Iterable[Subscriber]) -> None:
        """Note that these are there."""
        rows = {who: self._places[who] for who in subscribers if who in self._places}
        if rows:
            await asyncio.to_thread(self._store, rows)

    async def _keep_pending(self) -> None:
        """What comes while one transaction is under way waits for the next: one for all of it."""
        while self._pending:
            moved, self._pending = self._pending, {}
            answers, self._answers = self._answers, []
            failure: Exception | None = None
            try:
                await asyncio.to_thread(self._store, moved)
            except HeadraceError as error:
                failure = error
            except Exception:
                logger.exception("acks could not be kept")
                failure = StoreUnavailable("the metadata database can't be written")
            for answer in answers:
                if answer.done():
                    continue
                if failure is None:
                    answer.set_result(None)
                else:
                    answer.set_exception(failure)
        self._keeping = None

    def _store(self, places: dict[Subscriber, Lsn]) -> None:
        rows = [(who.subject, who.subscriber_id, str(lsn)) for who, lsn in places.items()]
        self._log.metadata.move_subscribers(rows, self._clock.wall_ms())
        self._load()

    def _load(self) -> None:
        rows = self._log.metadata.subscribers()
        terms = self._log.retention.terms(self._clock.wall_ms(), self._started_ms)
        for row in rows:
            who, place = Subscriber(row.subject, row.subscriber_id), Lsn.parse(row.lsn)
            self._places[who] = max(place, self._places.get(who, ZERO))
        holding = [Lsn.parse(row.lsn) for row in rows if terms.expires_at(row.seen_at_ms) > terms.now_ms]
        if not any(damage.table == SUBSCRIBER.name for damage in self._log.metadata.damages.standing()):
            self._watermark = min(holding, default=ZERO)  # else it stays: one place is not known
