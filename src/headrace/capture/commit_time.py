"""The commitTs of what a feed gets: a TSO (``physical_ms << 18 | logical``) that grows from each transaction to the next.

Pure. A binlog's times are whole seconds and may go backwards; commitTs never does, and no two transactions share one.
A session may give its transactions any time (``SET timestamp``): one that is far ahead counts as :data:`LEAD_MAX_MS` ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headrace.entries.hlc import from_ms

LEAD_MAX_MS: Final = 3_600_000
"""How far the clock of a source may be ahead of capture's."""


class CommitClock:
    """Gives one commitTs a transaction, DDL statement or WATERMARK. ``last`` is the one given last (u64)."""

    def __init__(self, last: int, wall_ms: Callable[[], int]) -> None:
        """Go on behind ``last``, 0 at the very beginning. ``wall_ms`` tells capture's own time (UTC milliseconds)."""
        self.last = last
        self._wall_ms = wall_ms

    def next(self, event_time_ms: int) -> int:
        """Return the commitTs of an event of ``event_time_ms`` (UTC milliseconds): its TSO, or one more than the last."""
        event_time_ms = min(event_time_ms, self._wall_ms() + LEAD_MAX_MS)
        self.last = max(self.last + 1, from_ms(event_time_ms))
        return self.last
