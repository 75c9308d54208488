"""HTTP connections of the agent's face: they can be cut with what waits to be sent, and hold little of it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.access.asgi import App, Receive, Scope, Send

ABORT: Final = "headrace.abort"
"""Where a call's scope has the function that cuts its connection."""


HEAD_BYTES_MAX: Final = 64 << 10
"""Most bytes of request line and headers while they are still incomplete."""


class Connection(HttpToolsProtocol):
    """uvicorn's connection, whose calls can be cut, and whose heads have a bound."""

    _head_bytes = 0
    _in_head = False

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response("The request's headers are too long.")

    def on_message_begin(self) -> None:
        self._head_bytes, self._in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's is untyped
        super().connection_made(transport)
        self.app = _Cuttable(self.app, transport)


class _Cuttable:
    def __init__(self, app: Any, transport: asyncio.Transport) -> None:
        self._app: App = app
        self._transport = transport

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[ABORT] = self._transport.abort
        await self._app(scope, receive, send)


def cut(scope: Scope) -> None:
    """End the call's connection at once. Closing it would wait for a listener that takes nothing."""
    abort = scope.get(ABORT)
    if abort is not None:
        abort()
