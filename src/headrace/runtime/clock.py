"""The machine's clocks, passed in wherever time matters so that tests can set it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A wall clock and a monotonic clock."""

    def wall_ms(self) -> int:
        """Return UTC milliseconds since 1970; may jump, backwards too."""

    def monotonic(self) -> float:
        """Return seconds that never run backwards; only differences mean anything."""


class SystemClock:
    """The clocks of this machine."""

    def wall_ms(self) -> int:
        """Return UTC milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return the monotonic clock in seconds."""
        return time.monotonic()
