"""The grant of a gRPC call, from the bearer token in its metadata. No interceptor: a handler asks once, at its beginning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import grpc

from headrace.access.bearer import token_of
from headrace.access.grants import EVERYTHING, Grant
from headrace.access.tokens import TokenVerifier
from headrace.errors import Forbidden, HeadraceError, Unauthenticated, Unavailable

AUTHORIZATION: Final = "authorization"

_STATUSES: Final[tuple[tuple[type[HeadraceError], grpc.StatusCode], ...]] = (
    (Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (Forbidden, grpc.StatusCode.PERMISSION_DENIED),
    (Unavailable, grpc.StatusCode.UNAVAILABLE),
)


class Denial(NamedTuple):
    """Why a call is not served: ``status`` and ``details`` to abort it with, ``error`` to raise where errors become one."""

    status: grpc.StatusCode
    details: str
    error: HeadraceError


async def grant_of_call(
    metadata: Iterable[tuple[str, Any]] | None, verifier: TokenVerifier | None
) -> Grant | Denial:
    """Return what the caller may do, or why the call is to be aborted. Without a verifier everybody may do everything."""
    if verifier is None:
        return EVERYTHING
    # gRPC gives the values of keys that end in -bin as bytes, and only those.
    given = [str(value) for key, value in metadata or () if key == AUTHORIZATION]
    try:
        grant = await verifier.verify(token_of(given))
    except HeadraceError as error:
        return denial_of(error)
    if not grant.roles:
        return denial_of(Forbidden("this token names no role (publisher, listener, replication or admin)"))
    return grant


def denial_of(error: HeadraceError) -> Denial:
    """Return ``error`` as what a call is aborted with; INTERNAL for what has nothing to do with access."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), grpc.StatusCode.INTERNAL)
    return Denial(status, error.detail, error)
