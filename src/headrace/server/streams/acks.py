"""Where the subscribers are, kept durably: acks of one moment share a transaction, and the watermark follows."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, MetadataCorrupt, StoreUnavailable
from headrace.log.log import Log
from headrace.log.metadata.contract import SubscriberRow
from headrace.log.metadata.rows import SUBSCRIBER
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.server.streams.places import Places, Subscriber

logger = get_logger("server")

LOAD_EVERY_S: Final = 1.0
"""At most so often, while there are acks, the places that other servers have written are read; those of one server alone,
where nobody else writes any, whenever it is noted who is there."""
LOAD_PARTS: Final = 20
"""And that takes one part in so many of the time at most."""


class Acks:
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
        since = self._places.count
        row = self._log.metadata.begin_subscriber(who.subject, who.subscriber_id, str(below), now_ms)
        dropped = self._log.store.dropped_lsn()
        if (
            Lsn.parse(row.lsn) < dropped < below
        ):  # what it held was dropped: it begins anew, behind a base snapshot
            (row,) = self._log.metadata.move_subscribers([(*who, str(below))], now_ms) or (row,)
        self._places.begin(row, since)
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
