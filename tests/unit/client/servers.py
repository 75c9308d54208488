"""Tiny real HTTP servers: they answer what they are told, or misbehave on the wire as they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Answers:
    """What the server answers to every request, and the requests that it has got (head and body)."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def encode(self) -> bytes:
        """The whole answer."""
        head = {"Content-Length": str(len(self.body))} | self.headers
        lines = [f"HTTP/1.1 {self.status} x", *(f"{name}: {value}" for name, value in head.items()), "", ""]
        return "\r\n".join(lines).encode() + self.body


Conversation = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes]:
    """Read one request: its first line, its headers in lower case, its body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    return head[0], headers, await reader.readexactly(int(headers.get("content-length", "0")))


@asynccontextmanager
async def listening(conversation: Conversation) -> AsyncIterator[str]:
    """Serve each connection with ``conversation``; yields the address."""
    talks: set[asyncio.Task[None]] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await conversation(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(talk(reader, writer))
        talks.add(task)
        task.add_done_callback(talks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in list(talks):
            task.cancel()
        await asyncio.gather(*talks, return_exceptions=True)
        await server.wait_closed()


@asynccontextmanager
async def answering(**answer: object) -> AsyncIterator[Answers]:
    """A server that gives the same answer to everything; change the answer at any time."""
    answers = Answers(**answer)  # type: ignore[arg-type]  # names of its own fields

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            answers.requests.append(await read_request(reader))
            writer.write(answers.encode())
            await writer.drain()

    async with listening(converse) as answers.url:
        yield answers
