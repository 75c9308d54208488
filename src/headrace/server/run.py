"""The server as a part of a process: opens the data folder, serves HTTP, and stops in good order.

``headrace serve`` runs it alone, ``headrace up`` beside an agent: the caller owns loop, signals and the stop event.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import uvicorn

from headrace.access.connection import Connection, connection_of
from headrace.access.exposure import is_loopback, judge_exposure
from headrace.access.opening import AuthSettings, verifying
from headrace.access.tls import Tls, TlsSettings
from headrace.access.tokens import TokenVerifier
from headrace.errors import PlatformUnsupported, PortInUse, Usage
from headrace.log.log import Log, LogSettings
from headrace.log.opening import StoreAddress
from headrace.runtime.descriptors import connections_max, raise_limit
from headrace.runtime.logs import get_logger
from headrace.server.console.face import ConsoleFace
from headrace.server.http.app import HttpFace
from headrace.server.reports import GONE_AFTER_S
from headrace.server.self_watch import WHO, server_name
from headrace.server.service import Service
from headrace.server.snapshots import Origin
from headrace.server.streams.terms import StreamTerms

if TYPE_CHECKING:
    from headrace.server.grpc.face import GrpcFace
    from headrace.server.pg.face import PgFace

logger = get_logger("server")

KEEP_ALIVE_S: Final = 75
"""How long an idle connection is kept. Longer than clients keep theirs, so that it is the client that closes first."""

STOP_S_MAX: Final = 10
"""How long a stop waits for answers that are under way; long polls are answered at once."""


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a server is started with. ``store`` names a database that holds the log, instead of ``data_dir``.

    ``http`` is ``HOST:PORT``; port 0 takes a free one. ``grpc`` is the same, or None to leave gRPC out; ``pg`` so for
    PostgreSQL's replication protocol, whose streams end after ``pg_sender_timeout_s`` of silence. ``auth`` None:
    nobody is asked for a token. ``tls`` None: plain text. ``snapshot_allow``: where listeners may be sent for snapshots.
    ``gone_after_s``: how long a process may be silent. ``streams``: how gRPC's streams are paced.
    """

    data_dir: Path = Path("headrace-data")
    store: StoreAddress | None = None
    http: str = "127.0.0.1:8470"
    grpc: str | None = None
    pg: str | None = None
    pg_sender_timeout_s: float = 60.0
    insecure: bool = False
    auth: AuthSettings | None = None
    tls: TlsSettings | None = None
    snapshot_allow: tuple[Origin, ...] = ()
    log: LogSettings = LogSettings()
    gone_after_s: float = GONE_AFTER_S
    streams: StreamTerms = StreamTerms()


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return ``HOST:PORT``, an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Serving(NamedTuple):
    """What a ready server says of itself: ``http``, ``grpc`` and ``pg`` are the addresses that it took, ``store`` where its
    data is if that is no folder. ``encrypted``: all of them speak TLS.
    """

    http: Address
    data_dir: Path
    store: StoreAddress | None = None
    grpc: Address | None = None
    pg: Address | None = None
    encrypted: bool = False


async def serve(settings: ServeSettings, stop: asyncio.Event, ready: Callable[[Serving], None]) -> None:
    """Serve until ``stop`` is set; ``ready`` is called once, when requests are answered.

    At the end the long polls that wait are answered, what is being appended is answered, and the log is closed. Raises
    PlatformUnsupported, Usage, PortInUse, ConfigInvalid, and what :meth:`Log.open` raises; nothing has been written then.
    """
    check_platform()
    limit = raise_limit()
    address = parse_address(settings.http)
    check_exposure(address, settings)
    tls = Tls(settings.tls) if settings.tls is not None else None
    async with contextlib.AsyncExitStack() as stack:
        listener = stack.enter_context(contextlib.closing(bind(address)))
        face = _bind_grpc(settings, tls)
        if face is not None:
            stack.push_async_callback(face.stop)
        pg = _bind_pg(settings, tls)
        if pg is not None:
            stack.push_async_callback(pg.stop)
        verifier = await stack.enter_async_context(verifying(settings.auth))
        log = Log.open(settings.data_dir, store=settings.store, settings=settings.log)
        stack.push_async_callback(log.close)
        service = Service(
            log,
            snapshot_allow=settings.snapshot_allow,
            snapshot_local=all(map(is_loopback, _addresses(address.host))),
            name=WHO if settings.store is None else server_name(listener.getsockname()[1]),
            gone_after_s=settings.gone_after_s,
        )
        stack.push_async_callback(service.close)
        await log.start()
        await service.start()
        at = Address(address.host, listener.getsockname()[1])
        serving = Serving(at, settings.data_dir, settings.store, encrypted=tls is not None)
        if face is not None:
            await face.start(service, log, verifier=verifier, terms=settings.streams)
            stack.push_async_callback(face.stop)  # before the log is closed
            serving = serving._replace(grpc=Address(face.host, face.port))
        if pg is not None:
            await pg.start(service, log, verifier=verifier)
            stack.push_async_callback(pg.stop)
            serving = serving._replace(pg=Address(pg.host, pg.port))
        await _serve_http(
            service,
            listener,
            stop,
            verifier=verifier,
            tls=tls,
            connection=connection_of(
                connections_max(limit), local_only=settings.auth is None and not settings.insecure
            ),
            started=lambda: ready(serving),
            stopping=[one.begin_stop for one in (face, pg) if one is not None],
        )


def _bind_grpc(settings: ServeSettings, tls: Tls | None) -> GrpcFace | None:
    """Take the gRPC address, if there is to be one, without answering yet; the same refusals as for HTTP's."""
    if settings.grpc is None:
        return None
    from headrace.server.grpc.face import GrpcFace  # noqa: PLC0415  # a fifth of a second that only gRPC needs

    address = parse_address(settings.grpc)
    check_exposure(address, settings)
    try:
        bind(address).close()  # gRPC itself could not say why an address can't be had
    except (PortInUse, Usage) as error:
        raise type(error)(error.detail, hint="Choose another --grpc.") from None
    return GrpcFace.bind(address.host, str(address), tls)


def _bind_pg(settings: ServeSettings, tls: Tls | None) -> PgFace | None:
    """Take the address of PostgreSQL's replication protocol, if there is to be one; the same refusals as for HTTP's."""
    if settings.pg is None:
        return None
    from headrace.server.pg.face import PgFace  # noqa: PLC0415  # only who asks for it needs it
    from headrace.server.pg.terms import PgTerms  # noqa: PLC0415  # the same

    address = parse_address(settings.pg)
    check_exposure(address, settings)
    try:
        listener = bind(address)
    except (PortInUse, Usage) as error:
        raise type(error)(error.detail, hint="Choose another --pg.") from None
    return PgFace(listener, tls, PgTerms(sender_timeout_s=settings.pg_sender_timeout_s))


def check_platform() -> None:
    """Raise PlatformUnsupported where the server can't run; commands call it before they touch loop or signals."""
    if sys.platform == "win32":
        raise PlatformUnsupported("the server does not run on Windows")


def parse_address(text: str) -> Address:
    """Return ``HOST:PORT`` (``[::1]:8470`` for IPv6) as an address; Usage for anything else."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (host and colon and port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise Usage(
            f"{text!r} is not an address to listen on", hint="Write HOST:PORT, such as 127.0.0.1:8470."
        )
    return Address(host, int(port))


def check_exposure(address: Address, settings: ServeSettings) -> None:
    """Refuse (Usage) an address that other machines can reach without tokens, unless that was said to be insecure.

    What else it lays open is logged loudly.
    """
    warning = judge_exposure(
        str(address),
        _addresses(address.host),
        authenticated=settings.auth is not None,
        encrypted=settings.tls is not None,
        insecure=settings.insecure,
    )
    if warning is not None:
        logger.warning("the server lies open", detail=warning)


def bind(address: Address) -> socket.socket:
    """Return a socket bound to ``address``, not yet listening; PortInUse if it is taken, Usage if it can't be had."""
    family = socket.AF_INET6 if ":" in _addresses(address.host)[0] else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"{address} is taken by another process") from None
        raise Usage(f"can't listen on {address}: {error.strerror}", hint="Choose another --http.") from None
    return listener


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the event loop of a serving process: uvloop where there is one."""
    try:
        import uvloop  # noqa: PLC0415  # not everywhere
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _addresses(host: str) -> list[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, UnicodeError):
        raise Usage(f"there is no such host: {host[:80]!r}", hint="Choose another --http.") from None


async def _serve_http(
    service: Service,
    listener: socket.socket,
    stop: asyncio.Event,
    *,
    verifier: TokenVerifier | None,
    tls: Tls | None,
    connection: type[Connection],
    started: Callable[[], None],
    stopping: Sequence[Callable[[], None]],
) -> None:
    def begin_stop() -> None:
        service.stop_waiting()
        for begin in stopping:
            begin()

    def context(_config: uvicorn.Config, _usual: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
        if tls is None:
            raise RuntimeError("there is no TLS")
        return tls.ssl_context()

    config = uvicorn.Config(
        ConsoleFace(service, HttpFace(service, verifier=verifier), verifier=verifier),
        http=connection,
        ws="none",
        loop="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ssl_context_factory=context if tls is not None else None,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S_MAX,
    )
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    server = _Server(config, started=started, stopping=begin_stop)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        server.should_exit = True
        await serving


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, saying when it has started and when it begins to stop."""

    def __init__(
        self, config: uvicorn.Config, *, started: Callable[[], None], stopping: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._when_started = started
        self._when_stopping = stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # The polls are answered after the connections were told to close: so they close, and nobody polls again.
        self._when_stopping()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run(main: Any) -> Any:
    """Run the coroutine ``main`` to its end on the event loop of a serving process, and return its result."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)
