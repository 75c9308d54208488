"""``headrace wal backup`` as a process: archive and server opened, the agent run, what is too old pruned beside it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from headrace.archive.moments.pruning import Terms
from headrace.backup.agent import ANSWER_TIMEOUT_S, Agent
from headrace.backup.deposits import Deposits
from headrace.backup.pruning import prune_once
from headrace.backup.settings import BackupSettings
from headrace.backup.standing import Reach
from headrace.client.credential import Credential
from headrace.client.http import FeedClient
from headrace.client.observing import Told, healthy, observed
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError
from headrace.runtime.clock import SystemClock
from headrace.runtime.logs import get_logger
from headrace.runtime.progress import Progress, Standing

logger = get_logger("backup")

FIRST_PRUNE_S: Final = 300.0
"""How long after the start the first prune is: an agent that is started again and again would else never do one."""
PRUNE_EVERY_S: Final = 3600.0
"""RFC-010 §5.3."""


class Outcome(NamedTuple):
    """What one run has done. ``entries`` and ``bytes``: archived by it; ``seconds``: how long it took.

    ``first`` and ``last``: the archive's first and last entry, None if it has none. ``acked``: the last LSN that the server
    took from it.
    """

    archive: str
    segments: int
    entries: int
    bytes: int
    first: Lsn | None
    last: Lsn | None
    acked: Lsn | None
    seconds: float

    def document(self) -> dict[str, Any]:
        """Return it as ``--json`` shows it."""
        return {
            "archive": self.archive,
            "segments": self.segments,
            "entries": self.entries,
            "bytes": self.bytes,
            "first-lsn": str(self.first) if self.first is not None else None,
            "last-lsn": str(self.last) if self.last is not None else None,
            "acked-lsn": str(self.acked) if self.acked is not None else None,
            "seconds": round(self.seconds, 3),
        }


Watch = Callable[[Agent], Awaitable[None]]
"""Runs beside the agent, and is cancelled when that ends."""


async def run_backup(settings: BackupSettings, stop: asyncio.Event, watch: Watch | None = None) -> Outcome:
    """Archive until ``stop`` is set, or with ``once`` until all is archived that was there at the start.

    Raises as :meth:`Agent.run` and :meth:`Deposits.open` do; ConfigInvalid; TokenExposed.
    """
    begun_s = time.monotonic()
    progress = settings.health.progress()
    with healthy(progress, settings.health):
        with progress.work("archive").during("the archive to be opened"):
            deposits = await asyncio.to_thread(
                Deposits.open, settings.archive, settings.recipients, settings.accept_gap
            )
        with deposits:
            agent = await _run(settings, deposits, progress, stop, watch)
            standing, acked = agent.standing, agent.acked
            return Outcome(
                deposits.shown,
                standing.segments,
                standing.entries,
                standing.bytes,
                deposits.first,
                deposits.end,
                acked,
                time.monotonic() - begun_s,
            )


async def _run(
    settings: BackupSettings,
    deposits: Deposits,
    progress: Progress,
    stop: asyncio.Event,
    watch: Watch | None,
) -> Agent:
    """Run the agent, and what goes on beside it."""
    credential = Credential.find(settings.token_file)
    told = Told("backup", settings.subscriber_id, settings.server, credential, settings.ca_file)
    async with (
        FeedClient(
            settings.server, token=credential, ca_file=settings.ca_file, timeout_s=ANSWER_TIMEOUT_S
        ) as http,
        WalClient(
            settings.grpc,
            subscriber_id=settings.subscriber_id,
            token=credential,
            ca_file=settings.ca_file,
        ) as wal,
    ):

        async def reconnect(stuck: list[Standing]) -> None:
            await http.reconnect()
            await wal.reconnect()

        async with observed(progress, None if settings.once else told, reconnect):
            agent = Agent(settings, deposits, wal, http, stop, progress=progress)
            beside = [asyncio.create_task(_prune(settings, deposits))]
            if not settings.once:
                reach = Reach(settings.archive, progress.clock)
                progress.tell(lambda: reach.facts(agent.standing))
                beside.append(asyncio.create_task(reach.go_on()))
            if watch is not None:
                beside.append(asyncio.ensure_future(watch(agent)))
            try:
                await agent.run()
            finally:
                for task in beside:
                    task.cancel()
                for failure in await asyncio.gather(*beside, return_exceptions=True):
                    if isinstance(failure, Exception):
                        logger.error("what ran beside the backup has failed", detail=repr(failure))
            return agent


async def _prune(settings: BackupSettings, deposits: Deposits) -> None:
    """Prune the archive every hour; what keeps it from that is logged, and the backup goes on."""
    if settings.retention_days is None or settings.once:
        return
    terms = Terms(settings.retention_days, settings.buffer_days)
    delay_s = FIRST_PRUNE_S
    while True:
        await asyncio.sleep(delay_s)
        delay_s = PRUNE_EVERY_S
        try:
            await asyncio.to_thread(prune_now, settings.archive, terms, deposits)
        except HeadraceError as error:
            logger.warning("the archive is not pruned", code=error.code, detail=error.detail)
        except Exception:
            logger.exception("the archive is not pruned")


def prune_now(archive: str, terms: Terms, deposits: Deposits) -> None:
    """Prune the archive, and log what came of it: a warning for each base that can't be used, and if nothing may go.

    Raises as :func:`prune_once` does; ArchiveOwned if the archive is no longer this process's.
    """
    deposits.check()
    pruned = prune_once(archive, terms, confirm=True, now_ms=SystemClock().wall_ms())
    for one in pruned.plan.bases:
        if one.base.problem:
            logger.warning("a base snapshot can't be used", path=one.base.path, reason=one.base.problem)
    if pruned.refused:
        logger.warning("nothing is pruned", reason=pruned.refused)
    else:
        logger.info("the archive is pruned", bytes=pruned.bytes_going)
