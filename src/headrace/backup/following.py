"""The stream over all feeds from where an archive ends, and whether it really goes on from there.

The archive decides where the stream begins, not the server's own note of what was acked. A log that does not have the
archive's last entry, and never dropped it, is an older copy of what was archived, or another one: that is refused.
What retention has taken before it was archived is a gap, and refused as well unless somebody accepts it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import NamedTuple, TypeVar

from headrace.client.wal_answers import without_first
from headrace.client.wal_stream import WalClient
from headrace.client.wal_subscription import DEFAULT_TRANSFER, Transfer, WalSubscription
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import (
    BackupGap,
    BeyondHead,
    FeedRecreated,
    Forbidden,
    HeadraceError,
    LsnNotAvailable,
    SequenceLost,
)
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger
from headrace.wire.batch import Heartbeat, ReceivedBatch

logger = get_logger("backup")

T = TypeVar("T")


class Turn(NamedTuple):
    """A feed's history has changed: what comes next is of another one, and belongs into a segment of its own."""

    region_id: int
    incarnation: str


class Lost(NamedTuple):
    """Entries above ``after`` that the server does not have; ``before``: the first one that it has, ZERO if none."""

    after: Lsn
    before: Lsn


class Follower:
    """All entries behind ``end``, the archive's last one; of an archive that has none, all that the server retains.

    ``incarnations``: of the feeds by region id, as they are archived. ``judge`` is asked about a loss before anything was
    given: it returns if that is accepted, else it raises BackupGap.
    """

    def __init__(
        self,
        wal: WalClient,
        end: Lsn | None,
        incarnations: Mapping[int, str],
        judge: Callable[[Lost], Awaitable[None]],
        transfer: Transfer = DEFAULT_TRANSFER,
    ) -> None:
        self._wal = wal
        self._end = self._given = end
        self._judge = judge
        self._transfer = transfer
        self._known = dict(incarnations)
        self._stream: WalSubscription | None = None
        self.is_begun = False
        """Whether the server was found to go on where the archive ends, or its loss was accepted."""
        self.walked_from = end if end is not None else ZERO
        """The LSN behind which nothing is left out up to the first entry that is given. Read it once that was."""
        self.lost: Lost | None = None
        """The loss that was accepted in front of the first entry that is given."""

    @property
    def incarnations(self) -> dict[int, str]:
        """Which history of each feed the entries are of that were given last, by region id."""
        return dict(self._known if self._stream is None else self._stream.incarnations)

    async def items(self) -> AsyncGenerator[ReceivedBatch | Heartbeat | Turn, None]:
        """Yield what the server has from there on, without end; a Turn before the first entry of a feed's other history.

        Raises what :meth:`WalSubscription.items` does, but for FeedRecreated; BackupGap where what comes next is lost, and
        BeyondHead where the server never had what was archived.
        """
        start = self._end if self._end is not None else ZERO
        while True:
            self._stream = WalSubscription(
                self._wal, start, transfer=self._transfer, ack="manual", incarnations=self._known
            )
            try:
                async with self._stream, aclosing(self._stream.items()) as items:
                    is_first = True
                    async for item in items:
                        if isinstance(item, Heartbeat):
                            yield item
                            continue
                        rest = await self._begun(item, start) if is_first else item
                        is_first, self._given = False, item.last_lsn
                        if rest is not None:
                            yield rest
            except FeedRecreated as found:
                region, incarnation = int(found.members["region-id"]), str(found.members["incarnation"])
                self._known = self._stream.incarnations | {region: incarnation}
                yield Turn(region, incarnation)
                start = self._given if self._given is not None else start
            except LsnNotAvailable as error:
                start = await self._behind_dropped(error, start)
            except SequenceLost as error:
                start = await self._behind_damage(error)

    async def _begun(self, batch: ReceivedBatch, start: Lsn) -> ReceivedBatch | None:
        """Judge a stream's first batch; returns what of it is new, None if nothing is."""
        begin = _below(start) if batch.first_lsn == start else start
        if self._given is None:  # the archive begins here
            self.walked_from = begin
        elif self._given != start:  # behind a gap
            await self._accept(Lost(self._given, batch.first_lsn))
            self.walked_from = begin
        elif batch.first_lsn == start:
            self.is_begun = True
            return without_first(batch)
        elif not await patiently(lambda: self._has_dropped(start)):
            await self._accept_other_log(start, batch.first_lsn)
        self.is_begun = True
        return batch

    async def _accept(self, lost: Lost) -> None:
        """Return if the loss is accepted. Never once something was given: what it follows is to be archived first."""
        if self._given != self._end:
            raise BackupGap(
                f"the server no longer has what follows lsn={lost.after}",
                after_lsn=str(lost.after),
                before_lsn=str(lost.before),
            )
        await self._judge(lost)
        self.lost = lost

    async def _accept_other_log(self, end: Lsn, first: Lsn) -> None:
        try:
            await self._accept(Lost(end, first))
        except BackupGap:
            raise BeyondHead(
                f"the server has no entry lsn={end}, with which the archive ends, and never dropped it: it has an older "
                f"copy of the log that was archived, or another log; its next entry is lsn={first}",
                hint="Back this log up to a folder of its own, or go on with a gap on record: --accept-gap REASON.",
                lsn=str(end),
            ) from None
        self.walked_from = _below(first)

    async def _has_dropped(self, lsn: Lsn) -> bool:
        """Tell whether retention has dropped ``lsn`` or something behind it; the log has entries behind it."""
        try:
            async with aclosing(self._wal.subscribe(_below(lsn), batch_entries=1)) as items:
                await anext(items)
        except LsnNotAvailable:
            return True
        return False

    async def _behind_dropped(self, error: LsnNotAvailable, start: Lsn) -> Lsn:
        """Return from where on one can go on behind what retention has dropped; BackupGap if that loss is not accepted.

        BeyondHead if nothing was dropped: then the entry is one that a server does not have since it was rebuilt.
        """
        _, oldest = await patiently(self._wal.bounds)
        if self._given is not None and oldest <= self._given:
            raise BeyondHead(
                f"the server no longer has lsn={self._given}, though it has older entries: it was rebuilt to a moment "
                "before that",
                hint="This archive has entries that the server has not. Back it up to a folder of its own; or, as long as "
                "nothing was appended to it, rebuild it once more, to this archive's end.",
                lsn=str(self._given),
            )
        if self._given is not None:
            await self._accept(Lost(self._given, oldest))
        if oldest <= start:
            raise error
        return oldest

    async def _behind_damage(self, error: SequenceLost) -> Lsn:
        """Return the same behind what was damaged at the server, and skipped by a repair."""
        resume = str(error.members.get("resume-lsn") or "")
        before = Lsn.parse(resume) if resume else ZERO
        await self._accept(Lost(self._given if self._given is not None else ZERO, before))
        if not resume:
            raise error
        return before


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until there is an answer, with growing pauses; raises what no retry mends."""
    backoff = Backoff()
    while True:
        try:
            return await ask()
        except HeadraceError as error:
            if not error.retryable or isinstance(error, Forbidden):
                raise
            if not backoff.failures:
                logger.warning(
                    "the server does not answer; it is asked again until it does", detail=error.detail
                )
            await asyncio.sleep(backoff.next_delay())


def _below(lsn: Lsn) -> Lsn:
    return Lsn.from_int(int(lsn) - 1) if any(lsn) else ZERO
