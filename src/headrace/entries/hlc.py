"""The hybrid logical clock: 64-bit ``physical_ms << 18 | logical``, strictly growing even when the wall clock jumps back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LOGICAL_BITS: Final = 18
"""Low bits that count within a millisecond (the TSO layout of TiDB's ``commitTs``)."""


def from_ms(physical_ms: int) -> int:
    """Return the smallest ``global_ts`` of the millisecond ``physical_ms`` (UTC since 1970)."""
    return physical_ms << LOGICAL_BITS


def to_ms(global_ts: int) -> int:
    """Return the UTC millisecond of ``global_ts``."""
    return global_ts >> LOGICAL_BITS


@dataclass(slots=True)
class HybridClock:
    """Gives every append a ``global_ts`` greater than all before it.

    ``last`` is the newest one given or stored; after a restart it is the newest in the log, so the clock never runs
    backwards. A physical clock that jumped back only advances the logical part.
    """

    last: int = 0

    def tick(self, wall_ms: int, span: int = 1) -> int:
        """Return the first of ``span`` consecutive timestamps, all greater than any given before."""
        first = max(from_ms(wall_ms), self.last + 1)
        self.last = first + span - 1
        return first

    def lead_ms(self, wall_ms: int) -> int:
        """Return by how many milliseconds this clock is ahead of the wall clock (negative: behind)."""
        return to_ms(self.last) - wall_ms
