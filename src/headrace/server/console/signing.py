"""Signing in with a bearer token, and out again."""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from headrace.access.bearer import challenge_of
from headrace.errors import Forbidden, Unauthenticated
from headrace.runtime.logs import get_logger
from headrace.server.console.drawing import bare_page
from headrace.server.console.forgery import FORM_BYTES_MAX, check_pressed, read_form
from headrace.server.console.sessions import Sessions, cookie, session_of
from headrace.server.http.table import Call
from headrace.server.service import Service
from headrace.wire.documents import Document

logger = get_logger("server.console")

HOME: Final = "/console"
SESSIONS: Final = "headrace.console-sessions"
"""Key of the request's scope: the :class:`~headrace.server.console.sessions.Sessions` of this server."""

_OWN: Final = re.compile(r"/console(?:[/?][!-\[\]-~]*)?", re.ASCII)
"""An address of the console: what a sign-in may lead to. No backslash, which browsers take for a slash."""


class SignInQuery(Document):
    """``GET /console/sign-in``."""

    to: Annotated[str, Meta(description="Where to go then.")] = HOME


async def go_home(service: Service, call: Call) -> Response:
    """Lead to the first page."""
    return RedirectResponse(HOME, 303)


async def show_form(service: Service, call: Call) -> Response:
    """Ask for a token; a server that asks nobody leads on."""
    to = _own(call.query(SignInQuery).to)
    if not _sessions(call).asks:
        return RedirectResponse(to, 303)
    return bare_page("sign_in.html", to=to, error=None)


async def sign_in(service: Service, call: Call) -> Response:
    """Begin a session for whoever has the token, or say why not."""
    fields = read_form(
        call.request.headers.get("content-type", ""), await call.bodies.read(call.request, FORM_BYTES_MAX)
    )
    to, sessions = _own(fields.get("to", HOME)), _sessions(call)
    encrypted = call.request.scope["scheme"] == "https"
    try:
        name, lasts_s = await sessions.begin(fields.get("token", "").strip())
    except (Unauthenticated, Forbidden) as error:
        logger.warning("a sign-in was refused", code=error.code, detail=error.detail, peer=_peer(call))
        service.traffic.note_refusal("http", error)
        challenge = challenge_of(error)
        headers = {"WWW-Authenticate": challenge} if challenge is not None else {}
        return bare_page("sign_in.html", status=error.http_status, headers=headers, to=to, error=error)
    sessions.end(session_of(call.request.headers.get("cookie", ""), encrypted=encrypted))
    answer = RedirectResponse(to, 303)
    answer.headers["Set-Cookie"] = cookie(name, lasts_s=lasts_s, encrypted=encrypted)
    return answer


async def sign_out(service: Service, call: Call) -> Response:
    """End the session, here and in the browser."""
    await check_pressed(call)
    encrypted = call.request.scope["scheme"] == "https"
    _sessions(call).end(session_of(call.request.headers.get("cookie", ""), encrypted=encrypted))
    answer = RedirectResponse("/console/sign-in", 303)
    answer.headers["Set-Cookie"] = cookie("", lasts_s=0, encrypted=encrypted)
    return answer


async def check_session(call: Call) -> None:
    """Raise Unauthenticated if the session that asked has ended since, whatever ended it; Forbidden, KeysUnavailable."""
    encrypted = call.request.scope["scheme"] == "https"
    await _sessions(call).find(session_of(call.request.headers.get("cookie", ""), encrypted=encrypted))


def _sessions(call: Call) -> Sessions:
    found = call.request.scope[SESSIONS]
    if not isinstance(found, Sessions):
        raise TypeError("the face has given no sessions")
    return found


def _peer(call: Call) -> str:
    """The address that the connection comes from; behind a proxy, the proxy's."""
    client = call.request.client
    return client.host if client is not None else ""


def _own(to: str) -> str:
    return to if _OWN.fullmatch(to) else HOME
