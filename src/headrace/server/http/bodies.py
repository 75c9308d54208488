"""Request bodies with a bound, read no further than it; and the answer to a sender that is still sending."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Send

from headrace.errors import InvalidRequest, TooLarge

BODY_BYTES_MAX: Final = 16 << 20
"""Largest request body (design §5)."""

LINGER_BYTES_MAX: Final = 64 << 20
LINGER_S_MAX: Final = 10.0
"""How much and how long is read and thrown away after a 413. Closing at once would reset the connection, and the sender
would never see the answer."""

UNREAD: Final = "headrace.unread"
"""Key of the request's scope: True while a part of the body may still be on its way."""

JSON_TYPE: Final = "application/json"
NDJSON_TYPE: Final = "application/x-ndjson"


async def read_body(request: Request, bytes_max: int = BODY_BYTES_MAX) -> bytes:
    """Return the whole body. TooLarge as soon as it is known to be over ``bytes_max``, chunked bodies included."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > bytes_max:
        raise TooLarge(
            f"the body has {declared[:30]} bytes; the most is {bytes_max}", body_bytes_max=bytes_max
        )
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > bytes_max:
            raise TooLarge(
                f"the body has over {bytes_max} bytes, the most that is taken", body_bytes_max=bytes_max
            )
        parts.append(part)
    request.scope[UNREAD] = False
    return b"".join(parts)


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
