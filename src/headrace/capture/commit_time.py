"""The commitTs of what a feed gets: a TSO (``physical_ms << 18 | logical``) that grows from each transaction to the next.

Pure. A binlog's times are whole seconds and may go backwards; commitTs never does, and no two transactions share one.
"""

from __future__ import annotations

from headrace.entries.hlc import from_ms


class CommitClock:
    """Gives one commitTs a transaction, DDL statement or WATERMARK. ``last`` is the one given last (u64)."""

    def __init__(self, last: int) -> None:
        """Go on behind ``last``, 0 at the very beginning."""
        self.last = last

    def next(self, event_time_ms: int) -> int:
        """Return the commitTs of an event of ``event_time_ms`` (UTC milliseconds): its TSO, or one more than the last."""
        self.last = max(self.last + 1, from_ms(event_time_ms))
        return self.last
