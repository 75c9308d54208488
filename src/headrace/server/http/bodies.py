"""Request bodies with bounds: each one's size and pace, and the bytes of all that are held at once.

And the answer to a sender that is still sending.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.errors import BodyTooSlow, InvalidRequest, ServerBusy, TooLarge

BODY_BYTES_MAX: Final = 16 << 20
"""Largest body of an append (design §5)."""
DOCUMENT_BYTES_MAX: Final = 64 << 10
"""Largest body of any other call: documents of a few names and addresses."""

LINGER_BYTES_MAX: Final = 64 << 20
LINGER_S_MAX: Final = 10.0
"""How much and how long is read and thrown away after a refusal. Closing at once would reset the connection, and the sender
would never see the answer."""

UNREAD: Final = "headrace.unread"
"""Key of the request's scope: True while a part of the body may still be on its way."""
_HELD: Final = "headrace.held-bytes"
"""Key of the request's scope: how many bytes of its body are counted."""

JSON_TYPE: Final = "application/json"
NDJSON_TYPE: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True)
class BodyTerms:
    """``held_bytes_max``: bytes of all bodies that are being read or worked on. ``pause_s_max``: how long a body may lag
    behind ``bytes_per_s_min``, so also the longest that it may be silent.
    """

    held_bytes_max: int = 256 << 20
    pause_s_max: float = 30.0
    bytes_per_s_min: int = 32 << 10


class Bodies:
    """The bodies that one server holds, from their first byte to their call's answer."""

    def __init__(self, terms: BodyTerms) -> None:
        self._terms = terms
        self.held_bytes = 0

    async def read(self, request: Request, bytes_max: int) -> bytes:
        """Return the whole body, and count it until :meth:`release`.

        TooLarge as soon as it is known to be over ``bytes_max``, chunked bodies included; ServerBusy where it does not fit
        beside the others; BodyTooSlow. A body that is refused for room makes room: those that came first can go on.
        """
        scope = request.scope
        scope[UNREAD], scope[_HELD] = True, 0
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:30]) > bytes_max:
            raise _too_large(f"the body has {declared[:30]} bytes", bytes_max)
        parts: list[bytes] = []
        terms = self._terms
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout_at(begun + terms.pause_s_max) as pace:
                async for part in request.stream():
                    size = self._hold(scope, len(part))
                    if size > bytes_max:
                        raise _too_large(f"the body has over {bytes_max} bytes", bytes_max)
                    parts.append(part)
                    pace.reschedule(begun + terms.pause_s_max + size / terms.bytes_per_s_min)
        except TimeoutError:
            raise BodyTooSlow(
                f"the body lagged {terms.pause_s_max:g} s behind {terms.bytes_per_s_min} bytes a second",
                side_effects="none",
            ) from None
        scope[UNREAD] = False
        return b"".join(parts)

    def release(self, scope: Scope) -> None:
        """The call is answered: count its body no more."""
        self.held_bytes -= scope.pop(_HELD, 0)

    def _hold(self, scope: Scope, size: int) -> int:
        if self.held_bytes + size > self._terms.held_bytes_max:
            self.release(scope)
            raise ServerBusy(
                f"{self._terms.held_bytes_max} bytes of bodies are held at this server, which is the most",
                side_effects="none",
            )
        self.held_bytes += size
        scope[_HELD] += size
        return int(scope[_HELD])


def _too_large(what: str, bytes_max: int) -> TooLarge:
    return TooLarge(f"{what}; the most is {bytes_max}", body_bytes_max=bytes_max)


def content_type(request: Request, *allowed: str) -> str:
    """Return the body's media type; InvalidRequest unless it is one of ``allowed``, sent as it is.

    It must be named: a web page of another origin can send a body without a type or with a form's, but not with these.
    """
    if (encoding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise InvalidRequest(f"Content-Encoding: {encoding[:80]!r} is not taken", member="Content-Encoding")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in allowed:
        raise InvalidRequest(
            f"Content-Type: {media_type[:80]!r} is not taken here",
            hint=f"Send Content-Type: {' or '.join(allowed)}.",
            member="Content-Type",
        )
    return media_type


async def answer_and_linger(response: Response, receive: Receive, send: Send) -> None:
    """Send the whole answer now, read and throw away what the sender still sends (bounded), then close the connection."""
    headers = [*response.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(response.body), "more_body": True})
    thrown_away = 0
    try:
        async with asyncio.timeout(LINGER_S_MAX):
            while thrown_away < LINGER_BYTES_MAX:
                message = await receive()
                thrown_away += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    break
    except TimeoutError:
        pass
    await send({"type": "http.response.body", "body": b"", "more_body": False})
