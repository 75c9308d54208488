"""Refusals and failures as HTTP answers: problem documents (RFC 9457) with a stable ``code``."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from headrace.errors import HeadraceError
from headrace.errors.problem import PROBLEM_TYPE, problem_document, problem_headers, title_of

__all__ = ["PROBLEM_TYPE", "problem_document", "problem_response", "title_of"]


def problem_response(error: HeadraceError, headers: dict[str, str] | None = None) -> Response:
    """Return ``error`` as an HTTP answer; ``Retry-After`` in seconds where trying again can help."""
    given = {**(headers or {}), **problem_headers(error)}
    content = msgspec.json.encode(problem_document(error), enc_hook=str)
    return Response(content, error.http_status, given, PROBLEM_TYPE)
