"""The ASGI application: find the route, let its handler answer, turn every error into a problem document.

It is written on Starlette's requests and responses but dispatches by itself: an idle long poll costs one coroutine, with
no middleware around it, and the *undecoded* path is matched.
"""

from __future__ import annotations

from collections.abc import Awaitable

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from headrace.access.asgi import Guard
from headrace.access.bearer import challenge_of
from headrace.access.tokens import TokenVerifier
from headrace.errors import BodyTooSlow, HeadraceError, MethodNotAllowed, SequenceNotAvailable
from headrace.runtime.logs import get_logger
from headrace.server.http.bodies import UNREAD, Bodies, BodyTerms, answer_and_linger
from headrace.server.http.compression import encoded
from headrace.server.http.event_stream import EventStream, StreamTerms
from headrace.server.http.problems import problem_response
from headrace.server.http.routes import ROUTES
from headrace.server.http.table import FEED, Call, find_route
from headrace.server.service import Service

logger = get_logger("server.http")


class HttpFace:
    """The change feed API over one :class:`~headrace.server.service.Service`, as an ASGI application."""

    def __init__(
        self,
        service: Service,
        *,
        verifier: TokenVerifier | None = None,
        streams: StreamTerms | None = None,
        bodies: BodyTerms | None = None,
    ) -> None:
        """``verifier``: of the tokens that are taken; without it nobody is asked for one. ``streams`` and ``bodies``: the
        bounds of event streams and of request bodies, if not the usual ones.
        """
        self._service = service
        self._streams = streams if streams is not None else StreamTerms()
        self.bodies = Bodies(bodies if bodies is not None else BodyTerms())
        self._traffic = service.traffic
        self._guard = Guard(self._answer, verifier, on_refused=self._traffic.note_refused_at_door)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request; nothing is raised to the server around it except cancellation."""
        return self._guard(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path: dict[str, str] = {}
        asked = self._traffic.asked(scope["method"])
        try:
            route, path = find_route(ROUTES, scope["method"], scope["raw_path"])
            asked.route = route.path
            call = Call(route, path, request, self.bodies, self._streams)
            await call.check_caller(self._service)
            call.check_parameters()
            response = await route.handler(self._service, call)
            if not isinstance(response, EventStream):
                response = await encoded(request, response)
        except ClientDisconnect:
            asked.given_up()
            return
        except HeadraceError as error:
            if isinstance(error, SequenceNotAvailable) and FEED in path:
                await self._service.snapshots.complete(error, path[FEED])
            asked.refused(error)
            await _refuse(error, scope, receive, send)
            return
        except Exception:
            logger.exception("a request failed", method=scope["method"], path=scope["path"])
            failure = HeadraceError("the server failed on this request; its log says why")
            asked.refused(failure)
            await problem_response(failure)(scope, receive, send)
            return
        finally:
            self.bodies.release(scope)
        asked.answered(response.status_code)
        await response(scope, receive, send)


async def _refuse(error: HeadraceError, scope: Scope, receive: Receive, send: Send) -> None:
    if error.http_status >= 500:
        logger.warning("a request was not served", code=error.code, detail=error.detail, path=scope["path"])
    headers = {}
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.members["allowed"])
    challenge = challenge_of(error)
    if challenge is not None:
        headers["WWW-Authenticate"] = challenge
    if isinstance(error, BodyTooSlow):
        headers["Connection"] = "close"
    response = problem_response(error, headers)
    if scope.get(UNREAD) and "Connection" not in headers:
        await answer_and_linger(response, receive, send)
    else:
        await response(scope, receive, send)
