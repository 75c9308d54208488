"""A session's connection: whole messages come out, bytes go in; what a client can make it hold is bounded."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Final, cast

from headrace.server.pg.messages import MESSAGE_BYTES_MAX, STARTUP_BYTES_MAX
from headrace.server.pg.sqlstate import PgError, SqlState
from headrace.server.pg.terms import PgTerms

READ_BYTES_MAX: Final = 64 << 10
"""What is read ahead of a message that nobody has asked for yet."""
CLOSE_S_MAX: Final = 10.0
"""How long a connection that is closed waits for its client to take what was written."""


class ConnectionEnded(Exception):
    """There is nobody at the other end any more."""


class Wire(asyncio.Protocol):
    """One connection of a client. Used from one event loop; at most one coroutine reads, any number wait for room."""

    def __init__(self, terms: PgTerms) -> None:
        self._terms = terms
        self._buffer = bytearray()
        self._needed = 0
        self._reader: asyncio.Future[None] | None = None
        self._drained: set[asyncio.Future[None]] = set()
        self._is_full = False
        self._has_ended = False
        self._transport: asyncio.Transport | None = None
        self._closing: asyncio.TimerHandle | None = None
        self.connected = asyncio.Event()
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()
        """Nothing of the connection is in memory any more."""
        self.encrypted = False

    # -- what the event loop says -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport. The system asks now and then whether the client's machine is there still."""
        connection = transport.get_extra_info("socket")
        if connection is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._use(cast("asyncio.Transport", transport))
        self.connected.set()

    def data_received(self, data: bytes) -> None:
        """Keep what came, and read no further than what is needed."""
        self._buffer += data
        if len(self._buffer) >= self._needed:
            _wake(self._reader)
        if len(self._buffer) > max(READ_BYTES_MAX, self._needed) and self._transport is not None:
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        """The client sends nothing more, so it is gone."""
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing can be written any more."""
        del exc
        self._end()
        if self._closing is not None:
            self._closing.cancel()
        self.lost.set()

    def pause_writing(self) -> None:
        """The socket's buffer is full."""
        self._is_full = True

    def resume_writing(self) -> None:
        """There is room again."""
        self._is_full = False
        for room in self._drained:
            _wake(room)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def read_startup(self) -> bytes:
        """Return a packet without a type byte, without its length; PgError (fatal), ConnectionEnded."""
        size = int.from_bytes(await self._read(4), "big")
        if not 8 <= size <= STARTUP_BYTES_MAX:
            raise PgError(SqlState.PROTOCOL_VIOLATION, "invalid length of startup packet", fatal=True)
        return await self._read(size - 4)

    async def read_message(self, bytes_max: int = MESSAGE_BYTES_MAX) -> tuple[bytes, bytes]:
        """Return a message's type and body, of ``bytes_max``. Its first byte is waited for without end, the rest not.

        PgError (fatal) for a length that no message has, or a message that does not come to its end; ConnectionEnded.
        """
        await self._wait_for(1)
        try:
            async with asyncio.timeout(self._terms.message_timeout_s):
                head = await self._read(5)
                size = int.from_bytes(head[1:], "big")
                if not 4 <= size <= bytes_max:
                    raise PgError(SqlState.PROTOCOL_VIOLATION, "invalid message length", fatal=True)
                return head[:1], await self._read(size - 4)
        except TimeoutError:
            raise PgError(SqlState.PROTOCOL_VIOLATION, "a message came too slowly", fatal=True) from None

    @property
    def has_unread(self) -> bool:
        """Whether more has come than was read."""
        return bool(self._buffer)

    async def _read(self, size: int) -> bytes:
        await self._wait_for(size)
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        if self._transport is not None and len(self._buffer) <= READ_BYTES_MAX:
            self._transport.resume_reading()
        return data

    async def _wait_for(self, size: int) -> None:
        while len(self._buffer) < size:
            if self._has_ended or self._transport is None:
                raise ConnectionEnded
            self._needed = size
            self._transport.resume_reading()
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader, self._needed = None, 0

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Send whole messages; nothing happens once the connection has ended."""
        if self._transport is not None and not self._has_ended:
            self._transport.write(data)

    async def drain(self) -> None:
        """Return once the socket's buffer has room; ConnectionEnded."""
        while self._is_full and not self._has_ended:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.add(room)
            try:
                await room
            finally:
                self._drained.discard(room)
        if self._has_ended:
            raise ConnectionEnded

    async def start_tls(self, context: ssl.SSLContext) -> None:
        """Say that TLS is spoken, and speak it; ConnectionEnded if the handshake fails."""
        transport = self._transport
        if transport is None or self._has_ended:
            raise ConnectionEnded
        transport.write(b"S")
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                transport,
                self,
                context,
                server_side=True,
                ssl_handshake_timeout=self._terms.login_timeout_s,
            )
        except BaseException as error:
            self.lost.set()  # asyncio has closed the transport, and tells nobody
            if isinstance(
                error, (OSError, TimeoutError)
            ):  # ssl.SSLError is an OSError; also a client that went away
                raise ConnectionEnded from None
            raise
        if encrypted is None:
            raise ConnectionEnded
        self._use(encrypted)
        self.encrypted = True

    def close(self) -> None:
        """End the connection once what was written is sent, or after :data:`CLOSE_S_MAX`."""
        if self._transport is not None and not self.lost.is_set() and self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(CLOSE_S_MAX, self._give_up)
            self._transport.close()

    def abort(self) -> None:
        """End the connection now; what waits to be sent is given up."""
        if self._transport is not None:
            self._transport.abort()
        self._end()

    def _give_up(self) -> None:
        self.abort()
        self.lost.set()

    @property
    def peer(self) -> str:
        """The client's address, for logs."""
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return f"{name[0]}:{name[1]}" if name else "unknown"

    def _use(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(high=self._terms.write_bytes)

    def _end(self) -> None:
        self._has_ended = True
        self.ended.set()
        _wake(self._reader)
        for room in self._drained:
            _wake(room)


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
