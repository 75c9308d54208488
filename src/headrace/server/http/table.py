"""What a route is: address, handler, and everything that its documentation needs. ``routes.py`` lists them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.access.asgi import grant_of_scope
from headrace.access.grants import Grant
from headrace.errors import HeadraceError, InvalidRequest, MethodNotAllowed, RouteNotFound
from headrace.server.decoding import decode_document
from headrace.server.guard import May, check_call, check_feed
from headrace.server.http.bodies import DOCUMENT_BYTES_MAX, JSON_TYPE, Bodies, content_type
from headrace.server.http.event_stream import StreamTerms
from headrace.server.http.parameters import parse_headers, parse_query
from headrace.server.service import Service

T = TypeVar("T", bound=msgspec.Struct)

FEED: Final = "change-feed-id"
"""The path parameter that names a feed: who may call a route that has it is judged by that feed."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request on its way to a use case. ``path`` holds the decoded path parameters by name.

    ``bodies``: those that this server holds. ``streams``: the bounds of its event streams.
    """

    route: Route
    path: dict[str, str]
    request: Request
    bodies: Bodies
    streams: StreamTerms

    @property
    def grant(self) -> Grant:
        """What the caller may do."""
        return grant_of_scope(self.request.scope)

    async def check_caller(self, service: Service) -> None:
        """Raise Forbidden unless the caller may call this, about the feed that the path names if it names one."""
        if self.route.may is May.OPEN:
            return
        check_call(self.grant, self.route.may)
        if FEED in self.path:
            await self.check_feed(service, self.path[FEED])

    def check_parameters(self) -> None:
        """Raise InvalidRequest for a query string where the route takes none."""
        if self.route.query is None and self.request.scope["query_string"]:
            raise InvalidRequest(f"{self.route.path} takes no query parameters")

    async def check_feed(self, service: Service, feed: str) -> None:
        """Raise Forbidden unless the caller may call this about ``feed``."""
        await check_feed(service.log, self.grant, self.route.may, feed)

    def query(self, kind: type[T]) -> T:
        """Return the query string as the route's document."""
        return parse_query(self.request.scope["query_string"], _declared(kind, self.route.query))

    def headers(self, kind: type[T]) -> T:
        """Return the headers that the route takes."""
        return parse_headers(self.request.headers, _declared(kind, self.route.headers))

    async def body(self) -> bytes:
        """Return the whole body, within the route's bound."""
        return await self.bodies.read(self.request, self.route.body_bytes_max)

    async def document(self, kind: type[T]) -> T:
        """Return the JSON body as one of the route's documents."""
        content_type(self.request, JSON_TYPE)
        return decode_document(await self.body(), _declared(kind, *self.route.bodies))


Handler = Callable[[Service, Call], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call of the API.

    ``may``: who may call it. It is checked before the handler runs, with the feed that the path names; a handler whose feed
    stands in the body asks :meth:`Call.check_feed`.

    ``answer`` is the document of the 200 (None: it has no schema), ``refusals`` are what can be answered instead, besides
    what every call can be answered. ``ndjson``, ``frames``: the body, the answer, may be of that media type too.
    ``from_memory``: it can be answered while the store is away. ``media_type``: of the 200. ``status``: what stands in place
    of the 200 (204, 307), then without a body. ``body_bytes_max``: bytes of the largest body that is taken.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    may: May
    answer: type[msgspec.Struct] | None
    query: type[msgspec.Struct] | None = None
    headers: type[msgspec.Struct] | None = None
    bodies: tuple[type[msgspec.Struct], ...] = ()
    refusals: tuple[type[HeadraceError], ...] = ()
    ndjson: bool = False
    frames: bool = False
    not_ready: bool = False
    from_memory: bool = False
    media_type: str = JSON_TYPE
    status: int = 200
    body_bytes_max: int = DOCUMENT_BYTES_MAX
    parts: tuple[str, ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        """Split the path once."""
        object.__setattr__(self, "parts", tuple(self.path.split("/")))

    @property
    def path_parameters(self) -> list[str]:
        """The names of the path's parameters, in order."""
        return [part[1:-1] for part in self.parts if part.startswith("{")]

    def match(self, parts: Sequence[bytes]) -> dict[str, str] | None:
        """Return the path parameters if the address is this route's, else None; InvalidRequest if one is not UTF-8."""
        if len(parts) != len(self.parts):
            return None
        for own, given in zip(self.parts, parts, strict=True):
            if (own and not given) or (not own.startswith("{") and own.encode() != given):
                return None
        try:
            return {
                own[1:-1]: unquote_to_bytes(given).decode()
                for own, given in zip(self.parts, parts, strict=True)
                if own.startswith("{")
            }
        except UnicodeDecodeError:
            raise InvalidRequest("the address is not percent-encoded UTF-8") from None


def find_route(routes: Sequence[Route], method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
    """Return the route and its path parameters; RouteNotFound, or MethodNotAllowed with the methods that there are.

    The undecoded path is matched, part by part, because a name may hold an encoded slash.
    """
    parts = raw_path.split(b"/")
    methods: list[str] = []
    for route in routes:
        found = route.match(parts)
        if found is None:
            continue
        if route.method == method:
            return route, found
        methods.append(route.method)
    if methods:
        raise MethodNotAllowed(f"{method[:20]} is not taken here", allowed=sorted(methods))
    raise RouteNotFound(f"there is nothing at {raw_path[:200].decode('ascii', 'replace')}")


def _declared(kind: type[T], *declared: type[msgspec.Struct] | None) -> type[T]:
    """Parsing and documentation must not drift apart: a handler may take only what its route declares."""
    if kind not in declared:
        raise TypeError(f"{kind.__name__} is not declared by this route")
    return kind
