"""The loop: every minute it seals a segment that is due, drops what the plan says, and raises or clears alarms.

What it does survives a crash at any step: an alarm is raised before the drop that it speaks of, and a drop removes the
oldest segment first. Where the journal can't be written it rests: then nothing grows, and nothing should go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from headrace.entries.hlc import to_ms
from headrace.errors import HeadraceError, StoreUnavailable
from headrace.log.history import written_at_ms
from headrace.log.log import Log
from headrace.log.retention.plan import (
    FORGET_MS,
    RETENTION_S_FLOOR,
    Fate,
    Losing,
    Plan,
    Terms,
    should_roll,
)
from headrace.log.tail import FeedTail
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.server.retention.lags import FeedLags, find_lags
from headrace.server.retention.rates import RateWindow
from headrace.server.retention.steady import SteadyTime
from headrace.server.retention.survey import Moment, Survey, look_again, take_survey

logger = get_logger("server.retention")

PLACE_LOST: Final = "place-lost"
"""Alarm: the byte cap took what a consumer that holds had not read yet. It clears when the consumer is back in range or has
not been seen for ``subscriber-expiry``."""
BYTES_HIGH: Final = "retention-bytes"
"""Alarm: the journal takes so much of the byte cap that the cap will soon decide what goes."""
FORGOTTEN_MAX: Final = 10_000
"""Subscribers, and listeners, removed in one pass."""
GROWTH_LOOK_S: Final = 5.0
"""The journal's growth is looked at this often, so that the byte cap is kept between two passes too."""
GROWTH_PARTS: Final = 16
"""A pass runs early once the journal has grown by this part of the byte cap."""


class Retention:
    """The retention of one log. A pass makes its plan without keeping anybody waiting. Then it looks once more at who holds,
    while nobody can begin to (:meth:`~headrace.log.contract.Store.without_drops`), and drops what still may go.
    """

    def __init__(self, log: Log, clock: Clock, note_seen: Callable[[], Awaitable[None]]) -> None:
        """``note_seen`` writes down who has been heard of since; nothing runs before :meth:`start`."""
        self.window = RateWindow()
        self.dropped: Counter[Fate] = Counter()
        """Bytes dropped since the start, by the reason."""
        self.segments_dropped: Counter[Fate] = Counter()
        self._log = log
        self._clock = clock
        self._note_seen = note_seen
        self._time = SteadyTime(clock)
        self._started_ms = self._time.now_ms()
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.on_due: list[Callable[[], object]] = []
        """Called, in the event loop, before segments are dropped, and when only those who hold them keep them from it; once
        for each that is due."""
        self._due_position = 0
        self._unfinished = True
        """A drop may have ended half way, here or in an earlier process: what is not served may still take space."""

    async def start(self) -> None:
        """Begin with the passes; the first one runs at once."""
        settings = self._log.retention
        if settings.retention_s < RETENTION_S_FLOOR:
            logger.warning("the retention is shorter than RFC-010's 60 minutes", seconds=settings.retention_s)
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End after the pass that runs; call it before the log is closed."""
        self._stop.set()
        if self._task is not None:
            await self._task
            self._task = None

    def terms(self) -> Terms:
        """Return what is in force now."""
        return self._log.retention.terms(self._time.now_ms(), self._started_ms)

    async def survey(self) -> Survey:
        """Look at the journal and its consumers now; changes nothing. Raises StoreUnavailable, JournalCorrupt."""
        await self._note_seen()
        await self._log.refresh()
        return await asyncio.to_thread(
            take_survey,
            self._log.store,
            self._log.metadata,
            self.terms(),
            self._clock.monotonic(),
            self._log.present_subscribers(),
        )

    async def lags(self, tails: Sequence[FeedTail]) -> list[FeedLags]:
        """Return how far behind everyone is in each of ``tails``. Raises StoreUnavailable, JournalCorrupt."""
        log, at_s, terms = self._log, self._clock.monotonic(), self.terms()

        def look() -> list[FeedLags]:
            moment = Moment(terms, at_s, log.store.segments())
            return find_lags(log.store, log.metadata, tails, moment, self.window)

        return await asyncio.to_thread(look)

    async def run_pass(self) -> Survey:
        """Carry out the plan once; returns the survey that was gone by. Raises StoreUnavailable, JournalCorrupt."""
        await self._roll_if_due()
        survey = await self.survey()
        positions = {one.key: one.position for one in survey.consumers if one.position is not None}
        self.window.add(survey.at_s, survey.end, positions)
        self._tell_due(survey.plan)
        if survey.plan.position > survey.segments[0].first_position or self._unfinished:
            try:
                survey = await self._drop(survey)
            except HeadraceError:  # what was to go still takes its space
                plan = survey.plan._replace(bytes_after=survey.plan.bytes_before)
                await self._settle_alarms(replace(survey, plan=plan))
                raise
        await self._settle_alarms(survey)
        await asyncio.to_thread(self._forget, survey.terms)
        return survey

    async def _run(self) -> None:
        pause_s = self._log.retention.every_s
        grown = max(1, self.terms().bytes_max // GROWTH_PARTS)
        while not self._stop.is_set():
            end = self._log.store.end()
            try:
                if self._log.store.not_writable() is None:
                    await self.run_pass()
            except HeadraceError as error:
                logger.error("retention could not do its work", code=error.code, detail=error.detail)
            except Exception:
                logger.exception("retention failed; it goes on at the next pass")
            due_s = self._clock.monotonic() + pause_s
            while (left_s := due_s - self._clock.monotonic()) > 0 and not self._stop.is_set():
                if self._log.store.end() - end > grown:
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), min(left_s, GROWTH_LOOK_S))

    async def _roll_if_due(self) -> None:
        store = self._log.store
        open_segment = (await asyncio.to_thread(store.segments))[-1]
        if open_segment.end == open_segment.first_position:
            return
        first_ms = await asyncio.to_thread(written_at_ms, store, open_segment.first_position)
        if first_ms is None:  # damaged
            first_ms = to_ms(open_segment.newest_global_ts)
        if should_roll(open_segment, first_ms, self.terms()):
            try:
                await self._log.roll()
            except (
                HeadraceError
            ) as error:  # a full disk is the very moment at which the drop that follows matters
                logger.error("a segment can't be sealed", code=error.code, detail=error.detail)
                return
            logger.info("segment sealed, so that it can age", position=f"{open_segment.first_position:#x}")

    def _tell_due(self, plan: Plan) -> None:
        due = max(
            (one.segment.end for one in plan.fates if one.fate not in {Fate.OPEN, Fate.YOUNG}), default=0
        )
        if due > self._due_position:
            self._due_position = due
            for tell in self.on_due:
                tell()

    async def _drop(self, survey: Survey) -> Survey:
        """Drop what still may go; returns the survey that was gone by."""
        log, before = self._log, survey.segments[0].first_position

        def look() -> int:
            nonlocal survey, before
            survey = look_again(survey, log.store, log.metadata, log.present_subscribers())
            before = log.store.oldest_position()  # another server may have been faster
            for losing in survey.plan.losing:
                self._say_lost(losing, survey.terms)
            return survey.plan.position

        self._unfinished = True
        try:
            await log.drop_before(survey.plan.position, look=look)
            self._unfinished = False
        finally:
            self._note_dropped(survey.plan, before, log.store.oldest_position())
        return survey

    def _forget(self, terms: Terms) -> None:
        """Remove who has held nothing for long. After a start nobody expires, and nobody is removed either."""
        if terms.holds_if_seen_after_ms < 0:
            return
        before_ms = terms.holds_if_seen_after_ms - FORGET_MS + 1
        gone = self._log.metadata.forget_subscribers(before_ms, FORGOTTEN_MAX)
        if gone:
            logger.info("subscribers that were not seen for long are removed", subscribers=len(gone))
        listeners = self._log.metadata.forget_listeners(before_ms, FORGOTTEN_MAX)
        if listeners:
            logger.info("listeners that were not seen for long are removed", listeners=len(listeners))

    def _note_dropped(self, plan: Plan, before: int, oldest: int) -> None:
        gone = [
            one
            for one in plan.fates
            if not one.segment.is_open and before <= one.segment.first_position and one.segment.end <= oldest
        ]
        for one in gone:
            self.dropped[one.fate] += one.segment.size
            self.segments_dropped[one.fate] += 1
        if gone:
            logger.info(
                "segments dropped",
                segments=len(gone),
                bytes=sum(one.segment.size for one in gone),
                reasons=sorted({one.fate.value for one in gone}),
                oldest_position=f"{oldest:#x}",
                newest_dropped_lsn=str(self._log.store.dropped_lsn()),
            )

    def _say_lost(self, losing: Losing, terms: Terms) -> None:
        consumer = losing.consumer
        if not consumer.holds(terms.now_ms):
            logger.warning(
                "a consumer that does not hold falls out of the retention", who=consumer.describe()
            )
            return
        detail = (
            f"the {consumer.describe()} loses its place: the journal has reached the byte cap of {terms.bytes_max} bytes "
            "(retention-bytes-max), which wins over everyone who holds"
        )
        logger.error(
            "a consumer that holds loses its place", who=consumer.describe(), bytes_max=terms.bytes_max
        )
        self._try_alarm(PLACE_LOST, detail, terms.now_ms, feed=consumer.feed, agent_id=consumer.name)

    async def _settle_alarms(self, survey: Survey) -> None:
        """Raise or clear the alarm of a crowded journal, and clear those of consumers that are in range again."""
        plan, terms, metadata = survey.plan, survey.terms, self._log.metadata
        standing = {
            (row.code, row.feed, row.agent_id)
            for row in await asyncio.to_thread(metadata.alarms)
            if row.cleared_at_ms is None
        }
        if plan.crowded(terms):
            share = 100 * plan.bytes_after // terms.bytes_max if terms.bytes_max else 100
            detail = f"the journal takes {plan.bytes_after} bytes, {share} % of retention-bytes-max ({terms.bytes_max})"
            await asyncio.to_thread(self._try_alarm, BYTES_HIGH, detail, terms.now_ms)
        elif (BYTES_HIGH, "", "") in standing:
            await asyncio.to_thread(metadata.clear_alarms, BYTES_HIGH, agent_id="", now_ms=terms.now_ms)
        losing = {(one.consumer.feed, one.consumer.name) for one in plan.losing}
        for code, feed, name in standing:
            # A listener of one name may read several feeds, and have lost its place in one of them alone.
            own = [one for one in survey.consumers if (one.feed, one.name) == (feed, name)]
            is_losing = (feed, name) in losing
            out = any((one.lost or is_losing) and terms.now_ms < (one.hold_until_ms or 0) for one in own)
            if code == PLACE_LOST and not out:
                await asyncio.to_thread(
                    metadata.clear_alarms, code, agent_id=name, now_ms=terms.now_ms, feed=feed
                )

    def _try_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> None:
        """A full disk is the very moment at which dropping matters, so it does not wait for an alarm to be written."""
        try:
            self._log.metadata.raise_alarm(code, detail, now_ms, feed=feed, agent_id=agent_id)
        except StoreUnavailable as error:
            logger.error("an alarm can't be written", alarm=code, detail=error.detail)
