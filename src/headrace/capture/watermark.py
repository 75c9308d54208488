"""When a WATERMARK is due. Pure: times and places come in as arguments.

One says that everything the source had committed at its time is in the feed. So the source is asked, in this order, for
its time and for its last GTID; the WATERMARK follows once the stream has been read that far. Until then the question stands:
a stream that lags is not asked anew each second, or it would never catch up with its answers.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.capture.binlog.event import GtidPosition


class SourceMoment(NamedTuple):
    """The source's time (UTC milliseconds), and its last GTIDs as they were at that time or later."""

    time_ms: int
    gtids: GtidPosition


class WatermarkPolicy:
    """Says when to ask the source, and when what it answered is reached.

    ``interval_s``: between two WATERMARKs while there are changes, and after the last change. ``idle_interval_s``: while
    there are none. All times are seconds of one monotonic clock. ``held``: an initial snapshot is under way, so none is due.
    """

    def __init__(self, interval_s: float, idle_interval_s: float, *, held: bool) -> None:
        """Begin: the first WATERMARK is due as soon as none is held."""
        self.held = held
        self._interval_s = interval_s
        self._idle_interval_s = max(interval_s, idle_interval_s)
        self._sent_at: float | None = None
        self._changed = False
        self._moment: SourceMoment | None = None

    def note_change(self) -> None:
        """Something went into the feed that the last WATERMARK does not cover."""
        self._changed = True

    def wait_s(self, now: float) -> float:
        """Return the seconds until the source is to be asked, 0 if it was; the interval while they are held."""
        if self.held:
            return self._interval_s
        if self._moment is not None or self._sent_at is None:
            return 0.0
        interval = self._interval_s if self._changed else self._idle_interval_s
        return max(0.0, self._sent_at + interval - now)

    def asks(self, now: float) -> bool:
        """Tell whether the source is to be asked now where it stands."""
        return self._moment is None and self.wait_s(now) <= 0

    def answer(self, moment: SourceMoment) -> None:
        """The source said where it stands."""
        self._moment = moment

    def forget(self) -> None:
        """The connection to the source is another: what it answered before means nothing any more."""
        self._moment = None

    def take(self, now: float, reached: GtidPosition) -> int | None:
        """Return the source's time for a WATERMARK that is due now, else None.

        To be called outside of transactions alone. ``reached``: everything up to there was read and handed to the feed. The
        WATERMARK counts as sent.
        """
        moment = self._moment
        if self.held or moment is None or not all(map(reached.covers, moment.gtids.gtids)):
            return None
        self._moment = None
        self._sent_at = now
        self._changed = False
        return moment.time_ms
