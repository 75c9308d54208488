"""The ASGI application: find the route, let its handler answer, turn every error into a problem document.

It is written on Starlette's requests and responses but dispatches by itself: an idle long poll costs one coroutine, with
no middleware around it, and the *undecoded* path is matched.
"""

from __future__ import annotations

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from headrace.errors import HeadraceError, InvalidRequest, MethodNotAllowed, TooLarge
from headrace.runtime.logs import get_logger
from headrace.server.http.bodies import UNREAD, answer_and_linger
from headrace.server.http.problems import problem_response
from headrace.server.http.routes import ROUTES
from headrace.server.http.table import Call, find_route
from headrace.server.service import Service

logger = get_logger("server.http")


class HttpFace:
    """The change feed API over one :class:`~headrace.server.service.Service`, as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; nothing is raised to the server around it except cancellation."""
        if scope["type"] != "http":
            raise RuntimeError(f"the HTTP face does not speak {scope['type']}")
        request = Request(scope, receive)
        try:
            route, path = find_route(ROUTES, scope["method"], scope["raw_path"])
            if route.query is None and scope["query_string"]:
                raise InvalidRequest(f"{route.path} takes no query parameters")
            response = await route.handler(self._service, Call(route, path, request))
        except ClientDisconnect:
            return
        except HeadraceError as error:
            await _refuse(error, scope, receive, send)
            return
        except Exception:
            logger.exception("a request failed", method=scope["method"], path=scope["path"])
            failure = HeadraceError("the server failed on this request; its log says why")
            await problem_response(failure)(scope, receive, send)
            return
        await response(scope, receive, send)


async def _refuse(error: HeadraceError, scope: Scope, receive: Receive, send: Send) -> None:
    if error.http_status >= 500:
        logger.warning("a request was not served", code=error.code, detail=error.detail, path=scope["path"])
    headers = {}
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.members["allowed"])
    response = problem_response(error, headers)
    if isinstance(error, TooLarge) and scope.get(UNREAD):
        await answer_and_linger(response, receive, send)
    else:
        await response(scope, receive, send)
