"""Accepts connections, and no more at a time than there are file descriptors for: the relay beside needs some, too.

A bound on answers would not do: sockets that say nothing, or never end TLS's handshake, ask for none. So the oldest that is
not being answered gives way to who comes; where all are being answered, who comes waits in the system's queue.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Final

from headrace.publisher.snapshot.connection import Connection
from headrace.runtime.logs import get_logger

if sys.platform != "win32":
    import resource

logger = get_logger("snapshot")

ANSWERS_MAX: Final = 200
"""Listeners served at once; more get 503 and come back. Each takes half a megabyte at most."""

SPARE: Final = 16
"""Connections beyond those being answered: for who has yet to ask, and for refusals."""

FILES_RESERVED: Final = 100
"""File descriptors that are left to the relay, its connections and databases, and to a snapshot in the making."""

BACKLOG: Final = 128
"""Connections that wait in the system's queue, where they take none of our file descriptors."""

HANDSHAKE_S_MAX: Final = 10.0
"""How long TLS's handshake may take."""

RETRY_S: Final = 0.5
"""How long to wait after the system refused to accept: it has no file descriptors, or no memory."""


def answers_max() -> int:
    """Return how many listeners can be served at once: each takes a socket and a file."""
    if sys.platform == "win32":
        return ANSWERS_MAX
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return ANSWERS_MAX
    return min(ANSWERS_MAX, max(1, (soft - FILES_RESERVED - SPARE) // 2))


class Acceptor:
    """Accepts at ``listener``; ``make`` gives each connection its protocol.

    Use: :meth:`run` as a task; cancel it, then :meth:`close`.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], Connection],
        *,
        connections_max: int,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._listener = listener
        self._make = make
        self._connections_max = connections_max
        self._tls = tls
        self._open: dict[asyncio.Task[None], _Accepted] = {}

    async def run(self) -> None:
        """Accept until cancelled."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        self._listener.listen(BACKLOG)
        while True:
            await self._make_room()
            try:
                sock, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                logger.warning("a connection could not be accepted", detail=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            accepted = _Accepted(sock)
            task = loop.create_task(accepted.live(self._make, self._tls))
            self._open[task] = accepted
            task.add_done_callback(self._open.pop)

    def end_handshakes(self) -> None:
        """Give up connections that have yet to become one."""
        for task, accepted in self._open.items():
            accepted.end_handshake(task)

    async def close(self) -> None:
        """End what is still open, at once."""
        ending = set(self._open)
        for task, accepted in list(self._open.items()):
            accepted.end(task)
        if ending:
            await asyncio.wait(ending)

    async def _make_room(self) -> None:
        """Return when one more may be open: the oldest that is idle gives way, else the first that ends."""
        while len(self._open) >= self._connections_max:
            idle = next(((task, one) for task, one in self._open.items() if one.is_idle), None)
            if idle is None:
                await asyncio.wait(set(self._open), return_when=asyncio.FIRST_COMPLETED)
            else:
                task, accepted = idle
                accepted.end(task)
                await asyncio.wait({task})


class _Accepted:
    """One connection, from its acceptance to its end."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._connection: Connection | None = None

    @property
    def is_idle(self) -> bool:
        return self._connection is None or self._connection.is_idle

    async def live(self, make: Callable[[], Connection], tls: ssl.SSLContext | None) -> None:
        """Return when the connection has ended."""
        handshake_s = None if tls is None else HANDSHAKE_S_MAX
        try:
            _, self._connection = await asyncio.get_running_loop().connect_accepted_socket(
                make, self._sock, ssl=tls, ssl_handshake_timeout=handshake_s
            )
        except OSError:  # no handshake: that is the other side's affair
            return
        finally:
            if self._connection is None:
                self._sock.close()
        await self._connection.lost.wait()

    def end(self, task: asyncio.Task[None]) -> None:
        """Make :meth:`live` end soon: cut the connection, or give up its handshake."""
        if self._connection is not None:
            self._connection.transport.abort()
        self.end_handshake(task)

    def end_handshake(self, task: asyncio.Task[None]) -> None:
        """Make :meth:`live` end soon if there is no connection yet."""
        if self._connection is None:
            task.cancel()
