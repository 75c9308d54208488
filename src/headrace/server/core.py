"""What all use cases stand on: the log, the clock, the waits of this server, and how people are told of trouble."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import ParamSpec

from headrace.errors import DuplicateEntry, StoreUnavailable
from headrace.log.log import Log
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger
from headrace.server.traffic import Traffic
from headrace.server.waits import Waits

logger = get_logger("server")

P = ParamSpec("P")


class Core:
    """The parts that the use cases share. Everything is called from the one asyncio loop that also uses the log."""

    def __init__(
        self, log: Log, *, clock: Clock | None = None, new_incarnation: Callable[[], object] = uuid.uuid4
    ) -> None:
        self.log = log
        self._clock = clock or SystemClock()
        self._new_incarnation = new_incarnation
        self._waits = Waits()
        self.traffic = Traffic()

    async def _alarm_of_quarantine(self, feed: str, agent_id: str, sequence_id: object) -> None:
        detail = f"the publisher {agent_id} posted sequence id {sequence_id} of the feed {feed} again and is quarantined"
        logger.error("publisher quarantined", feed=feed, agent_id=agent_id, sequence_id=sequence_id)
        now_ms = self._clock.wall_ms()
        await try_to_keep(
            self.log.metadata.raise_alarm, DuplicateEntry.code, detail, now_ms, feed=feed, agent_id=agent_id
        )


async def try_to_keep(write: Callable[P, object], *given: P.args, **named: P.kwargs) -> None:
    """Write what is for people only; readers and refusals go on without it, on a full disk too."""
    try:
        await asyncio.to_thread(write, *given, **named)
    except StoreUnavailable as error:
        logger.error("the metadata database can't be written", detail=error.detail)
