"""The use cases of readers and listeners: ranges, long polls, streams, registration, positions."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import Final

from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, MetadataCorrupt
from headrace.log.metadata.owners import ANYBODY, Claimant
from headrace.log.tail import FeedTail
from headrace.server import recording
from headrace.server.core import Core, try_to_keep
from headrace.server.following import Follower, Gives, Looks, Watcher
from headrace.server.hydration import Hydrations, check_listener
from headrace.server.reading import (
    STORED_BYTES_MAX,
    Known,
    Piece,
    Start,
    check_place,
    check_retained,
    read_piece,
)
from headrace.server.rendering import Form, Portion, Rendered
from headrace.wire import documents as doc
from headrace.wire.filters import EVERYTHING

SEEN_EVERY_S: Final = 5.0
"""How often it is written down which listeners have polled: one transaction for all of them, not one a poll."""
KNOWN_S: Final = 600.0
"""So long a poll does not ask again whether its listener is there and whose it is."""
KNOWN_MAX: Final = 20_000
"""So many answers are remembered; then all are asked anew."""
LISTENER_BYTES: Final = 4096
"""Room that a new listener's row is thought to take: a page."""


class ReaderCases(Core):
    """What readers ask for, one method each."""

    hydrations: Hydrations
    progress: recording.Recorder
    _looks: Looks
    _registered: dict[tuple[str, str, Claimant], float]
    """Listener id, feed, who may ask for it -> until when that is believed."""
    _seen: set[tuple[str, str]]
    _seen_noted: float

    async def read_range(
        self,
        feed: str,
        start: Start,
        last: int | None,
        limit: int,
        known: Known,
        *,
        bytes_max: int = STORED_BYTES_MAX,
    ) -> Piece:
        """Return the stored frames from behind ``start`` to ``last`` inclusive (None: the head), cut at the head.

        Raises FeedNotFound, FeedRecreated, BeyondHead (a start above the head), SequenceNotAvailable, JournalCorrupt.
        """
        tail, first, last = await self._range(feed, start, last, known)
        return await read_piece(self.log, tail, first, last, limit, bytes_max=bytes_max)

    async def entries(
        self, feed: str, start: Start, last: int | None, known: Known, portion: Portion
    ) -> Rendered:
        """Return the same range as a ``changes-list``; a filter may leave it empty, with a last place that has moved."""
        tail, first, last = await self._range(feed, start, last, known)
        return await self._looks.look(tail, first, last, portion, Form.LIST)

    async def poll(
        self,
        feed: str,
        listener_id: str,
        start: Start,
        *,
        timeout_ms: int,
        known: Known,
        portion: Portion | None = None,
        who: Claimant = ANYBODY,
    ) -> Rendered:
        """Return what follows ``start``: at once if there is any, else when there is, else empty after ``timeout_ms``.

        What a filter takes away ends no poll before its time. Raises as :meth:`read_range` does, NotRegistered, and
        ListenerTaken.
        """
        follower = await self.follow(
            feed, listener_id, start, known=known, portion=portion, form=Form.LIST, who=who
        )
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        return await follower.until_some(deadline)

    async def follow(
        self,
        feed: str,
        listener_id: str,
        start: Start,
        *,
        known: Known,
        portion: Portion | None = None,
        form: Form = Form.EVENTS,
        who: Claimant = ANYBODY,
    ) -> Follower:
        """Return what walks behind ``start`` along the feed for this listener. Raises as :meth:`poll` does."""
        tail = await self.log.find(feed)
        await self._check_listener(listener_id, feed, who)
        await self._saw(listener_id, feed)
        tail, after = await self.hydrations.resolve(tail, start, known, listener_id)
        check_retained(tail, after + 1)
        saw = partial(self._saw, listener_id, feed)
        told = (saw, self._gives(listener_id))
        return Follower(self._looks, self._waits, (tail, after), (portion or Portion(), form), told)

    async def watch(self, feed: str, after: int, portion: Portion) -> Watcher:
        """Return what walks behind ``after`` along the feed, as lists, for somebody who only looks.

        That is no listener: nothing of it is noted, and retention does not wait for it. FeedNotFound, BeyondHead,
        SequenceNotAvailable.
        """
        tail = await check_place(self.log, await self.log.find(feed), after, Known())
        check_retained(tail, after + 1)
        return Watcher(self._looks, self._waits, (tail, after), portion)

    def _gives(self, listener_id: str) -> Gives:
        """Return what notes up to where a listener was given a feed; see :class:`Follower`."""

        def note(tail: FeedTail, place: int, portion: Portion, *, begins: bool) -> None:
            wanted = "" if portion.wanted == EVERYTHING else portion.wanted.stored() or ""
            who = recording.listener(listener_id, tail.name)
            note_place = self.progress.asked if begins else self.progress.passed
            note_place(who, recording.Step.DELIVERED, place, tail.incarnation, wanted)

        return note

    def note_given(self, feed: str, listener_id: str, portion: Portion, rendered: Rendered) -> None:
        """Note that the connection of a poll has taken its answer."""
        self._gives(listener_id)(self.log.tail(feed), rendered.last_sequence_id, portion, begins=False)

    async def register_listener(
        self, ask: doc.RegisterListener, who: Claimant = ANYBODY
    ) -> doc.ListenerRegistered:
        """Register a listener with a feed; idempotent. Answers the feed's bounds and the position it last reported.

        It is ``who``'s from then on: nobody else but an admin may ask, move or register under its name. FeedNotFound,
        ListenerTaken, ListenersTooMany. A new one is refused below the disk reserve, as entries are: DiskReserve.
        """
        listener_id = check_agent_id(ask.listener_id, "listener-id")
        tail = await self.log.find(check_feed_id(ask.change_feed_id))
        metadata, now_ms = self.log.metadata, self._clock.wall_ms()
        with contextlib.suppress(MetadataCorrupt):  # there is one, which is made anew
            if await asyncio.to_thread(metadata.listener, listener_id, tail.name) is None:
                await asyncio.to_thread(self.log.store.check_room, LISTENER_BYTES)
        register = partial(metadata.register_listener, listener_id, tail.name, ask.hold, now_ms, who)
        await asyncio.to_thread(partial(self.log.store.without_drops, register) if ask.hold else register)
        await self.log.refresh()
        tail = self.log.tail(tail.name)  # what it holds of that stays there from here on
        self._remember(listener_id, tail.name, who)
        row = await asyncio.to_thread(metadata.listener, listener_id, tail.name)
        return doc.ListenerRegistered(
            change_feed_id=tail.name,
            incarnation=tail.incarnation,
            oldest_sequence_id=tail.oldest,
            head_sequence_id=tail.head,
            position=row.sequence_id if row is not None and row.incarnation == tail.incarnation else None,
        )

    async def put_position(
        self, listener_id: str, feed: str, place: doc.PositionIn, who: Claimant = ANYBODY
    ) -> doc.Position:
        """Keep a listener's durable place, so that its lag is visible. It may move back: the consumer decides.

        Raises FeedNotFound, NotRegistered, ListenerTaken, FeedRecreated, BeyondHead.
        """
        tail = await self.log.find(feed)
        await asyncio.to_thread(check_listener, self.log, listener_id, feed, who)
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
        self.progress.reported(recording.listener(listener_id, feed), place.sequence_id, place.incarnation)
        return doc.Position(
            listener_id=listener_id,
            change_feed_id=feed,
            incarnation=place.incarnation,
            sequence_id=place.sequence_id,
            lsn=str(lsn) if lsn is not None else None,
        )

    async def _range(
        self, feed: str, start: Start, last: int | None, known: Known
    ) -> tuple[FeedTail, int, int]:
        if last is not None and isinstance(start, int) and last < start:
            raise InvalidRequest(
                f"end-sequence-id: {last} lies before beg-sequence-id {start + 1}", member="end-sequence-id"
            )
        tail, after = await self.hydrations.resolve(await self.log.find(feed), start, known, None)
        if after >= tail.head:  # nothing to answer, unless another server of the store has appended it
            await self.log.refresh()
            tail = self.log.tail(feed)
        return tail, after + 1, tail.head if last is None else min(last, tail.head)

    async def _check_listener(self, listener_id: str, feed: str, who: Claimant) -> None:
        """A listener is forgotten only when it was not seen for long, so a poll asks the database but seldom."""
        known_until = self._registered.get((listener_id, feed, who))
        if known_until is None or self._clock.monotonic() >= known_until:
            await asyncio.to_thread(check_listener, self.log, listener_id, feed, who)
            self._remember(listener_id, feed, who)

    def _remember(self, listener_id: str, feed: str, who: Claimant) -> None:
        if len(self._registered) >= KNOWN_MAX:
            self._registered.clear()
        self._registered[listener_id, feed, who] = self._clock.monotonic() + KNOWN_S

    async def _saw(self, listener_id: str, feed: str) -> None:
        self._seen.add((listener_id, feed))
        if self._clock.monotonic() - self._seen_noted >= SEEN_EVERY_S:
            await self._note_seen()

    async def _note_seen(self) -> None:
        seen, self._seen = self._seen, set()
        self._seen_noted = self._clock.monotonic()
        if seen:
            await try_to_keep(self.log.metadata.seen, seen, self._clock.wall_ms())
