"""The use cases, one method each; HTTP (and later gRPC) only translate them. Refusals are :mod:`headrace.errors`.

Everything is called from the one asyncio loop that also uses the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, ParamSpec

from headrace import __version__
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.entries.lsn import Lsn
from headrace.errors import (
    DuplicateEntry,
    HeadraceError,
    InvalidRequest,
    NotRegistered,
    StoreUnavailable,
)
from headrace.log.log import Log
from headrace.log.requests import Append, Appended
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger
from headrace.server.encoding import PostTerms, append_of
from headrace.server.metrics.exposition import exposition
from headrace.server.publishing import (
    appended,
    configuration_of,
    registered,
    registration_of,
    settings_view,
    tail_view,
)
from headrace.server.reading import Known, Piece, check_place, read_piece
from headrace.server.retention.explaining import explain
from headrace.server.retention.lags import FeedLags
from headrace.server.retention.loop import Retention
from headrace.server.waits import Waits
from headrace.server.workload import run_sized
from headrace.wire import documents as doc
from headrace.wire.retention_documents import RetentionView

logger = get_logger("server")

P = ParamSpec("P")

DAMAGE_LOOK_EVERY_S: Final = 3600.0
"""How often it is looked whether damage that an alarm tells of is still there; and once at start."""
SEEN_EVERY_S: Final = 5.0
"""How often it is written down which listeners have polled: one transaction for all of them, not one a poll."""


class Service:
    """The server's use cases over one log."""

    def __init__(
        self, log: Log, *, clock: Clock | None = None, new_incarnation: Callable[[], object] = uuid.uuid4
    ) -> None:
        self.log = log
        self._clock = clock or SystemClock()
        self._new_incarnation = new_incarnation
        self._waits = Waits()
        self._registered: set[tuple[str, str]] = set()
        self._seen: set[tuple[str, str]] = set()
        self._seen_noted = self._clock.monotonic()
        self._looking_again: asyncio.Task[None] | None = None
        self._damage_ended = asyncio.Event()
        self.retention = Retention(log, self._clock, self._note_seen)

    async def start(self) -> None:
        """Raise the alarm of every quarantine that stands: a crash may have come between the two."""
        for tail in self.log.feeds():
            for mark in tail.quarantines.values():
                await self._alarm_of_quarantine(tail.name, mark.agent_id, mark.sequence_id)
        await self.retention.start()
        self._looking_again = asyncio.create_task(self._look_again_at_damage())

    async def close(self) -> None:
        """End retention and write down what was gathered; call it before the log is closed."""
        self.stop_waiting()
        if self._looking_again is not None:
            self.log.damage.end()
            self._damage_ended.set()
            await self._looking_again
        await self.retention.close()
        await self._note_seen()

    def stop_waiting(self) -> None:
        """Let every long poll answer now, and every later one at once: the server is about to stop."""
        self._waits.stop()

    # -- publishers ---------------------------------------------------------------------------------------------------

    async def register_publisher(self, ask: doc.RegisterPublisher) -> doc.PublisherRegistered:
        """Claim a feed for a publisher (design §5). Idempotent for one ``instance``; durable when answered.

        Raises InvalidRequest, FeedOwned, Unavailable.
        """
        request = registration_of(ask, str(self._new_incarnation()))
        return registered(await self.log.register(request), request.agent_id)

    async def configure(self, feed: str, ask: doc.ChangeSettings) -> doc.FeedSettings:
        """Change a feed's settings; durable when answered. What is judged from then on is judged by them.

        ``key-field`` and ``changes`` are read when a post is encoded, so another server of the store has to hear of them.
        Raises FeedNotFound, Unavailable.
        """
        return settings_view(await self.log.configure(configuration_of(feed, ask)))

    async def settings(self, feed: str) -> doc.FeedSettings:
        """Return a feed's settings; FeedNotFound."""
        await self.log.refresh()
        return settings_view(self.log.tail(feed))

    async def append(self, feed: str, entries: Sequence[doc.EntryIn], terms: PostTerms) -> doc.Appended:
        """Append a post's entries atomically; answered only after they are durable (RFD 5 s5b, KAFKA-2260).

        A ``sequence-id`` that the feed already has quarantines the publisher and raises an alarm (RFD 5, failure scenarios).
        """
        tail = await self.log.find(feed)
        posted = dataclasses.replace(terms, posted_at_ms=self._clock.wall_ms())
        append = await run_sized(len(entries), append_of, feed, tail.settings, entries, posted)
        try:
            return appended(await self.append_soon(append))
        except DuplicateEntry as refusal:
            await self._alarm_of_quarantine(feed, append.producer, refusal.members.get("received"))
            raise

    def append_soon(self, append: Append) -> asyncio.Future[Appended]:
        """Queue an append, in the order of the calls; the future gets its places or its refusal, once durable.

        The one way into the log for every face, so that what is asked of who appends is asked here, and of everybody.
        """
        return self.log.append_soon(append)

    async def tail(self, feed: str, producer: str | None) -> doc.Tail:
        """Return where a feed ends, and the last append of ``producer``: what it resumes from after any unclear outcome.

        So it is where the feed ends now, whichever server of the store the last append went through.
        """
        await self.log.refresh()
        return tail_view(self.log.tail(feed), producer)

    async def release(self, agent_id: str) -> doc.Released:
        """Lift a publisher's quarantine in every feed and clear its alarm; NotRegistered if no feed knows the agent."""
        await self.log.refresh()
        if not any(agent_id in tail.agents for tail in self.log.feeds()):
            raise NotRegistered(f"the publisher {agent_id} has not registered with any feed")
        feeds = await self.log.release(agent_id)
        await asyncio.to_thread(
            self.log.metadata.clear_alarms,
            DuplicateEntry.code,
            agent_id=agent_id,
            now_ms=self._clock.wall_ms(),
        )
        return doc.Released(agent_id=agent_id, feeds=feeds)

    # -- readers ------------------------------------------------------------------------------------------------------

    async def read_range(self, feed: str, first: int, last: int | None, limit: int, known: Known) -> Piece:
        """Return the stored frames of the inclusive range ``first`` … ``last`` (None: the head), cut at the head.

        Raises FeedNotFound, FeedRecreated, BeyondHead (``first`` - 1 above the head), SequenceNotAvailable, JournalCorrupt.
        """
        if last is not None and last < first - 1:
            raise InvalidRequest(
                f"end-sequence-id: {last} lies before beg-sequence-id {first}", member="end-sequence-id"
            )
        tail = await check_place(self.log, await self.log.find(feed), first - 1, known)
        if first > tail.head:  # nothing to answer, unless another server of the store has appended it
            await self.log.refresh()
            tail = self.log.tail(feed)
        return await read_piece(
            self.log, tail, first, tail.head if last is None else min(last, tail.head), limit
        )

    async def register_listener(self, ask: doc.RegisterListener) -> doc.ListenerRegistered:
        """Register a listener with a feed; idempotent. Answers the feed's bounds and the position it last reported."""
        listener_id = check_agent_id(ask.listener_id, "listener-id")
        tail = await self.log.find(check_feed_id(ask.change_feed_id))
        metadata, now_ms = self.log.metadata, self._clock.wall_ms()
        register = partial(metadata.register_listener, listener_id, tail.name, ask.hold, now_ms)
        await asyncio.to_thread(partial(self.log.store.without_drops, register) if ask.hold else register)
        await self.log.refresh()
        tail = self.log.tail(tail.name)  # what it holds of that stays there from here on
        self._registered.add((listener_id, tail.name))
        row = await asyncio.to_thread(metadata.listener, listener_id, tail.name)
        return doc.ListenerRegistered(
            change_feed_id=tail.name,
            incarnation=tail.incarnation,
            oldest_sequence_id=tail.oldest,
            head_sequence_id=tail.head,
            position=row.sequence_id if row is not None and row.incarnation == tail.incarnation else None,
        )

    async def poll(
        self, feed: str, listener_id: str, after: int, *, timeout_ms: int, limit: int, known: Known
    ) -> Piece:
        """Return what follows ``after``: at once if there is any, else when there is, else empty after ``timeout_ms``.

        Raises as :meth:`read_range` does, and NotRegistered.
        """
        tail = await self.log.find(feed)
        await self._check_listener(listener_id, feed)
        self._seen.add((listener_id, feed))
        if self._clock.monotonic() - self._seen_noted >= SEEN_EVERY_S:
            await self._note_seen()
        tail = await check_place(self.log, tail, after, known)
        if tail.head <= after:
            await self._waits.until(partial(self.log.wait_past, feed, after), timeout_ms / 1000)
        tail = self.log.tail(feed)
        return await read_piece(self.log, tail, after + 1, tail.head, limit)

    async def put_position(self, listener_id: str, feed: str, place: doc.PositionIn) -> doc.Position:
        """Keep a listener's durable place, so that its lag is visible. It may move back: the consumer decides.

        Raises FeedNotFound, NotRegistered, FeedRecreated, BeyondHead.
        """
        tail = await self.log.find(feed)
        await self._check_listener(listener_id, feed)
        lsn = Lsn.parse(place.lsn) if place.lsn is not None else None
        await check_place(self.log, tail, place.sequence_id, Known(place.incarnation, lsn))
        await asyncio.to_thread(
            self.log.metadata.put_position,
            listener_id,
            feed,
            place.incarnation,
            place.sequence_id,
            str(lsn) if lsn is not None else None,
            self._clock.wall_ms(),
        )
        return doc.Position(
            listener_id=listener_id,
            change_feed_id=feed,
            incarnation=place.incarnation,
            sequence_id=place.sequence_id,
            lsn=str(lsn) if lsn is not None else None,
        )

    # -- operators ----------------------------------------------------------------------------------------------------

    async def feeds(self) -> doc.FeedList:
        """Return every feed with its bounds, owner, listeners and subscribers, by region id."""
        return doc.FeedList(feeds=[_view(lags) for lags in await self.retention.lags(self.log.feeds())])

    async def feed(self, feed: str) -> doc.FeedView:
        """Return one feed with its bounds, owner, listeners and subscribers; FeedNotFound."""
        (lags,) = await self.retention.lags([await self.log.find(feed)])
        return _view(lags)

    async def explain_retention(self) -> RetentionView:
        """Return what retention keeps and would drop now, and why; changes nothing."""
        return await explain(self.log, self.retention)

    async def metrics(self) -> bytes:
        """Return the metrics in Prometheus' text format."""
        return await exposition(self.log, self.retention)

    async def alarms(self) -> doc.AlarmList:
        """Return the alarms that stand, newest first, then the newest cleared ones."""
        rows = self.log.troubles.among(await asyncio.to_thread(self.log.metadata.alarms))
        return doc.AlarmList(
            alarms=[
                doc.AlarmView(
                    alarm_id=row.alarm_id,
                    code=row.code,
                    raised_at=doc.rfc3339(row.raised_at_ms),
                    detail=row.detail,
                    change_feed_id=row.feed,
                    agent_id=row.agent_id,
                    cleared_at=doc.rfc3339(row.cleared_at_ms) if row.cleared_at_ms is not None else None,
                )
                for row in rows
            ]
        )

    def health(self) -> doc.Health:
        """Say that the process answers."""
        return doc.Health(status="ok", version=__version__, reasons=[])

    def readiness(self) -> doc.Health:
        """Say whether appends are taken, and if not, why."""
        reasons = self.not_appending()
        return doc.Health(status="not-ready" if reasons else "ok", version=__version__, reasons=reasons)

    def not_appending(self) -> list[str]:
        """Why appends are not taken; empty when they are."""
        return [*self.log.not_ready, *self._stopping()]

    def not_reading(self) -> list[str]:
        """Why reads are not served; empty when they are. A writer that has stopped is no reason."""
        return [*self.log.not_readable, *self._stopping()]

    # -- inside -------------------------------------------------------------------------------------------------------

    def _stopping(self) -> list[str]:
        return ["the server is stopping"] if self._waits.stopping else []

    async def _look_again_at_damage(self) -> None:
        """An alarm of damage stands while the damage does: at start the file may have been put back, later been dropped."""
        while not self._damage_ended.is_set():
            try:
                await asyncio.to_thread(self.log.damage.look_again)
            except HeadraceError as error:
                logger.warning("the damage that alarms tell of can't be looked at", detail=error.detail)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._damage_ended.wait(), DAMAGE_LOOK_EVERY_S)

    async def _check_listener(self, listener_id: str, feed: str) -> None:
        """Nothing unregisters a listener, so a poll asks the database only once."""
        if (listener_id, feed) in self._registered:
            return
        if await asyncio.to_thread(self.log.metadata.listener, listener_id, feed) is None:
            raise NotRegistered(f"the listener {listener_id[:80]!r} has not registered with the feed {feed}")
        self._registered.add((listener_id, feed))

    async def _note_seen(self) -> None:
        seen, self._seen = self._seen, set()
        self._seen_noted = self._clock.monotonic()
        if seen:
            await _try_to_keep(self.log.metadata.seen, seen, self._clock.wall_ms())

    async def _alarm_of_quarantine(self, feed: str, agent_id: str, sequence_id: object) -> None:
        detail = f"the publisher {agent_id} posted sequence id {sequence_id} of the feed {feed} again and is quarantined"
        logger.error("publisher quarantined", feed=feed, agent_id=agent_id, sequence_id=sequence_id)
        now_ms = self._clock.wall_ms()
        await _try_to_keep(
            self.log.metadata.raise_alarm, DuplicateEntry.code, detail, now_ms, feed=feed, agent_id=agent_id
        )


def _view(lags: FeedLags) -> doc.FeedView:
    tail = lags.tail
    return doc.FeedView(
        change_feed_id=tail.name,
        region_id=tail.region_id,
        tenant_id=tail.tenant,
        incarnation=tail.incarnation,
        owner=tail.owner,
        epoch=tail.epoch,
        oldest_sequence_id=tail.oldest,
        head_sequence_id=tail.head,
        next_sequence_id=tail.next_sequence_id,
        newest_lsn=tail.newest_lsn,
        quarantined=bool(tail.quarantines),
        shared=tail.shared,
        settings=settings_view(tail),
        listeners=[one.view() for one in lags.listeners],
        subscribers=[one.view() for one in lags.subscribers],
    )


async def _try_to_keep(write: Callable[P, object], *given: P.args, **named: P.kwargs) -> None:
    """Write what is for people only; readers and refusals go on without it, on a full disk too."""
    try:
        await asyncio.to_thread(write, *given, **named)
    except StoreUnavailable as error:
        logger.error("the metadata database can't be written", detail=error.detail)
