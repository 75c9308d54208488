"""The time that retention goes by: the wall clock, but never in a leap. A clock that is set wrong must not empty the log."""

from __future__ import annotations

from typing import Final

from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger

logger = get_logger("server.retention")

CATCH_UP: Final = 2
"""After a leap of the wall clock this time runs at most so many times as fast as the steady clock until it is there."""
LAG_MS_NOTED: Final = 600_000
"""A wall clock that is ahead by more than this is worth a warning."""


class SteadyTime:
    """Milliseconds since 1970 that never exceed the wall clock and never leap ahead with it.

    Whatever is wrong, more is kept: a wall clock that leaps forwards (a wrong time source, a machine that slept) is followed
    slowly; one that leaps back is followed at once.
    """

    def __init__(self, clock: Clock) -> None:
        """Begin at the wall clock's time."""
        self._clock = clock
        self._now_ms = float(clock.wall_ms())
        self._at_s = clock.monotonic()
        self._noted = False

    def now_ms(self) -> int:
        """Return the time that holds for retention now."""
        wall_ms, at_s = self._clock.wall_ms(), self._clock.monotonic()
        self._now_ms = min(wall_ms, self._now_ms + CATCH_UP * 1000 * (at_s - self._at_s))
        self._at_s = at_s
        ahead_ms = wall_ms - int(self._now_ms)
        if ahead_ms > LAG_MS_NOTED and not self._noted:
            logger.warning(
                "the wall clock leapt ahead; retention follows slowly", ahead_seconds=ahead_ms // 1000
            )
        self._noted = ahead_ms > LAG_MS_NOTED
        return int(self._now_ms)
