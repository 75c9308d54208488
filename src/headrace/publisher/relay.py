"""One feed's relay: join, mark, post, mark processed; again after every outcome that is not clear.

What a crash leaves at each step, and who mends it: marked, not posted -> posted at the next join; posted, not marked
processed -> found in the feed and marked at the next join; a packet still under way from an earlier life -> refused by the
server, because every join brings a new instance and with it a greater epoch, *before* it asks where the feed is.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Final, TypeVar

from headrace.errors import (
    AgentFenced,
    FeedBehindOutbox,
    FeedRecreated,
    Fenced,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    OutboxBehindFeed,
    Recovery,
    SnapshotUnavailable,
    SourceUnavailable,
    Stalled,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from headrace.publisher.attach.finding import Finding
from headrace.publisher.feed_server import FeedServer, SnapshotOffer, decode_key, refused_row
from headrace.publisher.joined import FeedEnded, Joined
from headrace.publisher.marked import APPEND_ENTRIES_MAX, MarkedRow, RowPlace, to_entry
from headrace.publisher.owner import Alarm, FeedPlace, RefusedRow
from headrace.publisher.source import Source
from headrace.publisher.state import StatePlace, StateReader, StateSink
from headrace.publisher.thread import SourceThread
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.runtime.progress import Progress, Work
from headrace.runtime.shutdown import wait_for_stop
from headrace.wire.documents import PublisherRegistered

T = TypeVar("T")

FLOOR_S: Final = 5.0
"""A pass is made at least this often, whatever the wake-up says."""

CHECK_EVERY_S: Final = 60.0
"""Triggers are compared with the catalogue at least this often; a change of the schema asks for it at once."""

COPY_LOOK_S: Final = 5.0
"""How often a feed without a copy is asked whether one was begun."""

MEND_EVERY_S: Final = 2.0
"""What could be mended but for a lock or a right that is missing is tried again this often."""

TROUBLE_S: Final = 10.0
"""What has kept a feed from going on for so long is an alarm; shorter cuts are only logged."""

GATHER_ROWS_MIN: Final = 50
"""So many rows in an append, and fewer than it could have, are a steady stream."""

GATHER_S: Final = 0.03
"""A steady stream is taken this often: many small passes would cost source and server much more than their rows do."""

TOKEN: Final = (Unauthenticated, Forbidden)
"""What the server says of a token; it is taken back once a registration was answered."""

MISPLACED: Final = (FeedRecreated, OutboxBehindFeed, FeedBehindOutbox)
"""Outbox and feed no longer fit together: the feed stops until an operator accepts it as it is."""


class FeedRelay:
    """Relays one feed until ``ending`` is set. Its errors are alarms, in the log and in the outbox database."""

    def __init__(
        self,
        feed: str,
        agent_id: str,
        source: SourceThread,
        server: FeedServer,
        *,
        clock: Clock,
        backoff: Backoff,
        takeover: bool = False,
        snapshots: SnapshotOffer | None = None,
        work: Work | None = None,
    ) -> None:
        """``work`` is told how the relay stands."""
        self.feed = feed
        self._work = work or Progress(clock=clock).work(f"relay {feed}", feed=feed)
        self.wake = asyncio.Event()
        self._agent_id = agent_id
        self._source = source
        self._server = server
        self._clock = clock
        self._backoff = backoff
        self._takeover = takeover
        self._snapshots = snapshots
        self._joined: Joined | None = None
        self._log = get_logger("publisher").bind(feed=feed, agent_id=agent_id)
        self._alarm: tuple[str, str] | None = None
        self._findings: list[Finding] = []
        self._schema_version: int | None = None
        self._check_at = 0.0
        self._copy_at = 0.0
        self._marked_at_ms: int | None = None
        self._refused: MarkedRow | None = None
        self._trouble_since = self._trouble_at = -TROUBLE_S
        self._stored = False

    async def run(self, ending: asyncio.Event) -> None:
        """Relay until ``ending``. Raises AgentFenced, or FeedEnded with the error that no repetition can mend."""
        while not ending.is_set():
            try:
                joined = await self._join()
                await self._relay(joined, ending)
            except AgentFenced:
                raise
            except Fenced as refusal:
                raise AgentFenced(refusal.detail) from None
            except HeadraceError as trouble:
                if trouble.recovery_of_publisher is Recovery.END:
                    raise await self._ended(trouble) from None
                if trouble.recovery_of_publisher is Recovery.ATTEND:
                    await self._raise_alarm(trouble)
                await self._wait_after(trouble, ending)

    async def _join(self) -> Joined:
        """Register as a new instance, then settle the outbox against where the feed is."""
        generation = self._source.generation
        with self._work.during("the server's answer to the registration"):
            registered = await self._register()
        self._takeover = False
        if self._alarm is not None and self._alarm[0] in {kind.code for kind in TOKEN}:
            self._go_on()
        place = FeedPlace(registered.incarnation, registered.next_sequence_id, registered.epoch)
        now_ms = self._clock.wall_ms()
        try:
            resume = await self._ask(lambda source: source.claim(self.feed, self._agent_id, place, now_ms))
        except MISPLACED as stop:
            raise await self._ended(stop, place) from None
        self._log.info("joined the feed", **place._asdict(), resume=resume._asdict())
        self._check_at, self._copy_at = 0.0, 0.0  # what was marked while the server was away keeps its time
        self._stored = False  # claiming a feed takes its alarm back
        self._work.set_position(place.next_sequence_id - 1)
        self._joined = Joined(place, generation)
        return self._joined

    async def _ask(self, call: Callable[[Source], T], *, generation: int | None = None) -> T:
        """Run ``call`` on the source, and note whether it answers."""
        try:
            with self._work.during("the source database's answer"):
                answer = await self._source.run(call, generation=generation)
        except (SourceUnavailable, Stalled):
            self._work.set_reachable(False)
            raise
        self._work.set_reachable(True)
        return answer

    async def _register(self) -> PublisherRegistered:
        instance = str(uuid.uuid4())
        if self._snapshots is None:
            return await self._server.register_publisher(
                self._agent_id, self.feed, instance=instance, takeover=self._takeover
            )
        registered = await self._server.register_publisher(
            self._agent_id,
            self.feed,
            instance=instance,
            takeover=self._takeover,
            snapshot_url=self._snapshots.url,
        )
        key = registered.snapshot_ticket_key
        if isinstance(key, str):
            self._snapshots.learn_key(self.feed, decode_key(key))
        return registered

    @property
    def incarnation(self) -> str | None:
        """The feed's incarnation when it was last joined, None before."""
        return None if self._joined is None else self._joined.place.incarnation

    async def begin_snapshot(self, reader: StateReader, sink: StateSink) -> StatePlace:
        """Fix what ``reader`` reads; see :meth:`~headrace.publisher.source.Source.begin_snapshot`.

        Marking goes on where this leaves it, also while the server is away. SnapshotUnavailable before the feed was joined.
        """
        joined = self._joined
        if joined is None:
            raise SnapshotUnavailable(f"the agent has not joined {self.feed} yet")

        def begin(source: Source) -> StatePlace:
            return source.begin_snapshot(self.feed, self._agent_id, joined.place.epoch, reader, sink)

        place = await self._source.run(begin, generation=joined.generation, patient=True)
        self.wake.set()
        return place

    async def _relay(self, joined: Joined, ending: asyncio.Event) -> None:
        """Post what is marked, first what an earlier life left, and mark what waits, in turns; idle when there is nothing.

        Returns at the end, or when the source was opened anew.
        """
        batch = await self._batch()
        self._tell_waiting(batch)
        while not ending.is_set() and joined.generation == self._source.generation:
            self.wake.clear()
            begun = self._clock.monotonic()
            done = await self._post(batch, joined) if batch else None
            if GATHER_ROWS_MIN <= len(batch) < APPEND_ENTRIES_MAX // 2:
                await wait_for_stop(ending, GATHER_S - (self._clock.monotonic() - begun))
            await self._check_if_due()
            await self._advance(joined, done, rows_max=0 if ending.is_set() else APPEND_ENTRIES_MAX)
            batch = await self._batch()
            copying = await self._copy()
            self._tell_waiting(batch)
            if not copying and not batch:
                self._work.set_trouble(None)
                await self._wait(min(FLOOR_S, self._copy_at - self._clock.monotonic()))

    def _tell_waiting(self, batch: list[MarkedRow]) -> None:
        """The first row is about the oldest: rows are marked in the order in which their transactions became visible."""
        self._work.set_waiting(len(batch), oldest_ms=batch[0].created_at_ms if batch else None)

    async def _post(self, batch: list[MarkedRow], joined: Joined) -> RowPlace:
        """Append ``batch``; returns only when it is durable in the feed, once and in its place."""
        self._refused = None
        entries = [to_entry(row, self._agent_id, self.feed) for row in batch]
        try:
            with self._work.during("the server's answer to an append"):
                await self._server.append(
                    self.feed,
                    entries,
                    epoch=joined.place.epoch,
                    incarnation=joined.place.incarnation,
                    marked_at_ms=self._marked_at_ms,
                )
        except InvalidRequest as refusal:
            self._refused = refused_row(batch, refusal)
            raise
        except TooLarge as refusal:
            largest = max(batch, key=lambda row: row.size)
            self._refused = refused_row(batch, refusal) or largest
            name = f"{'.'.join(largest.table)} {largest.key or ''}".strip()
            raise TooLarge(
                f"{refusal.detail}. The largest entry of this append is {name}, about {largest.size} bytes",
                hint="Begin anew without the large columns: see 'A row that is too large' in the how-to.",
            ) from None
        self._backoff.reset()
        self._work.set_position(batch[-1].sequence_id)
        if self._alarm is not None:
            self._go_on()
        return RowPlace(batch[-1].id, batch[-1].sequence_id)

    def _go_on(self) -> None:
        self._alarm = None
        self._log.info("the feed goes on")

    async def _advance(
        self, joined: Joined, done: RowPlace | None, *, rows_max: int, ahead: bool = False
    ) -> int:
        now_ms, epoch = self._clock.wall_ms(), joined.place.epoch

        def advance(source: Source) -> int:
            return source.advance(
                self.feed, self._agent_id, epoch, done, now_ms, rows_max=rows_max, ahead=ahead
            )

        # A source opened anew meanwhile may be another database, where ``done`` names other rows.
        count = await self._ask(advance, generation=joined.generation)
        if count:
            self._marked_at_ms = now_ms
        return count

    async def _batch(self) -> list[MarkedRow]:
        return await self._ask(lambda source: source.batch(self.feed, self._agent_id))

    async def _check_if_due(self) -> None:
        """Compare triggers with the catalogue: at start, after a change of the schema, and every minute."""
        version = await self._ask(lambda source: source.schema_version())
        if version == self._schema_version and self._clock.monotonic() < self._check_at:
            return
        findings = await self._ask(lambda source: source.mend(self.feed))
        for finding in findings:
            if finding not in self._findings:
                self._log.error("alarm", code=finding.kind, table=finding.table, detail=finding.detail)
        # A rebuild changes the schema itself; it, or an attach elsewhere, leaves copies to be made.
        self._schema_version = await self._ask(lambda source: source.schema_version())
        self._copy_at = 0.0
        self._findings = findings
        waits = any(finding.kind.mendable for finding in findings)
        self._check_at = self._clock.monotonic() + (MEND_EVERY_S if waits else CHECK_EVERY_S)

    async def _copy(self) -> bool:
        """Take one step of a copy if one is due; True if there may be rows to mark now: nobody else tells us of our own.

        After each pass, whether there is a backlog or not: a step is small beside an append, and a busy feed's copy would
        never end otherwise.
        """
        if self._clock.monotonic() < self._copy_at:
            return False
        step = await self._ask(lambda source: source.copy_pending(self.feed))
        # Without a copy we look again from time to time: a command may begin or resume one, and be killed.
        self._copy_at = self._clock.monotonic() + (COPY_LOOK_S if step is None else step.wait_s)
        return True

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.wake.wait()
        except TimeoutError:
            pass

    async def _wait_after(self, trouble: HeadraceError, ending: asyncio.Event) -> None:
        self._work.set_trouble(trouble)
        await self._note_trouble(trouble)
        delay = max(self._backoff.next_delay(), trouble.retry_after_s or 0.0)
        self._log.warning("trying again", code=trouble.code, detail=trouble.detail, delay_s=round(delay, 3))
        until = asyncio.get_running_loop().time() + delay
        if isinstance(trouble, (Unavailable, *TOKEN)) and self._joined is not None:
            await self._mark_ahead(self._joined, until, ending)
        await wait_for_stop(ending, until - asyncio.get_running_loop().time())

    async def _mark_ahead(self, joined: Joined, until: float, ending: asyncio.Event) -> None:
        """Go on marking until then: only the server is away, or does not take us (RFD 5, failure scenarios).

        Nothing is posted under these marks before the next join has compared outbox and feed. Raises AgentFenced.
        """
        try:
            while not ending.is_set() and (left := until - asyncio.get_running_loop().time()) > 0:
                self.wake.clear()
                await self._check_if_due()
                if not await self._advance(joined, None, rows_max=APPEND_ENTRIES_MAX, ahead=True):
                    await self._wait(min(FLOOR_S, left))
        except AgentFenced:
            raise
        except HeadraceError as trouble:
            self._log.warning("marking again later", code=trouble.code, detail=trouble.detail)

    async def _note_trouble(self, trouble: HeadraceError) -> None:
        """Show in ``agent status`` what keeps the feed from going on, once it lasts; whoever joins again takes it back."""
        now = self._clock.monotonic()
        if now - self._trouble_at >= TROUBLE_S:  # the last one is long over
            self._trouble_since = now
        self._trouble_at = now
        told = (
            isinstance(trouble, (SourceUnavailable, Stalled))
            or trouble.recovery_of_publisher is Recovery.ATTEND
        )
        if now - self._trouble_since >= TROUBLE_S and not told:
            await self._raise_alarm(trouble)

    async def _ended(self, error: HeadraceError, place: FeedPlace | None = None) -> FeedEnded:
        self._work.set_trouble(error)
        await self._raise_alarm(error, place)
        return FeedEnded(error)

    async def _raise_alarm(self, error: HeadraceError, place: FeedPlace | None = None) -> None:
        """Say in the log and in the outbox database what keeps the feed from going on; once for the same thing."""
        is_told = self._alarm == (error.code, error.detail)
        if is_told and self._stored:
            return
        self._alarm = (error.code, error.detail)
        row, hint = self._refused, error.advice
        if row is not None:
            hint = f"{hint} To go on without it: headrace agent skip {row.id} --reason WHY, then start the agent again."
        if not is_told:
            self._log.error("alarm", code=error.code, detail=error.detail, hint=hint)
        alarm = Alarm(
            code=error.code,
            detail=error.detail,
            hint=hint,
            row=None
            if row is None
            else RefusedRow(row.id, row.sequence_id, row.op, row.key, row.table, row.control),
            raised_at_ms=self._clock.wall_ms(),
            incarnation="" if place is None else place.incarnation,
            next_sequence_id=0 if place is None else place.next_sequence_id,
        )
        try:
            await self._ask(lambda source: source.set_alarm(self.feed, alarm))
            self._stored = True
        except (SourceUnavailable, Stalled) as trouble:
            self._log.warning("the alarm could not be stored", detail=trouble.detail)
