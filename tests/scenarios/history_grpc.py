"""Producers over gRPC for :mod:`tests.scenarios.history`: single calls, and streams with several appends on the way."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from headrace.client.log_append import AppendStream, LogAppendClient, Stored, Writes
from headrace.entries.entry import Change
from headrace.errors import (
    HeadraceError,
    OffsetMismatch,
    ServerUnreachable,
    StreamFailed,
    Unavailable,
    refusal_of,
)
from headrace.testing.linearity import Appending
from headrace.wire.entry import encode_half
from tests.scenarios.history import FEEDS, Answer, Client, History, HttpFace, NotSent
from tests.servers import Feed, ServerProcess

CALL_S_MAX: Final = 20.0
"""A call that takes longer fails the test: the server is killed, never silent."""
PIPELINE_MAX: Final = 4
"""Appends that a pipelining producer has on the way at once."""

T = TypeVar("T")


class Loop:
    """An event loop in a thread of its own, for callers that have none."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="grpc-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what ``work`` returns; TimeoutError after :data:`CALL_S_MAX`."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, CALL_S_MAX), self._loop).result()

    def close(self) -> None:
        """End the loop, once everything that was asked for is done."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Refused(Exception):
    """An append on a stream was not tried, because one before it was refused, and certainly left nothing."""


Outcome = Answer | Refused | None
"""What became of one append of several: None where nobody knows."""


class GrpcFace:
    """A server's ``LogAppend``, by single calls or over a stream for each feed. Reads go by HTTP."""

    def __init__(self, loop: Loop, server: ServerProcess, *, streams: bool) -> None:
        self.loop, self.streams = loop, streams
        self.address = server.grpc_address
        self.http = HttpFace(server.url)
        self.client: LogAppendClient | None = None
        self.open: dict[Writes, AppendStream] = {}

    async def _connected(self) -> LogAppendClient:
        """A client that has just been answered by the server; NotSent, and a new one next time, if it is not there."""
        if self.client is None:
            client = LogAppendClient(self.address)
            try:
                await client.tail(next(iter(FEEDS)))
            except HeadraceError as error:
                await client.close()
                raise NotSent from error
            self.client = client
        return self.client

    async def _disconnected(self) -> None:
        client, self.client = self.client, None
        for writes in list(self.open):
            await self._close(writes)
        if client is not None:
            await client.close()

    async def _close(self, writes: Writes) -> None:
        """Give a stream up as after an error, without waiting for answers."""
        stream = self.open.pop(writes)
        await stream.__aexit__(ServerUnreachable, None, None)

    def next_place(self, feed: str) -> int | None:
        async def ask() -> int | None:
            client = await self._connected()
            try:
                return (await client.tail(feed)).next_sequence_id
            except (ServerUnreachable, Unavailable):
                await self._disconnected()
                return None

        return self.loop.run(ask())

    def read(self, feed: str) -> tuple[str, ...] | None:
        return self.http.read(feed)

    def append(self, feed: str, agent: str, expected: int, values: Sequence[str]) -> Answer | None:
        (outcome,) = self.append_all(feed, agent, expected, [values])
        assert not isinstance(outcome, Refused)
        return outcome

    def append_all(
        self, feed: str, agent: str, expected: int, batches: Sequence[Sequence[str]]
    ) -> list[Outcome]:
        """Send all batches before the first answer, each at the place behind the one before it; one outcome for each."""

        async def send() -> list[Outcome]:
            client, writes = await self._connected(), Writes(feed, agent)
            futures: list[asyncio.Future[Stored]] = []
            at = expected
            if self.streams and writes not in self.open:
                self.open[writes] = client.append_stream(writes)
            for batch in batches:
                halves = [
                    encode_half(Change(json.dumps({"v": value}).encode(), key=value.encode()))
                    for value in batch
                ]
                if self.streams:
                    futures.append(await self._over_stream(writes, halves, at))
                else:
                    futures.append(asyncio.ensure_future(client.append(writes, halves, expected_offset=at)))
                at += len(batch)
            outcomes = [_outcome(found) for found in await asyncio.gather(*futures, return_exceptions=True)]
            if None in outcomes:
                await self._disconnected()
            elif writes in self.open and not all(_is_stored(outcome) for outcome in outcomes):
                await self._close(writes)
            return outcomes

        return self.loop.run(send())

    async def _over_stream(
        self, writes: Writes, halves: Sequence[bytes], expected: int
    ) -> asyncio.Future[Stored]:
        try:
            return await self.open[writes].send(halves, expected_offset=expected)
        except HeadraceError as error:
            failed: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    def close(self) -> None:
        self.loop.run(self._disconnected())
        self.http.close()


def _is_stored(outcome: Outcome) -> bool:
    return isinstance(outcome, Answer) and outcome.first is not None


def _outcome(found: Stored | BaseException) -> Outcome:
    if isinstance(found, Stored):
        return Answer(found.first_sequence_id, duplicate=found.duplicate)
    if isinstance(found, OffsetMismatch):
        return Answer(head=found.members["actual-next"] - 1)
    if isinstance(found, StreamFailed) and refusal_of(found).side_effects == "none":
        return Refused()
    if isinstance(found, (StreamFailed, ServerUnreachable, Unavailable)):
        return None
    raise found


class PipeliningClient(Client):
    """A producer with several appends on the way over a stream. ``denied``: values that it was told are not there."""

    def __init__(self, number: int, face: GrpcFace, history: History, rng: random.Random) -> None:
        super().__init__(number, [face], history, rng)
        self.face = face
        self.denied: list[str] = []

    def append(self, feed: str) -> None:
        """Send some appends one behind the other; what has no answer is sent again, from the first of them on."""
        expected = self.face.next_place(feed)
        if expected is None:
            return
        batches: list[tuple[str, ...]] = []
        for _ in range(self.rng.randint(1, PIPELINE_MAX)):
            self.count += 1
            batches.append(tuple(f"{self.number}/{self.count}/{at}" for at in range(self.rng.randint(1, 3))))
        while batches and not self.stop.is_set():
            try:
                done = self._sent(feed, expected, batches)
            except NotSent:
                self.stop.wait(0.01)
                continue
            expected += sum(len(batch) for batch in batches[:done])
            batches = batches[done:]

    def _sent(self, feed: str, expected: int, batches: Sequence[tuple[str, ...]]) -> int:
        """Make one attempt with all batches and note what came; returns how many need no other attempt."""
        agent = f"agent-{self.number}" if FEEDS[feed] else Feed.agent
        began = time.monotonic()
        outcomes = self.face.append_all(feed, agent, expected, batches)
        ended = time.monotonic()
        at = expected
        for outcome, values in zip(outcomes, batches, strict=True):
            if isinstance(outcome, Refused):
                self.denied += values
            elif outcome is None:
                self.history.note(feed, Appending(values, began, expected=at))
            else:
                self.history.note(
                    feed,
                    Appending(values, began, ended, at, outcome.first, outcome.head, outcome.duplicate),
                )
            at += len(values)
        refused = any(isinstance(one, Answer) and one.head is not None for one in outcomes)
        return len(batches) if refused else outcomes.index(None) if None in outcomes else len(batches)
