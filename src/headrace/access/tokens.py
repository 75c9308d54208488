"""Bearer tokens (JWT, RFC 7519) checked against a key set: a token comes in, what it grants comes out.

A token that was checked is remembered until it expires or the keys change, so that a call costs one hash of its header.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from typing import Any, Final, NamedTuple

import msgspec
from jwt import InvalidTokenError, PyJWS

from headrace.access.claims import decode_claims, read_time
from headrace.access.grants import Grant, grant_of
from headrace.access.key_set import ALGORITHMS
from headrace.access.key_source import KeySource
from headrace.errors import Unauthenticated
from headrace.runtime.clock import Clock, SystemClock

TOKEN_CHARS_MAX: Final = 8192
"""Longest token that is looked at."""
LEEWAY_S: Final = 60
"""How far the issuer's clock may be ahead of ours: a token is taken so long before ``nbf`` and ``iat``.

``exp`` has none. A clock of ours that is ahead only ends a token early, and a stream that ends at ``exp`` is not opened
again with the token that has just ended it.
"""
REMEMBERED_MAX: Final = 10_000
"""Most tokens that are remembered; then the one that was not used for longest is forgotten. About 1 KB each."""

_TOKEN: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_JWS: Final = PyJWS(algorithms=list(ALGORITHMS))


class TokenTerms(msgspec.Struct, frozen=True, kw_only=True):
    """What a token must say of its origin: ``iss`` and ``aud``. With no audience here, a token that names one is refused."""

    issuer: str | None = None
    audience: str | None = None


class _Header(NamedTuple):
    algorithm: str
    kid: str | None


class TokenVerifier:
    """Tells what bearer tokens grant. One for all faces of a server."""

    def __init__(
        self, keys: KeySource, terms: TokenTerms | None = None, *, clock: Clock | None = None
    ) -> None:
        """Check signatures with ``keys``, which the caller starts and closes."""
        self._keys = keys
        self._terms = terms or TokenTerms()
        self._clock = clock or SystemClock()
        self._remembered: OrderedDict[bytes, Grant] = OrderedDict()
        self._generation = keys.generation

    def recall(self, token: str) -> Grant | None:
        """Return what ``token`` grants if that is known already, without waiting for anything; None if it has to be checked.

        Raises KeysUnavailable where no token is accepted.
        """
        self._keys.current()
        if self._generation != self._keys.generation:
            self._remembered.clear()
            self._generation = self._keys.generation
        digest = _digest(token)
        grant = self._remembered.get(digest)
        if grant is None:
            return None
        if grant.expires_at is not None and self._now() >= grant.expires_at:
            del self._remembered[digest]
            return None
        self._remembered.move_to_end(digest)
        return grant

    async def verify(self, token: str) -> Grant:
        """Return what ``token`` grants. Unauthenticated, saying why but nothing of the token; KeysUnavailable."""
        grant = self.recall(token)
        if grant is not None:
            return grant
        header = _read_header(token)
        key = await self._keys.find(header.kid, header.algorithm)
        generation = self._keys.generation
        if key is None:
            raise Unauthenticated("the token's key is not among the issuer's keys")
        try:
            payload = _JWS.decode(token, key, algorithms=[header.algorithm])
        except InvalidTokenError:
            raise Unauthenticated("the token's signature is not right") from None
        try:
            grant = self._grant(decode_claims(payload))
        except ValueError as error:
            raise Unauthenticated(f"the token's claims can't be used: {error}") from None
        if generation == self._generation:
            self._remember(token, grant)
        return grant

    def _grant(self, claims: dict[str, Any]) -> Grant:
        now = self._now()
        ends, begins, issued = (read_time(claims, name) for name in ("exp", "nbf", "iat"))
        if ends is None:
            raise Unauthenticated("the token does not say when it expires (exp)")
        if now >= ends:
            raise Unauthenticated("the token has expired")
        if max(begins or 0, issued or 0) > now + LEEWAY_S:
            raise Unauthenticated("the token is not valid yet: compare the clocks of issuer and server")
        if self._terms.issuer is not None and claims.get("iss") != self._terms.issuer:
            raise Unauthenticated("the token is from another issuer")
        audience = claims.get("aud", [])
        named = audience if isinstance(audience, list) else [audience]
        if named and self._terms.audience is None:
            raise Unauthenticated(
                "the token is for an audience, and this server was given none (--auth-audience)"
            )
        if self._terms.audience is not None and self._terms.audience not in named:
            raise Unauthenticated("the token is for another audience")
        return grant_of(claims, ends)

    def _remember(self, token: str, grant: Grant) -> None:
        self._remembered[_digest(token)] = grant
        if len(self._remembered) > REMEMBERED_MAX:
            self._remembered.popitem(last=False)

    def _now(self) -> float:
        return self._clock.wall_ms() / 1000


def _digest(token: str) -> bytes:
    """Tokens themselves are not kept: they are secrets."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _read_header(token: str) -> _Header:
    if len(token) > TOKEN_CHARS_MAX or not _TOKEN.fullmatch(token):
        raise Unauthenticated("what was given is no JWT")
    try:
        header = _JWS.get_unverified_header(token)
    except InvalidTokenError:
        raise Unauthenticated("what was given is no JWT") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise Unauthenticated(f"the token is not signed with one of {', '.join(ALGORITHMS)}")
    return _Header(algorithm, kid)
