"""What another site may make a browser send here is refused: forms count only from our own pages (OWASP, CSRF prevention).

Three things must be right: the browser says that the form was on a page of this origin, the form has its session's key, and
the cookie is ``SameSite=Strict``. A server that asks for no tokens answers only to names of this machine
(:class:`~headrace.access.connection.Connection`), so that no other name can be made to lead here.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers

from headrace.errors import Forbidden, InvalidRequest
from headrace.server.console.drawing import session_of_scope
from headrace.server.console.sessions import Session
from headrace.server.http.table import Call

FORM_TYPE: Final = "application/x-www-form-urlencoded"
FORM_BYTES_MAX: Final = 16 << 10
"""Largest form: a token of 8 KiB is the longest thing in one."""
FORM_KEY: Final = "form-key"
"""The field that holds the session's key."""

_FIELDS_MAX: Final = 10


def check_origin(headers: Headers) -> None:
    """Raise Forbidden unless the browser says that a page of this very server sends the form.

    Every browser that is still looked after says so, in one header or in both.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    same = [] if site is None else [site == "same-origin"]
    if origin is not None:
        # The scheme is not compared: a proxy in front may end TLS.
        same.append(urlsplit(origin).netloc.lower() == headers.get("host", "").lower())
    if not same or not all(same):
        raise Forbidden(
            "the form was not sent from a page of this console",
            hint="Open the page again here, and press there.",
        )


def read_form(content_type: str, body: bytes) -> Mapping[str, str]:
    """Return a form's fields; InvalidRequest for what is no form, or names a field twice."""
    if content_type.partition(";")[0].strip().lower() != FORM_TYPE:
        raise InvalidRequest(f"a form is {FORM_TYPE}")
    try:
        fields = parse_qs(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS_MAX
        )
    except ValueError:
        raise InvalidRequest("the form can't be read") from None
    if any(len(values) > 1 for values in fields.values()):
        raise InvalidRequest("a field of the form is there twice")
    return {name: values[0] for name, values in fields.items()}


def check_form_key(session: Session, fields: Mapping[str, str]) -> None:
    """Raise Forbidden unless the form has the key of the session that sends it."""
    given = fields.get(FORM_KEY, "")
    if not hmac.compare_digest(given.encode(), session.form_key.encode()):
        raise Forbidden("the form is of another session", hint="Open the page again, and press there.")


async def check_pressed(call: Call) -> None:
    """Raise Forbidden unless the button was pressed on a page that this session was shown; InvalidRequest for no form."""
    body = await call.bodies.read(call.request, FORM_BYTES_MAX)
    fields = read_form(call.request.headers.get("content-type", ""), body)
    check_form_key(session_of_scope(call.request), fields)
