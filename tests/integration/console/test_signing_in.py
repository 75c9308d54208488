"""Who may see and do what in the console of a server that asks for tokens, and what other sites can't make a browser do."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.identity import Issuer
from tests.integration.console.browser import Tab, chromium, tab
from tests.secured import SecuredServer, secured
from tests.servers import Feed, changes
from tests.waiting import wait_until

FEED, OTHER = "shop::orders", "billing::invoices"
ADMINS_ONLY = ("/console/alarms", "/console/processes", "/console/backup")
READER = {"sub": "rita", "roles": ["listener"], "feeds": ["shop::*"]}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FORMS = ("/console/publishers/agent-1/release", "/console/processes/agent/agent-1/remove")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A server with two feeds, a publisher of one of them in quarantine."""
    with secured(tmp_path_factory.mktemp("console"), Issuer()) as running:
        for name in (FEED, OTHER):
            feed = Feed(running, name)
            assert feed.register().status_code == 200
            assert feed.post(*({"changes": changes(number)} for number in range(5))).status_code == 200
        quarantine(running)
        yield running
    assert "Traceback" not in running.errors()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests here; each opens a profile of its own."""
    with chromium() as running:
        yield running


def quarantine(server: SecuredServer) -> None:
    answer = Feed(server, FEED).post({"changes": changes(1), "sequence-id": 2})
    assert answer.status_code in {409, 423}, answer.text


def quarantined(server: SecuredServer) -> bool:
    return bool(server.http.get(f"/feeds/{quote(FEED, safe='')}").json()["quarantined"])


def sign_in(shown: Tab, token: str, path: str = "/console") -> Page:
    shown.go(path)
    shown.page.get_by_label("Bearer token").fill(token)
    shown.page.get_by_role("button", name="Sign in").click()
    return shown.page


@contextmanager
def signed_in(server: SecuredServer, token: str) -> Iterator[tuple[httpx.Client, str]]:
    """A client with a session's cookie, as a browser would have it, and the session's form key."""
    with server.client(None) as client:
        given = client.post(
            "/console/sign-in", content=f"token={token}", headers={**FORM, "Origin": server.url}
        )
        assert given.status_code == 303, given.text
        found = re.search(r'name="form-key" value="([^"]+)"', client.get("/console").text)
        assert found is not None
        yield client, found[1]


def test_an_admin_signs_in_sees_all_releases_and_signs_out(server: SecuredServer, browser: Browser) -> None:
    with tab(browser, server.url) as shown:
        page = sign_in(shown, server.issuer.token(), "/console/publishers")
        expect(page.get_by_role("heading", level=1)).to_have_text("Publishers")  # where one wanted to go
        page.get_by_role("button", name="Release agent-1 in every feed").click()
        expect(page.get_by_role("status").filter(has_text="is lifted")).to_be_visible()
        wait_until(lambda: not quarantined(server), what="the quarantine to be lifted")
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)
        assert cookie["value"] not in server.issuer.token()
        assert time.time() < cookie["expires"] <= time.time() + 3600
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Sign in")
        page.go_back()
        page.reload()
        expect(page.get_by_label("Bearer token")).to_be_visible()
    quarantine(server)


def test_a_reader_sees_its_feeds_alone_and_can_press_nothing(server: SecuredServer, browser: Browser) -> None:
    with tab(browser, server.url) as shown:
        page = sign_in(shown, server.issuer.token(**READER))
        expect(page.get_by_role("rowheader")).to_have_text([re.compile(FEED)])
        expect(page.get_by_text(OTHER)).to_have_count(0)
        links = page.get_by_role("navigation").get_by_role("link")
        expect(links).to_have_text(["Feeds", "Publishers", "Consumers", "Trace"])
        links.get_by_text("Publishers").click()
        expect(page.get_by_role("row", name=re.compile("agent-1")).first).to_contain_text(FEED)
        expect(page.get_by_role("button", name=re.compile("Release"))).to_have_count(0)
        shown.go(f"/console/feeds/{quote(FEED, safe='')}")
        expect(page.get_by_text("live", exact=True)).to_be_visible()
        expect(page.locator("#tail tbody tr")).to_have_count(5)
    with signed_in(server, server.issuer.token(**READER)) as (client, key):
        for path in (
            *ADMINS_ONLY,
            f"/console/feeds/{quote(OTHER, safe='')}",
            f"/console/feeds/{OTHER}/tail?after=0",
        ):
            assert client.get(path).status_code == 403, path
        for form in FORMS:
            pressed = client.post(form, content=f"form-key={key}", headers={**FORM, "Origin": server.url})
            assert pressed.status_code == 403, form
    assert quarantined(server)


def test_a_publisher_sees_that_its_feed_is_there_and_none_of_its_entries(server: SecuredServer) -> None:
    with signed_in(server, server.issuer.token(roles=["publisher"], feeds=[FEED])) as (client, _):
        page = client.get(f"/console/feeds/{FEED}")
        assert page.status_code == 200
        assert "does not let you read its entries" in page.text
        assert "object-1" not in page.text
        assert client.get(f"/console/feeds/{FEED}/tail?after=0").status_code == 403
        assert client.get(f"/console/feeds/{FEED}/trace?sequence-id=1").status_code == 403


def test_forms_that_come_from_elsewhere_are_refused(server: SecuredServer) -> None:
    with signed_in(server, server.issuer.token()) as (_, key):
        key_of_another = key
    with signed_in(server, server.issuer.token()) as (client, key):
        refuse_forgeries(server, client, key, key_of_another)


def refuse_forgeries(server: SecuredServer, client: httpx.Client, key: str, key_of_another: str) -> None:
    right = f"form-key={key}"
    forged: list[tuple[dict[str, str], str]] = [
        ({"Origin": "https://evil.example"}, right),
        ({"Origin": "null"}, right),
        ({"Sec-Fetch-Site": "cross-site"}, right),
        ({"Sec-Fetch-Site": "same-site"}, right),
        ({"Sec-Fetch-Site": "none"}, right),
        ({"Origin": server.url, "Sec-Fetch-Site": "cross-site"}, right),
        ({}, right),
        ({"Origin": server.url}, ""),
        ({"Origin": server.url}, "form-key=guessed"),
        ({"Origin": server.url}, f"form-key={key_of_another}"),
    ]
    plain = {"Origin": server.url, "Content-Type": "text/plain"}
    for form in FORMS:
        for headers, body in forged:
            answer = client.post(form, content=body, headers={**FORM, **headers})
            assert answer.status_code == 403, (form, headers, body)
        assert client.post(form, content=right, headers=plain).status_code == 400
        assert client.get(form).status_code == 405
    assert quarantined(server)


def test_a_page_of_another_site_can_press_nothing(server: SecuredServer, browser: Browser) -> None:
    with tab(browser, server.url) as shown:
        page = sign_in(shown, server.issuer.token())
        expect(page.get_by_role("heading", level=1)).to_have_text("Feeds")
        elsewhere = server.url.replace("127.0.0.1", "localhost")  # another site to a browser
        target = f"{server.url}/console/publishers/agent-1/release"
        page.route(
            f"{elsewhere}/evil",
            lambda route: route.fulfill(
                content_type="text/html",
                body=f'<form method=post action="{target}"><button>Win a prize</button></form>',
            ),
        )
        page.goto(f"{elsewhere}/evil")
        page.get_by_role("button").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("The token does not allow this")
        assert quarantined(server)
        shown.amiss = [one for one in shown.amiss if elsewhere not in one and "403" not in one]


def test_a_link_from_another_site_finds_the_session(server: SecuredServer, browser: Browser) -> None:
    with tab(browser, server.url) as shown:
        page = sign_in(shown, server.issuer.token())
        expect(page.get_by_role("heading", level=1)).to_have_text("Feeds")
        elsewhere = server.url.replace("127.0.0.1", "localhost")
        page.route(
            f"{elsewhere}/dashboard",
            lambda route: route.fulfill(
                content_type="text/html", body=f'<a href="{server.url}/console/alarms">An alarm</a>'
            ),
        )
        page.goto(f"{elsewhere}/dashboard")
        page.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Alarms")
        shown.amiss = [one for one in shown.amiss if elsewhere not in one]


def test_a_token_that_is_not_taken_begins_no_session(server: SecuredServer, browser: Browser) -> None:
    with tab(browser, server.url) as shown:
        for token, said in (
            ("nonsense", "What was given is no JWT"),
            (server.issuer.token(exp=int(time.time()) - 5), "The token has expired"),
            (Issuer().token(), "The token's key is not among the issuer's keys"),
            (server.issuer.token(roles=["painter"]), "This token names no role"),
        ):
            page = sign_in(shown, token)
            expect(page.get_by_role("alert")).to_contain_text(said)
            assert page.context.cookies() == []
            assert token not in page.content()
        shown.amiss = [one for one in shown.amiss if not re.search("40[13]", one)]


def test_a_session_ends_with_its_token(server: SecuredServer) -> None:
    with signed_in(server, server.issuer.token(exp=int(time.time()) + 3)) as (client, _):
        wait_until(lambda: client.get("/console").status_code == 303, what="the session to end")
        led = client.get("/console/alarms")
        assert led.headers["location"] == "/console/sign-in?to=%2Fconsole%2Falarms"
        assert client.get(f"/console/feeds/{FEED}/tail?after=0").status_code == 401


def test_the_tail_ends_with_the_token(server: SecuredServer) -> None:
    with (
        signed_in(server, server.issuer.token(exp=int(time.time()) + 4)) as (client, _),
        client.stream("GET", f"/console/feeds/{FEED}/tail?after=5") as answer,
    ):
        text = "".join(answer.iter_text())
    assert "event: error" in text
    assert "the token has expired" in text


def test_signing_out_ends_the_tail_of_the_same_session(server: SecuredServer) -> None:
    """Nothing that is appended afterwards is sent to it."""
    with (
        signed_in(server, server.issuer.token()) as (client, key),
        client.stream("GET", f"/console/feeds/{OTHER}/tail?after=5") as answer,
    ):
        pieces = answer.iter_text()
        text = next(pieces)
        assert "event: feed" in text
        assert sign_out(server, client, key) == 303
        billing = Feed(server, OTHER)
        assert billing.post({"changes": {"uuid": "after-sign-out"}}).status_code == 200
        text += "".join(pieces)
    assert "event: error" in text
    assert "nobody is signed in here" in text
    assert "after-sign-out" not in text


def test_a_tail_to_which_nothing_is_appended_ends_with_its_session_too(server: SecuredServer) -> None:
    """It is looked for at every comment."""
    with (
        signed_in(server, server.issuer.token()) as (client, key),
        client.stream("GET", f"/console/feeds/{FEED}/tail?after=5") as answer,
    ):
        pieces = answer.iter_text()
        assert "event: feed" in next(pieces)
        assert sign_out(server, client, key) == 303
        assert "nobody is signed in here" in "".join(pieces)


def sign_out(server: SecuredServer, client: httpx.Client, key: str) -> int:
    headers = {**FORM, "Origin": server.url}
    return client.post("/console/sign-out", content=f"form-key={key}", headers=headers).status_code


def test_pages_and_refusals_are_counted_and_forms_stand_in_the_log(server: SecuredServer) -> None:
    token = server.issuer.token(sub="olga")
    with signed_in(server, token) as (client, key):
        assert client.get("/console/alarms").status_code == 200
        assert client.get("/console/no-such-page").status_code == 404
        headers = {**FORM, "Origin": server.url}
        refused = client.post("/console/sign-in", content="token=nonsense", headers=headers)
        assert refused.status_code == 401
        address = "/console/publishers/agent-1/release"
        assert client.post(address, content="form-key=guessed", headers=headers).status_code == 403
        forged = client.post(
            address, content=f"form-key={key}", headers={**FORM, "Origin": "https://evil.example"}
        )
        assert forged.status_code == 403
        assert client.post(address, content=f"form-key={key}", headers=headers).status_code == 303
    quarantine(server)
    assert server.http.post("/publishers/agent-1/release").status_code == 200
    quarantine(server)

    counted = server.http.get("/metrics").text
    for labels in (
        'method="GET",route="/console/alarms",status="200"',
        'method="GET",route="other",status="404"',
        'method="POST",route="/console/sign-in",status="401"',
        'method="POST",route="/console/publishers/{agent-id}/release",status="403"',
        'method="POST",route="/console/publishers/{agent-id}/release",status="303"',
    ):
        assert f"headrace_http_requests_total{{{labels}}}" in counted, labels
    assert re.search(r'headrace_refusals_total\{[^}]*"unauthenticated"[^}]*\}', counted)

    logged = [json.loads(line) for line in server.errors().splitlines() if line.startswith("{")]
    assert any(one["event"] == "somebody signed in" and one["subject"] == "olga" for one in logged)
    assert ("unauthenticated", "127.0.0.1") in [
        (one["code"], one["peer"]) for one in logged if one["event"] == "a sign-in was refused"
    ]
    forms = [
        (one["route"], one["subject"], one["detail"])
        for one in logged
        if one["event"] == "a form was refused"
    ]
    release_route = "/console/publishers/{agent-id}/release"
    assert (release_route, "olga", "the form is of another session") in forms
    assert (release_route, "", "the form was not sent from a page of this console") in forms
    releases = [
        (one["agent_id"], one["feeds"], one["subject"])
        for one in logged
        if one["event"] == "a quarantine is released"
    ]
    assert {("agent-1", (FEED,), "olga"), ("agent-1", (FEED,), "ann")} <= {  # ann: over HTTP
        (agent, tuple(feeds), who) for agent, feeds, who in releases
    }
    assert token not in server.errors()


def test_signing_in_leads_nowhere_else(server: SecuredServer) -> None:
    token = server.issuer.token()
    for to in (
        "https://evil.example",
        "//evil.example",
        "/console\\evil",
        "/consoles",
        "javascript:alert(1)",
        "/metrics",
    ):
        with server.client(None) as client:
            answer = client.post(
                "/console/sign-in",
                content=f"token={token}&to={quote(to, safe='')}",
                headers={**FORM, "Origin": server.url},
            )
        assert (answer.status_code, answer.headers["location"]) == (303, "/console")


def test_over_tls_the_cookie_is_for_tls_alone(tmp_path_factory: pytest.TempPathFactory) -> None:
    with secured(tmp_path_factory.mktemp("tls"), Issuer(), tls=True) as server, server.client(None) as client:
        answer = client.post(
            "/console/sign-in",
            content=f"token={server.issuer.token()}",
            headers={**FORM, "Origin": server.url},
        )
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-headrace-session=")
        assert {"Secure", "HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        assert client.get("/console").status_code == 200
