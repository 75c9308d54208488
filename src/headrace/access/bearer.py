"""The ``Authorization`` header: what stands in it, and how a refusal answers it (RFC 6750)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from headrace.errors import Forbidden, HeadraceError, Unauthenticated

_BEARER: Final = re.compile(r"bearer +([A-Za-z0-9._~+/-]+=*) *", re.IGNORECASE | re.ASCII)


def token_of(authorizations: Sequence[str]) -> str:
    """Return the token in a call's ``Authorization`` headers; Unauthenticated unless there is just one, with one token."""
    if not authorizations:
        raise Unauthenticated("a bearer token is needed here")
    if len(authorizations) > 1:
        raise Unauthenticated("there are several Authorization headers")
    found = _BEARER.fullmatch(authorizations[0])
    if found is None:
        raise Unauthenticated("the Authorization header holds no bearer token")
    return found[1]


def challenge_of(error: HeadraceError, *, asked: bool = True) -> str | None:
    """Return the ``WWW-Authenticate`` that goes with ``error``, None where none does. ``asked``: a token was given."""
    if isinstance(error, Unauthenticated):
        return 'Bearer realm="headrace", error="invalid_token"' if asked else 'Bearer realm="headrace"'
    if isinstance(error, Forbidden):
        return 'Bearer realm="headrace", error="insufficient_scope"'
    return None
