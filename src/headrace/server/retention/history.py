"""Where feeds and their consumers were over the last hour: what a chart of lag shows. Bounded memory, lost at a restart.

:class:`History` is pure; :class:`HistoryKeeper` fills it while the server runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from array import array
from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.errors import HeadraceError
from headrace.log.log import Log
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.server.retention.lags import FeedLags
from headrace.server.retention.loop import Retention

logger = get_logger("server")

SAMPLE_EVERY_S: Final = 10.0
SPAN_MS: Final = 3_600_000
"""How far back is remembered: an hour of samples, 360 a series."""
POINTS_MAX: Final = SPAN_MS // int(SAMPLE_EVERY_S * 1000)
SERIES_MAX: Final = 1_000
"""Series that are remembered at once, about 9 KB each; who comes later is not, until one has ended."""
SHARE_MAX: Final = 0.02
"""At most this part of the time is spent on looking: with very many consumers there are fewer samples."""
RATE_MS: Final = 60_000
"""A feed's rate is that of the last minute."""
RATE_MS_MIN: Final = 1_000
"""Nothing is said of a rate before a feed was watched for so long."""

_WIDTH: Final = 3
"""Numbers of a point in its array."""


class SeriesKey(NamedTuple):
    """Whose places: ``kind`` is feed, listener or subscriber; ``subject`` and ``name`` say which one.

    Of a feed, ``name`` is its incarnation: another history has another head.
    """

    kind: str
    subject: str
    name: str
    feed: str


class Point(NamedTuple):
    """A consumer's lag at ``at_ms`` (UTC milliseconds); NaN where that was not known. Of a feed, ``entries`` is its head."""

    at_ms: float
    entries: float
    seconds: float


class History:
    """The last hour of every series, oldest point first; at most :data:`SERIES_MAX` of them."""

    def __init__(self) -> None:
        self._series: dict[SeriesKey, array[float]] = {}

    def add(self, at_ms: int, found: Iterable[FeedLags]) -> None:
        """Note where everyone is at ``at_ms``, and forget what is older than an hour."""
        for lags in found:
            feed = lags.tail.name
            self._note(SeriesKey("feed", "", lags.tail.incarnation, feed), at_ms, lags.tail.head, 0.0)
            for one in lags.listeners:
                key = SeriesKey("listener", "", one.row.listener_id, feed)
                self._note(key, at_ms, one.entries, one.seconds)
            for other in lags.subscribers:
                key = SeriesKey("subscriber", other.row.subject, other.row.subscriber_id, feed)
                self._note(key, at_ms, other.entries, other.seconds)
        for key, points in list(self._series.items()):
            while points and (points[0] < at_ms - SPAN_MS or len(points) > POINTS_MAX * _WIDTH):
                del points[:_WIDTH]
            if not points:
                del self._series[key]

    def points(self, key: SeriesKey) -> list[Point]:
        """Return what is remembered of one series, oldest first; empty where nothing is."""
        flat = self._series.get(key, array("d"))
        return [Point(*flat[at : at + _WIDTH]) for at in range(0, len(flat), _WIDTH)]

    def rate(self, feed: str, incarnation: str, head: int, at_ms: int) -> float | None:
        """Return how many entries a second the feed got in the last minute; None where that is not known yet."""
        flat = self._series.get(SeriesKey("feed", "", incarnation, feed), array("d"))
        then: tuple[float, float] | None = None
        for at in range(len(flat) - _WIDTH, -1, -_WIDTH):
            if flat[at] < at_ms - RATE_MS:
                break
            then = flat[at], flat[at + 1]
        if then is None or at_ms - then[0] < RATE_MS_MIN:
            return None
        return max(0.0, head - then[1]) * 1000 / (at_ms - then[0])

    def _note(self, key: SeriesKey, at_ms: int, entries: int | None, seconds: float | None) -> None:
        points = self._series.get(key)
        if points is None:
            if len(self._series) >= SERIES_MAX:
                return
            points = self._series[key] = array("d")
        points.extend(
            (at_ms, math.nan if entries is None else entries, math.nan if seconds is None else seconds)
        )


class HistoryKeeper:
    """Looks every few seconds where everyone is, from the server's start to its end."""

    def __init__(self, log: Log, clock: Clock, retention: Retention) -> None:
        """Nothing is read before :meth:`start`."""
        self._log, self._clock, self._retention = log, clock, retention
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.history = History()

    async def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop looking; call it before the log is closed."""
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._stop.is_set():
            begun_s = self._clock.monotonic()
            try:
                found = await self._retention.lags(self._log.feeds())
                self.history.add(self._clock.wall_ms(), found)
            except HeadraceError as error:  # the chart has a gap; who reads or appends is told why
                logger.debug("lags can't be sampled", code=error.code, detail=error.detail)
            except Exception:
                logger.exception("lags could not be sampled; it goes on at the next look")
            took_s = self._clock.monotonic() - begun_s
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), max(SAMPLE_EVERY_S, took_s / SHARE_MAX))
