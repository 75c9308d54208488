"""Real uvicorn servers around an ASGI application, in the test's own loop."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from headrace.access.asgi import App, Receive, Scope, Send, grant_of_scope
from tests.waiting import async_wait_until


@asynccontextmanager
async def serving(app: App, *, tls: Callable[[], ssl.SSLContext] | None = None) -> AsyncIterator[str]:
    """Serve ``app`` on a free port; yields its address."""
    options: dict[str, Any] = {} if tls is None else {"ssl_context_factory": lambda _config, _default: tls()}
    config = uvicorn.Config(
        app, port=0, lifespan="off", interface="asgi3", log_config=None, ws="none", **options
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        await async_wait_until(lambda: server.started or task.done(), what="uvicorn to start")
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"{'https' if tls else 'http'}://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await task


async def whoami(scope: Scope, _receive: Receive, send: Send) -> None:
    """An application that says who asks, if it may listen to the feed ``vmapi::vm``."""
    grant = grant_of_scope(scope)
    status = 200 if grant.may_listen("vmapi::vm") or scope["path"] == "/healthz" else 403
    await send(
        {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"text/plain")]}
    )
    await send({"type": "http.response.body", "body": grant.subject.encode()})
