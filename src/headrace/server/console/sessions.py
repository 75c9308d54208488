"""Who is signed in: a cookie names a session, and the session holds the bearer token, which is checked at every request.

So a session ends when its token does, when the issuer withdraws the key, and when the server restarts. The token itself
never goes back to the browser.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Final

from headrace.access.grants import EVERYTHING, Grant
from headrace.access.tokens import TokenVerifier
from headrace.errors import Forbidden, Unauthenticated
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger

logger = get_logger("server.console")

SESSION_S_MAX: Final = 12 * 3600
"""Longest life of a session, whatever its token says: a working day."""
SESSIONS_MAX: Final = 1_000
"""Most sessions at once; then the one that was not used for longest ends."""
ID_BYTES: Final = 32
"""Random bytes of a session's id and of its form key: not to be guessed."""


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody at a browser. ``form_key`` must come with every form that changes something.

    ``ends_at_s``: monotonic seconds. ``signed_in`` False: this server asks nobody who they are.
    """

    token: str
    form_key: str
    grant: Grant
    ends_at_s: float
    signed_in: bool = True


class Sessions:
    """The sessions of one server. They are in memory: of several servers on a store each has its own."""

    def __init__(self, verifier: TokenVerifier | None, *, clock: Clock | None = None) -> None:
        """``verifier`` None: nobody is asked for a token, and all share one session that may do everything."""
        self._verifier = verifier
        self._clock = clock or SystemClock()
        self._known: OrderedDict[str, Session] = OrderedDict()
        self._everybody = Session("", _secret(), EVERYTHING, float("inf"), signed_in=False)

    @property
    def asks(self) -> bool:
        """Whether one has to sign in here."""
        return self._verifier is not None

    async def begin(self, token: str) -> tuple[str, int]:
        """Return the id of a new session for whoever has ``token``, and how many seconds it lasts.

        Unauthenticated, Forbidden for a token without any role, KeysUnavailable.
        """
        grant = await self._check(token)
        left_s = float(SESSION_S_MAX)
        if grant.expires_at is not None:
            left_s = min(left_s, grant.expires_at - self._clock.wall_ms() / 1000)
        name = _secret()
        while len(self._known) >= SESSIONS_MAX:
            self._known.popitem(last=False)
        self._known[name] = Session(token, _secret(), grant, self._clock.monotonic() + left_s)
        logger.info("somebody signed in", subject=grant.subject)
        return name, max(1, int(left_s))

    async def find(self, name: str | None) -> Session:
        """Return the session of this id, with what its token grants now. Unauthenticated if there is none any more."""
        if self._verifier is None:
            return self._everybody
        session = self._known.get(name) if name is not None else None
        if name is None or session is None:
            raise Unauthenticated("nobody is signed in here")
        if self._clock.monotonic() >= session.ends_at_s:
            del self._known[name]
            raise Unauthenticated("the session has ended")
        try:
            await self._check(session.token)
        except (Unauthenticated, Forbidden):
            self.end(name)
            raise
        if name in self._known:
            self._known.move_to_end(name)
        return session

    def end(self, name: str | None) -> None:
        """End a session; nothing happens if there is none."""
        if name is not None:
            self._known.pop(name, None)

    async def _check(self, token: str) -> Grant:
        if self._verifier is None:
            return EVERYTHING
        grant = await self._verifier.verify(token)
        if not grant.roles:
            raise Forbidden("this token names no role (publisher, listener, replication or admin)")
        return grant


def cookie_name(*, encrypted: bool) -> str:
    """Return the name of the session's cookie. Over TLS its prefix has browsers hold it to this host and to TLS."""
    return "__Host-headrace-session" if encrypted else "headrace-session"


def cookie(name: str, *, lasts_s: int, encrypted: bool) -> str:
    """Return the ``Set-Cookie`` of a session; ``lasts_s`` 0 takes it away. No script reads it, no other site sends it."""
    secure = "; Secure" if encrypted else ""
    named = f"{cookie_name(encrypted=encrypted)}={name}; Path=/; Max-Age={lasts_s}"
    return f"{named}; HttpOnly; SameSite=Strict{secure}"


def session_of(cookies: str, *, encrypted: bool) -> str | None:
    """Return the session's id of a ``Cookie`` header, None if it names none."""
    try:
        found = SimpleCookie(cookies).get(cookie_name(encrypted=encrypted))
    except CookieError:
        return None
    return found.value if found is not None else None


def _secret() -> str:
    return secrets.token_urlsafe(ID_BYTES)
