"""The bare limits of what goes over gRPC: a server whose handlers do nothing but store the bytes they got, or send some.

``AppendStream`` writes and syncs: as in Headrace's server, one thread takes what waits as a group, with one ``write`` and
one ``fdatasync`` for all of it. It looks at nothing, and its answer is always the same bytes: those of a real answer, so
that the same client can speak to it. ``Stream`` sends ready bytes without end. ``python -m bench.support.bare_server FILE``
prints its address.
"""

from __future__ import annotations

import asyncio
import os
import queue
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

from bench.support.harness import ROOT
from headrace.server.run import run
from headrace.wire.generated import log_pb2

APPEND: Final = "/headrace.log.v1.LogAppend/AppendStream"
STREAM: Final = "/bench.Bare/Stream"
LSN: Final = "0000000000000001.1.1"
STREAM_BYTES: Final = 364_000
"""Bytes of one message of ``Stream``: a batch of 1,000 entries."""


class _Writer:
    """The thread that writes groups."""

    def __init__(self, path: Path) -> None:
        self._queue: queue.SimpleQueue[tuple[bytes, asyncio.Future[None]]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._path = path
        threading.Thread(target=self._run, daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Return once ``data`` is on disk."""
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((data, done))
        await done

    def _run(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            while True:
                group = [self._queue.get()]
                while not self._queue.empty():
                    group.append(self._queue.get())
                file.write(b"".join(data for data, _ in group))
                os.fdatasync(file.fileno())
                for _, done in group:
                    self._loop.call_soon_threadsafe(done.set_result, None)


async def main(path: Path) -> None:
    """Serve until killed."""
    writer = _Writer(path)
    place = log_pb2.Appended(
        first_sequence_id=1, last_sequence_id=1, first_lsn=LSN, last_lsn=LSN, incarnation=bytes(16)
    )
    answer = log_pb2.AppendResponse(appended=place).SerializeToString()

    async def append(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
        async for data in requests:
            await writer.write(data)
            yield answer

    ready = os.urandom(STREAM_BYTES)

    async def stream(_: bytes, __: Any) -> AsyncIterator[bytes]:
        while True:
            yield ready

    server = grpc.aio.server()
    for method, handler in (
        (APPEND, grpc.stream_stream_rpc_method_handler(append)),
        (STREAM, grpc.unary_stream_rpc_method_handler(stream)),
    ):
        _, service, name = method.split("/")
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


@contextmanager
def bare_server(folder: Path) -> Iterator[str]:
    """Run the server in a process of its own, with a file in ``folder``; gives its address."""
    words = [sys.executable, "-m", "bench.support.bare_server", str(folder / "bare")]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "its output is a pipe"
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    run(main(Path(sys.argv[1])))
