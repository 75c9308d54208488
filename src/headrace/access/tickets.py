"""Tickets: signed addresses of a snapshot (JWS compact, HS256). The server signs them, the publisher agent checks them.

The key is one secret of 32 bytes that both have. What a ticket says beside its end is for the caller to compare.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from jwt import InvalidTokenError, PyJWS

from headrace.access.claims import decode_claims, read_time
from headrace.errors import TicketRefused

ALGORITHM: Final = "HS256"
"""The only one, whatever a ticket's header says: neither ``none`` nor a public key used as a secret gets through."""
KEY_BYTES: Final = 32
"""Length of a ticket key: the size of HS256's hash (RFC 7518 §3.2)."""
TICKET_CHARS_MAX: Final = 8192
"""Longest ticket that is looked at; ours take some 500."""

_JWS: Final = PyJWS(algorithms=[ALGORITHM])


def sign(claims: Mapping[str, Any], key: bytes) -> str:
    """Return ``claims`` as a ticket; ValueError without ``exp`` (seconds since 1970) or for a key of another length."""
    _check_key(key)
    if read_time(claims, "exp") is None:
        raise ValueError("a ticket needs exp")
    payload = json.dumps(claims, separators=(",", ":"), allow_nan=False).encode()
    return _JWS.encode(payload, key, algorithm=ALGORITHM)


def verify(ticket: str, key: bytes, *, now: float) -> dict[str, Any]:
    """Return the claims of ``ticket`` if ``key`` signed it and it has not expired at ``now`` (seconds since 1970).

    Raises TicketRefused for everything else; what it says never holds a part of the ticket.
    """
    _check_key(key)
    if len(ticket) > TICKET_CHARS_MAX or not ticket.isascii():
        raise TicketRefused("this is no ticket")
    try:
        claims = decode_claims(_JWS.decode(ticket, key, algorithms=[ALGORITHM]))
        end = read_time(claims, "exp")
    except (InvalidTokenError, ValueError):
        raise TicketRefused("this ticket was not signed for here") from None
    if end is None:
        raise TicketRefused("this ticket does not say when it ends")
    if now >= end:
        raise TicketRefused("this ticket has expired")
    return claims


def _check_key(key: bytes) -> None:
    if len(key) != KEY_BYTES:
        raise ValueError(f"a ticket key has {KEY_BYTES} bytes, not {len(key)}")
