"""The agent (``headrace agent run``): one source, one server, a relay for each feed, a watch that wakes them, a broom.

The server's answers and the source's state decide everything; nothing that matters is kept in memory. So the agent may be
killed at any point, and its next start goes on with nothing lost and nothing twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from headrace.client.http import FeedClient
from headrace.client.observing import Told, healthy, observed
from headrace.errors import AgentFenced, HeadraceError, Stalled
from headrace.publisher.databases import open_source, state_reader
from headrace.publisher.feed_server import FeedServer, SnapshotOffer
from headrace.publisher.joined import FeedEnded
from headrace.publisher.relay import FeedRelay
from headrace.publisher.settings import AgentSettings
from headrace.publisher.snapshot.serving import SnapshotService
from headrace.publisher.source import Source
from headrace.publisher.state import StateReader
from headrace.publisher.thread import SourceThread
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.dsn import Dsn
from headrace.runtime.logs import get_logger
from headrace.runtime.progress import Progress, Standing
from headrace.runtime.shutdown import wait_for_stop

AWAKE_POLL_S: Final = 0.004
"""How often a source that has just changed is asked whether it changed again."""

ASLEEP_POLL_S: Final = 0.05
"""How often a quiet source is asked."""

AWAKE_FOR_S: Final = 2.0
"""How long after its last change a source counts as busy."""

BACKOFF_S_MAX: Final = 3.0
"""Longest wait between two tries: a server that comes back is not left waiting for long, and one agent is no load."""

GRACE_S: Final = 5.0
"""How long a stopping agent waits for an answer of the server."""

SWEEP_EVERY_S: Final = 60.0
"""How often processed rows older than the retention are swept."""


async def run_agent(
    settings: AgentSettings,
    stop: asyncio.Event,
    *,
    takeover: bool = False,
    clock: Clock | None = None,
    server: FeedServer | None = None,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """Relay the feeds of ``settings`` until ``stop`` is set, or until none can go on.

    A feed that the server refuses for good stops alone, with an alarm; its error is raised when the agent ends.
    ``takeover``: claim feeds that another agent owns. Raises DsnInvalid, ConfigInvalid, SourceUnavailable before anything
    was done; AgentFenced at once if a newer process runs as this agent, which then must not register again by itself.
    """
    dsn = settings.find_dsn(environment)
    clock = clock or SystemClock()
    source = SourceThread(lambda: open_source(dsn))
    terms = settings.health_terms
    progress = terms.progress(clock)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(source.close)
        stack.enter_context(healthy(progress, terms))
        await source.open()
        await source.run(lambda opened: opened.check_outbox())
        client = told = None
        if server is None:
            server = client = await stack.enter_async_context(_client(settings, environment))
            address, credential = settings.find_server(environment), settings.find_credential()
            told = Told("agent", settings.agent_id, address, credential, settings.ca_path)
        offered: list[SnapshotService] = []

        def learn_key(feed: str, key: bytes) -> None:
            for service in offered:
                service.learn_key(feed, key)

        wanted = settings.find_snapshots()
        offer = None if wanted is None or wanted.url is None else SnapshotOffer(wanted.url, learn_key)
        relays = [
            FeedRelay(
                feed,
                settings.agent_id,
                source,
                server,
                clock=clock,
                backoff=Backoff(delay_s_max=BACKOFF_S_MAX),
                takeover=takeover,
                snapshots=offer,
                work=progress.work(f"relay {feed}", feed=feed),
            )
            for feed in settings.feeds
        ]
        if wanted is not None:
            readers = partial(_reader, dsn, wanted.sql)
            offered.append(SnapshotService(wanted, {relay.feed: relay for relay in relays}, readers, clock))
        agent = _Agent(settings, source, relays, clock, offered, seen=Seen(progress, client))
        await stack.enter_async_context(observed(progress, told, agent.reconnect))
        await agent.run(stop)


def _client(settings: AgentSettings, environment: Mapping[str, str]) -> FeedClient:
    return FeedClient(
        settings.find_server(environment),
        token=settings.find_credential(),
        ca_file=settings.ca_path,
        timeout_s=settings.server_timeout_s,
    )


class Seen(NamedTuple):
    """How the agent shows itself. ``client``: what is connected anew when a relay is stuck, None: nothing is."""

    progress: Progress
    client: FeedClient | None


class _Agent:
    """The tasks of one run, and how one's end becomes the others'."""

    def __init__(
        self,
        settings: AgentSettings,
        source: SourceThread,
        relays: list[FeedRelay],
        clock: Clock,
        snapshots: Sequence[SnapshotService],
        *,
        seen: Seen,
    ) -> None:
        self._seen = seen
        self._settings = settings
        self._source = source
        self._relays = relays
        self._clock = clock
        self._snapshots = snapshots
        self._ending = asyncio.Event()
        self._log = get_logger("publisher").bind(agent_id=settings.agent_id)
        self._errors: list[HeadraceError] = []

    async def run(self, stop: asyncio.Event) -> None:
        self._log.info("the agent starts", feeds=list(self._settings.feeds))
        async with asyncio.TaskGroup() as group:
            relays = [group.create_task(self._relay(relay)) for relay in self._relays]
            works = (self._watch(), self._sweep(), self._await_stop(stop, relays))
            beside = [group.create_task(work) for work in works]
            serving = [group.create_task(service.run(self._ending)) for service in self._snapshots]
            await asyncio.wait(relays)
            self._end()
            if serving:
                await asyncio.wait(serving)
            for task in beside:
                task.cancel()
        self._log.info("the agent ends")
        if self._errors:
            raise self._errors[0]

    async def _relay(self, relay: FeedRelay) -> None:
        try:
            await relay.run(self._ending)
        except AgentFenced as error:
            self._log.error("alarm", code=error.code, detail=error.detail, hint=error.advice)
            self._errors.insert(0, error)
            self._end()
        except FeedEnded as ended:
            self._errors.append(ended.error)

    async def _await_stop(self, stop: asyncio.Event, relays: list[asyncio.Task[None]]) -> None:
        """Let the relays finish what they are at; a post that hangs is cut: its outcome is asked for at the next start."""
        await stop.wait()
        self._end()
        _, late = await asyncio.wait(relays, timeout=GRACE_S)
        for task in late:
            task.cancel()

    def _end(self) -> None:
        self._ending.set()
        self._wake()

    def _wake(self) -> None:
        for relay in self._relays:
            relay.wake.set()

    async def _watch(self) -> None:
        """Wake the relays when another connection has committed; open the source anew when it was replaced."""
        changed_at = self._clock.monotonic()
        backoff = Backoff(delay_s_max=BACKOFF_S_MAX)
        while not self._ending.is_set():
            busy = self._clock.monotonic() - changed_at < AWAKE_FOR_S
            try:
                if await self._source.run(partial(_has_changed, busy=busy)):
                    changed_at = self._clock.monotonic()
                    self._wake()
                backoff.reset()
                if await self._source.run(lambda source: source.is_replaced()):
                    await self._reopen()
            except HeadraceError as trouble:
                self._log.warning("the source does not answer", code=trouble.code, detail=trouble.detail)
                await wait_for_stop(self._ending, backoff.next_delay())
                if await self._is_gone():
                    await self._reopen()
            await wait_for_stop(self._ending, AWAKE_POLL_S if busy else ASLEEP_POLL_S)

    async def reconnect(self, stuck: Sequence[Standing]) -> None:
        """Begin anew with what does not answer; the relays then join again, from what outbox and feed say.

        A call of the source is left behind only once it has lasted so long itself; the watch then opens the source anew.
        """
        if self._seen.client is not None:
            await self._seen.client.reconnect()
        waited_s = self._source.busy_s
        if waited_s >= self._seen.progress.stalled_after_s:
            self._source.abandon(Stalled(f"the source database has not answered for {waited_s:.0f} s"))

    async def _is_gone(self) -> bool:
        """Whether to open the source anew; of one that does not even say so it is not known."""
        try:
            return not self._source.is_open or await self._source.run(lambda source: source.is_replaced())
        except HeadraceError:
            return not self._source.is_open

    async def _reopen(self) -> None:
        self._log.warning("opening the source anew")
        try:
            await self._source.reopen()
        except HeadraceError as error:  # it may be back later: a file being replaced is gone for a moment
            self._log.warning("the source can't be opened", code=error.code, detail=error.detail)
        self._wake()

    async def _sweep(self) -> None:
        retention_ms = round(self._settings.retention_s * 1000)
        while not self._ending.is_set():
            for feed in self._settings.feeds:
                try:
                    await self._sweep_feed(feed, self._clock.wall_ms() - retention_ms)
                except HeadraceError as trouble:
                    self._log.warning("sweeping again later", code=trouble.code, detail=trouble.detail)
            await wait_for_stop(self._ending, SWEEP_EVERY_S)

    async def _sweep_feed(self, feed: str, before_ms: int) -> None:
        count = 1
        while count and not self._ending.is_set():
            count = await self._source.run(lambda source: source.sweep(feed, before_ms))


def _reader(dsn: Dsn, queries: Mapping[str, str], feed: str) -> StateReader:
    return state_reader(dsn, feed, queries.get(feed))


def _has_changed(source: Source, *, busy: bool) -> bool:
    return source.has_changed(busy=busy)
