"""What a form must say of where it comes from, and forms that are none."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from headrace.errors import Forbidden, InvalidRequest
from headrace.server.console.forgery import FORM_TYPE, check_origin, read_form

HOST = "feeds.example:8470"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": f"https://{HOST}"},
        {"origin": f"http://{HOST.upper()}"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "same-origin", "origin": f"https://{HOST}"},
    ],
    ids=str,
)
def test_our_own_pages_may(headers: dict[str, str]) -> None:
    check_origin(Headers({"host": HOST, **headers}))


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "https://evil.example"},
        {"origin": "https://feeds.example"},
        {"origin": f"https://{HOST}.evil.example"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "cross-site", "origin": f"https://{HOST}"},
        {"sec-fetch-site": "same-origin", "origin": "https://evil.example"},
    ],
    ids=str,
)
def test_others_may_not(headers: dict[str, str]) -> None:
    with pytest.raises(Forbidden):
        check_origin(Headers({"host": HOST, **headers}))


def test_a_form_is_read_as_it_is() -> None:
    assert read_form(f"{FORM_TYPE}; charset=utf-8", b"a=1+2&b=%C3%A4&c=") == {"a": "1 2", "b": "ä", "c": ""}


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("text/plain", b"a=1"),
        ("application/json", b"{}"),
        ("", b"a=1"),
        (FORM_TYPE, b"a=1&a=2"),
        (FORM_TYPE, b"a=%FF"),
        (FORM_TYPE, "ä=1".encode()),
        (FORM_TYPE, b"&".join(b"a%d=1" % number for number in range(11))),
    ],
)
def test_what_is_no_form_is_refused(media_type: str, body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_form(media_type, body)
