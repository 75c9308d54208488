"""The server looks at itself: while appends wait in vain it has the alarm ``stalled``, as others have by their reports.

Several servers on one store have an alarm each, and each clears its own.

It can't connect anew: what hangs is its own disk or database. The group that waits is answered once that does.
"""

from __future__ import annotations

import asyncio
import socket
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
"""Whose alarm it is, where other processes' alarms have an agent: that of a server which has its store for itself."""
GONE_AFTER_MS: Final = 24 * 3600 * 1000
"""An alarm that another server raised so long ago is taken for that of a machine which is gone, and cleared at a start."""
HINT: Final = "Look at the disk of the data folder, or at the locks of the database that holds the log."


def server_name(port: int) -> str:
    """Return the name of a server among others on its store: after a restart at the same HTTP port it is the same."""
    return f"{WHO} {socket.gethostname()}:{port}"


class SelfWatch:
    """Raises the alarm once, and clears it when appends go on; an earlier life's is cleared at the start.

    While it can't be stored it stands at this server all the same.
    """

    def __init__(self, log: Log, clock: Clock, who: str = WHO) -> None:
        """Nothing is looked at yet. ``who``: whose alarm it is."""
        self._log, self._clock, self._who = log, clock, who
        self._ending = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to look."""
        await try_to_keep(self._clear_earlier)
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
            if (reason is not None) == told:
                continue
            told = reason is not None
            if reason is not None:
                logger.error("alarm", code=Stalled.code, detail=reason, hint=HINT)
            else:
                logger.info("appends go on")
            await asyncio.to_thread(self._log.troubles.tell, Stalled, reason, agent_id=self._who)

    def _clear_earlier(self) -> None:
        metadata, now_ms = self._log.metadata, self._clock.wall_ms()
        owners = {
            row.agent_id
            for row in metadata.alarms()
            if row.code == Stalled.code
            and row.cleared_at_ms is None
            and row.agent_id.split(" ")[0] == WHO
            and now_ms - row.raised_at_ms > GONE_AFTER_MS
        }
        for who in {self._who, *owners}:
            metadata.clear_alarms(Stalled.code, agent_id=who, now_ms=now_ms)
