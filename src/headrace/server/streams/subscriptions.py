"""The stream over all feeds and its subscribers: subscribe, acknowledge, ask for the bounds (RFC-010 §4). Faces translate.

Everything is called from the one asyncio loop that also uses the log; what blocks is done in worker threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import BackpressureTimeout, InvalidRequest, StoreUnavailable, Unavailable
from headrace.log.log import Log
from headrace.log.metadata.contract import SubscriberRow
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger
from headrace.runtime.threads import in_thread
from headrace.server.recording import Recorder, Step, subscriber
from headrace.server.streams.acks import Acks
from headrace.server.streams.places import Subscriber
from headrace.server.streams.selection import Selection
from headrace.server.streams.send_queue import SendQueue
from headrace.server.streams.terms import StreamTerms
from headrace.server.streams.walking import (
    CHUNK_BYTES,
    Start,
    find_start,
    find_start_at,
    head_of,
    oldest_of,
    read_chunk,
)
from headrace.server.waits import Waits
from headrace.wire.batch import BATCH_ENTRIES_MAX, Batch, Heartbeat

logger = get_logger("server")


SEEN_EVERY_S: Final = 60.0
"""How often it is written down that subscribers with an open stream are there."""
SEEN_PARTS: Final = 4
"""And at least so many times within ``subscriber-expiry``: other servers of the store go by what is written down."""
TOO_SLOW: Final = "backpressure_timeout: subscriber too slow"
"""RFC-010 §4.4, word for word."""
QUIET_S: Final = 3600.0
"""How long a wait for new entries may take before it is begun anew."""

__all__ = ["Ask", "Bounds", "Subscriber", "Subscriptions"]


class Bounds(NamedTuple):
    """The newest and the oldest retained LSN; both ZERO on an empty log."""

    head: Lsn
    oldest: Lsn


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What a stream is to carry: entries from ``start`` on, or committed at ``start_time_ms`` or later.

    Neither of the two: from the oldest retained entry on. ``selection``: which of them. ``entries_max``: most entries of a
    batch, below the server's own bound.
    """

    start: Lsn | None = None
    start_time_ms: int | None = None
    selection: Selection = field(default_factory=Selection)
    entries_max: int = BATCH_ENTRIES_MAX


_EVERYTHING: Final = Ask()


@dataclass(eq=False, slots=True)
class _Stream:
    """An open stream. Both LSNs begin just below the stream's first entry.

    ``told``: up to here its subscriber knows everything, by a batch or by a heartbeat; so much may be acked.
    ``sent``: the last entry that it was sent; once that is acked, nothing is owed to it up to ``told``.
    """

    subscriber: Subscriber
    queue: SendQueue
    told: Lsn
    sent: Lsn


class Subscriptions:
    """The subscribers of one log."""

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock | None = None,
        terms: StreamTerms | None = None,
        progress: Recorder | None = None,
    ) -> None:
        """``progress`` is told how far subscribers are; None: it is noted nowhere."""
        self._log = log
        self._clock = clock or SystemClock()
        self._progress = progress or Recorder(log, self._clock)
        self._terms = terms or StreamTerms()
        self._streams: dict[Subscriber, set[_Stream]] = {}
        self._acks = Acks(log, self._clock, lambda: list(self._streams))
        self._oldest: tuple[int, Lsn] = (-1, ZERO)
        self._waits = Waits()
        self._looking = asyncio.Lock()
        self._readers: set[asyncio.Task[None]] = set()
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
        if self._readers:
            for reader in self._readers:
                reader.cancel()
            await asyncio.wait(self._readers)  # the log must outlive them
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

    def queue_depths(self) -> dict[Subscriber, int]:
        """Return for each subscriber with an open stream how many entries were read for it and are not sent yet."""
        return {
            who: sum(stream.queue.entries for stream in streams) for who, streams in self._streams.items()
        }

    async def bounds(self) -> Bounds:
        """Return the newest and the oldest retained LSN."""
        await self._log.refresh()
        position = self._log.store.oldest_position()
        if self._oldest[0] != position or self._oldest[1] <= self._log.store.dropped_lsn():
            self._oldest = (position, await asyncio.to_thread(oldest_of, self._log.store))
        return Bounds(head_of(self._log.store), self._oldest[1])

    async def place(self, who: Subscriber) -> Lsn | None:
        """Return the place of ``who``, also where it acked at another server of the store; None if it is not known."""
        if self._log.store.several_servers:
            await self._acks.load()
        return self._acks.place(who)

    def rotate(self) -> int:
        """Ask every open stream's subscriber to begin a new file (``Heartbeat.rotate``); returns how many there are."""
        for streams in self._streams.values():
            for stream in streams:
                stream.queue.ask_rotation()
        return self.open_streams

    async def subscribe(
        self, who: Subscriber, ask: Ask = _EVERYTHING, *, on_stalled: Callable[[], None] | None = None
    ) -> AsyncGenerator[Batch | Heartbeat, None]:
        """Yield every entry that was asked for, in LSN order, without end.

        What stands in the log comes in batches as large as they may be; new entries come as soon as the one who iterates
        asks for more, and are read ahead within the bounds of the :class:`StreamTerms`. A heartbeat comes after silence. The
        subscriber's place begins just below where it first subscribed, durably, before the first batch; a later subscription
        does not move it. Where not everything is asked for, and all that was sent is acked, its place follows what was
        walked.

        Raises LsnNotAvailable (at the start, or where retention overtook the stream), BeyondHead, JournalCorrupt (with
        ``resume_lsn``), Unavailable when the server stops, BackpressureTimeout when the queue was full and nothing was asked
        for in too long: as that can't be raised meanwhile, ``on_stalled`` is called. Close the generator: an open stream
        bounds what may be acked.
        """
        if self.open_streams >= self._terms.streams_max:
            raise Unavailable(
                f"{self._terms.streams_max} streams are open at this server, which is the most",
                hint="Try again later, or at another server of the store.",
            )
        begin = await in_thread(partial(self._log.store.without_drops, partial(self._begin, who, ask)))
        entries_max = min(ask.entries_max, self._terms.batch_entries)
        stream = _Stream(who, SendQueue(self._terms, begin.walked, entries_max), begin.below, begin.below)
        self._streams.setdefault(who, set()).add(stream)
        wanted = ask.selection.stored()
        self._progress.asked(subscriber(who), Step.DELIVERED, int(begin.below), wanted=wanted)
        reader = asyncio.create_task(self._read_ahead(stream.queue, begin, ask, on_stalled))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)
        try:
            async with aclosing(self._items(stream, ask)) as items:
                async for item in items:
                    yield item
        finally:
            self._streams[who].discard(stream)
            if not self._streams[who]:
                del self._streams[who]
            reader.cancel()
            await asyncio.wait({reader})

    async def ack(self, who: Subscriber, lsn: Lsn) -> Lsn:
        """Note durably that ``who`` needs nothing up to ``lsn`` any more; returns the least place of all that hold.

        A place moves forward only. With several open streams it moves to what was told on all of them at most, by batches
        and by heartbeats. Raises InvalidRequest above the head and above what was told on this subscriber's open streams.
        """
        told = [stream.told for stream in self._streams.get(who, ())]
        if not told or lsn > max(told):
            await self._log.refresh()
            head = head_of(self._log.store)
            if lsn > head:
                raise InvalidRequest(f"ack_lsn={lsn} is above head_lsn={head}", member="ack_lsn")
        if told and lsn > max(told):
            raise InvalidRequest(
                f"ack_lsn={lsn} is above {max(told)}, the last LSN that was sent on this subscriber's open streams",
                member="ack_lsn",
            )
        place = min([lsn, *told])
        watermark = await self._acks.keep(who, place)
        self._progress.passed(subscriber(who), Step.ACKED, int(place))
        return watermark

    # -- inside -------------------------------------------------------------------------------------------------------

    def _present(self) -> list[SubscriberRow]:
        """Those with an open stream, as memory knows them: they hold whatever the table says. Called from any thread."""
        now_ms = self._clock.wall_ms()
        return [
            SubscriberRow(who.subject, who.subscriber_id, str(place), now_ms)
            for who in list(self._streams)
            if (place := self._acks.place(who)) is not None
        ]

    def _begin(self, who: Subscriber, ask: Ask) -> Start:
        """Find where the stream begins, and hold it durably: nothing that was found may be dropped in between."""
        store = self._log.store
        store.refresh()
        if ask.start_time_ms is None:
            begin = find_start(store, ask.start)
        else:
            begin = find_start_at(store, ask.start_time_ms)
        self._acks.begin(who, begin.below, self._clock.wall_ms())
        return begin

    async def _items(self, stream: _Stream, ask: Ask) -> AsyncGenerator[Batch | Heartbeat, None]:
        """What is to be sent next; whoever iterates has sent the one before."""
        loop, queue, wanted = asyncio.get_running_loop(), stream.queue, ask.selection.stored()
        quiet_since = loop.time()
        while True:
            if self._waits.stopping:
                raise _stopping()
            batch = await queue.take(max(0.0, quiet_since + self._terms.heartbeat_s - loop.time()))
            if batch is not None:
                stream.told = stream.sent = batch.last_lsn
                yield batch
                who = subscriber(stream.subscriber)
                self._progress.passed(who, Step.DELIVERED, int(batch.last_lsn), wanted=wanted)
            else:
                stream.told = max(stream.told, queue.walked)
                if not ask.selection.is_everything or ask.start_time_ms is not None:
                    await self._follow_quietly(stream.subscriber)
                yield Heartbeat(queue.walked, rotate=queue.take_rotation())
            quiet_since = loop.time()

    def _turn(self, selection: Selection) -> AbstractAsyncContextManager[object]:
        """One stream at a time looks at entries one by one: more of them would keep appends and other streams waiting."""
        return nullcontext() if selection.is_everything else self._looking

    async def _read_ahead(
        self, queue: SendQueue, begin: Start, ask: Ask, on_stalled: Callable[[], None] | None
    ) -> None:
        """Walk along the journal and fill the queue; whatever ends the walk ends the stream."""
        store, position, walked = self._log.store, begin.position, begin.walked
        entries_max = min(ask.entries_max, self._terms.batch_entries)
        try:
            while True:
                await self._wait_past(position)
                if store.end() - position < CHUNK_BYTES:
                    await queue.wait_asked()
                if not await queue.wait_room():
                    queue.give_up(BackpressureTimeout(TOO_SLOW))
                    if on_stalled is not None:
                        on_stalled()
                    return
                read = partial(
                    read_chunk,
                    start=begin.lsn,
                    entries_max=entries_max,
                    bytes_max=self._terms.batch_bytes,
                    selection=ask.selection,
                )
                async with self._turn(ask.selection):
                    chunk = await in_thread(partial(read, store, position, walked))
                position, walked = chunk.end, chunk.walked
                queue.put(chunk.batches, walked)
        except Exception as end:  # noqa: BLE001  # raised where the stream is read
            queue.fail(end)

    async def _follow_quietly(self, who: Subscriber) -> None:
        """Let a subscriber that has acked all it was sent, on each of its streams, hold nothing of what it was not sent."""
        place, streams = self._acks.place(who), self._streams[who]
        if place is None or any(place < stream.sent for stream in streams):
            return
        told = min(stream.told for stream in streams)
        if told > place:
            await self._acks.keep(who, told)

    async def _wait_past(self, position: int) -> None:
        """Return as soon as the journal's end is above ``position``; Unavailable when the server stops."""
        while self._log.store.end() <= position:
            if self._waits.stopping:
                raise _stopping()
            await self._waits.until(partial(self._log.wait_end_past, position), QUIET_S)

    async def _note_seen(self) -> None:
        while True:
            await asyncio.sleep(min(SEEN_EVERY_S, self._log.retention.subscriber_expiry_s / SEEN_PARTS))
            try:
                await self._acks.seen(list(self._streams))
                await self._acks.load()
            except StoreUnavailable as error:
                logger.error("it can't be written down which subscribers are there", detail=error.detail)


def _stopping() -> Unavailable:
    return Unavailable("the server is stopping", hint="Subscribe again from the last LSN that was acked.")
