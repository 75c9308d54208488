"""Hydration leases (design §5): while a listener takes a snapshot of its publisher, retention keeps what it needs next.

A lease holds from the oldest entry that was retained when it was taken, and from behind the snapshot once that is named. It
stands until its end, however long the listener is silent, and its listener may stand at the snapshot's sequence id before
the feed has got there.
"""

from __future__ import annotations

import asyncio
from functools import partial

from headrace.entries.feed import check_agent_id
from headrace.errors import BeyondHead, FeedNotFound, InvalidRequest, NotRegistered
from headrace.log.log import Log
from headrace.log.metadata.contract import HydrationRow
from headrace.log.metadata.owners import ANYBODY, Claimant, check_owner
from headrace.log.tail import FeedTail
from headrace.runtime.clock import Clock
from headrace.server.reading import Known, Start, resolve_start
from headrace.wire.documents import rfc3339
from headrace.wire.hydration_documents import SEQUENCE_ID_MAX, HydrationLease, TakeHydration


class Hydrations:
    """The leases of one log."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock

    async def take(
        self, listener_id: str, feed: str, ask: TakeHydration, who: Claimant = ANYBODY
    ) -> HydrationLease:
        """Take or renew a lease; durable when answered. Naming no snapshot holds from the oldest retained entry again.

        Raises FeedNotFound, NotRegistered, ListenerTaken, InvalidRequest, StoreUnavailable.
        """
        named = _named(ask)
        tail = await self._log.find(feed)
        await asyncio.to_thread(check_listener, self._log, listener_id, tail.name, who)
        hold = partial(self._hold, listener_id, feed, named)
        row, tail = await asyncio.to_thread(self._log.store.without_drops, hold)
        return HydrationLease(
            change_feed_id=feed,
            listener_id=listener_id,
            incarnation=tail.incarnation,
            oldest_sequence_id=tail.oldest,
            head_sequence_id=tail.head,
            holds_from_sequence_id=row.holds_from,
            expires_at=rfc3339(row.expires_at_ms),
        )

    async def end(self, listener_id: str, feed: str, who: Claimant = ANYBODY) -> None:
        """End a lease; nothing happens if there is none.

        Raises FeedNotFound, ListenerTaken, InvalidRequest, StoreUnavailable.
        """
        tail = await self._log.find(feed)
        known = check_agent_id(listener_id, "listener-id")
        await asyncio.to_thread(_check_owner, self._log, known, tail.name, who)
        await asyncio.to_thread(self._log.metadata.end_hydration, known, tail.name)

    async def resolve(
        self, tail: FeedTail, start: Start, known: Known, listener_id: str | None
    ) -> tuple[FeedTail, int]:
        """Return :func:`resolve_start`, and let who takes a snapshot begin behind the head, up to what that stands for.

        ``listener_id`` None (a range names nobody): any lease of the feed will do. Who names an LSN has read that entry, so
        for it the feed has lost something.
        """
        try:
            return await resolve_start(self._log, tail, start, known)
        except BeyondHead:
            tail = self._log.tail(tail.name)
            if isinstance(start, int) and known.lsn is None and await self._covers(tail, start, listener_id):
                return tail, start
            raise

    async def _covers(self, tail: FeedTail, sequence_id: int, listener_id: str | None) -> bool:
        now_ms = self._clock.wall_ms()
        rows = await asyncio.to_thread(self._log.metadata.hydrations, tail.name)
        return any(
            row.sequence_id is not None
            and sequence_id <= row.sequence_id
            and listener_id in {None, row.listener_id}
            and row.incarnation == tail.incarnation
            and now_ms < row.expires_at_ms
            for row in rows
        )

    def _hold(
        self, listener_id: str, feed: str, named: tuple[str, int] | None
    ) -> tuple[HydrationRow, FeedTail]:
        """Note the lease while nothing can be dropped: what it finds retained stays. Blocks, and may be done twice."""
        self._log.store.refresh()
        tail = self._log.store.tail(feed)
        if tail is None:
            raise FeedNotFound(f"there is no feed {feed}", change_feed_id=feed)
        now_ms = self._clock.wall_ms()
        lease_ms = round(self._log.retention.hydration_s * 1000)

        def change(row: HydrationRow | None) -> HydrationRow:
            holds_from = tail.oldest
            if named is not None:
                holds_from = max(named[1] + 1, tail.oldest)
            elif row is not None and _stands(row, tail, now_ms) and row.snapshot_id is None:
                holds_from = max(row.holds_from, tail.oldest)
            snapshot_id, sequence_id = named if named is not None else (None, None)
            return HydrationRow(
                listener_id,
                feed,
                tail.incarnation,
                holds_from,
                snapshot_id,
                sequence_id,
                now_ms,
                now_ms + lease_ms,
            )

        return self._log.metadata.change_hydration(listener_id, feed, change), tail


def check_listener(log: Log, listener_id: str, feed: str, who: Claimant) -> None:
    """Return if the listener is registered and ``who`` may act for it. Blocks. NotRegistered, ListenerTaken."""
    if log.metadata.listener(listener_id, feed) is None:
        raise NotRegistered(f"the listener {listener_id[:80]!r} has not registered with the feed {feed}")
    _check_owner(log, listener_id, feed, who)


def _check_owner(log: Log, listener_id: str, feed: str, who: Claimant) -> None:
    if not who.may_take_over:  # an owner that can't be read keeps no admin out
        check_owner(log.metadata.owner(listener_id, feed), who, listener_id, feed)


def _stands(row: HydrationRow, tail: FeedTail, now_ms: int) -> bool:
    return row.incarnation == tail.incarnation and now_ms < row.expires_at_ms


def _named(ask: TakeHydration) -> tuple[str, int] | None:
    """The snapshot that is named and what it stands for; None if none is."""
    given = {"snapshot-id": ask.snapshot_id, "sequence-id": ask.sequence_id}
    if isinstance(ask.snapshot_id, str) and isinstance(ask.sequence_id, int):
        if not 0 <= ask.sequence_id <= SEQUENCE_ID_MAX:
            raise InvalidRequest(f"sequence-id: {ask.sequence_id} is no sequence id", member="sequence-id")
        return check_agent_id(ask.snapshot_id, "snapshot-id"), ask.sequence_id
    for name, other in (("snapshot-id", "sequence-id"), ("sequence-id", "snapshot-id")):
        if isinstance(given[name], str | int):
            raise InvalidRequest(
                f"{other}: is missing", hint="Give snapshot-id and sequence-id, or neither.", member=other
            )
    return None
