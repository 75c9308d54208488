"""The stream over all feeds and its subscribers: subscribe, acknowledge, ask for the bounds (RFC-010 §4). Faces translate.

Everything is called from the one asyncio loop that also uses the log; what blocks is done in worker threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, InvalidRequest, MetadataCorrupt, StoreUnavailable, Unavailable
from headrace.log.log import Log
from headrace.log.metadata.contract import SubscriberRow
from headrace.log.metadata.rows import SUBSCRIBER
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger
from headrace.server.guard import StreamRights
from headrace.server.subscriber_places import Places, Subscriber
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
LOAD_EVERY_S: Final = 1.0
"""At most so often, while there are acks, the places that other servers have written are read; those of one server alone,
where nobody else writes any, every :data:`SEEN_EVERY_S`."""
LOAD_PARTS: Final = 20
"""And that takes one part in so many of the time at most."""

__all__ = ["Bounds", "Subscriber", "Subscriptions"]


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
        self._acks = _Acks(log, self._clock, lambda: list(self._streams))
        self._oldest: tuple[int, Lsn] = (-1, ZERO)
        self._waits = Waits()
        self._noting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the subscribers' places; call it once, before anything else."""
        await self._acks.load()
        self._log.present.append(self._present)
        self._noting = asyncio.create_task(self._note_seen())

    async def close(self) -> None:
        """Write down what waits; call it before the log is closed, once the streams have ended."""
        self.stop_waiting()
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.wait({self._noting})
        await self._acks.settle()
        if self._present in self._log.present:
            self._log.present.remove(self._present)

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
        self,
        who: Subscriber,
        start: Lsn | None,
        *,
        entries_max: int = BATCH_ENTRIES_MAX,
        rights: StreamRights | None = None,
    ) -> AsyncGenerator[Batch | Heartbeat, None]:
        """Yield every entry at ``start`` or later (None: from the oldest retained on), in LSN order, without end.

        What stands in the log comes in batches as large as they may be; new entries come as soon as the one who iterates
        asks for more. A heartbeat comes after :data:`HEARTBEAT_S` of silence. The subscriber's place begins just below
        where it first subscribed, durably, before the first batch; a later subscription does not move it. ``rights``: only
        the feeds that they permit; once all that was sent is acked, its place follows what was walked.

        Raises LsnNotAvailable (at the start, or where retention overtook the stream), BeyondHead, JournalCorrupt (with
        ``resume_lsn``), Unavailable when the server stops. Close the generator: an open stream bounds what may be acked.
        """
        begin = await asyncio.to_thread(self._log.store.without_drops, partial(self._begin, who, start))
        stream = _Stream(who, begin.below)
        self._streams.setdefault(who, set()).add(stream)
        try:
            async with aclosing(
                self._walk(stream, begin, min(entries_max, BATCH_ENTRIES_MAX), rights)
            ) as items:
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

    def _present(self) -> list[SubscriberRow]:
        """Those with an open stream, as memory knows them: they hold whatever the table says. Called from any thread."""
        now_ms = self._clock.wall_ms()
        return [
            SubscriberRow(who.subject, who.subscriber_id, str(place), now_ms)
            for who in list(self._streams)
            if (place := self._acks.place(who)) is not None
        ]

    def _begin(self, who: Subscriber, start: Lsn | None) -> Start:
        """Find where the stream begins, and hold it durably: nothing that was found may be dropped in between."""
        store = self._log.store
        store.refresh()
        begin = find_start(store, start)
        self._acks.begin(who, begin.below, self._clock.wall_ms())
        return begin

    async def _walk(
        self, stream: _Stream, begin: Start, entries_max: int, rights: StreamRights | None
    ) -> AsyncGenerator[Batch | Heartbeat, None]:
        """Walk along the journal; while a chunk is being sent the next one is read."""
        loop, store = asyncio.get_running_loop(), self._log.store
        position, walked, quiet_since = begin.position, begin.walked, loop.time()
        reading: asyncio.Task[Chunk] | None = None

        def read() -> asyncio.Task[Chunk]:
            return asyncio.create_task(
                asyncio.to_thread(read_chunk, store, position, walked, begin.lsn, entries_max, rights)
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
                            if rights is not None:
                                await self._follow_quietly(stream, walked)
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

    async def _follow_quietly(self, stream: _Stream, walked: Lsn) -> None:
        """Let a filtered subscriber that has acked all it was sent hold nothing of what it was not sent."""
        place = self._acks.place(stream.subscriber)
        if place is None or place < stream.sent or walked <= stream.sent:
            return
        stream.sent = walked
        await self._acks.keep(stream.subscriber, min(one.sent for one in self._streams[stream.subscriber]))

    async def _wait_past(self, position: int, timeout_s: float) -> bool:
        """True as soon as the journal's end is above ``position``; False at the time-out and when the server stops."""
        if self._log.store.end() > position:
            return True
        return await self._waits.until(partial(self._log.wait_end_past, position), timeout_s)

    async def _note_seen(self) -> None:
        while True:
            await asyncio.sleep(min(SEEN_EVERY_S, self._log.retention.subscriber_expiry_s / SEEN_PARTS))
            try:
                await self._acks.seen(list(self._streams))
                await self._acks.load()
            except StoreUnavailable as error:
                logger.error("it can't be written down which subscribers are there", detail=error.detail)


class _Acks:
    """The subscribers' places: known in memory, kept in the metadata database, many acks in one transaction.

    The watermark goes by what is in memory, brought up to date at each ack, and by all that is stored from time to time. Of
    a store that other servers use as well, the least place stored is asked for each time: it may lag, never lead.
    """

    def __init__(self, log: Log, clock: Clock, open_streams: Callable[[], Collection[Subscriber]]) -> None:
        self._log = log
        self._clock = clock
        self._open_streams = open_streams
        self._started_ms = clock.wall_ms()
        self._places = Places()
        self._load_due_s = 0.0
        self._looking = threading.Lock()
        self._watermark = ZERO
        self._pending: dict[Subscriber, Lsn] = {}
        self._answers: list[asyncio.Future[None]] = []
        self._keeping: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Take over all that is stored."""
        await asyncio.to_thread(self._load)

    def begin(self, who: Subscriber, below: Lsn, now_ms: int) -> None:
        """Note a subscriber durably with its first place, or that a known one is back. Blocks."""
        self._places.begin(
            self._log.metadata.begin_subscriber(who.subject, who.subscriber_id, str(below), now_ms)
        )
        self._look()

    def place(self, who: Subscriber) -> Lsn | None:
        """Return where ``who`` is; None if it is not known."""
        return self._places.get(who)

    async def keep(self, who: Subscriber, lsn: Lsn) -> Lsn:
        """Move a place forward, durably; returns the watermark once a row says so. MetadataCorrupt if that is damaged."""
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
        """Note that these are there; one whose row has gone begins again where it was."""
        places = {who: place for who in subscribers if (place := self._places.get(who)) is not None}
        if places:
            await asyncio.to_thread(self._store, places)

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
        moved = self._move(places)
        missing = places.keys() - {Subscriber(row.subject, row.subscriber_id) for row in moved}
        if missing:
            moved += self._begin_again({who: places[who] for who in missing})
        self._places.note(moved)
        if self._log.store.several_servers and self._clock.monotonic() >= self._load_due_s:
            self._load()
        else:
            self._look()

    def _move(self, places: dict[Subscriber, Lsn]) -> list[SubscriberRow]:
        rows = [(who.subject, who.subscriber_id, str(lsn)) for who, lsn in places.items()]
        return self._log.metadata.move_subscribers(rows, self._clock.wall_ms())

    def _begin_again(self, places: dict[Subscriber, Lsn]) -> list[SubscriberRow]:
        """Give those that have no row one: it acks before it ever subscribed, or a repair or retention took its row."""
        begun: dict[Subscriber, Lsn] = {}
        for who, lsn in places.items():
            known = self._places.get(who)
            if known is not None:
                logger.warning("a subscriber's row had gone; it is written anew", who=who)
            place = max(lsn, known or ZERO)
            with contextlib.suppress(MetadataCorrupt):  # it is there, but damaged, and whoever acks is told
                self._log.metadata.begin_subscriber(
                    who.subject, who.subscriber_id, str(place), self._clock.wall_ms()
                )
                begun[who] = place
        return self._move(begun) if begun else []

    def _load(self) -> None:
        since, begun_s = self._places.count, self._clock.monotonic()
        self._places.replace(self._log.metadata.subscribers(), since, self._open_streams())
        now_s = self._clock.monotonic()
        self._load_due_s = now_s + max(LOAD_EVERY_S, LOAD_PARTS * (now_s - begun_s))
        self._look()

    def _look(self) -> None:
        """Find the watermark. Where a row is damaged it does not move forward: one place is not known."""
        terms = self._log.retention.terms(self._clock.wall_ms(), self._started_ms)
        places = []
        if self._log.store.several_servers:
            stored = self._log.metadata.least_place(terms.holds_if_seen_after_ms)
            places = [Lsn.parse(stored)] if stored is not None else []
        with self._looking:
            least = self._places.least(terms)
            places += [least] if least is not None else []
            if any(damage.table == SUBSCRIBER.name for damage in self._log.metadata.damages.standing()):
                places.append(self._watermark)
            self._watermark = min(places, default=ZERO)
