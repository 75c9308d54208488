"""A relay that is cut at its n-th step: before or after any call of source or server, as by the end of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from headrace.client.http import FeedClient
from headrace.errors import ServerUnreachable, SourceUnavailable
from headrace.publisher.feed_server import FeedServer
from headrace.publisher.relay import FeedRelay
from headrace.publisher.source import Source
from headrace.publisher.thread import SourceThread
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import SystemClock
from headrace.wire.documents import Appended, EntryIn, PublisherRegistered
from tests.waiting import async_wait_until


class Killed(Exception):
    """Stands for the end of the process: nothing of the relay runs after it."""


class Steps:
    """Counts steps and raises ``error`` at the ``fatal``-th."""

    def __init__(self, fatal: int, error: Callable[[], Exception]) -> None:
        self.fatal = fatal
        self.taken = 0
        self._error = error

    def take(self) -> None:
        self.taken += 1
        if self.taken == self.fatal:
            raise self._error()


class SteppedSource:
    """A source whose calls are steps."""

    def __init__(self, source: Source, steps: Steps) -> None:
        self._source = source
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._source, name)
        if name in ("close", "set_alarm"):
            return call

        def stepped(*given: Any, **named: Any) -> Any:
            self._steps.take()
            result = call(*given, **named)
            self._steps.take()
            return result

        return stepped


class SteppedServer:
    """A server whose calls are steps: one before the request, one after it was carried out and before its answer."""

    def __init__(self, server: FeedClient, steps: Steps) -> None:
        self._server = server
        self._steps = steps

    async def register_publisher(
        self,
        agent_id: str,
        feed: str,
        *,
        instance: str | None = None,
        takeover: bool = False,
        snapshot_url: str | None = None,
    ) -> PublisherRegistered:
        self._steps.take()
        answer = await self._server.register_publisher(agent_id, feed, instance=instance, takeover=takeover)
        self._steps.take()
        return answer

    async def append(
        self,
        feed: str,
        entries: list[EntryIn],
        *,
        epoch: int | None = None,
        incarnation: str | None = None,
        marked_at_ms: int | None = None,
    ) -> Appended:
        self._steps.take()
        answer = await self._server.append(
            feed, entries, epoch=epoch, incarnation=incarnation, marked_at_ms=marked_at_ms
        )
        self._steps.take()
        assert not answer.duplicate, "an entry was posted again that the relay could have known to be there"
        return answer


async def relay_all(
    opener: Callable[[], Source],
    feed: str,
    client: FeedClient,
    is_processed: Callable[[], bool],
    *,
    steps: Steps | None = None,
    sides: str = "",
) -> None:
    """Relay ``feed`` until ``is_processed``, or until a step of ``sides`` kills the relay."""
    never = Steps(0, Killed)
    source_steps, server_steps = (
        steps if steps and side in sides else never for side in ("source", "server")
    )
    source = SourceThread(lambda: cast("Source", SteppedSource(opener(), source_steps)))
    server: FeedServer = SteppedServer(client, server_steps)
    relay = FeedRelay(
        feed,
        "agent-1",
        source,
        server,
        clock=SystemClock(),
        backoff=Backoff(first_s=0.001, delay_s_max=0.002),
    )
    ending = asyncio.Event()
    await source.open()
    running = asyncio.create_task(relay.run(ending))
    try:
        await async_wait_until(lambda: running.done() or is_processed())
        ending.set()
        relay.wake.set()
        await running
    finally:
        await source.close()


CUTS: dict[str, tuple[Callable[[], Exception], str]] = {
    "killed": (Killed, "source and server"),
    "answer-lost": (lambda: ServerUnreachable("cut"), "server"),
    "source-locked": (lambda: SourceUnavailable("database is locked"), "source"),
}
