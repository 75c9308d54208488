"""The server as Spark's processes see it: the feed client without ``async``, with retries that a read may make.

Spark calls a source from several processes and threads, each for a while: a connection belongs to one of them.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from socket import gethostname
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self, TypeVar
from uuid import uuid4

from headrace.client.credential import Credential
from headrace.entries.bookmark import Bookmark
from headrace.errors import HeadraceError, ListenerTaken, NotRegistered, Unavailable
from headrace.runtime.backoff import Backoff
from headrace.wire.documents import FeedView
from headrace.wire.schema_documents import SchemaPlace

if TYPE_CHECKING:
    from headrace.client.http import FeedClient, FramesRange

T = TypeVar("T")

RETRY_S: Final = 120.0
"""How long a read waits for a server that is away: a query fails for good as soon as its source raises once."""

LOOK_S: Final = 0.05
"""Time between two looks at a server that takes no long poll."""


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
        # The same after a restart: the server keeps a listener that is not seen any more for a day.
        self._waits_as = f"spark-{sha256(f'{gethostname()} {os.getuid()}'.encode()).hexdigest()[:12]}"

    def feed(self, name: str) -> FeedView:
        """Return the feed's bounds, incarnation and newest LSN."""
        return self._repeat(lambda client: client.feed(name))

    def feeds(self) -> list[FeedView]:
        """Return all feeds, as :meth:`feed` does."""
        return self._repeat(lambda client: client.feeds())

    def schemas(self, feed: str) -> list[SchemaPlace]:
        """Return the newest schema of each table of the feed, by sequence id. Retention takes none away."""
        return self._repeat(lambda client: client.schemas(feed))

    def schema(self, feed: str, database: str, table: str, version: int) -> bytes:
        """Return a table's schema, byte for byte as its entry has it; SchemaNotFound."""
        return self._repeat(lambda client: client.schema(feed, database, table, version))

    def frames(
        self, feed: str, first: int, last: int, *, incarnation: str | None = None, lsn: str | None = None
    ) -> FramesRange:
        """Return the stored frames that overlap ``first`` … ``last``: up to 8 MiB, or one frame."""
        return self._repeat(
            lambda client: client.read_frames(feed, first, last, incarnation=incarnation, lsn=lsn)
        )

    def first_since(self, feed: str, ms: int) -> int:
        """Return the sequence id of the first entry committed at ``ms`` or later, head + 1 if there is none.

        ``ms``: UTC milliseconds. SequenceNotAvailable if retention may have dropped it.
        """
        found = self._repeat(lambda client: client.read_since(feed, ms, limit=1))
        return found.changes_list[0].sequence_id if found.changes_list else found.head_sequence_id + 1

    def register_listener(self, listener: str, feed: str, *, hold: bool) -> None:
        """Register a listener with a feed; idempotent. ``hold``: retention waits for it."""
        self._repeat(lambda client: client.register_listener(listener, feed, hold=hold))

    def put_position(self, listener: str, feed: str, bookmark: Bookmark) -> None:
        """Keep a listener's durable place."""
        self._repeat(lambda client: client.put_position(listener, feed, bookmark))

    def wait_past(
        self, places: Mapping[str, int], listener: str, timeout_s: float, *, hold: bool = False
    ) -> None:
        """Return when a feed has an entry above its place (feed -> sequence id), after ``timeout_s`` seconds at the latest.

        It waits in long polls as ``listener``, which is registered if it isn't yet; ``hold``: so that retention waits for
        it. Empty: as a listener of this machine's and user's, or of this connection's own where another subject has that
        one; it holds nothing back. Where the server takes no poll it returns after :data:`LOOK_S`: who asks then looks,
        and finds out why.
        """
        self._loop.run_until_complete(self._wait_past(places, listener, timeout_s, hold))

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

    def _opened(self) -> FeedClient:
        if self._client is None:
            # Several of Spark's helper processes load this module and never ask a server anything.
            from headrace.client.http import FeedClient

            given = self._endpoint
            token_file, ca_file = (Path(file) if file else None for file in (given.token_file, given.ca_file))
            self._client = FeedClient(given.server, token=Credential.find(token_file), ca_file=ca_file)
        return self._client

    async def _wait_past(
        self, places: Mapping[str, int], listener: str, timeout_s: float, hold: bool
    ) -> None:
        polls = [
            asyncio.ensure_future(self._poll(feed, after, listener, timeout_s, hold))
            for feed, after in places.items()
        ]
        try:
            await asyncio.wait(polls, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for poll in polls:
                poll.cancel()
            await asyncio.gather(*polls, return_exceptions=True)

    async def _poll(self, feed: str, after: int, listener: str, timeout_s: float, hold: bool) -> None:
        client, timeout_ms, name = self._opened(), int(timeout_s * 1000), listener or self._waits_as
        try:
            try:
                await client.poll(feed, name, after, timeout_ms=timeout_ms, limit=1)
            except NotRegistered:
                await client.register_listener(name, feed, hold=hold)
                await client.poll(feed, name, after, timeout_ms=timeout_ms, limit=1)
        except ListenerTaken:
            if not listener and self._waits_as == name:
                self._waits_as = f"spark-{uuid4().hex}"
            await asyncio.sleep(LOOK_S)
        except HeadraceError:
            await asyncio.sleep(LOOK_S)

    async def _until_answered(self, call: Callable[[FeedClient], Awaitable[T]]) -> T:
        client = self._opened()
        backoff = Backoff()
        deadline = time.monotonic() + self._endpoint.retry_s
        while True:
            try:
                return await call(client)
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
