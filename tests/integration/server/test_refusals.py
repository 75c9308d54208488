"""Refusals of a real server, and what they say. That every described one is met is shown by ``test_every_error.py``."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from headrace.errors import by_code
from headrace.log.log import Log
from headrace.server.http.app import HttpFace
from headrace.server.service import Service
from headrace.wire import documents as doc
from tests.identity import Issuer
from tests.integration.server.folders import (
    SMALL_SEGMENTS,
    AheadClock,
    damage_both_headers,
    damage_entry,
    damage_listener,
    drop_all_but_newest,
    skip_damage,
    write_feed,
)
from tests.ports import free_port
from tests.secured import secured
from tests.servers import Feed, ServerProcess, code_of, serving

HOUR_MS = 3_600_000


def _stranger(feed: Feed) -> httpx.Response:
    return feed.post({"changes": {}, "agent-id": "stranger"})


def _duplicate(feed: Feed) -> httpx.Response:
    feed.post({"changes": {}, "sequence-id": 1})
    return feed.post({"changes": {}, "sequence-id": 1})


def _quarantined(feed: Feed) -> httpx.Response:
    _duplicate(feed)
    return feed.post({"changes": {}})


def _fenced(feed: Feed) -> httpx.Response:
    feed.register(instance="newer")
    return feed.post({"changes": {}}, headers={"Headrace-Epoch": "1"})


def _unnamed(feed: Feed) -> httpx.Response:
    feed.server.http.put(f"{feed.path}/settings", json={"expected-offset": "required"})
    return feed.post({"changes": {}})


def _unknown_feed(feed: Feed) -> httpx.Response:
    return Feed(feed.server, "test::unknown").read()


def _sent_elsewhere(feed: Feed) -> httpx.Response:
    feed.register(snapshot_url="https://elsewhere.example/snapshot")
    return feed.server.http.get(f"{feed.path}/snapshot", params={"listener-id": "l"})


BY_REQUEST: dict[str, Callable[[Feed], httpx.Response]] = {
    "beyond-head": lambda feed: feed.poll(after=7),
    "duplicate-entry": _duplicate,
    "expected-offset-required": _unnamed,
    "feed-not-found": _unknown_feed,
    "feed-owned": lambda feed: feed.register("another-agent"),
    "feed-recreated": lambda feed: feed.poll(headers={"Headrace-Incarnation": "another"}),
    "fenced": _fenced,
    "invalid-request": lambda feed: feed.post_raw(b"{"),
    "method-not-allowed": lambda feed: feed.server.http.delete("/feeds"),
    "not-found": lambda feed: feed.server.http.get("/nothing"),
    "no-snapshot": lambda feed: feed.server.http.get(f"{feed.path}/snapshot", params={"listener-id": "l"}),
    "not-registered": _stranger,
    "offset-mismatch": lambda feed: feed.post({"changes": {}, "expected-offset": 7}),
    "quarantined": _quarantined,
    "sequence-gap": lambda feed: feed.post(
        {"changes": {}, "sequence-id": 1}, {"changes": {}, "sequence-id": 3}
    ),
    "snapshot-forbidden": _sent_elsewhere,
    "too-large": lambda feed: feed.post({"changes": {"text": "x" * (1 << 20)}}),
}
"""Codes that a request to a healthy server produces."""


@pytest.mark.parametrize("code", BY_REQUEST)
def test_request_is_refused_with(code: str, feed: Feed) -> None:
    answer = BY_REQUEST[code](feed)
    assert code_of(answer) == code
    assert answer.status_code == by_code(code).http_status


def test_sequence_gap_names_expected_and_received(feed: Feed) -> None:
    feed.post({"changes": {}, "sequence-id": 1})
    problem = feed.post({"changes": {}, "sequence-id": 3}).json()
    assert (problem["expected"], problem["received"], problem["index"]) == (2, 3, 0)
    assert len(feed.entries()) == 1


def test_method_not_allowed_names_the_methods(server: ServerProcess) -> None:
    assert server.http.delete("/feeds/f/entries").headers["Allow"] == "GET, POST"


def test_listener_registration_needs_the_feed(server: ServerProcess) -> None:
    assert code_of(Feed(server, "test::unknown").listener()) == "feed-not-found"


def test_release_of_an_unknown_publisher_is_not_registered(server: ServerProcess) -> None:
    assert code_of(server.http.post("/publishers/nobody/release")) == "not-registered"


async def test_range_below_oldest_is_gone_with_the_bounds(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await write_feed(data_dir, "test::feed", 30, settings=SMALL_SEGMENTS)
    drop_all_but_newest(data_dir)
    with serving(tmp_path, data_dir=data_dir) as server:
        feed = Feed(server, "test::feed")
        feed.listener()
        bounds = server.http.get(feed.path).json()
        oldest, head = bounds["oldest-sequence-id"], bounds["head-sequence-id"]
        assert 1 < oldest < head == 30
        for answer in (
            feed.read(oldest - 1),
            feed.read(1, 1),
            feed.poll(after=oldest - 2),
            feed.poll(after=0),
        ):
            assert (answer.status_code, code_of(answer)) == (410, "sequence-not-available")
            assert (answer.json()["oldest"], answer.json()["head"]) == (oldest, head)
        got = feed.poll(after=oldest - 1).json()["changes-list"]
        assert [entry["changes"]["n"] for entry in got] == list(range(oldest, 31)), (
            "had read all that was dropped"
        )


async def test_damaged_frame_stops_its_readers_and_nobody_else(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await write_feed(data_dir, "test::damaged", 30, settings=SMALL_SEGMENTS)
    await write_feed(data_dir, "test::whole", 2)
    damage_entry(data_dir, b'{"n":3}')
    with serving(tmp_path, data_dir=data_dir) as server:
        answer = Feed(server, "test::damaged").read(3, 3)
        assert (answer.status_code, code_of(answer)) == (500, "journal-corrupt")
        assert len(Feed(server, "test::damaged").entries(4)) == 27
        assert len(Feed(server, "test::whole").entries()) == 2


async def test_what_a_repair_skipped_is_gone_with_its_ends(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await write_feed(data_dir, "test::feed", 30, settings=SMALL_SEGMENTS)
    damage_entry(data_dir, b'{"n":3}')
    skip_damage(data_dir)
    with serving(tmp_path, data_dir=data_dir) as server:
        feed = Feed(server, "test::feed")
        feed.listener()
        for answer in (feed.read(3), feed.poll(after=2)):
            assert (answer.status_code, code_of(answer)) == (410, "sequence-lost")
            assert (answer.json()["lost-first"], answer.json()["lost-last"]) == (3, 3)
        assert len(feed.entries(4)) == 27


async def test_a_listener_whose_row_is_damaged_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await write_feed(data_dir, "test::feed", 3)
    with serving(tmp_path, data_dir=data_dir) as server:
        for name in ("hurt", "well"):
            assert Feed(server, "test::feed").listener(name).status_code == 200
    damage_listener(data_dir, "hurt")
    with serving(tmp_path, data_dir=data_dir) as server:
        feed = Feed(server, "test::feed")
        assert len(feed.poll(listener_id="well").json()["changes-list"]) == 3
        for path in ("poll", "stream"):
            answer = feed.server.http.get(f"{feed.path}/{path}", params={"listener-id": "hurt"})
            assert (answer.status_code, code_of(answer)) == (500, "metadata-corrupt")


async def test_appends_are_refused_until_a_repair_where_a_frame_s_end_is_unknown(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await write_feed(data_dir, "test::feed", 5)
    damage_both_headers(data_dir, b'{"n":4}')
    with serving(tmp_path, data_dir=data_dir) as server:
        feed = Feed(server, "test::feed")
        answer = feed.post({"changes": {}})
        assert (answer.status_code, code_of(answer)) == (503, "writer-stopped")
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.json()["retryable"] is True
        ready = server.http.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["status"] == "not-ready"
        assert "damaged" in ready.json()["reasons"][0]
        assert server.http.get("/healthz").status_code == 200
        assert len(feed.entries(1, 3)) == 3, "readers go on"


async def test_appends_are_refused_while_the_log_s_clock_leads(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await write_feed(data_dir, "test::feed", 1, clock=AheadClock(2 * HOUR_MS))
    with serving(tmp_path, data_dir=data_dir) as server:
        answer = Feed(server, "test::feed").post({"changes": {}})
        assert (answer.status_code, code_of(answer)) == (503, "clock-lead")


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that the test may do anything to."""
    with serving(tmp_path) as server:
        yield server


def test_store_that_cannot_persist_is_503_and_loses_nothing(own_server: ServerProcess) -> None:
    feed = Feed(own_server, "test::feed")
    feed.register()
    feed.post({"changes": {"n": 1}, "expected-offset": 1})
    (segment,) = (own_server.data_dir / "journal").iterdir()
    _, hard = resource.prlimit(own_server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(own_server.pid, resource.RLIMIT_FSIZE, (segment.stat().st_size + 100, hard))
    answer = feed.post({"changes": {"n": 2}, "expected-offset": 2})
    assert (answer.status_code, code_of(answer)) == (503, "store-unavailable")
    assert int(answer.headers["Retry-After"]) >= 1
    assert [entry["changes"] for entry in feed.entries()] == [{"n": 1}]
    resource.prlimit(own_server.pid, resource.RLIMIT_FSIZE, (hard, hard))
    again = feed.post({"changes": {"n": 2}, "expected-offset": 2}).json()
    assert (again["first-sequence-id"], again["duplicate"]) == (2, False)
    own_server.restart()
    assert [entry["changes"] for entry in feed.entries()] == [{"n": 1}, {"n": 2}]


class _BrokenService(Service):
    """A service with a bug in one use case."""

    async def alarms(self) -> doc.AlarmList:
        raise RuntimeError("the secret of a row")


async def test_what_nobody_expected_is_a_500_without_a_traceback(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    try:
        face = HttpFace(_BrokenService(log))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(face), base_url="http://test") as client:
            answer = await client.get("/alarms")
    finally:
        await log.close()
    assert (answer.status_code, code_of(answer)) == (500, "failed")
    assert "secret" not in answer.text


def test_tokens_that_are_not_good_for_it_are_refused(tmp_path: Path) -> None:
    with secured(tmp_path, Issuer()) as server:
        for token, code in (
            (None, "unauthenticated"),
            (server.issuer.token(roles=["listener"]), "forbidden"),
        ):
            with server.client(token) as client:
                answer = client.get("/alarms")
                assert code_of(answer) == code
                assert answer.status_code == by_code(code).http_status


def test_without_the_issuer_s_keys_nobody_gets_in(tmp_path: Path) -> None:
    with serving(tmp_path, args=["--auth-jwks", f"http://127.0.0.1:{free_port()}/jwks.json"]) as server:
        headers = {"Authorization": f"Bearer {Issuer().token()}"}
        answer = server.http.get("/feeds", headers=headers)
        assert (answer.status_code, code_of(answer)) == (503, "keys-unavailable")
        assert answer.headers["Retry-After"]
        assert server.http.get("/healthz").status_code == 200
