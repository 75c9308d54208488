"""The bare limit of long polls: an ASGI application that does nothing but wait, on the same uvicorn as Headrace's server.

Any POST answers all who wait; ``/healthz`` answers at once. ``python -m bench.support.bare_polls`` prints its address.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from bench.support.harness import ROOT
from headrace.server.run import Address, bind, run

BODY: Final = b'{"changes-list":[]}'


async def main() -> None:
    """Serve until killed."""
    moved = asyncio.Event()

    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["method"] == "POST":
            moved.set()
        elif scope["path"] != "/healthz":
            await moved.wait()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": BODY})

    listener = bind(Address("127.0.0.1", 0))
    print(f"127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(
        app, ws="none", loop="none", lifespan="off", interface="asgi3", log_config=None, access_log=False
    )
    logging.getLogger("uvicorn").setLevel(logging.ERROR)
    await uvicorn.Server(config).serve(sockets=[listener])


@contextmanager
def bare_polls() -> Iterator[tuple[int, str]]:
    """Run the server in a process of its own; gives its process id and its address."""
    words = [sys.executable, "-m", "bench.support.bare_polls"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None, "its output is a pipe"
        try:
            yield process.pid, process.stdout.readline().strip()
        finally:
            process.kill()


if __name__ == "__main__":
    run(main())
