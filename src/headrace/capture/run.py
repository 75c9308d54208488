"""The process (``headrace capture run``): one source, one feed, and whatever comes between them.

A thread reads the source and makes appends, the loop sends them; what is under way is bounded by the producer. Nothing that
matters is kept in memory: after every trouble of the source, and at every start, the feed says where to go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from headrace.capture.feed import CaptureFeed
from headrace.capture.position import SourcePosition
from headrace.capture.requests import CopyRequests
from headrace.capture.session import CaptureSession, FeedStand
from headrace.capture.settings import CaptureSettings
from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient
from headrace.errors import SourceUnavailable
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk
from headrace.runtime.dsn import Dsn
from headrace.runtime.logs import get_logger
from headrace.runtime.shutdown import wait_for_stop
from headrace.runtime.threads import in_thread

logger = get_logger("capture")

BACKOFF_S_MAX: Final = 5.0
"""Longest wait between two tries to reach the source."""

GRACE_S: Final = 10.0
"""How long a capture that stops waits for the step under way, and for what it has sent to become durable."""

PROGRESS_EVERY_S: Final = 60.0
"""How often the log says how far a capture is."""


async def run_capture(
    settings: CaptureSettings,
    stop: asyncio.Event,
    *,
    takeover: bool = False,
    clock: Clock | None = None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Capture until ``stop`` is set. A source or a server that does not answer is tried again, for ever.

    ``takeover``: claim a feed that another agent owns. Raises what no retry can change: DsnInvalid, ConfigInvalid,
    SourceUnfit, SourceReplaced, SourceForbidden, PositionPurged, BinlogInvalid, BinlogUnsupported, FeedOwned, FeedUnfit, and
    AgentFenced once a newer process runs as this agent. What is in the feed then is whole, and says where it ends.
    """
    clock = clock or SystemClock()
    dsn = settings.find_dsn(environment)
    settings.find_selection()
    credential = settings.find_credential()
    requests = CopyRequests(Path(settings.state_dir), settings.feed, Disk())
    server = settings.find_server(environment)
    async with (
        FeedClient(server, token=credential, ca_file=settings.ca_path) as http,
        LogAppendClient(
            settings.find_grpc(environment), token=credential, ca_file=settings.ca_path
        ) as appends,
        await CaptureFeed.open(
            http,
            appends,
            settings.feed,
            settings.agent_id,
            takeover=takeover,
            on_durable=_Begun(requests).note,
        ) as feed,
    ):
        await _Capture(settings, dsn, feed, requests, clock).run(stop)


class _Begun:
    """Takes away the files that asked for copies of which the feed knows now: they have done their part."""

    def __init__(self, requests: CopyRequests) -> None:
        self._requests = requests
        self._done: set[str] = set()

    def note(self, position: SourcePosition) -> None:
        """This position is durable."""
        for copy in position.copies:
            if copy.id and copy.id not in self._done:
                self._requests.done(copy.id)
                self._done.add(copy.id)


class _Capture:
    """One session after the other."""

    def __init__(
        self, settings: CaptureSettings, dsn: Dsn, feed: CaptureFeed, requests: CopyRequests, clock: Clock
    ) -> None:
        self._settings = settings
        self._dsn = dsn
        self._feed = feed
        self._requests = requests
        self._clock = clock
        self._backoff = Backoff(delay_s_max=BACKOFF_S_MAX)
        self._said_at = clock.monotonic()
        self._session: CaptureSession | None = None
        self._is_first = True

    async def run(self, stop: asyncio.Event) -> None:
        """Work until ``stop``; what is under way then is cut where it does not end soon: the feed says where to go on."""
        logger.info("the capture starts", feed=self._settings.feed, agent_id=self._settings.agent_id)
        working = asyncio.create_task(self._work(stop))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._session is not None:
                self._session.interrupt()
            await asyncio.wait({working}, timeout=GRACE_S)
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.wait({working, stopping})
        if not working.cancelled():
            working.result()
        logger.info("the capture ends", feed=self._settings.feed)

    async def _work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                await self._run_session(stop)
            except SourceUnavailable as trouble:
                if stop.is_set():
                    break
                wait_s = self._backoff.next_delay()
                logger.warning(
                    "the source does not answer",
                    code=trouble.code,
                    detail=trouble.detail,
                    wait_s=round(wait_s, 2),
                )
                await self._feed.flush()
                await wait_for_stop(stop, wait_s)
        await self._feed.flush()

    async def _run_session(self, stop: asyncio.Event) -> None:
        """Go on from where the feed stands, until the source fails."""
        stand = FeedStand(self._feed.position, await self._feed.schemas())
        session = await in_thread(
            lambda: CaptureSession.open(
                self._settings, self._dsn, stand, self._requests, self._clock, is_first=self._is_first
            )
        )
        self._session = session
        self._is_first = False
        try:
            while not stop.is_set():
                for append in await in_thread(session.step):
                    await self._feed.send(append)
                    self._backoff.reset()
                self._say()
        finally:
            self._session = None
            await in_thread(session.close)

    def _say(self) -> None:
        now = self._clock.monotonic()
        position = self._feed.position
        if position is None or now < self._said_at + PROGRESS_EVERY_S:
            return
        self._said_at = now
        logger.info(
            "captured",
            gtid=position.gtid,
            next_sequence_id=self._feed.next_sequence_id,
            copies=[".".join(copy.table) for copy in position.copies],
            stopped=len(position.stopped),
        )
