"""A feed as Server-Sent Events (WHATWG): a reader's place is the id of the last event, and the body never ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.access.asgi import grant_of_scope
from headrace.access.connection import TRANSPORT
from headrace.access.expiry import until_expired
from headrace.errors import HeadraceError
from headrace.errors.problem import problem_document
from headrace.runtime.clock import SystemClock
from headrace.runtime.logs import get_logger
from headrace.server.following import Follower
from headrace.server.rendering import Rendered
from headrace.server.traffic import Traffic

logger = get_logger("server.http")

EVENTS_TYPE: Final = "text/event-stream"
RETRY_MS: Final = 1_000
"""What a browser waits before it connects again."""
STREAM_BYTES_MAX: Final = 256 << 10
"""Bytes of entries sent at a time, save that it is always one entry: with what the socket holds, all that a client that
does not read costs."""
FAREWELL_S_MAX: Final = 1.0
"""How long the end of a body may take where the client does not read."""

_COMMENT: Final = b": still here\n\n"


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """``comment_every_s``: how long a stream is silent before a comment shows that the line is alive. ``stalled_s_max``: how
    long a client may take none of what waits for it before its stream is ended.
    """

    comment_every_s: float = 15.0
    stalled_s_max: float = 30.0


class EventStream(Response):
    """The answer that sends what a :class:`Follower` finds, until client or server end it, or an error does."""

    def __init__(
        self,
        follower: Follower,
        request: Request,
        terms: StreamTerms,
        traffic: Traffic,
        *,
        events_of: Callable[[Rendered], bytes] = attrgetter("content"),
        check: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """``traffic`` counts the stream while it is open. ``events_of``: makes events of what the follower finds, if that is
        no run of events yet. ``check``: asked before entries and comments are sent; what it raises ends the stream.
        """
        super().__init__(media_type=EVENTS_TYPE)
        self._events_of = events_of
        self._check = check
        self._follower = follower
        self._request = request
        self._terms = terms
        self._traffic = traffic
        self._grant = grant_of_scope(request.scope)
        self._clock = SystemClock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head, a ``feed`` event with the feed's bounds, then the entries."""
        with self._traffic.event_stream_open():
            await self._send_body(scope, receive, send)

    async def _send_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [
            (b"content-type", EVENTS_TYPE.encode()),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        taken = await self._push(send, self._opening()) and await self._send_all(send)
        if taken or self._follower.is_stopping():
            try:
                async with asyncio.timeout(FAREWELL_S_MAX):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            except TimeoutError:
                pass
        await self._cut_off(scope, receive)

    async def _send_all(self, send: Send) -> bool:
        """Send entries and comments while the token is good; False if the client stopped reading, else True at the end."""
        follower = self._follower
        while not follower.is_stopping():
            try:
                async with until_expired(self._grant, self._clock):
                    found = await follower.next(self._terms.comment_every_s)
                    if self._check is not None:
                        await self._check()
            except HeadraceError as error:
                return await self._push(send, _error_event(error))
            except Exception:
                logger.exception("a stream failed", feed=follower.tail.name)
                failure = HeadraceError("the server failed on this stream; its log says why")
                return await self._push(send, _error_event(failure))
            if await self._request.is_disconnected():
                return True
            if follower.is_stopping() and found is None:
                break
            if not await self._push(send, self._events_of(found) if found is not None else _COMMENT):
                return False
            if found is not None:
                follower.given(found)
        return True

    async def _push(self, send: Send, data: bytes) -> bool:
        """Give ``data`` to the connection once it has taken what came before; False if that takes too long."""

        async def give(_: float) -> bool:
            await send({"type": "http.response.body", "body": data, "more_body": True})
            return True

        return await self._follower.until(give, self._terms.stalled_s_max)

    async def _cut_off(self, scope: Scope, receive: Receive) -> None:
        """Drop the connection with all that it holds for a client that does not read."""
        transport = scope.get(TRANSPORT)
        if transport is None:
            return
        if not self._follower.is_stopping():
            logger.warning("a stream's client does not read", feed=self._follower.tail.name)
        transport.abort()
        while (await receive())["type"] != "http.disconnect":
            pass

    def _opening(self) -> bytes:
        follower = self._follower
        bounds = {
            "change-feed-id": follower.tail.name,
            "incarnation": follower.tail.incarnation,
            "head-sequence-id": follower.tail.head,
            "oldest-sequence-id": follower.tail.oldest,
        }
        return b"retry: %d\nid: %d\nevent: feed\ndata: %b\n\n" % (
            RETRY_MS,
            follower.after,
            msgspec.json.encode(bounds),
        )


def _error_event(error: HeadraceError) -> bytes:
    problem = msgspec.json.encode(problem_document(error), enc_hook=str)
    return b"event: error\ndata: %b\n\n" % problem
