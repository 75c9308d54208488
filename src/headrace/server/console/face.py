"""The console as an ASGI application: find the page and who asks, let its handler answer; every error is a page too."""

from __future__ import annotations

from collections.abc import Awaitable, MutableMapping
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.access.asgi import GRANT
from headrace.access.bearer import challenge_of
from headrace.access.grants import Grant
from headrace.access.tokens import TokenVerifier
from headrace.errors import Forbidden, HeadraceError, Unauthenticated
from headrace.errors.problem import title_of
from headrace.runtime.logs import get_logger
from headrace.server.console.drawing import SESSION, bare_page
from headrace.server.console.forgery import check_origin
from headrace.server.console.sessions import Sessions, session_of
from headrace.server.console.signing import SESSIONS
from headrace.server.console.table import PAGES
from headrace.server.guard import May
from headrace.server.http.bodies import UNREAD, Bodies, BodyTerms, answer_and_linger
from headrace.server.http.event_stream import EventStream, StreamTerms
from headrace.server.http.table import Call, find_route
from headrace.server.service import Service
from headrace.server.traffic import HttpRequest

logger = get_logger("server.console")

ROOT: Final = b"/console"
SECURITY: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; object-src 'none'; "
        b"base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""On every answer: nothing but our own files runs or is loaded, and nobody frames a page. The referrer stays here; with a
stricter policy browsers would leave out the origin of our own forms."""
_SAFE: Final = frozenset({"GET", "HEAD"})
"""Methods of requests that change nothing (RFC 9110, 9.2.1); every other is a form's, or pretends to be."""
NO_STORE: Final = (b"cache-control", b"no-store")


class ConsoleFace:
    """The console over one :class:`~headrace.server.service.Service`; every other address is ``api``'s."""

    def __init__(self, service: Service, api: ASGIApp, *, verifier: TokenVerifier | None = None) -> None:
        """``verifier``: of the tokens that people sign in with; without it nobody is asked for one."""
        self._service = service
        self._api = api
        self._sessions = Sessions(verifier)
        self._streams = StreamTerms()
        self._bodies = Bodies(BodyTerms())

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request; a plain function, so that a call of the API has no frame of the console around it."""
        path = scope.get("raw_path", b"")
        if scope["type"] != "http" or not (path == ROOT or path.startswith(ROOT + b"/")):
            return self._api(scope, receive, send)
        return self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Nothing is raised to the server around it except cancellation."""
        request = Request(scope, receive)

        async def guarded_send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                given = [*message["headers"], *SECURITY]
                if not any(name.lower() == b"cache-control" for name, _ in given):
                    given.append(NO_STORE)
                message = {**message, "headers": given}
            await send(message)

        asked = self._service.traffic.asked(scope["method"])
        try:
            response = await self._answer(request, asked)
            asked.answered(response.status_code)
        except ClientDisconnect:
            asked.given_up()
            return
        except HeadraceError as error:
            asked.refused(error)
            if scope["method"] not in _SAFE and isinstance(error, Forbidden | Unauthenticated):
                who = scope[GRANT].subject if GRANT in scope else ""
                logger.warning(
                    "a form was refused", route=asked.route, code=error.code, detail=error.detail, subject=who
                )
            response = _error_page(error)
        except Exception:
            logger.exception("a page failed", method=scope["method"], path=scope["path"])
            failure = HeadraceError("the server failed on this page; its log says why")
            asked.refused(failure)
            response = _error_page(failure)
        finally:
            self._bodies.release(scope)
        if scope.get(UNREAD) and not isinstance(response, EventStream):
            await answer_and_linger(response, receive, guarded_send)
        else:
            await response(scope, receive, guarded_send)

    async def _answer(self, request: Request, asked: HttpRequest) -> Response:
        scope = request.scope
        route, path = find_route(PAGES, scope["method"], scope["raw_path"])
        asked.route = route.path
        scope[SESSIONS] = self._sessions
        if route.method != "GET":
            check_origin(request.headers)
        if route.may is May.OPEN:
            scope[GRANT] = Grant()
        else:
            name = session_of(request.headers.get("cookie", ""), encrypted=scope["scheme"] == "https")
            try:
                session = await self._sessions.find(name)
            except Unauthenticated:
                if request.method != "GET" or not route.media_type.startswith("text/html"):
                    raise
                return _ask_to_sign_in(request)
            scope[SESSION], scope[GRANT] = session, session.grant
        call = Call(route, path, request, self._bodies, self._streams)
        await call.check_caller(self._service)
        call.check_parameters()
        return await route.handler(self._service, call)


def _ask_to_sign_in(request: Request) -> Response:
    """A link from another site comes without the cookie, which is ``SameSite=Strict``: such a page asks for itself anew."""
    if request.headers.get("sec-fetch-site") in {"cross-site", "same-site"}:
        return bare_page("again.html")
    query = request.scope["query_string"].decode("latin-1")
    wanted = request.scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
    return RedirectResponse(f"/console/sign-in?to={quote(wanted, safe='')}", 303)


def _error_page(error: HeadraceError) -> Response:
    if error.http_status >= 500:
        logger.warning("a page was not served", code=error.code, detail=error.detail)
    challenge = challenge_of(error)
    headers = {"WWW-Authenticate": challenge} if challenge is not None else {}
    return bare_page(
        "error.html", status=error.http_status, headers=headers, error=error, title=title_of(type(error))
    )
