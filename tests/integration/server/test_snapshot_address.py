"""Where a publisher serves its snapshots: who is sent there, with what ticket, and to which addresses, on each store."""

from __future__ import annotations

import sqlite3
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from headrace.access import tickets
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until

URL = "http://127.0.0.1:8480/snapshot"


def ask(feed: Feed, **given: Any) -> httpx.Response:
    """Ask where the snapshot is."""
    params = {"listener-id": "listener-1", **{name.replace("_", "-"): value for name, value in given.items()}}
    return feed.server.http.get(f"{feed.path}/snapshot", params=params)


def key_of(answer: httpx.Response) -> bytes:
    """The ticket key of a registration."""
    assert answer.status_code == 200, answer.text
    text = answer.json()["snapshot-ticket-key"]
    key = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    assert len(key) == 32
    return key


def claims_of(answer: httpx.Response, key: bytes) -> dict[str, Any]:
    """What the ticket of a redirect says."""
    assert answer.status_code == 307, answer.text
    query = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    return tickets.verify(query["ticket"], key, now=0)


def test_listener_is_sent_to_the_publisher_with_a_ticket_for_this_snapshot(feed: Feed) -> None:
    assert code_of(ask(feed)) == "no-snapshot"
    key = key_of(feed.register(instance="i1", snapshot_url=URL))
    answer = ask(feed, at_least=7, snapshot_id="s1")
    claims = claims_of(answer, key)
    assert claims.pop("exp") == claims.pop("iat") + 3600
    assert claims == {
        "iss": "headrace",
        "feed": feed.name,
        "listener": "listener-1",
        "at-least": 7,
        "snapshot-id": "s1",
        "url": URL,
    }
    address = answer.headers["location"]
    assert address.startswith(f"{URL}?")
    query = dict(parse_qsl(urlsplit(address).query))
    assert query.pop("ticket")
    assert query == {
        "change-feed-id": feed.name,
        "listener-id": "listener-1",
        "at-least": "7",
        "snapshot-id": "s1",
    }
    assert answer.headers["cache-control"] == "no-store"
    assert answer.content == b""
    assert "at-least" not in claims_of(ask(feed), key)


def test_key_is_that_of_the_instance_and_ends_with_it(feed: Feed) -> None:
    first = key_of(feed.register(instance="i1", snapshot_url=URL))
    assert key_of(feed.register(instance="i1", snapshot_url=URL)) == first
    assert key_of(feed.register(instance="i1", snapshot_url=URL.replace("8480", "8481"))) == first
    second = key_of(feed.register(instance="i2", snapshot_url=URL))
    assert second != first
    taken = key_of(feed.register("agent-2", takeover=True, snapshot_url=URL))
    assert taken not in {first, second}
    claims_of(ask(feed), taken)
    assert "snapshot-ticket-key" not in feed.register("agent-3", takeover=True).json()
    assert code_of(ask(feed)) == "no-snapshot", "the new owner offers none"
    again = key_of(feed.register("agent-3", snapshot_url=URL))
    claims_of(ask(feed), again)
    feed.register("agent-3")
    assert code_of(ask(feed)) == "no-snapshot", "it said so last"


def test_key_survives_a_restart_and_is_told_to_nobody_else(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        feed = Feed(server, "vm::a")
        answer = feed.register(instance="i1", snapshot_url=URL)
        key, text = key_of(answer), answer.json()["snapshot-ticket-key"]
        server.restart()
        claims_of(ask(feed), key)
        assert key_of(feed.register(instance="i1", snapshot_url=URL)) == key
        for path in (
            "/feeds",
            feed.path,
            "/retention",
            "/alarms",
            "/metrics",
            f"{feed.path}/tail",
            "/openapi.json",
        ):
            assert text not in server.http.get(path).text
        assert code_of(feed.register("agent-2")) == "feed-owned"
        server.stop()
        assert text not in server.errors()
        with sqlite3.connect(server.data_dir / "metadata.sqlite3") as database:
            assert database.execute("SELECT ticket_key FROM snapshot").fetchall() == [(text,)]


@pytest.mark.parametrize(
    ("url", "allow", "sent"),
    [
        ("http://localhost:1/snapshot", [], True),
        ("https://[::1]:1/snapshot", [], True),
        ("http://db.example/snapshot", [], False),
        ("http://127.0.0.1.example/snapshot", [], False),
        ("https://db.example:8480/snapshot", ["https://db.example:8480"], True),
        ("https://DB.example:443/snapshot", ["https://other", "https://db.example/"], True),
        ("http://db.example:8480/snapshot", ["https://db.example:8480"], False),
        ("https://db.example:8481/snapshot", ["https://db.example:8480"], False),
        ("https://db.example.evil:8480/snapshot", ["https://db.example:8480"], False),
        (URL, ["https://db.example:8480"], False),
    ],
)
def test_listeners_are_sent_to_allowed_origins_only(
    tmp_path: Path, url: str, allow: list[str], *, sent: bool
) -> None:
    with serving(tmp_path, args=[word for one in allow for word in ("--snapshot-allow", one)]) as server:
        feed = Feed(server, "vm::a")
        key_of(feed.register(snapshot_url=url))
        answer = ask(feed)
        if sent:
            assert answer.status_code == 307
            assert answer.headers["location"].startswith(f"{url}?")
        else:
            assert code_of(answer) == "snapshot-forbidden"
            assert answer.status_code == 403


@pytest.mark.parametrize(("host", "sent"), [("127.0.0.1", True), ("[::1]", True), ("0.0.0.0", False)])
def test_listeners_are_sent_to_their_own_machine_by_a_server_that_is_on_it_alone(
    tmp_path: Path, host: str, *, sent: bool
) -> None:
    """Without an allow-list: a listener elsewhere would be sent to whatever listens at its own loopback address."""
    server = ServerProcess(tmp_path, args=["--insecure"])
    server.address = f"{host}:0"
    try:
        server.start()
        feed = Feed(server, "vm::a")
        key_of(feed.register(snapshot_url=URL))
        assert (ask(feed).status_code, sent) in {(307, True), (403, False)}
    finally:
        server.kill()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/snapshot",
        "ftp://h/snapshot",
        "http://",
        "http://h:x/snapshot",
        "http://h:70000/snapshot",
        "http://user@h/snapshot",
        "http://h/snapshot?a=b",
        "http://h/snapshot#a",
        "http://h/a b",
        "http://h/a\r\nSet-Cookie: x",
        "http://h\\@evil/snapshot",
        "javascript:alert(1)",
        "http://" + "a" * 1000 + "/snapshot",
        "http://127.0.0.1:8080",
        "http://127.0.0.1:8080/admin/delete",
        "http://h/snapshot/",
        "http://h//snapshot",
        "http://h/Snapshot",
        "http://é/snapshot",
        7,
    ],
)
def test_what_is_no_address_is_refused_and_nothing_is_claimed(feed: Feed, url: Any) -> None:
    fresh = Feed(feed.server, f"{feed.name}-fresh")
    answer = fresh.register(snapshot_url=url)
    assert answer.status_code == 400, answer.text
    assert code_of(answer) == "invalid-request"
    assert code_of(feed.server.http.get(fresh.path)) == "feed-not-found"


def test_shared_feed_has_no_snapshot(feed: Feed) -> None:
    shared = Feed(feed.server, f"{feed.name}-shared")
    assert code_of(shared.register(shared=True, snapshot_url=URL)) == "invalid-request"
    assert shared.register(shared=True).status_code == 200
    assert code_of(ask(shared)) == "no-snapshot"


@pytest.mark.parametrize(
    "query", ["", "listener-id=", "listener-id=a%20b", "listener-id=l&at-least=x", "listener-id=l&x=1"]
)
def test_malformed_asks_are_refused(feed: Feed, query: str) -> None:
    answer = feed.server.http.get(f"{feed.path}/snapshot?{query}")
    assert answer.status_code == 400
    assert code_of(answer) == "invalid-request"


def test_unknown_feed(feed: Feed) -> None:
    assert code_of(ask(Feed(feed.server, "no::feed"))) == "feed-not-found"


def test_who_falls_out_of_the_retention_is_told_where_the_snapshot_is(tmp_path: Path) -> None:
    args = ["--retention", "1s", "--retention-every", "100ms", "--segment-size", "4k"]
    with serving(tmp_path, args=args) as server:
        feed = Feed(server, "vm::a")
        feed.register(snapshot_url=URL)
        feed.listener()

        def dropped() -> bool:
            for number in range(6):
                feed.post({"changes": changes(number)})
            return bool(server.http.get(feed.path).json()["oldest-sequence-id"] > 1)

        wait_until(dropped, what="entries to go")
        for answer in (feed.read(1), feed.poll(0)):
            assert code_of(answer) == "sequence-not-available"
            assert answer.json()["snapshot"] == "/feeds/vm%3A%3Aa/snapshot"
        feed.register()
        assert "snapshot" not in feed.read(1).json()
