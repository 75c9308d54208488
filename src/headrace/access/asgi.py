"""The guard at the door of an HTTP face: pure ASGI, for the server and for the agent's snapshots.

A call whose token is known costs a header check and a hash, and no coroutine of its own: an idle long poll has no frame of
the guard around it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import msgspec

from headrace.access.bearer import challenge_of, token_of
from headrace.access.grants import EVERYTHING, Grant
from headrace.access.tokens import TokenVerifier
from headrace.errors import Forbidden, HeadraceError, Unauthenticated
from headrace.errors.problem import PROBLEM_TYPE, RUNBOOK_PATH, problem_document, problem_headers
from headrace.runtime.logs import get_logger

logger = get_logger("access")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

GRANT: Final = "headrace.grant"
"""Where a call's :class:`~headrace.access.grants.Grant` stands in its scope."""
OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/openapi.json"})
"""What needs no token: whether the server lives, and how it is called; and the runbook, to which every refusal points."""


class Guard:
    """Lets a call through to ``app`` with its grant in the scope, or answers 401, 403 or 503 as a problem document.

    What the grant allows is for ``app`` to ask; only a token without any role is refused here. Without a verifier
    everybody may do everything (:data:`~headrace.access.grants.EVERYTHING`), so that ``app`` has one way to ask.
    """

    def __init__(
        self,
        app: App,
        verifier: TokenVerifier | None,
        *,
        open_paths: frozenset[str] = OPEN_PATHS,
        on_refused: Callable[[str, HeadraceError], None] = lambda method, error: None,
    ) -> None:
        """``on_refused`` is told of each call that is not let through: its method, and why."""
        self._app = app
        self._verifier = verifier
        self._open_paths = open_paths
        self._on_refused = on_refused

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Return what serves the call. A plain function: the usual way hands on the application's own coroutine."""
        if scope["type"] == "lifespan":
            return self._app(scope, receive, send)
        if scope["type"] != "http":
            raise RuntimeError(f"the guard does not know {scope['type']}")
        if self._verifier is None:
            scope[GRANT] = EVERYTHING
            return self._app(scope, receive, send)
        if scope["path"] in self._open_paths or scope["path"].startswith(f"{RUNBOOK_PATH}/"):
            scope[GRANT] = Grant()
            return self._app(scope, receive, send)
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        try:
            token = token_of([value.decode("latin-1") for value in given])
            grant = self._verifier.recall(token)
        except HeadraceError as error:
            return self._refuse(error, scope, send, asked=bool(given))
        if grant is None:
            return self._check(self._verifier, token, scope, receive, send)
        if not grant.roles:
            return self._refuse(_no_role(), scope, send, asked=True)
        scope[GRANT] = grant
        return self._app(scope, receive, send)

    async def _check(
        self, verifier: TokenVerifier, token: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            grant = await verifier.verify(token)
            if not grant.roles:
                raise _no_role()
        except HeadraceError as error:
            await self._refuse(error, scope, send, asked=True)
            return
        scope[GRANT] = grant
        await self._app(scope, receive, send)

    def _refuse(self, error: HeadraceError, scope: Scope, send: Send, *, asked: bool) -> Awaitable[None]:
        self._on_refused(scope["method"], error)
        return _refuse(error, scope, send, asked=asked)


def grant_of_scope(scope: Scope) -> Grant:
    """Return the grant of a call; Unauthenticated if no guard has put one there: then nothing is allowed."""
    grant = scope.get(GRANT)
    if not isinstance(grant, Grant):
        raise Unauthenticated("nobody has checked who asks")
    return grant


def _no_role() -> Forbidden:
    return Forbidden("this token names no role (publisher, listener, replication or admin)")


async def _refuse(error: HeadraceError, scope: Scope, send: Send, *, asked: bool) -> None:
    logger.info("a call was refused", code=error.code, detail=error.detail, path=scope["path"])
    headers = {"Content-Type": PROBLEM_TYPE, **problem_headers(error)}
    challenge = challenge_of(error, asked=asked)
    if challenge is not None:
        headers["WWW-Authenticate"] = challenge
    content = msgspec.json.encode(problem_document(error), enc_hook=str)
    headers["Content-Length"] = str(len(content))
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": error.http_status, "headers": raw})
    await send({"type": "http.response.body", "body": content})
