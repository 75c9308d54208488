"""The gRPC server of a process: bound before anything is opened, started when requests can be answered, stopped in order."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from headrace.access.grpc_tls import server_credentials
from headrace.access.tls import Tls
from headrace.access.tokens import TokenVerifier
from headrace.errors import PortInUse
from headrace.log.log import Log
from headrace.runtime.clock import Clock, SystemClock
from headrace.server.grpc import log_append, wal_stream
from headrace.server.grpc.calls import Door
from headrace.server.grpc.health import Health
from headrace.server.grpc.log_append import LogAppend
from headrace.server.grpc.wal_stream import WalStream
from headrace.server.http.bodies import BODY_BYTES_MAX
from headrace.server.service import Service
from headrace.server.streams.subscriptions import Subscriptions
from headrace.server.streams.terms import StreamTerms

MESSAGE_BYTES_MAX: Final = BODY_BYTES_MAX + (1 << 20)
"""Largest request: what an HTTP body may hold, and an append's other fields."""
KEEPALIVE_MS: Final = 20_000
KEEPALIVE_TIMEOUT_MS: Final = 10_000
"""A silent connection is asked whether it lives: a dead subscriber's stream must not bound its acks for long."""
PING_PAUSE_MS_MIN: Final = 5_000
"""How often a client may ask the same."""
STREAMS_END_S_MAX: Final = 2.0
"""How long a stop waits for streams: what can't be written to a slow subscriber by then is sent again when it comes back."""
HANDLERS_END_S_MAX: Final = 30.0
"""How long what was cancelled is waited for: a read that is under way can't be, and the log must outlive it."""
APPENDS_END_S_MAX: Final = 10.0
"""How long a stop waits for appends to be durable and answered."""


class GrpcFace:
    """The services of one server at one address. Make it with :meth:`bind`, then :meth:`start`, then :meth:`stop`."""

    def __init__(self, server: grpc.aio.Server, host: str, port: int) -> None:
        """Hold a server that is bound; :meth:`bind` is the usual way."""
        self.host = host
        self.port = port
        self._server = server
        self._health = Health()
        self._subscriptions: Subscriptions | None = None
        self._wal_stream: WalStream | None = None
        self._log_append: LogAppend | None = None

    @classmethod
    def bind(cls, host: str, address: str, tls: Tls | None = None) -> GrpcFace:
        """Take ``address``, the ``HOST:PORT`` of ``host`` (port 0: a free one); nothing is answered yet. PortInUse.

        ``tls`` None: plain text.
        """
        server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),
                ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
                ("grpc.keepalive_time_ms", KEEPALIVE_MS),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
                ("grpc.http2.min_ping_interval_without_data_ms", PING_PAUSE_MS_MIN),
                ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_PAUSE_MS_MIN),
            )
        )
        try:
            if tls is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, server_credentials(tls))
        except RuntimeError as error:
            raise PortInUse(
                f"{address} can't be listened on: {error}", hint="Choose another --grpc."
            ) from None
        return cls(server, host, port)

    async def start(
        self,
        service: Service,
        log: Log,
        *,
        clock: Clock | None = None,
        verifier: TokenVerifier | None = None,
        terms: StreamTerms | None = None,
    ) -> None:
        """Begin to answer. Health and reflection need no token; without a verifier nothing does."""
        clock = clock or SystemClock()
        door = Door(verifier, clock)
        self._subscriptions = Subscriptions(log, clock=clock, terms=terms, progress=service.progress)
        await self._subscriptions.start()
        service.retention.on_due.append(self._subscriptions.rotate)
        service.on_rotate.append(self._subscriptions.rotate)
        service.measured.subscriptions.append(self._subscriptions)
        self._wal_stream = WalStream(log, self._subscriptions, door, service.traffic, terms)
        self._log_append = LogAppend(service, door)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._server.add_generic_rpc_handlers((self._wal_stream.handler(), self._log_append.handler()))
        reading = (wal_stream.SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection((log_append.SERVICE, *reading), self._server)
        await self._health.start(service, appending=(log_append.SERVICE,), reading=reading)
        await self._server.start()

    @property
    def open_streams(self) -> int:
        """How many streams over all feeds are open."""
        return self._subscriptions.open_streams if self._subscriptions is not None else 0

    def begin_stop(self) -> None:
        """Let every stream end, as soon as what was read of it is answered."""
        if self._subscriptions is not None:
            self._subscriptions.stop_waiting()
        if self._log_append is not None:
            self._log_append.stop()

    async def stop(self) -> None:
        """Answer what is being appended, end all streams with UNAVAILABLE, and close the address; before the log is closed.

        Once stopped, or never started, it does nothing more than let go of the address.
        """
        self.begin_stop()
        if self._wal_stream is not None and self._log_append is not None:
            await self._health.stop()
            await asyncio.gather(
                self._wal_stream.calls.wait_ended(STREAMS_END_S_MAX),
                self._log_append.calls.wait_ended(APPENDS_END_S_MAX),
            )
        await self._server.stop(None)
        if self._wal_stream is not None and self._log_append is not None:
            await self._wal_stream.calls.wait_ended(HANDLERS_END_S_MAX)
            await self._log_append.calls.wait_ended(HANDLERS_END_S_MAX)
        subscriptions, self._subscriptions = self._subscriptions, None
        if subscriptions is not None:
            await subscriptions.close()
