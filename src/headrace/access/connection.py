"""One HTTP connection of a server or an agent: uvicorn's, with bounds on heads and on silence, and problem documents."""

from __future__ import annotations

import asyncio
from typing import ClassVar, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from headrace.access.exposure import is_loopback_name
from headrace.errors import HeadersTooLarge, InvalidRequest, Refused, UriTooLong
from headrace.errors.problem import PROBLEM_TYPE, problem_document

URI_BYTES_MAX: Final = 16 << 10
"""Longest path and query string together; names of 200 characters, percent-encoded, take a fifth of it."""
HEADERS_MAX: Final = 100
"""Most headers of a request."""
HEAD_BYTES_MAX: Final = 64 << 10
"""Most bytes of headers: a token, and a listener's source position are the long ones."""
INCOMPLETE_BYTES_MAX: Final = HEAD_BYTES_MAX + URI_BYTES_MAX
"""Most bytes of a head that has not ended: bounds what a connection makes the parser keep."""

HEAD_S_MAX: Final = 75.0
"""How long a connection may take to say what it wants: from its opening, from the last answer, and from the first byte of a
head. As long as an idle connection is kept."""
LINGER_S_MAX: Final = 5.0
LINGER_BYTES_MAX: Final = 1 << 20
"""How long and how much is read and thrown away after a head was refused: closing at once would reset the connection, and
the sender would never see the answer."""

TLS_END_S_MAX: Final = 1.0
"""How long a connection that was idle when a stop closed it may take to end: a client that keeps it for later does not read,
and so never answers the end of TLS. One that is being answered has all of the stop's time."""

TRANSPORT: Final = "headrace.transport"
"""Key of the request's scope: the connection's transport, for who must cut it off."""


class Connection(HttpToolsProtocol):
    """A connection that refuses malformed HTTP (400), a long address (414) and long headers (431) as problem documents.

    It is ended when no head comes, or none that ends: bytes of anything else, such as the rest of a refused body, gain it no
    time.
    """

    connections_max: ClassVar[int | None] = None
    """Most connections at once: with one more, an idle one gives way, or the new one where none is idle. None: no bound."""
    local_only: ClassVar[bool] = False
    """Whether requests must be meant for this machine: a page in a browser here could otherwise have a name of its own
    lead to it (DNS rebinding), where nobody is asked for a token."""

    _head_bytes = 0
    _in_head = False
    _head_timer: asyncio.TimerHandle | None = None
    _refusal: Refused | None = None
    _thrown_away = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._begin_head_timer()
        if self.connections_max is not None and len(self.connections) > self.connections_max:
            others = (one for one in self.connections if one is not self and isinstance(one, Connection))
            next((one for one in others if one.is_idle), self).transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered: its head has yet to come, or to end."""
        # uvicorn's type does not say that there is none before the first request
        return self.cycle is None or self.cycle.response_complete  # type: ignore[redundant-expr]  # see above

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of the timer."""
        self._end_head_timer()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close when nothing is being answered, at once or after the answer: the server stops."""
        super().shutdown()
        if self.transport.is_closing():
            self._end_when_written()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; a head that does not end within the bounds is refused."""
        if self._refusal is not None:
            self._thrown_away += len(data)
            if self._thrown_away > LINGER_BYTES_MAX:
                self.transport.abort()
            return
        was_in_head = self._in_head
        super().data_received(data)
        if not self._in_head or self.transport.is_closing():
            return
        if not was_in_head:  # a body may stand before it in this piece, so counting begins with the next one
            self._begin_head_timer()
            return
        self._head_bytes += len(data)
        if self._head_bytes > INCOMPLETE_BYTES_MAX and self._refusal is None:
            self._refuse(self._bounds_passed() or _headers_too_large())

    def on_message_begin(self) -> None:
        """Start counting the head."""
        self._head_bytes, self._in_head = 0, True
        super().on_message_begin()
        self.scope[TRANSPORT] = self.transport  # type: ignore[typeddict-unknown-key]  # our own

    def on_headers_complete(self) -> None:
        """Stop counting the head; the parser ends at what is raised here."""
        self._in_head = False
        self._end_head_timer()
        refusal = self._bounds_passed()
        if refusal is not None:
            self._refuse(refusal)
            raise refusal
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Begin to wait for the next request, if it isn't there yet."""
        super().on_response_complete()
        if self.cycle.response_complete and not self._in_head and not self.transport.is_closing():
            self._begin_head_timer()

    def send_400_response(self, msg: str) -> None:
        """Answer ``msg`` as ``invalid-request``, unless it is known better, and close."""
        if self._refusal is None:
            self._refuse(InvalidRequest(msg))

    def _bounds_passed(self) -> Refused | None:
        if len(self.url) > URI_BYTES_MAX:
            return UriTooLong(
                f"the address has over {URI_BYTES_MAX} bytes, the most that is taken",
                uri_bytes_max=URI_BYTES_MAX,
            )
        size = sum(len(name) + len(value) + 4 for name, value in self.headers)
        if len(self.headers) > HEADERS_MAX or size > HEAD_BYTES_MAX:
            return _headers_too_large()
        return self._meant_for_another() if self.local_only else None

    def _meant_for_another(self) -> InvalidRequest | None:
        for name, value in self.headers:
            if name != b"host":
                continue
            text = value.decode("latin-1")
            host = text.partition("]")[0] + "]" if text.startswith("[") else text.partition(":")[0]
            if not is_loopback_name(host):
                return InvalidRequest(
                    f"Host: {host[:80]!r} is not this machine, and a server without tokens serves this machine alone",
                    hint="Ask for it as 127.0.0.1 or localhost; or start it with --auth-jwks, or with --insecure.",
                )
        return None

    def _refuse(self, error: Refused) -> None:
        """Answer and close: nothing after it on this connection can be understood."""
        self._refusal = error
        self._in_head = False
        self._end_head_timer()
        content = msgspec.json.encode(problem_document(error))
        head = f"content-type: {PROBLEM_TYPE}\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n".encode()
        self.transport.write(STATUS_LINE[error.http_status] + head + content)
        # uvicorn's type does not say that there is none before the first request
        answering = self.cycle is not None and not self.cycle.response_complete  # type: ignore[redundant-expr]  # see above
        if answering or not self.transport.can_write_eof():
            self.transport.close()
        else:
            self.transport.write_eof()
            self._head_timer = self.loop.call_later(LINGER_S_MAX, self.transport.abort)

    def _end_when_written(self) -> None:
        """Let a closed connection end, whether or not its client answers the end of TLS, once that is written."""
        waits = self.transport.get_write_buffer_size() > 0
        self.loop.call_later(TLS_END_S_MAX, self._end_when_written if waits else self.transport.abort)

    def _begin_head_timer(self) -> None:
        self._end_head_timer()
        self._head_timer = self.loop.call_later(HEAD_S_MAX, self.timeout_keep_alive_handler)

    def _end_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def _headers_too_large() -> HeadersTooLarge:
    return HeadersTooLarge(
        f"the request has over {HEADERS_MAX} headers or {HEAD_BYTES_MAX} bytes of them, the most that is taken",
        headers_max=HEADERS_MAX,
        head_bytes_max=HEAD_BYTES_MAX,
    )


def connection_of(most: int, *, local_only: bool) -> type[Connection]:
    """Return the class of a server's connections: at most ``most`` at once, and ``local_only`` as said there."""
    return type("ServerConnection", (Connection,), {"connections_max": most, "local_only": local_only})
