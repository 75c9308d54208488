"""The Authorization header: one bearer token, or a refusal that says nothing of it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.access.bearer import challenge_of, token_of
from headrace.errors import FeedNotFound, Forbidden, Unauthenticated


@pytest.mark.parametrize("header", ["Bearer a.b.c", "bearer a.b.c", "BEARER   a.b.c", "Bearer a.b.c  "])
def test_token_is_found(header: str) -> None:
    assert token_of([header]) == "a.b.c"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Bearer a", "Bearer a"],
        [""],
        ["Bearer"],
        ["Bearer "],
        ["Bearera"],
        ["Basic YTpi"],
        ["Bearer a b"],
        ["Bearer a,Bearer b"],
        ["Bearer\ta"],
        ["Bearer a\nb"],
        ["Bearer ä"],
    ],
    ids=str,
)
def test_other_headers_are_refused(headers: list[str]) -> None:
    with pytest.raises(Unauthenticated):
        token_of(headers)


@given(st.lists(st.text(), max_size=3))
def test_any_header_is_read_or_refused(headers: list[str]) -> None:
    with suppress(Unauthenticated):
        assert token_of(headers) in headers[0]


def test_challenges() -> None:
    assert challenge_of(Unauthenticated(), asked=False) == 'Bearer realm="headrace"'
    assert challenge_of(Unauthenticated()) == 'Bearer realm="headrace", error="invalid_token"'
    assert challenge_of(Forbidden()) == 'Bearer realm="headrace", error="insufficient_scope"'
    assert challenge_of(FeedNotFound()) is None
