"""One HTTP connection: uvicorn's, with a bound on what stands before a body, and problem documents for what is no HTTP."""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from headrace.errors import InvalidRequest
from headrace.server.http.problems import PROBLEM_TYPE, problem_document

HEAD_BYTES_MAX: Final = 128 << 10
"""Most bytes of request line and headers while they are still incomplete: bounds what a connection makes us keep."""

HEAD_S_MAX: Final = 75.0
"""How long a connection may take to say what it wants: from its opening, and from the first byte of a head."""

TRANSPORT: Final = "headrace.transport"
"""Key of the request's scope: the connection's transport, for who must cut it off."""


class Connection(HttpToolsProtocol):
    """A connection that answers malformed HTTP (a broken ``Content-Length``, say) with a 400 problem document."""

    _head_bytes = 0
    _in_head = False
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(HEAD_S_MAX, self.timeout_keep_alive_handler)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timer."""
        self._end_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a head that does not end within the bounds is refused."""
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_S_MAX, self.timeout_keep_alive_handler)
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.send_400_response(f"The request's headers take over {HEAD_BYTES_MAX} bytes.")

    def on_message_begin(self) -> None:
        """Start counting the head."""
        self._head_bytes, self._in_head = 0, True
        super().on_message_begin()
        self.scope[TRANSPORT] = self.transport  # type: ignore[typeddict-unknown-key]  # our own

    def on_headers_complete(self) -> None:
        """Stop counting the head."""
        self._in_head = False
        self._end_head_timer()
        super().on_headers_complete()

    def _end_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def send_400_response(self, msg: str) -> None:
        """Answer ``msg`` as ``invalid-request`` and close: nothing after it on this connection can be understood."""
        content = msgspec.json.encode(problem_document(InvalidRequest(msg)))
        head = f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n".encode()
        self.transport.write(STATUS_LINE[400] + head + content)
        self.transport.close()
