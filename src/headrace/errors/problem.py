"""An error as a problem document (RFC 9457) with a stable ``code``: what every HTTP face of Headrace answers. Pure.

``type`` is ``/runbook/{code}``: a reference that leads, at whoever answered, to the page that says what to do. ``code`` is
the name that says the same everywhere.
"""

from __future__ import annotations

from typing import Any, Final

from headrace.errors.answers import Unavailable
from headrace.errors.root import HeadraceError

PROBLEM_TYPE: Final = "application/problem+json"
RUNBOOK_PATH: Final = "/runbook"
"""Below this address each HTTP face serves a page for each code."""
RETRY_AFTER_S: Final = 1
"""What a 503 tells the client to wait at least; agents back off further by themselves (RFD 5, failure scenarios)."""


def problem_document(error: HeadraceError) -> dict[str, Any]:
    """Return the members of the problem document that ``error`` becomes; its own members stand beside the fixed ones."""
    kind = type(error)
    fixed = {
        "type": runbook_address(kind.code),
        "title": title_of(kind),
        "status": kind.http_status,
        "detail": error.detail,
        "code": kind.code,
        "hint": error.advice,
    }
    return {**fixed, "retryable": kind.retryable, **error.members, **fixed}


def runbook_address(code: str) -> str:
    """Return the reference of the page of ``code``: relative to whoever answers (RFC 9457 §3.1.1), with a whole path."""
    return f"{RUNBOOK_PATH}/{code}"


def problem_headers(error: HeadraceError) -> dict[str, str]:
    """Return the headers that belong to it: ``Retry-After`` in seconds where trying again can help."""
    return {"Retry-After": str(RETRY_AFTER_S)} if isinstance(error, Unavailable) else {}


def title_of(kind: type[HeadraceError]) -> str:
    """Return the short summary of a kind of problem: the first line of its docstring."""
    if kind is HeadraceError:
        return "The server failed on this request"
    return (kind.__doc__ or kind.code).strip().splitlines()[0].removesuffix(".")
