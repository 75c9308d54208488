"""A subscription that outlives its connections: nothing lost, nothing given twice, and acks of what is finished.

::

    async with WalClient(address, subscriber_id="backup") as wal, WalSubscription(wal, after=finished) as stream:
        async for record in stream.records(flatten=True):
            ...   # when the loop asks for the next one, this one is finished
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, Self

from headrace.client.wal_acks import FLUSH_S_MAX, Acker, AckPolicy
from headrace.client.wal_answers import without_first
from headrace.client.wal_columns import fastest_check
from headrace.client.wal_continuity import Continuity
from headrace.client.wal_records import Record, records
from headrace.client.wal_stream import EVERYTHING, StreamFilter, WalClient
from headrace.entries.hlc import from_ms
from headrace.entries.lsn import Lsn
from headrace.errors import FeedRecreated, HeadraceError, InvalidRequest, Unauthenticated
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger
from headrace.wire.batch import Heartbeat, ReceivedBatch

logger = get_logger("client")

DOUBTFUL_TRIES_MAX: Final = 8
"""So often in a row something is tried again that a retry may mend or not: a refused token that may be renewed (a new one
may come some seconds late), and statuses that nobody explains, as proxies give them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """How entries are carried, and what is checked of them.

    ``batch_entries``: most entries of a batch (0: the server's bound). ``compression``: names that the server may use.
    ``verify``: every entry's checksum, the order of LSNs and, without a filter, that none of a feed is left out are checked
    before a batch is given; without, only what stands at a batch's ends is. ``want_lengths``: leave it on, unless the server
    does not know it.
    """

    batch_entries: int = 0
    compression: Collection[str] = ()
    want_lengths: bool = True
    verify: bool = True


DEFAULT_TRANSFER: Final = Transfer()


class _Place(NamedTuple):
    """Where the next stream begins: at one of the two, or where the log does."""

    lsn: Lsn | None
    start_time_ms: int | None


class WalSubscription:
    """Batches or records of one subscriber, over as many connections as it takes. Use it in ``async with``.

    Each entry is given once in the life of the object, in LSN order. Over lives it comes at least once: keep the LSN of what
    is finished and name it as ``after``. The first entry is the one behind ``after``, or at ``start`` or behind it, or
    committed at ``start_time_ms`` or later. If none of these is named: the one behind the last ack of this subscriber, and
    the oldest retained one where the server does not know it.
    """

    def __init__(
        self,
        wal: WalClient,
        start: Lsn | None = None,
        *,
        after: Lsn | None = None,
        start_time_ms: int | None = None,
        only: StreamFilter = EVERYTHING,
        transfer: Transfer = DEFAULT_TRANSFER,
        ack: AckPolicy = "batch",
        incarnations: Mapping[int, str] | None = None,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        """Nothing is sent yet. ``incarnations``: of the feeds by region id, as they were known in an earlier life.

        InvalidRequest if more than one beginning is named.
        """
        if sum(begin is not None for begin in (start, after, start_time_ms)) > 1:
            raise InvalidRequest("start, after, start_time_ms: only one of them can be given")
        self._wal = wal
        self._place = _Place(start if after is None else after, start_time_ms)
        self._only = only
        self._transfer = transfer
        self._acker = Acker(wal.ack, ack, backoff())
        self._backoff = backoff()
        self._given = after
        self._check = fastest_check()
        self._continuity = Continuity() if only == EVERYTHING and transfer.verify else None
        self._asks_place = start is None and after is None and start_time_ms is None
        self._doubtful = 0
        self._is_read = False
        self.incarnations: dict[int, str] = dict(incarnations or {})
        """Of each feed that was met, by region id; keep them beside the LSN to notice a feed that was made anew."""

    async def __aenter__(self) -> Self:
        self._acker.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, within_s: float = FLUSH_S_MAX) -> None:
        """Ack what is finished, unless acks are manual, and stop. What the consumer still held comes again next time.

        Never raises for an ack that is not taken within ``within_s``: what it was for comes again, too.
        """
        await self._acker.close(within_s)

    @property
    def acked(self) -> Lsn | None:
        """The last LSN whose ack was taken."""
        return self._acker.acked

    @property
    def ack_error(self) -> HeadraceError | None:
        """Why the last ack was not taken; None if it was. It is tried again until it is."""
        return self._acker.error

    async def ack(self, lsn: Lsn) -> Lsn:
        """Ack everything up to ``lsn``, durably; for the policy ``manual``. Raises as :meth:`WalClient.ack`."""
        return await self._acker.ack(lsn)

    async def items(self) -> AsyncGenerator[ReceivedBatch | Heartbeat, None]:
        """Yield batches and heartbeats. A batch is finished when the next item is asked for.

        Goes on by itself, with growing pauses, after everything that a retry can mend: a lost connection, a server that
        stops, an expired token that can be renewed, BackpressureTimeout. Raises what no retry mends: LsnNotAvailable,
        BeyondHead, SequenceLost, JournalCorrupt (also for a checksum that does not fit, and for entries of a feed that are
        left out; ``lsn`` or ``resume-lsn`` name the place), FeedRecreated (before a feed's entries of another incarnation
        are given; ``resume-lsn`` is theirs), Unauthenticated, Forbidden, InvalidRequest, Usage once the client is closed.
        RuntimeError if it is read a second time.
        """
        async with aclosing(self._items()) as items:
            async for item in items:
                yield item
                if isinstance(item, ReceivedBatch):
                    self._acker.finish(item.last_lsn, len(item.sizes))
                else:
                    self._acker.walk(item.lsn)

    async def batches(self) -> AsyncGenerator[ReceivedBatch, None]:
        """Yield what :meth:`items` does, without the heartbeats."""
        async with aclosing(self.items()) as items:
            async for item in items:
                if isinstance(item, ReceivedBatch):
                    yield item

    async def records(self, *, flatten: bool = False) -> AsyncGenerator[Record, None]:
        """Yield single entries; with ``flatten`` each mutation of an ``OP_BATCH`` by itself. Raises as :meth:`items`.

        An entry is finished when the next record is asked for, an ``OP_BATCH`` with its last mutation.
        """
        async with aclosing(self._items()) as items:
            async for item in items:
                if not isinstance(item, ReceivedBatch):
                    self._acker.walk(item.lsn)
                    continue
                each, since, last = self._acker.counts_entries, 0, item.first_lsn
                for parts in records(item, flatten=flatten):
                    for record in parts:
                        yield record
                        last = record.lsn
                    since += 1
                    if each:
                        self._acker.finish(last, since)
                        since = 0
                self._acker.finish(item.last_lsn, since)

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _items(self) -> AsyncGenerator[ReceivedBatch | Heartbeat, None]:
        if self._is_read:
            raise RuntimeError(
                "a subscription is read once; make another one from the LSN of what is finished"
            )
        self._is_read = True
        delay_s = 0.0
        while True:
            await asyncio.sleep(delay_s)
            try:
                if self._asks_place:
                    self._given = await self._wal.place()
                    self._place, self._asks_place = _Place(self._given, None), False
                async with aclosing(self._open()) as received:
                    async for item in received:
                        self._progress()
                        found = self._taken(item)
                        if found is not None:
                            yield found
            except HeadraceError as error:
                delay_s = self._delay_after(error)
                logger.info("the stream is begun anew", after=str(self._place.lsn), detail=error.detail)

    def _open(self) -> AsyncGenerator[ReceivedBatch | Heartbeat, None]:
        place, transfer = self._place, self._transfer
        return self._wal.subscribe(
            place.lsn,
            start_time_ms=place.start_time_ms,
            only=self._only,
            batch_entries=transfer.batch_entries,
            compression=transfer.compression,
            want_lengths=transfer.want_lengths,
        )

    def _taken(self, item: ReceivedBatch | Heartbeat) -> ReceivedBatch | Heartbeat | None:
        """Judge what came and move the place; None if it was all given before."""
        if isinstance(item, Heartbeat):
            self._walk(item.lsn)
            return item
        if self._transfer.verify:
            self._check(item)
        self._meet(item)
        rest: ReceivedBatch | None = item
        if item.first_lsn == self._given:
            rest = without_first(item)  # the start is inclusive
        if rest is not None and self._continuity is not None:
            self._continuity.check(rest)
        self._given = item.last_lsn
        self._place = _Place(item.last_lsn, None)
        return rest

    def _walk(self, lsn: Lsn) -> None:
        """Move the place to a heartbeat's LSN; but not below ``start_time_ms``, where what comes later was not asked for."""
        since_ms = self._place.start_time_ms
        below = self._place.lsn if since_ms is None else Lsn(from_ms(since_ms), 0, 0)
        if below is None or lsn > below:
            self._place = _Place(lsn, None)

    def _meet(self, batch: ReceivedBatch) -> None:
        """FeedRecreated if a feed of this batch has not the incarnation that it had."""
        for region_id, incarnation in batch.incarnations.items():
            known = self.incarnations.setdefault(region_id, incarnation)
            if known != incarnation:
                raise FeedRecreated(
                    f"the feed of region {region_id} was {known} and is {incarnation}: its entries from "
                    f"lsn={batch.first_lsn} on are of another history",
                    region_id=region_id,
                    incarnation=incarnation,
                    resume_lsn=str(batch.first_lsn),
                )

    def _progress(self) -> None:
        self._backoff.reset()
        self._doubtful = 0

    def _delay_after(self, error: HeadraceError) -> float:
        """Return the pause before the next try in seconds; raises ``error`` if none can mend it."""
        renewable = isinstance(error, Unauthenticated) and self._wal.renews_token
        if renewable or type(error) is HeadraceError:
            self._doubtful += 1
            if self._doubtful > DOUBTFUL_TRIES_MAX:
                raise error
        elif not error.retryable:
            raise error
        return self._backoff.next_delay()
