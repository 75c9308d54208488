"""Alarms of the log itself: a writer that has stopped, a nearly full disk, damage that a reader met. Told in any case.

The disk that an alarm should be stored on may be the one that failed, so what stands is held in memory as well.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from headrace.errors import HeadraceError, MetadataCorrupt, StoreUnavailable
from headrace.log.metadata.contract import AlarmRow, Metadata, RowDamage
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger

logger = get_logger("log")


class Troubles:
    """What is wrong with this process's log, by kind, feed and consumer. Used from any thread."""

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        """Begin with none; alarms go to ``metadata``."""
        self._metadata, self._clock = metadata, clock
        self._guard = threading.Lock()
        self._standing: dict[tuple[str, str, str], AlarmRow] = {}

    def tell(
        self, kind: type[HeadraceError], detail: str | None, *, feed: str = "", agent_id: str = ""
    ) -> None:
        """Raise the alarm of this kind (and feed, and consumer), once until it is cleared; ``detail`` None clears it."""
        now_ms, key = self._clock.wall_ms(), (kind.code, feed, agent_id)
        with self._guard:
            if (detail is not None) == (key in self._standing):
                return
            if detail is None:
                del self._standing[key]
            else:
                self._standing[key] = AlarmRow(0, kind.code, feed, agent_id, detail, now_ms, None)
        try:
            if detail is None:
                self._metadata.clear_alarms(kind.code, agent_id=agent_id, now_ms=now_ms, feed=feed)
            else:
                self._metadata.raise_alarm(kind.code, detail, now_ms, feed=feed, agent_id=agent_id)
        except StoreUnavailable as error:
            logger.error("the metadata database can't be written", detail=error.detail)

    def standing(self, kind: type[HeadraceError]) -> list[AlarmRow]:
        """Return the alarms of this kind that stand, those that an earlier process raised as well."""
        rows = self.among(self._metadata.alarms())
        return [row for row in rows if row.code == kind.code and row.cleared_at_ms is None]

    def clear(self, kind: type[HeadraceError], *, feed: str) -> None:
        """Clear the alarm of this kind and feed, whichever process raised it; StoreUnavailable if that can't be stored."""
        self._metadata.clear_alarms(kind.code, agent_id="", now_ms=self._clock.wall_ms(), feed=feed)
        with self._guard:
            self._standing.pop((kind.code, feed, ""), None)

    def tell_of_row(self, damage: RowDamage, stands: bool) -> None:
        """Raise the alarm of a damaged row of the metadata database, or clear it."""
        detail = damage.detail if stands else None
        self.tell(MetadataCorrupt, detail, feed=damage.feed, agent_id=damage.who)

    def among(self, rows: Sequence[AlarmRow]) -> list[AlarmRow]:
        """Return stored alarms with those in front that stand and could not be stored (``alarm_id`` 0)."""
        stored = {(row.code, row.feed, row.agent_id) for row in rows if row.cleared_at_ms is None}
        with self._guard:
            return [*(row for key, row in self._standing.items() if key not in stored), *rows]


def clear_mended(metadata: Metadata, now_ms: int) -> None:
    """Clear the alarms of rows that were damaged when an earlier process met them, and are not any more."""
    damaged = {(damage.feed, damage.who) for damage in metadata.damages.standing()}
    for row in metadata.alarms():
        stands = row.cleared_at_ms is None and row.code == MetadataCorrupt.code
        if stands and (row.feed, row.agent_id) not in damaged:
            metadata.clear_alarms(row.code, agent_id=row.agent_id, now_ms=now_ms, feed=row.feed)
