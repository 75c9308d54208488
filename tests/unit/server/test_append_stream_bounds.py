"""What waits at a server of its streams of appends: bounded, and answered when the server stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.client.log_append import Writes, encode_request
from headrace.log.log import Log, LogSettings
from headrace.server.grpc import log_append
from headrace.server.grpc.calls import Door
from headrace.server.grpc.log_append import WAITING_MAX, LogAppend
from headrace.server.service import Service
from headrace.testing.clock import ManualClock
from headrace.wire.generated import log_pb2
from tests.bench import AGENT, half, register
from tests.waiting import async_wait_until

WAIT_S_MAX = 30.0


class Aborted(grpc.aio.AbortError):  # type: ignore[misc]  # grpc has no types
    """What ends a call; gRPC's own context raises the like."""


class Call:
    """The server's side of one call, with what a client has sent; gRPC itself is left out, to see what was read."""

    def __init__(self, *requests: bytes) -> None:
        self.read_count = 0
        self.answers: list[log_pb2.AppendResponse] = []
        self.status: tuple[grpc.StatusCode, str] | None = None
        self._requests: asyncio.Queue[bytes] = asyncio.Queue()
        for request in requests:
            self._requests.put_nowait(request)

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def read(self) -> bytes:
        request = await self._requests.get()
        self.read_count += 1
        return request

    async def write(self, data: bytes) -> None:
        self.answers.append(log_pb2.AppendResponse.FromString(data))

    async def abort(self, status: grpc.StatusCode, detail: str, _trailing: object) -> None:
        self.status = status, detail
        raise Aborted


class Bay:
    """A face over a log with the feed ``f`` whose writer can be kept busy."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.face = LogAppend(Service(log), Door(None, ManualClock()))
        self._free = threading.Event()

    async def keep_busy(self) -> None:
        """Let what is appended from now on wait, until :meth:`go_on`."""
        busy = threading.Event()

        def wait() -> None:
            busy.set()
            assert self._free.wait(WAIT_S_MAX)

        self._work = asyncio.create_task(self.log._writer.run(wait))
        assert await asyncio.to_thread(busy.wait, WAIT_S_MAX)

    def go_on(self) -> None:
        self._free.set()

    def stream(self, call: Call) -> asyncio.Task[Any]:
        """Begin to serve a stream."""
        return asyncio.create_task(
            _served(self.face.calls.answering("AppendStream", self.face._append_stream)(None, call))
        )


async def _served(answering: Coroutine[Any, Any, Any]) -> None:
    with suppress(Aborted):
        await answering


@asynccontextmanager
async def bay(folder: Path) -> AsyncIterator[Bay]:
    log = Log.open(folder, settings=LogSettings(disk_reserve_bytes=0))
    await log.start()
    made = Bay(log)
    try:
        await log.register(register("f"))
        async with asyncio.timeout(WAIT_S_MAX):
            yield made
    finally:
        made.go_on()
        await log.close()


def request(size: int = 1) -> bytes:
    return encode_request(Writes("f", AGENT), [half(bytes(size))])


async def test_a_server_that_stops_answers_all_that_it_has_read(tmp_path: Path) -> None:
    async with bay(tmp_path) as made:
        await made.keep_busy()
        call = Call(*[request()] * (WAITING_MAX + 10))
        serving = made.stream(call)
        await async_wait_until(lambda: call.read_count >= WAITING_MAX)
        made.face.stop()
        made.go_on()
        await serving
        assert len(call.answers) == call.read_count == WAITING_MAX
        assert [answer.appended.first_sequence_id for answer in call.answers] == [*range(1, WAITING_MAX + 1)]
        assert call.status is not None
        assert call.status[0] is grpc.StatusCode.UNAVAILABLE
        assert made.face.held.bytes == 0
        late = Call(request())
        await made.stream(late)
        assert late.status is not None
        assert "stopping" in late.status[1]
        assert late.read_count == 0


async def test_what_waits_over_all_streams_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = request(1000)
    monkeypatch.setattr(log_append, "HELD_BYTES_EASY", 2 * len(one))
    monkeypatch.setattr(log_append, "HELD_BYTES_MAX", 3 * len(one))
    async with bay(tmp_path) as made:
        await made.keep_busy()
        first = Call(*[one] * 5)
        serving = made.stream(first)
        await async_wait_until(lambda: made.face.held.bytes == 2 * len(one))
        second = Call(one)
        others = made.stream(second)
        large = Call()
        with pytest.raises(Aborted):
            await made.face.calls.answering("Append", made.face._append)(request(3000), large)
        assert large.status is not None
        assert large.status[0] is grpc.StatusCode.UNAVAILABLE
        assert "wait at this server" in large.status[1]
        assert (first.read_count, second.read_count) == (2, 0), "streams are not read meanwhile"
        made.go_on()
        await async_wait_until(lambda: len(first.answers) == 5 and len(second.answers) == 1)
        assert made.face.held.bytes == 0
        made.face.stop()
        await asyncio.gather(serving, others)


async def test_streams_at_once_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_append, "STREAMS_MAX", 2)
    async with bay(tmp_path) as made:
        calls = [Call(request()) for _ in range(3)]
        serving = [made.stream(call) for call in calls]
        await async_wait_until(lambda: [len(call.answers) for call in calls] == [1, 1, 0])
        await serving[2]
        assert calls[2].status is not None
        assert calls[2].status[0] is grpc.StatusCode.UNAVAILABLE
        assert "2 streams of appends are open" in calls[2].status[1]
        made.face.stop()
        await asyncio.gather(*serving)
