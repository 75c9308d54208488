"""Writes down up to where consumers had come when, so that it can be told afterwards when an entry was delivered.

Readers only note a place in memory. Once a second what has moved is written, some hundred consumers a transaction. A crash
loses the last second: what was delivered then is known from where the consumer asks again.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from headrace.errors import MetadataCorrupt
from headrace.log.log import Log
from headrace.log.metadata.contract import ProgressRow
from headrace.log.metadata.rows import Key
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.server.core import try_to_keep
from headrace.wire.passages import Point, decode_points, encode_points, extended, returned

logger = get_logger("server")

WRITE_EVERY_S: Final = 1.0
"""How often what has moved is written."""
RETRY_EVERY_S: Final = 10.0
"""How often it is tried while the database can't be written."""
WRITTEN_MAX: Final = 500
"""Steps of consumers written in one transaction, in the order in which they moved: so it holds up others for little."""
NOTED_MAX: Final = 20_000
"""Steps of consumers that wait to be written; what further ones do is not noted before there is room. Some 10,000 listeners
that move within a second, or while the database can't be written."""
POINTS_NOTED_MAX: Final = 16
"""Points of one consumer that wait to be written."""
KEPT_MS: Final = 30 * 86_400_000
"""What has not moved for so long is forgotten."""
FORGET_EVERY_S: Final = 3600.0
FORGOTTEN_MAX: Final = 1_000
"""Rows forgotten at a time."""


class Step(StrEnum):
    """What happened to an entry."""

    DELIVERED = "delivered"
    ACKED = "acked"
    DURABLE = "durable"


class Traveller(NamedTuple):
    """Who moves along a feed, or (``feed`` empty) along all. The first columns of a :class:`ProgressRow`."""

    consumer: str
    subject: str
    name: str
    feed: str


LISTENER: Final = "listener"
SUBSCRIBER: Final = "subscriber"
JOURNAL: Final = Traveller("journal", "", "", "")


def listener(listener_id: str, feed: str) -> Traveller:
    """Return a listener of a feed."""
    return Traveller(LISTENER, "", listener_id, feed)


def subscriber(who: tuple[str, str]) -> Traveller:
    """Return a subscriber (subject, name), whose places are LSNs."""
    return Traveller(SUBSCRIBER, *who, "")


@dataclass(slots=True)
class _Noted:
    """What of one consumer waits to be written. ``incarnation``: of the feed; another one makes all before it void.

    ``back_to``: the earliest place to which it went back meanwhile, None if it did not: what is written behind that is void.
    """

    incarnation: str
    wanted: str
    points: list[Point] = field(default_factory=list)
    back_to: int | None = None

    def go_back(self, place: int) -> None:
        """Note that all behind ``place`` is still to come."""
        self.back_to = place if self.back_to is None else min(self.back_to, place)
        self.points = returned(self.points, place)


_Key = tuple[str, str, str, str, str]


class Recorder:
    """The progress of one server's consumers. Noted in the loop that serves; call :meth:`start` there."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._noted: dict[_Key, _Noted] = {}
        self._writing: asyncio.Task[None] | None = None
        self._end = 0
        self._one_at_a_time = asyncio.Lock()
        self._has_room = True
        self._closing = asyncio.Event()

    async def start(self) -> None:
        """Begin to write; what was noted before is written too."""
        self._writing = asyncio.create_task(self._write_on())

    async def close(self) -> None:
        """Write all that was noted; call it before the log is closed."""
        if self._writing is not None:
            self._closing.set()
            await self._writing
            await self.write()

    def asked(self, who: Traveller, step: Step, place: int, incarnation: str = "", wanted: str = "") -> None:
        """Note that ``who`` begins behind ``place``: it has had what lies before it, or passes over it.

        What it had been given behind that is to come again.
        """
        self._note(who, step, place, incarnation, wanted, skipped=True, back=True)

    def reported(self, who: Traveller, place: int, incarnation: str) -> None:
        """Note that ``who`` says it is done with all up to ``place``, and with nothing behind: it may move back."""
        self._note(who, Step.ACKED, place, incarnation, "", skipped=False, back=True)

    def passed(self, who: Traveller, step: Step, place: int, incarnation: str = "", wanted: str = "") -> None:
        """Note that the step is done with all that ``who`` wants up to ``place``, behind where it had been."""
        self._note(who, step, place, incarnation, wanted, skipped=False)

    def _note(
        self,
        who: Traveller,
        step: Step,
        place: int,
        incarnation: str,
        wanted: str,
        *,
        skipped: bool,
        back: bool = False,
    ) -> None:
        key = (*who, step.value)
        noted = self._noted.get(key)
        if noted is None or noted.incarnation != incarnation or noted.wanted != wanted:
            if noted is None and len(self._noted) >= NOTED_MAX:
                if self._has_room:
                    self._has_room = False
                    logger.warning("it is not noted how far some consumers are", waiting_max=NOTED_MAX)
                return
            kept = noted.back_to if noted is not None and noted.incarnation == incarnation else None
            noted = self._noted[key] = _Noted(incarnation, wanted, back_to=kept)
        if back:
            noted.go_back(place)
        points = noted.points
        if points and place <= points[-1].place:
            return
        point = Point(place, self._clock.wall_ms(), skipped)
        if points and not skipped and not points[-1].skipped:
            points[-1] = point
        elif len(points) < POINTS_NOTED_MAX:
            points.append(point)
        else:
            points[-1] = point._replace(skipped=True)

    async def write(self) -> bool:
        """Write all that moved before the call. False if it can't be written, as on a full disk: it waits for the next time.

        One that is under way is waited for: what it took is written too when this returns.
        """
        async with self._one_at_a_time:
            self._note_durable()
            keys = list(self._noted)
            for begin in range(0, len(keys), WRITTEN_MAX):
                if not await self._write(keys[begin : begin + WRITTEN_MAX]):
                    return False
            self._has_room = True
            return True

    async def _write(self, keys: list[_Key]) -> bool:
        taken = {key: self._noted.pop(key) for key in keys}
        done = False

        def keep() -> None:
            nonlocal done
            self._log.metadata.progress.change(keys, lambda key, row: _moved(key, row, taken[key]))
            done = True

        await try_to_keep(keep)
        if not done:
            for key, noted in taken.items():
                newer = self._noted.get(key)
                if newer is None or (newer.incarnation, newer.wanted) == (noted.incarnation, noted.wanted):
                    if newer is not None and newer.back_to is not None:
                        noted.go_back(newer.back_to)
                    points = [*noted.points, *(newer.points if newer is not None else ())]
                    noted.points = extended([], points, POINTS_NOTED_MAX)
                    self._noted[key] = noted
        return done

    def _note_durable(self) -> None:
        """All below the visible end is durable by now: asked here, so that no append is slower by it."""
        end = self._log.store.end()
        if end > self._end:
            self._end = end
            self.passed(JOURNAL, Step.DURABLE, end)

    async def _write_on(self) -> None:
        forget_at, pause_s = 0.0, WRITE_EVERY_S
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)
            try:
                pause_s = WRITE_EVERY_S if await self.write() else RETRY_EVERY_S
                if self._clock.monotonic() >= forget_at:
                    forget_at = self._clock.monotonic() + FORGET_EVERY_S
                    before_ms = self._clock.wall_ms() - KEPT_MS
                    await try_to_keep(self._log.metadata.progress.forget, before_ms, FORGOTTEN_MAX)
            except Exception:
                logger.exception("it can't be written down how far consumers are")


def _moved(key: Key, row: ProgressRow | None, noted: _Noted) -> ProgressRow | None:
    """The row once what was noted is added; None if that says nothing new."""
    known: list[Point] = []
    if row is not None and row.incarnation == noted.incarnation:
        with contextlib.suppress(MetadataCorrupt):  # of a later version: begun anew
            known = decode_points(row.points)
        if row.wanted != noted.wanted:  # what the filter before took away is not known any more
            known = [point._replace(skipped=True) for point in known]
    points = extended(known if noted.back_to is None else returned(known, noted.back_to), noted.points)
    if row is not None and points == known and row.wanted == noted.wanted:
        return None
    consumer, subject, name, feed, step = key
    said = (noted.incarnation, noted.wanted, points[-1].at_ms, encode_points(points))
    return ProgressRow(consumer, subject, name, feed, step, *said)
