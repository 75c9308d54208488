"""Alarms of the log itself: a writer that has stopped, a nearly full disk, damage that a reader met. Told in any case.

The disk that an alarm should be stored on may be the one that failed, so what stands is held in memory as well.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from headrace.errors import HeadraceError, MetadataCorrupt
from headrace.errors.root import printable
from headrace.log.metadata.contract import AlarmRow, Metadata, RowDamage
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger

logger = get_logger("log")

UNTOLD_MAX: Final = 64
"""Alarms that wait to be written; with more, of one that is raised and cleared again and again only the last word is."""

Key = tuple[str, str, str]
"""Code, feed and consumer of an alarm."""


class _Word(NamedTuple):
    """What is to be written of an alarm: that it stands, with this detail, or (None) that it is cleared."""

    key: Key
    detail: str | None
    now_ms: int


class Troubles:
    """What is wrong with this process's log, by kind, feed and consumer. Used from any thread."""

    def __init__(self, metadata: Metadata, clock: Clock) -> None:
        """Begin with none; alarms go to ``metadata``."""
        self._metadata, self._clock = metadata, clock
        self._guard = threading.Lock()
        self._standing: dict[Key, AlarmRow] = {}
        self._untold: deque[_Word] = deque()
        self._teller: threading.Thread | None = None

    def tell(
        self, kind: type[HeadraceError], detail: str | None, *, feed: str = "", agent_id: str = ""
    ) -> None:
        """Raise the alarm of this kind (and feed, and consumer), once until it is cleared; ``detail`` None clears it."""
        with self._guard:
            word = self._noted((kind.code, feed, agent_id), detail)
        if word is not None:
            self._write(word)

    def tell_soon(self, kind: type[HeadraceError], detail: str | None) -> None:
        """Do what :meth:`tell` does without waiting for the metadata database: what stands is known at once, and written
        by a thread of its own, in the order of the calls. :meth:`close` waits for it.
        """
        with self._guard:
            word = self._noted((kind.code, "", ""), detail)
            if word is None:
                return
            if len(self._untold) >= UNTOLD_MAX:
                self._untold = deque(one for one in self._untold if one.key != word.key)
            self._untold.append(word)
            if self._teller is None:
                self._teller = threading.Thread(
                    target=self._write_untold, name="headrace-alarms", daemon=True
                )
                self._teller.start()

    def close(self) -> None:
        """Write what waits; call it before the metadata database is closed, once nobody tells any more."""
        with self._guard:
            teller = self._teller
        if teller is not None:
            teller.join()

    def _noted(self, key: Key, detail: str | None) -> _Word | None:
        """Keep in mind what stands; returns what is to be written, None if nothing has changed. Under the guard."""
        if (detail is not None) == (key in self._standing):
            return None
        now_ms = self._clock.wall_ms()
        if detail is None:
            del self._standing[key]
        else:
            detail = printable(detail)
            self._standing[key] = AlarmRow(0, *key, detail, now_ms, None)
        return _Word(key, detail, now_ms)

    def _write_untold(self) -> None:
        while True:
            with self._guard:
                if not self._untold:
                    self._teller = None
                    return
                word = self._untold.popleft()
            self._write(word)

    def _write(self, word: _Word) -> None:
        """What can't be written is logged, and stands in memory all the same."""
        code, feed, agent_id = word.key
        try:
            if word.detail is None:
                self._metadata.clear_alarms(code, agent_id=agent_id, now_ms=word.now_ms, feed=feed)
            else:
                self._metadata.raise_alarm(code, word.detail, word.now_ms, feed=feed, agent_id=agent_id)
        except HeadraceError as error:
            logger.error("the metadata database can't be written", alarm=code, detail=error.detail)
        except Exception:
            logger.exception("an alarm could not be written", alarm=code)

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
