"""The process (``headrace capture run``): one source, one feed, and whatever comes between them.

A thread reads the source and makes appends, the loop sends them; what is under way is bounded by the producer. Nothing that
matters is kept in memory: after every trouble of the source, and at every start, the feed says where to go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from headrace.capture.feed import CaptureFeed
from headrace.capture.position import SourcePosition
from headrace.capture.requests import CopyRequests
from headrace.capture.session import CaptureSession, FeedStand
from headrace.capture.settings import CaptureSettings
from headrace.capture.works import STEP_S, CaptureWorks
from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient
from headrace.client.observing import Told, healthy, observed, reporter_name
from headrace.errors import SourceUnavailable
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk
from headrace.runtime.dsn import Dsn
from headrace.runtime.logs import get_logger
from headrace.runtime.progress import Standing
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
    terms = settings.health_terms
    progress = terms.progress(clock)
    works = CaptureWorks(progress, settings.feed)
    name = reporter_name(settings.agent_id, settings.feed)
    told = Told("capture", name, server, credential, settings.ca_path)
    async with (
        FeedClient(server, token=credential, ca_file=settings.ca_path) as http,
        LogAppendClient(
            settings.find_grpc(environment), token=credential, ca_file=settings.ca_path
        ) as appends,
        AsyncExitStack() as stack,
    ):
        capture = _Capture(settings, dsn, requests, clock, works)

        async def reconnect(stuck: list[Standing]) -> None:
            await http.reconnect()
            await appends.reconnect()
            capture.begin_anew()

        stack.enter_context(healthy(progress, terms))
        await stack.enter_async_context(observed(progress, told, reconnect))
        with works.asking_server("the server's answer to the registration"):
            opening = CaptureFeed.open(
                http,
                appends,
                settings.feed,
                settings.agent_id,
                takeover=takeover,
                on_durable=capture.note_durable,
            )
            feed = await _unless_stopped(opening, stop)
        if feed is not None:
            async with feed:
                await capture.run(feed, stop)


async def _unless_stopped(
    opening: Coroutine[None, None, CaptureFeed], stop: asyncio.Event
) -> CaptureFeed | None:
    """Return the feed; None if it is time to stop first, so that a server that is away keeps nobody from that."""
    opened, stopping = asyncio.create_task(opening), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({opened, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return opened.result() if opened.done() else None
    finally:
        for task in (opened, stopping):
            task.cancel()
        await asyncio.wait({opened, stopping})


class _Capture:
    """One session after the other."""

    _feed: CaptureFeed

    def __init__(
        self,
        settings: CaptureSettings,
        dsn: Dsn,
        requests: CopyRequests,
        clock: Clock,
        works: CaptureWorks,
    ) -> None:
        self._settings = settings
        self._dsn = dsn
        self._requests = requests
        self._clock = clock
        self._works = works
        self._copies_begun: set[str] = set()
        self._backoff = Backoff(delay_s_max=BACKOFF_S_MAX)
        self._said_at = clock.monotonic()
        self._session: CaptureSession | None = None
        self._is_first = True
        self._begins_anew = False

    def note_durable(self, position: SourcePosition) -> None:
        """The feed holds ``position``: the files that asked for copies of which it knows now have done their part."""
        self._works.note_durable(position, self._feed.unanswered, self._feed.next_sequence_id)
        for copy in position.copies:
            if copy.id and copy.id not in self._copies_begun:
                self._requests.done(copy.id)
                self._copies_begun.add(copy.id)

    def begin_anew(self) -> None:
        """End the session that is under way; the next one goes on where the feed stands."""
        if self._session is not None:
            self._begins_anew = True
            self._session.interrupt()

    async def run(self, feed: CaptureFeed, stop: asyncio.Event) -> None:
        """Work until ``stop``; what is under way then is cut where it does not end soon: the feed says where to go on."""
        self._feed = feed
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
                wait_s = self._tell(trouble)
                with self._works.asking_server():
                    await self._feed.flush()
                await wait_for_stop(stop, wait_s)
        await self._feed.flush()

    def _tell(self, trouble: SourceUnavailable) -> float:
        """Say why a session has ended; returns how many seconds to wait before the next one."""
        if self._begins_anew:
            self._begins_anew = False
            return 0.0
        wait_s = self._backoff.next_delay()
        self._works.note_trouble(trouble)
        logger.warning(
            "the source does not answer", code=trouble.code, detail=trouble.detail, wait_s=round(wait_s, 2)
        )
        return wait_s

    async def _run_session(self, stop: asyncio.Event) -> None:
        """Go on from where the feed stands, until the source fails."""
        with self._works.asking_server("the server's answer to a question for schemas"):
            stand = FeedStand(self._feed.position, await self._feed.schemas())
        with self._works.asking_source():
            session = await in_thread(
                lambda: CaptureSession.open(
                    self._settings, self._dsn, stand, self._requests, self._clock, is_first=self._is_first
                )
            )
        self._session = session
        self._is_first = False
        try:
            while not stop.is_set():
                with self._works.asking_source(STEP_S):
                    appends = await in_thread(session.step)
                for append in appends:
                    with self._works.asking_server():
                        await self._feed.send(append)
                    self._backoff.reset()
                self._works.note_step(self._feed.unanswered, session.copies, brought=len(appends))
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
