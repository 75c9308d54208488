"""Sessions: how long they last, how many there are, and what a cookie says."""

from __future__ import annotations

from headrace.access.grants import EVERYTHING
from headrace.server.console.sessions import Sessions, cookie, session_of


async def test_without_tokens_everybody_has_the_one_session() -> None:
    sessions = Sessions(None)
    first, second = await sessions.find(None), await sessions.find("whatever")
    assert first is second
    assert (first.grant, first.signed_in, sessions.asks) == (EVERYTHING, False, False)
    assert len(first.form_key) >= 43
    assert (await Sessions(None).find(None)).form_key != first.form_key


def test_a_cookie_says_where_it_may_go() -> None:
    plain, encrypted = cookie("abc", lasts_s=60, encrypted=False), cookie("abc", lasts_s=60, encrypted=True)
    assert plain == "headrace-session=abc; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"
    assert encrypted == "__Host-headrace-session=abc; Path=/; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
    assert session_of("a=b; headrace-session=abc", encrypted=False) == "abc"
    assert session_of("a=b; headrace-session=abc", encrypted=True) is None
    assert session_of("", encrypted=False) is None
    assert session_of("a[]=b; =;;", encrypted=False) is None
