"""Alarms of the log itself: a writer that has stopped, a nearly full disk, damage that a reader met. Told in any case.

The disk that an alarm should be stored on may be the one that failed, so what stands is held in memory as well.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from headrace.errors import HeadraceError, StoreUnavailable
from headrace.log.metadata.contract import AlarmRow, Metadata
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger

logger = get_logger("log")


class Troubles:
    """What is wrong with this process's log, by kind and feed. Used from any thread."""

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        """Begin with none; alarms go to ``metadata``."""
        self._metadata, self._clock = metadata, clock
        self._guard = threading.Lock()
        self._standing: dict[tuple[str, str], AlarmRow] = {}

    def tell(self, kind: type[HeadraceError], detail: str | None, *, feed: str = "") -> None:
        """Raise the alarm of this kind (and feed), once until it is cleared; ``detail`` None clears it."""
        now_ms, key = self._clock.wall_ms(), (kind.code, feed)
        with self._guard:
            if (detail is not None) == (key in self._standing):
                return
            if detail is None:
                del self._standing[key]
            else:
                self._standing[key] = AlarmRow(0, kind.code, feed, "", detail, now_ms, None)
        try:
            if detail is None:
                self._metadata.clear_alarms(kind.code, agent_id="", now_ms=now_ms)
            else:
                self._metadata.raise_alarm(kind.code, detail, now_ms, feed=feed)
        except StoreUnavailable as error:
            logger.error("the metadata database can't be written", detail=error.detail)

    def among(self, rows: Sequence[AlarmRow]) -> list[AlarmRow]:
        """Return stored alarms with those in front that stand and could not be stored (``alarm_id`` 0)."""
        stored = {(row.code, row.feed) for row in rows if row.cleared_at_ms is None}
        with self._guard:
            return [*(row for key, row in self._standing.items() if key not in stored), *rows]
