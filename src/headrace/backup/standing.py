"""How a backup agent stands, for people and for metrics: what is archived, what is held, what the archive reaches."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.chain import Window
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError
from headrace.runtime.clock import Clock
from headrace.runtime.facts import BACKUP_LAG, BACKUP_WINDOW_BEGIN, BACKUP_WINDOW_END
from headrace.runtime.logs import get_logger

logger = get_logger("backup")

SURVEY_EVERY_S: Final = 3600.0
"""How often the archive is looked over for what it reaches: each look reads all manifests, as a prune does."""


class Standing(NamedTuple):
    """How an agent stands. Sizes in bytes; ``entries`` and ``bytes``: archived by this process.

    ``first`` and ``last``: the archive's first and last entry, None while it has none. ``gathered``: entries that are held
    and not archived yet, ``oldest``: the first of them. ``trouble``: why nothing can be archived just now, empty if it can.
    """

    segments: int
    entries: int
    bytes: int
    first: Lsn | None
    last: Lsn | None
    gathered: int
    trouble: str
    oldest: Lsn | None = None


class Reach:
    """What of an archive can be restored: looked over now and then, and gone on with as segments are added."""

    def __init__(self, archive: str, clock: Clock) -> None:
        """Know nothing before the first look."""
        self._archive, self._clock = archive, clock
        self._newest: Window | None = None
        self._joins = False

    async def go_on(self) -> None:
        """Look the archive over now and every hour, until cancelled. A look that fails is logged: the last one stands."""
        while True:
            try:
                await asyncio.to_thread(self.look)
            except HeadraceError as error:
                logger.warning("what the archive reaches is not known", code=error.code, detail=error.detail)
            await asyncio.sleep(SURVEY_EVERY_S)

    def look(self) -> None:
        """Look the archive over. Raises as :meth:`Archive.read` does."""
        archive = Archive.read(self._archive)
        newest = archive.windows[-1] if archive.windows else None
        self._joins = (
            newest is not None and bool(archive.segments) and newest.last >= archive.segments[-1].name.last
        )
        self._newest = newest

    def facts(self, standing: Standing) -> dict[str, float]:
        """Return the numbers of a report. A window that joins the archive's end grows with it."""
        lag_s = 0.0
        if standing.oldest is not None:
            lag_s = max(0.0, (self._clock.wall_ms() - standing.oldest.committed_at_ms) / 1000)
        found = {BACKUP_LAG.name: lag_s}
        if (newest := self._newest) is not None:
            end = max(newest.last, standing.last or newest.last) if self._joins else newest.last
            found[BACKUP_WINDOW_BEGIN.name] = newest.first.committed_at_ms / 1000
            found[BACKUP_WINDOW_END.name] = end.committed_at_ms / 1000
        return found
