"""The use cases, one method each; HTTP and gRPC only translate them. Refusals are :mod:`headrace.errors`.

What publishers ask for is in ``publishers.py``, what readers ask for in ``readers.py``, what operators ask for in
``operators.py``, what became of an entry in ``tracing``. Here is what joins them: their common state, and how it begins and
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence
from typing import Final

from headrace.errors import HeadraceError
from headrace.log.log import Log
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.server import self_watch
from headrace.server.following import Looks
from headrace.server.hydration import Hydrations
from headrace.server.metrics.measured import Measured
from headrace.server.publishers import PublisherCases
from headrace.server.readers import ReaderCases
from headrace.server.recording import Recorder
from headrace.server.reports import GONE_AFTER_S, Reports
from headrace.server.retention.history import HistoryKeeper
from headrace.server.retention.loop import Retention
from headrace.server.schemas import Schemas
from headrace.server.snapshots import Origin, Snapshots
from headrace.server.tracing.cases import TraceCases
from headrace.server.tracing.scanning import Scans

logger = get_logger("server")

DAMAGE_LOOK_EVERY_S: Final = 3600.0
"""How often it is looked whether damage that an alarm tells of is still there; and once at start."""


class Service(PublisherCases, ReaderCases, TraceCases):
    """The server's use cases over one log."""

    def __init__(
        self,
        log: Log,
        *,
        clock: Clock | None = None,
        new_incarnation: Callable[[], object] = uuid.uuid4,
        snapshot_allow: Sequence[Origin] = (),
        snapshot_local: bool = False,
        name: str = self_watch.WHO,
        gone_after_s: float = GONE_AFTER_S,
    ) -> None:
        """``snapshot_allow``: where listeners may be sent for snapshots; empty: to this machine if ``snapshot_local``.

        ``name``: of this server among those on its store, in its own alarm. ``gone_after_s``: see :class:`Reports`.
        """
        super().__init__(log, clock=clock, new_incarnation=new_incarnation)
        self._looks = Looks(log)
        self._registered = {}
        self._seen = set()
        self._seen_noted = self._clock.monotonic()
        self._looking_again: asyncio.Task[None] | None = None
        self._damage_ended = asyncio.Event()
        self.on_rotate = []
        self.progress = Recorder(log, self._clock)
        self.scans = Scans()
        self.retention = Retention(log, self._clock, self._note_seen)
        self.histories = HistoryKeeper(log, self._clock, self.retention)
        self.hydrations = Hydrations(log, self._clock)
        self.schemas = Schemas(log)
        self.reports = Reports(log, self._clock, gone_after_s=gone_after_s)
        self._self_watch = self_watch.SelfWatch(log, self._clock, name)
        self.measured = Measured(
            log, self._clock, self.retention, self.reports, self.traffic, self.not_appending
        )
        self.snapshots = Snapshots(log, self._clock, snapshot_allow, local=snapshot_local)

    async def start(self) -> None:
        """Raise the alarm of every quarantine that stands: a crash may have come between the two."""
        for tail in self.log.feeds():
            for mark in tail.quarantines.values():
                await self._alarm_of_quarantine(tail.name, mark.agent_id, mark.sequence_id)
        await self.retention.start()
        await self.schemas.start()
        await self.progress.start()
        await self._self_watch.start()
        await self.histories.start()
        self._looking_again = asyncio.create_task(self._look_again_at_damage())

    async def close(self) -> None:
        """End retention and write down what was gathered; call it before the log is closed."""
        self.stop_waiting()
        await self.scans.close()
        if self._looking_again is not None:
            self.log.damage.end()
            self._damage_ended.set()
            await self._looking_again
        await self._self_watch.close()
        await self.histories.close()
        await self.retention.close()
        await self.schemas.close()
        await self.progress.close()
        await self._note_seen()

    def stop_waiting(self) -> None:
        """Let every long poll and stream end now, and every later one at once: the server is about to stop."""
        self._waits.stop()

    async def _look_again_at_damage(self) -> None:
        """An alarm of damage stands while the damage does: at start the file may have been put back, later been dropped."""
        while not self._damage_ended.is_set():
            try:
                await asyncio.to_thread(self.log.damage.look_again)
            except HeadraceError as error:
                logger.warning("the damage that alarms tell of can't be looked at", detail=error.detail)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._damage_ended.wait(), DAMAGE_LOOK_EVERY_S)
