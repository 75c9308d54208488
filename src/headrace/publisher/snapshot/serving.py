"""The agent's snapshots as one part of its process: the spool, the maker, the HTTP face and what checks tokens."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Final

import uvicorn

from headrace.access.key_fetch import key_fetch_of
from headrace.access.key_source import KeySource
from headrace.access.tls import Tls
from headrace.access.tokens import TokenVerifier
from headrace.errors import ConfigInvalid, PortInUse
from headrace.publisher.snapshot.accepting import SPARE, Acceptor, answers_max
from headrace.publisher.snapshot.connection import Connection
from headrace.publisher.snapshot.face import SnapshotFace
from headrace.publisher.snapshot.guard import SnapshotGuard
from headrace.publisher.snapshot.maker import FeedSource, ReaderMaker, SnapshotMaker
from headrace.publisher.snapshot.settings import Address, SnapshotSettings, check_reach, find_addresses
from headrace.publisher.snapshot.spool import Spool
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.runtime.logs import get_logger

logger = get_logger("snapshot")

KEEP_ALIVE_S: Final = 15
"""How long an idle connection is kept: a listener comes once, and a few times while its snapshot is made."""

STOP_S_MAX: Final = 2
"""How long a stopping agent waits for answers under way: a listener comes back for the rest."""


class SnapshotService:
    """Snapshots of an agent's feeds. Use: the constructor, :meth:`learn_key`, :meth:`run` once.

    The constructor takes the address and the folder, or raises ConfigInvalid, PortInUse, DataFolderLocked, Usage, OSError.
    """

    def __init__(
        self,
        settings: SnapshotSettings,
        feeds: Mapping[str, FeedSource],
        readers: ReaderMaker,
        clock: Clock,
    ) -> None:
        check_reach(settings)
        self._settings = settings
        self._tls = None if settings.tls is None else Tls(settings.tls)
        self._keys = None if settings.jwks is None else KeySource(key_fetch_of(settings.jwks), clock=clock)
        verifier = None if self._keys is None else TokenVerifier(self._keys, settings.terms, clock=clock)
        self._spool = Spool(
            settings.folder, bytes_max=settings.bytes_max, keep_s=settings.kept_s, clock=clock, disk=Disk()
        )
        self._guard = SnapshotGuard(
            settings.url,
            token=settings.token,
            verifier=verifier,
            is_joining=lambda feed: feed in feeds and feeds[feed].incarnation is None,
            clock=clock,
        )
        self._maker = SnapshotMaker(feeds, readers, self._spool, settings, clock)
        self._listener = _bind(settings.listen)
        try:
            self._spool.open()
        except BaseException:
            self._listener.close()
            raise

    def learn_key(self, feed: str, key: bytes) -> None:
        """Take the key with which the server signs tickets for ``feed``."""
        self._guard.learn_key(feed, key)

    async def run(self, ending: asyncio.Event) -> None:
        """Serve until ``ending``; then nothing is left of a snapshot in the making."""
        try:
            async with contextlib.AsyncExitStack() as stack:
                if self._keys is not None:
                    await stack.enter_async_context(self._keys)
                making = asyncio.create_task(self._maker.run(ending))
                try:
                    await self._serve(ending)
                finally:
                    making.cancel()
                    await asyncio.wait({making})
                    await self._maker.close()
        finally:
            self._listener.close()

    async def _serve(self, ending: asyncio.Event) -> None:
        tls = self._tls
        at_once = answers_max()
        config = uvicorn.Config(
            SnapshotFace(self._maker, self._spool, self._guard, answers_max=at_once),
            http=Connection,
            ws="none",
            loop="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_S_MAX,
        )
        logging.getLogger("uvicorn").setLevel(logging.ERROR)
        host, port = self._listener.getsockname()[:2]
        logger.info(
            "snapshots are served",
            host=host,
            port=port,
            tls=tls is not None,
            folder=str(self._settings.folder),
            answers_max=at_once,
        )
        server = _Server(
            config,
            self._listener,
            None if tls is None else tls.ssl_context(),
            connections_max=at_once + SPARE,
        )
        serving = asyncio.create_task(server.serve())
        stopped = asyncio.create_task(ending.wait())
        try:
            await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            server.should_exit = True
            await serving


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, and with a bound on what it accepts."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        tls: ssl.SSLContext | None,
        *,
        connections_max: int,
    ) -> None:
        super().__init__(config)
        self._listener = listener
        self._acceptor = Acceptor(listener, self._connect, connections_max=connections_max, tls=tls)
        self._accepting: asyncio.Task[None] | None = None

    def _connect(self) -> Connection:
        return Connection(
            config=self.config, server_state=self.server_state, app_state={}, _loop=asyncio.get_running_loop()
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []  # what uvicorn would close
        self._accepting = asyncio.create_task(self._acceptor.run())
        self._accepting.add_done_callback(self._accepting_ended)
        self.started = True

    def _accepting_ended(self, task: asyncio.Task[None]) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait({self._accepting})
        self._listener.close()
        self._acceptor.end_handshakes()
        await super().shutdown(sockets)
        await self._acceptor.close()
        if self._accepting is not None and not self._accepting.cancelled():
            self._accepting.result()  # it ended by itself: a fault, which must not pass for an agent that serves

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in find_addresses(address.host)[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"{address.host}:{address.port} is taken by another process",
                hint="Choose another snapshot-listen.",
            ) from None
        raise ConfigInvalid(f"snapshot-listen: can't listen there: {error.strerror}") from None
    return listener
