"""The server looks at itself: while appends wait in vain it has the alarm ``stalled``, as others have by their reports.

It can't connect anew: what hangs is its own disk or database. The group that waits is answered once that does.
"""

from __future__ import annotations

import asyncio
from typing import Final

from headrace.errors import Stalled
from headrace.log.log import Log
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.runtime.shutdown import wait_for_stop
from headrace.server.core import try_to_keep

logger = get_logger("server")

LOOKS: Final = 12
"""How often it looks in the time after which appends count as stuck."""
WHO: Final = "server"
"""Whose alarm it is, where other processes' alarms have an agent."""
HINT: Final = "Look at the disk of the data folder, or at the locks of the database that holds the log."


class SelfWatch:
    """Raises the alarm once, and clears it when appends go on; an earlier life's is cleared at the start."""

    def __init__(self, log: Log, clock: Clock) -> None:
        """Nothing is looked at yet."""
        self._log, self._clock = log, clock
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look."""
        await self._clear()
        self._task = asyncio.create_task(self._watch())

    async def close(self) -> None:
        """Look no more."""
        self._ending.set()
        if self._task is not None:
            await self._task

    async def _watch(self) -> None:
        told = False
        while not await wait_for_stop(self._ending, self._log.stalled_after_s / LOOKS):
            reason = self._log.stalled()
            if reason is not None and not told:
                logger.error("alarm", code=Stalled.code, detail=reason, hint=HINT)
                raise_alarm, now_ms = self._log.metadata.raise_alarm, self._clock.wall_ms()
                await try_to_keep(raise_alarm, Stalled.code, reason, now_ms, agent_id=WHO)
            elif reason is None and told:
                logger.info("appends go on")
                await self._clear()
            told = reason is not None

    async def _clear(self) -> None:
        clear = self._log.metadata.clear_alarms
        await try_to_keep(clear, Stalled.code, agent_id=WHO, now_ms=self._clock.wall_ms())
