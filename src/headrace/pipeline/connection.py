"""The server as Spark's processes see it: the feed client without ``async``, with retries that a read may make.

Spark calls a source from several processes and threads, each for a while: a connection belongs to one of them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar

from headrace.client.credential import Credential
from headrace.errors import Unavailable
from headrace.runtime.backoff import Backoff
from headrace.wire.documents import FeedView

if TYPE_CHECKING:
    from headrace.client.http import FeedClient, FramesRange

T = TypeVar("T")

RETRY_S: Final = 120.0
"""How long a read waits for a server that is away: a query fails for good as soon as its source raises once."""


class Endpoint(NamedTuple):
    """Where a server answers, and how long to wait for it. The files are read where the connection is made."""

    server: str
    token_file: str = ""
    ca_file: str = ""
    retry_s: float = RETRY_S


class Connection:
    """One thread's connection to a server. Reads are repeated until ``retry_s`` has passed; other errors go through.

    Use as ``with Connection(endpoint) as server`` or call :meth:`close`, on the thread that uses it.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        # Not an asyncio.Runner: its handling of signals makes the text of each result, of 8 MiB answers too.
        self._loop = asyncio.new_event_loop()
        self._client: FeedClient | None = None

    def feed(self, name: str) -> FeedView:
        """Return the feed's bounds, incarnation and newest LSN."""
        return self._repeat(lambda client: client.feed(name))

    def frames(
        self, feed: str, first: int, last: int, *, incarnation: str | None = None, lsn: str | None = None
    ) -> FramesRange:
        """Return the stored frames that overlap ``first`` … ``last``: up to 8 MiB, or one frame."""
        return self._repeat(
            lambda client: client.read_frames(feed, first, last, incarnation=incarnation, lsn=lsn)
        )

    def close(self) -> None:
        """Close the connection and its event loop."""
        if self._client is not None:
            self._loop.run_until_complete(self._client.close())
            self._client = None
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repeat(self, call: Callable[[FeedClient], Awaitable[T]]) -> T:
        return self._loop.run_until_complete(self._until_answered(call))

    async def _until_answered(self, call: Callable[[FeedClient], Awaitable[T]]) -> T:
        if self._client is None:
            # Several of Spark's helper processes load this module and never ask a server anything.
            from headrace.client.http import FeedClient

            given = self._endpoint
            token_file, ca_file = (Path(file) if file else None for file in (given.token_file, given.ca_file))
            self._client = FeedClient(given.server, token=Credential.find(token_file), ca_file=ca_file)
        backoff = Backoff()
        deadline = time.monotonic() + self._endpoint.retry_s
        while True:
            try:
                return await call(self._client)
            except Unavailable:
                delay = backoff.next_delay()
                if time.monotonic() + delay > deadline:
                    raise
                await asyncio.sleep(delay)


_own = threading.local()


def connection(endpoint: Endpoint) -> Connection:
    """Return this thread's connection to ``endpoint``, for Spark's Python processes: it stays open for the next task."""
    if getattr(_own, "pid", None) != os.getpid():  # a forked worker must not use its parent's sockets
        _own.pid, _own.connections = os.getpid(), {}
    connections: dict[Endpoint, Connection] = _own.connections
    if endpoint not in connections:
        connections[endpoint] = Connection(endpoint)
    return connections[endpoint]
