"""A clock that stands still until it is moved; it may be moved backwards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ManualClock:
    """A :class:`headrace.runtime.clock.Clock` that is set by hand."""

    ms: int = 1_760_000_000_000
    seconds: float = 0.0

    def wall_ms(self) -> int:
        """Return what it was set to."""
        return self.ms

    def monotonic(self) -> float:
        """Return what it was set to."""
        return self.seconds
