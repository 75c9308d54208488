"""Compressed answers: which coding ``Accept-Encoding`` asks for, and the work, aside where it is long."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable
from typing import Final

import zstandard
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.server.http.bodies import JSON_TYPE
from headrace.server.rendering import Rendered

CODINGS: Final = ("zstd", "gzip")
"""Those that there are, the better one first."""
COMPRESS_BYTES_MIN: Final = 1 << 10
"""Answers up to this size fit into a packet or two as they are."""
IN_LOOP_BYTES_MAX: Final = 16 << 10
"""What takes well under a millisecond; larger answers are compressed in a worker thread."""
GZIP_LEVEL: Final = 4
"""JSON gets hardly smaller above it, and takes far longer."""
ZSTD_LEVEL: Final = 3


def choose_coding(accepted: str) -> str | None:
    """Return the coding that ``Accept-Encoding`` prefers (RFC 9110 §12.5.3), None for the bytes as they are."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, parameters = part.partition(";")
        weights[name.strip()] = _weight(parameters.strip())
    found = [(weights.get(coding, weights.get("*", 0.0)), coding) for coding in CODINGS]
    best, coding = max(found, key=lambda pair: pair[0])
    return coding if best > 0 and best >= weights.get("identity", 0.0) else None


def compress(content: bytes | memoryview, coding: str) -> bytes:
    """Return ``content`` in one of :data:`CODINGS`."""
    if coding == "zstd":
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(content)
    return gzip.compress(content, GZIP_LEVEL, mtime=0)


class RenderedResponse(Response):
    """An answer that others may get too: it is compressed once for all of them."""

    def __init__(self, rendered: Rendered, on_given: Callable[[], None] | None = None) -> None:
        """``on_given`` is called once the connection has taken the answer."""
        super().__init__(rendered.content, media_type=JSON_TYPE)
        self.rendered = rendered
        self._on_given = on_given

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        await super().__call__(scope, receive, send)
        if self._on_given is not None:
            self._on_given()


async def encoded(request: Request, response: Response) -> Response:
    """Return the response, whose body is complete, as this client wants it."""
    response.headers["Vary"] = "Accept-Encoding"
    content = response.body
    if len(content) <= COMPRESS_BYTES_MIN:
        return response
    coding = choose_coding(",".join(request.headers.getlist("accept-encoding")))
    if coding is None:
        return response
    if isinstance(response, RenderedResponse):
        shared = response.rendered.encoded
        if coding not in shared:
            shared[coding] = asyncio.create_task(_compressed(content, coding))
        response.body = await asyncio.shield(shared[coding])
    else:
        response.body = await _compressed(content, coding)
    response.headers["Content-Encoding"] = coding
    response.headers["Content-Length"] = str(len(response.body))
    return response


async def _compressed(content: bytes | memoryview, coding: str) -> bytes:
    if len(content) <= IN_LOOP_BYTES_MAX:
        return compress(content, coding)
    return await asyncio.to_thread(compress, content, coding)


def _weight(parameters: str) -> float:
    name, _, value = parameters.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return min(1.0, max(0.0, float(value)))
    except ValueError:
        return 0.0
