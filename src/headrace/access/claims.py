"""What tokens and tickets say: a JSON object with times in seconds since 1970. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

TIME_MAX: Final = 253_402_300_799
"""The end of the year 9999: a later ``exp`` is a mistake, and sums with it would overflow."""


def decode_claims(payload: bytes) -> dict[str, Any]:
    """Return the claims in ``payload``; ValueError if it is no JSON object."""
    try:
        claims = json.loads(payload)
    except RecursionError:
        raise ValueError("the claims are nested too deeply") from None
    if not isinstance(claims, dict):
        raise ValueError("the claims are no JSON object")
    return claims


def read_time(claims: Mapping[str, Any], name: str) -> float | None:
    """Return the time ``name`` in seconds since 1970, None if it is not there; ValueError if it is no time."""
    value = claims.get(name)
    if value is None:
        return None
    # Neither NaN nor infinity is between the two.
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= TIME_MAX:
        raise ValueError(f"{name} is no time in seconds since 1970")
    return value
