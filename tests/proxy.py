"""A TCP proxy that can fail like a network: cut (reset and refuse), freeze (half-open), or cut at a certain message.

``with Proxy("127.0.0.1", port) as proxy: connect(port=proxy.port); proxy.cut(); proxy.resume()``
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, TypeVar

from tests.ports import free_port

T = TypeVar("T")

CALL_S_MAX = 30.0
READ_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: closing sends RST


@dataclass(frozen=True)
class _Trap:
    pattern: bytes
    delivered: bool


@dataclass
class _Pair:
    """One connection, both its directions. ``answer_breaks``: the target's next bytes must not reach the client."""

    answer_breaks: bool = False


class Proxy:
    """Forwards connections of ``127.0.0.1:port`` to the target, in a thread of its own. Call it from other threads."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self.target = (target_host, target_port)
        self.port = free_port()
        self.accepted = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._links: set[asyncio.Task[None]] = set()
        self._listener: socket.socket | None = None
        self._trap: _Trap | None = None

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S_MAX)
        self._loop.close()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._links)

    @property
    def sprung(self) -> bool:
        """Whether the message that :meth:`cut_at` waits for has come (or none is waited for)."""
        return self._trap is None

    def cut(self) -> None:
        """Reset every connection and refuse new ones, as when the host went down."""
        self._call(self._cut())

    def reset(self) -> None:
        """Reset every connection; new ones are taken."""
        self._call(self._reset())

    def resume(self) -> None:
        """Take connections again after :meth:`cut`, at the same port."""
        self._call(self._listen())

    def freeze(self) -> None:
        """Let nothing pass: connections stay open and can even be made, but no byte arrives. Nobody is told."""
        self._loop.call_soon_threadsafe(self._flowing.clear)

    def thaw(self) -> None:
        """Let everything that was held back arrive, and what follows."""
        self._loop.call_soon_threadsafe(self._flowing.set)

    def cut_at(self, pattern: bytes, *, delivered: bool) -> None:
        """:meth:`cut` when a client next sends ``pattern``, which must be small enough to come in one piece.

        ``delivered``: the target gets it and answers, but the client never sees the answer: the deed is done, and the client
        can't know. Else the target never gets it.
        """
        self._trap = _Trap(pattern, delivered)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S_MAX)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        """By hand and in one go: asyncio loses a connection that it accepts while its server, or the task, is ended."""
        try:
            accepted, _ = listener.accept()
        except OSError:  # the client has gone again
            return
        accepted.setblocking(False)
        self.accepted += 1
        link = self._loop.create_task(self._serve(accepted))
        self._links.add(link)
        link.add_done_callback(partial(self._over, accepted))

    def _over(self, accepted: socket.socket, link: asyncio.Task[None]) -> None:
        self._links.discard(link)
        if link.cancelled():  # before it began
            accepted.close()

    async def _cut(self) -> None:
        self._refuse()
        await self._reset()

    async def _end(self) -> None:
        """Cut, and let everything come to its end."""
        await self._cut()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        turn = self._loop.create_future()  # what was aborted is closed in the loop's next turn
        self._loop.call_soon(turn.set_result, None)
        await turn

    def _refuse(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self._loop.remove_reader(listener)
            listener.close()

    async def _reset(self) -> None:
        links = set(self._links)
        for link in links:
            link.cancel()
        if links:
            await asyncio.wait(links)

    async def _serve(self, accepted: socket.socket) -> None:
        writers: list[asyncio.StreamWriter] = []
        end = _reset
        try:
            client, to_client = await asyncio.open_connection(sock=accepted)
            writers.append(to_client)
            await self._flowing.wait()
            target, to_target = await asyncio.open_connection(*self.target)
            writers.append(to_target)
            pair = _Pair()
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(client, to_target, self._on_request, pair))
                pumps.create_task(self._pump(target, to_client, self._on_answer, pair))
            end = _close
        except* (OSError, asyncio.CancelledError):
            pass  # a side is gone, or the proxy cuts: both sides are told by a reset
        finally:
            for writer in writers:
                end(writer)
            if not writers:
                accepted.close()

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        look: Callable[[bytes, _Pair], None],
        pair: _Pair,
    ) -> None:
        while data := await source.read(READ_BYTES):
            await self._flowing.wait()
            look(data, pair)
            sink.write(data)
            await sink.drain()
        await self._flowing.wait()
        sink.write_eof()

    def _on_request(self, data: bytes, pair: _Pair) -> None:
        trap = self._trap
        if trap is None or trap.pattern not in data:
            return
        self._trap = None
        self._refuse()
        if not trap.delivered:
            self._break()
        pair.answer_breaks = True

    def _on_answer(self, data: bytes, pair: _Pair) -> None:
        if pair.answer_breaks:
            self._break()

    def _break(self) -> NoReturn:
        for link in self._links:
            link.cancel()
        raise ConnectionResetError("cut here, as asked")


def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with RST, throwing away what is not sent yet."""
    opened = writer.get_extra_info("socket")
    if opened is not None and opened.fileno() >= 0:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
