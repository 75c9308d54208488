"""Clients that wait: many connections with one long poll each, in a process of their own.

``python -m bench.support.poll_clients HOST:PORT TARGET COUNT`` prints ``waiting`` once the server has taken every request,
and at the end one JSON document: when the last answer was there (``time.monotonic()``), and how many were not a 200.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from typing import Final

from headrace.server.run import run

AT_ONCE: Final = 100
"""Connections opened at a time: the listen queue is short."""


async def main(address: str, target: str, count: int) -> None:
    """Open the connections, wait for all answers, and tell."""
    host, _, port = address.rpartition(":")
    request = f"GET {target} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    while len(opened) < count:
        wanted = min(AT_ONCE, count - len(opened))
        opened += await asyncio.gather(
            *(asyncio.open_connection(host, int(port), limit=1 << 12) for _ in range(wanted))
        )
        for _, writer in opened[-wanted:]:
            writer.write(request)
    reader, writer = await asyncio.open_connection(host, int(port))
    for _ in range(20):  # what was sent before these has reached the server
        writer.write(f"GET /healthz HTTP/1.1\r\nHost: {address}\r\n\r\n".encode())
        await _answer(reader)
    print("waiting", flush=True)
    answers = await asyncio.gather(*(_answer(reader) for reader, _ in opened))
    bad = sum(not answer.startswith(b"HTTP/1.1 200") for answer in answers)
    print(json.dumps({"last": time.monotonic(), "bad": bad}), flush=True)


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return head


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
