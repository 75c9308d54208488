"""What an HTTP answer that is no success stands for: a problem document of Headrace, or something else on the way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from headrace import errors
from headrace.client.credential import Credential
from headrace.errors import HeadraceError, Recovery
from headrace.runtime.typed_json import decode_json

RETRY_AFTER_S_MAX: Final = 60.0
"""A longer Retry-After is not waited out: whoever asks again is told again."""
_FIXED: Final = frozenset({"type", "title", "status", "detail", "code", "hint"})


def problem_of(status: int, content: bytes, headers: Mapping[str, str] | None = None) -> HeadraceError:
    """Return the error that an answer of 400 and above stands for, with what it says of ``Retry-After``.

    A problem document (RFC 9457) with one of our codes is that error. Anything else is not from Headrace, but from what is
    on the way (an ingress while servers are replaced): ServerUnreachable with status and first bytes; Unavailable for a 5xx.
    A 5xx whose code says nothing more is Unavailable too. What became of a write is then not known, and whoever asked may
    ask again.
    """
    error = _document(status, content) or _foreign(status, content)
    error.retry_after_s = retry_after_s((headers or {}).get("Retry-After"))
    return error


def judged_by_token(error: HeadraceError, credential: Credential | None) -> HeadraceError:
    """Say of a refused token (``credential``) whether it is worth another try: a file may hold another, none stays none."""
    if isinstance(error, errors.Unauthenticated) and credential is None:
        error.recovery = Recovery.END
    elif isinstance(error, errors.Forbidden) and credential is not None and credential.renews:
        error.recovery = Recovery.ATTEND
    return error


def retry_after_s(text: str | None) -> float | None:
    """Return the seconds that ``Retry-After`` names, as a number or an HTTP date; None if it is not there or neither."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
        except (TypeError, ValueError):  # no date, or one without a zone
            return None
    return min(max(0.0, seconds), RETRY_AFTER_S_MAX) if math.isfinite(seconds) else None


def _document(status: int, content: bytes) -> HeadraceError | None:
    """The error of a problem document of Headrace; None for anything else."""
    try:
        problem = decode_json(content, dict[str, Any])
        code = str(problem["code"])
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError):
        return None
    kind = errors.by_code(code)
    if kind is HeadraceError:
        if status < 500:
            return None
        kind = errors.Unavailable
    error = kind(str(problem.get("detail", "")), hint=str(problem.get("hint", kind.hint)))
    error.members = {name: value for name, value in problem.items() if name not in _FIXED}
    return error


def _foreign(status: int, content: bytes) -> HeadraceError:
    kind = errors.Unavailable if status >= 500 else errors.ServerUnreachable
    return kind(
        f"the server answered {status}: {content[:200].decode(errors='replace')}",
        hint="Is this address a Headrace server?",
    )
