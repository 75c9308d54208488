"""The HTTP face on a real port of this process, for what a server in a process of its own can't be told: short bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn

from headrace.access.connection import Connection
from headrace.client.tls import NO_TLS
from headrace.log.log import Log, LogSettings
from headrace.log.opening import StoreAddress
from headrace.server.decoding import decode_entries
from headrace.server.encoding import PostTerms
from headrace.server.http.app import HttpFace
from headrace.server.http.bodies import BodyTerms
from headrace.server.http.event_stream import StreamTerms
from headrace.server.run import Address, bind
from headrace.server.service import Service
from headrace.wire.documents import RegisterListener, RegisterPublisher
from tests.waiting import async_wait_until

FEED = "f"
READ_BYTES = 1 << 20
"""Most that a client of :meth:`Served.open_stream` takes in before it is asked for."""


@dataclass(frozen=True)
class Served:
    """A service, its address and a client. The feed :data:`FEED` has the publisher ``a`` and the listener ``l``."""

    service: Service
    port: int
    http: httpx.AsyncClient
    face: HttpFace

    @property
    def held_bytes(self) -> int:
        """Bytes of request bodies that the face holds."""
        return self.face.bodies.held_bytes

    async def wait_held(self, count: int) -> None:
        """Wait until it holds so many."""
        await async_wait_until(lambda: self.held_bytes == count, what=f"{count} bytes of bodies to be held")

    async def post(self, *changes: bytes) -> None:
        """Append entries, one append each."""
        for one in changes:
            entries = decode_entries(b'{"agent-id":"a","changes":' + one + b"}")
            await self.service.append(FEED, entries, PostTerms())

    async def open_stream(self, query: str = "") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Ask for a stream over a connection of its own; nothing is read yet."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=READ_BYTES)
        writer.write(
            f"GET /feeds/{FEED}/stream?listener-id=l{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        return reader, writer


@asynccontextmanager
async def served(
    folder: Path,
    *,
    streams: StreamTerms | None = None,
    bodies: BodyTerms | None = None,
    settings: LogSettings | None = None,
    store: StoreAddress | None = None,
) -> AsyncIterator[Served]:
    """Serve ``folder``; at the end waits are ended and everything is closed."""
    log = Log.open(folder, settings=settings, store=store)
    await log.start()
    service = Service(log)
    await service.register_publisher(RegisterPublisher(agent_id="a", change_feed_id=FEED))
    await service.register_listener(RegisterListener(listener_id="l", change_feed_id=FEED))
    listener = bind(Address("127.0.0.1", 0))
    face = HttpFace(service, streams=streams, bodies=bodies)
    config = uvicorn.Config(
        face,
        http=Connection,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=10,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve(sockets=[listener]))  # without its signal handlers
    port = listener.getsockname()[1]
    try:
        await async_wait_until(lambda: server.started, what="the server to listen")
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60, verify=NO_TLS
        ) as http:
            yield Served(service, port, http, face)
    finally:
        service.stop_waiting()
        server.should_exit = True
        await serving
        await service.close()
        await log.close()
