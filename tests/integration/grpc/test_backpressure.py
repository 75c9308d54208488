"""A subscriber that reads nothing: it loses its stream in the RFC's words, costs bounded memory, and slows nobody."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from headrace.client import channel as channels
from headrace.client.channel import open_channel
from headrace.client.log_append import LogAppendClient
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.log.log import Log
from headrace.server.grpc.face import GrpcFace
from headrace.server.service import Service
from headrace.server.streams.terms import StreamTerms
from headrace.wire.batch import ReceivedBatch
from headrace.wire.generated import wal_pb2
from tests.bench import append, register
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import halves, read_until, writes
from tests.scale import scaled, sized
from tests.servers import ServerProcess, serving
from tests.waiting import async_wait_until

TOO_SLOW = "backpressure_timeout: subscriber too slow"
SUBSCRIBE = "/kdb.wal.v1.WalStream/Subscribe"
ENTRIES = sized(15_000, soak=40_000)
"""Far more than windows and queue hold."""


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that waits half a second for a subscriber; with a feed that is long."""
    args = ["--backpressure-timeout", "500ms", "--stream-queue", "2000"]
    with serving(tmp_path_factory.mktemp("server"), args=args, grpc=True) as running:
        feed = registered(running, "long")

        async def fill() -> None:
            async with LogAppendClient(running.grpc_address) as client:
                for first in range(1, ENTRIES, 1000):
                    await client.append(writes(feed), halves(first, first + 999, value=b" " * 300))

        asyncio.run(fill())
        yield running
    assert "Traceback" not in running.errors()


@pytest.fixture(autouse=True)
def fixed_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Channels take 64 KiB of a stream that nobody reads, and no more.

    By default gRPC widens the window with what came within a ping's time, and no bound on that counts here: on a loaded
    machine it takes a stream of 10 MB whole, unread, and the server can't tell that from a reader.
    """
    monkeypatch.setattr(channels, "_OPTIONS", (*channels._OPTIONS, ("grpc.http2.bdp_probe", 0)))


LOST = "lost its stream"
CUT_OFF = "a stream is cut off"


def said(server: ServerProcess, text: str = LOST) -> int:
    return server.errors().count(text)


async def until_said(server: ServerProcess, before: int, text: str = LOST) -> None:
    """Wait until the server's log has said so once more."""
    await async_wait_until(lambda: said(server, text) > before, what=f"the server to say: {text}")


async def read_all(call: Any) -> list[wal_pb2.WalResponse]:
    found = []
    async with asyncio.timeout(60):
        while (data := await call.read()) is not grpc.aio.EOF:
            found.append(wal_pb2.WalResponse.FromString(data))
    return found


async def test_who_wakes_up_soon_reads_the_reason_behind_what_was_sent(impatient: ServerProcess) -> None:
    before = said(impatient)
    async with open_channel(impatient.grpc_address) as channel:
        call = channel.unary_stream(SUBSCRIBE)(b"")
        await until_said(impatient, before)
        found = await read_all(call)
    assert found[-1].error == TOO_SLOW
    batches = [one.batch for one in found[:-1]]
    entries = [entry for batch in batches for entry in batch.entries]
    assert 0 < len(entries) < ENTRIES
    assert [entry.key for entry in entries] == [b"key-%d" % number for number in range(1, len(entries) + 1)]


async def test_who_sleeps_on_finds_it_in_the_status(impatient: ServerProcess) -> None:
    """Also where the first message is the one that is stuck: the status follows it."""
    before = said(impatient, CUT_OFF)
    async with open_channel(impatient.grpc_address) as channel:
        call = channel.unary_stream(SUBSCRIBE)(b"")
        await until_said(impatient, before, CUT_OFF)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await read_all(call)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert caught.value.details() == TOO_SLOW


async def test_others_get_everything_and_the_server_stays_small(impatient: ServerProcess) -> None:
    before = impatient.memory_bytes()
    async with AsyncExitStack() as stack:
        for _ in range(20):
            channel = await stack.enter_async_context(open_channel(impatient.grpc_address))
            channel.unary_stream(SUBSCRIBE)(b"")
        reader = await stack.enter_async_context(WalClient(impatient.grpc_address, subscriber_id="fast"))
        head, _ = await reader.bounds()
        batches = await read_until(reader, None, head)
        assert sum(len(batch.sizes) for batch in batches) == ENTRIES
        assert impatient.memory_bytes() - before < 20 * (8 << 20)


async def test_a_stream_that_was_lost_goes_on_from_the_last_ack(impatient: ServerProcess) -> None:
    got: list[bytes] = []
    start: Lsn | None = None
    lost = 0
    async with WalClient(impatient.grpc_address, subscriber_id="slow") as wal:
        head, _ = await wal.bounds()
        while start is None or start < head:
            before = said(impatient)
            async with aclosing(wal.subscribe(start)) as items:
                async for item in items:
                    if not isinstance(item, ReceivedBatch):
                        continue
                    new = [
                        entry for entry in item.messages() if start is None or Lsn.parse(entry.lsn) > start
                    ]
                    got += [entry.key for entry in new]
                    start = item.last_lsn
                    await wal.ack(start)
                    if lost < 2:
                        await until_said(impatient, before)
                        lost += 1
                        break
                    if start >= head:
                        break
    assert got == [b"key-%d" % number for number in range(1, ENTRIES + 1)]


@asynccontextmanager
async def face_in_process(
    folder: Path, terms: StreamTerms | None = None, entries: int = 0
) -> AsyncIterator[GrpcFace]:
    log = Log.open(folder)
    service = Service(log)
    face = GrpcFace.bind("127.0.0.1", "127.0.0.1:0")
    try:
        await log.start()
        await service.start()
        await face.start(service, log, terms=terms)
        await log.register(register("a"))
        for _ in range(entries // 100):
            await log.append(append("a", *["x" * 5000] * 100))
        yield face
    finally:
        await face.stop()
        await service.close()
        await log.close()


async def test_streams_that_were_cut_off_leave_nothing_while_their_connection_stays(tmp_path: Path) -> None:
    """The status waits behind a message that nobody reads; the server does not wait for that. A new stream is served."""
    terms = StreamTerms(backpressure_timeout_s=0.2)
    async with (
        face_in_process(tmp_path, terms, entries=2000) as face,
        open_channel(f"127.0.0.1:{face.port}") as channel,
    ):
        assert face._wal_stream is not None
        calls = face._wal_stream.calls
        stuck = [channel.unary_stream(SUBSCRIBE)(b"") for _ in range(20)]
        await asyncio.gather(*(call.initial_metadata() for call in stuck))
        await async_wait_until(lambda: len(calls) == 0, what="the streams to be let go of")
        again = channel.unary_stream(SUBSCRIBE)(b"")
        async with asyncio.timeout(60):
            assert wal_pb2.WalResponse.FromString(await again.read()).batch.entries
        for call in (*stuck, again):
            call.cancel()


async def test_streams_that_are_dropped_leave_nothing(tmp_path: Path) -> None:
    """Many streams, cancelled or with their connection gone: tasks and objects return to where they were."""
    async with face_in_process(tmp_path) as face:
        address = f"127.0.0.1:{face.port}"

        async def rounds(count: int) -> None:
            for number in range(count):
                async with open_channel(address) as channel:
                    calls = [channel.unary_stream(SUBSCRIBE)(b"") for _ in range(50)]
                    await async_wait_until(lambda: face.open_streams == 50, what="the streams to be open")
                    if number % 2:
                        for call in calls:
                            call.cancel()
                await async_wait_until(lambda: face.open_streams == 0, what="the streams to be gone")

        await rounds(2)
        tasks, objects = len(asyncio.all_tasks()), _objects()
        count = scaled(sized(12, soak=40))
        await rounds(count)
        await async_wait_until(lambda: len(asyncio.all_tasks()) <= tasks, what="the tasks to be gone")
        assert _objects() - objects < 50 * count, "the streams left less than an object each"


def _objects() -> int:
    gc.collect()
    return len(gc.get_objects())
