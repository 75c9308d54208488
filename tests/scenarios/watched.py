"""A stoppable proxy that notes each HTTP exchange, can hold one kind of them back, and can turn clients away after counting.

For scenarios that prove on the wire what a client did, and when.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import httpx

from tests.proxy import READ_BYTES, Proxy, _Pair

_METHODS = (b"GET ", b"POST ", b"PUT ", b"DELETE ")
_steps = itertools.count(1)  # one order for all proxies
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: closing sends RST


@dataclass
class Exchange:
    """One request and its answer, as they passed. ``begun``, ``ended``: their places in the order of all that passed."""

    request: str
    """The request line without the HTTP version, such as ``GET /feeds/x/poll?…``."""
    begun: int
    ended: int | None = None
    """When the last bytes of the answer so far were handed to the client."""
    answer: bytes = b""
    """What the server answered so far, also while that is held back."""

    def overlaps(self, other: Exchange) -> bool:
        """Tell whether this answer came while ``other`` was open."""
        return self.ended is not None and other.begun < self.ended < (other.ended or self.ended + 1)

    @property
    def whole(self) -> bool:
        """Whether the server has answered to the end."""
        head, found, body = self.answer.partition(b"\r\n\r\n")
        return bool(found) and len(body) >= int(_headers(head).get("content-length", 0))

    def entries(self) -> list[dict[str, Any]]:
        """The entries that were answered; none of an answer that is not whole or has none."""
        head, _, body = self.answer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200") or not self.whole:
            return []
        answer = httpx.Response(200, headers=_headers(head), content=body)  # it decodes
        found: list[dict[str, Any]] = json.loads(answer.content).get("changes-list", [])
        return found

    def ids(self) -> list[int]:
        """The sequence ids that were answered."""
        return [entry["sequence-id"] for entry in self.entries()]


def _headers(head: bytes) -> httpx.Headers:
    lines = head.split(b"\r\n")[1:]
    return httpx.Headers([(name, value) for name, _, value in (line.partition(b": ") for line in lines)])


@dataclass
class _Hold:
    begins: str
    answers: bool
    over: asyncio.Event

    def holds(self, exchange: Exchange, *, answers: bool) -> bool:
        return self.answers == answers and exchange.request.startswith(self.begins)


class WatchedProxy(Proxy):
    """A proxy for HTTP/1.1. Requests and answers alternate on a connection, as our clients send them."""

    def __init__(self, target_port: int) -> None:
        super().__init__("127.0.0.1", target_port)
        self.exchanges: list[Exchange] = []
        self.turned_away = 0
        self._away = False
        self._holds: list[_Hold] = []
        self._latest: dict[int, Exchange] = {}

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def turn_away(self) -> None:
        """Reset every connection, and each new one as soon as it is made: the attempts are counted."""
        self._away = True
        self.reset()

    def let_in(self) -> None:
        """Hand new connections on again."""
        self._away = False

    def hold(self, begins: str, *, answers: bool) -> Callable[[], None]:
        """From now on requests that begin so wait here; with ``answers`` the server gets them, and their answers wait.

        Call what is returned to let them pass.
        """
        hold = _Hold(begins, answers, asyncio.Event())
        self._holds.append(hold)

        def release() -> None:
            self._holds.remove(hold)
            self._loop.call_soon_threadsafe(hold.over.set)

        return release

    def seen(self, begins: str) -> list[Exchange]:
        """The exchanges whose request line begins so, in their order."""
        return [one for one in self.exchanges.copy() if one.request.startswith(begins)]

    async def _serve(self, accepted: socket.socket) -> None:
        if self._away:
            self.turned_away += 1
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            accepted.close()
            return
        await super()._serve(accepted)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        look: Callable[[bytes, _Pair], None],
        pair: _Pair,
    ) -> None:
        sends = look == self._on_request
        while data := await source.read(READ_BYTES):
            await self._flowing.wait()
            look(data, pair)
            if sends and data.startswith(_METHODS):
                line = data.split(b"\r\n", 1)[0].decode("latin-1").removesuffix(" HTTP/1.1")
                self._latest[id(pair)] = Exchange(line, next(_steps))
                self.exchanges.append(self._latest[id(pair)])
            exchange = self._latest[id(pair)]
            if not sends:
                exchange.answer += data
            for hold in [one for one in self._holds if one.holds(exchange, answers=not sends)]:
                while not sends and not exchange.whole and (more := await source.read(READ_BYTES)):
                    exchange.answer += more
                    data += more
                await hold.over.wait()
            if not sends:
                exchange.ended = next(_steps)
            sink.write(data)
            await sink.drain()
        await self._flowing.wait()
        sink.write_eof()
