"""Reading from a real server: ranges, long polls, bounds, bookmarks, stored frames, positions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise

import httpx
import psycopg
import pytest

from headrace.client.tls import NO_TLS
from headrace.wire.documents import FRAMES_TYPE
from headrace.wire.entry import decode_entry
from headrace.wire.frame import frames_of
from tests.scale import sized
from tests.servers import Feed, ServerProcess, changes, code_of


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[httpx.AsyncClient]:
    """A client that opens as many connections as it is asked for."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(
        base_url=server.url, limits=limits, timeout=70, trust_env=False, verify=NO_TLS
    ) as made:
        yield made


def test_range_is_inclusive_and_cut_at_the_head(feed: Feed) -> None:
    feed.post(*({"changes": changes(number)} for number in range(1, 6)))
    assert _ids(feed.entries(2, 4)) == [2, 3, 4]
    assert _ids(feed.entries(4)) == [4, 5]
    assert _ids(feed.entries(4, 99)) == [4, 5]
    assert feed.entries(6) == []
    assert feed.entries(3, 2) == []


def test_answers_carry_incarnation_and_bounds(feed: Feed) -> None:
    incarnation = feed.register().json()["incarnation"]
    feed.post({"changes": {}})
    for answer in (feed.read(), feed.poll(), feed.read(2)):
        document = answer.json()
        assert document["incarnation"] == incarnation
        assert (document["head-sequence-id"], document["oldest-sequence-id"]) == (1, 1)


def test_lsn_grows_and_committed_at_is_its_time(feed: Feed) -> None:
    for number in range(5):
        feed.post({"changes": changes(number)}, {"changes": changes(number)})
    entries = feed.entries()
    assert all(one["lsn"] < other["lsn"] for one, other in pairwise(entries))
    assert entries == sorted(entries, key=lambda entry: entry["committed-at"])


def test_limit_cuts_behind_a_whole_transaction_where_it_can(feed: Feed) -> None:
    for tx, size in (("a", 3), ("b", 3), ("c", 7)):
        feed.post(
            *(
                {"changes": {}, "tx": tx, "tx-index": index, "tx-last": index == size - 1}
                for index in range(size)
            )
        )
    assert _ids(feed.entries(1, limit=5)) == [1, 2, 3]
    assert _ids(feed.entries(1, limit=6)) == [1, 2, 3, 4, 5, 6]
    assert _ids(feed.entries(7, limit=4)) == [7, 8, 9, 10], "larger than the limit: it must be cut"
    assert _ids(feed.poll(after=3, limit=4).json()["changes-list"]) == [4, 5, 6]


def test_reading_page_by_page_sees_every_entry_once(feed: Feed) -> None:
    for number in range(20):
        feed.post(*({"changes": changes(number)} for _ in range(number % 4 + 1)))
    head = feed.server.http.get(feed.path).json()["head-sequence-id"]
    seen: list[int] = []
    while not seen or seen[-1] < head:
        seen += _ids(feed.entries(len(seen) + 1, limit=3))
    assert seen == list(range(1, head + 1))


def test_answer_is_bounded_in_bytes(feed: Feed) -> None:
    for number in range(12):
        feed.post({"changes": {"n": number, "text": "x" * 1_000_000}})
    answer = feed.read()
    assert len(answer.content) < 8 << 20
    assert len(answer.json()["changes-list"]) == 8


def test_poll_answers_at_once_when_there_is_something(feed: Feed) -> None:
    feed.post({"changes": {}}, {"changes": {}})
    started = time.monotonic()
    answer = feed.poll(after=1, timeout_ms=60_000)
    assert _ids(answer.json()["changes-list"]) == [2]
    assert time.monotonic() - started < 30


async def test_poll_waits_and_is_woken_by_an_append(feed: Feed, client: httpx.AsyncClient) -> None:
    params = {"listener-id": "listener-1", "after-sequence-id": "0", "timeout-ms": "60000"}
    poll = asyncio.create_task(client.get(f"{feed.path}/poll", params=params))
    await _other_traffic(client)
    assert not poll.done()
    await asyncio.to_thread(feed.post, {"changes": changes(1)})
    assert _ids((await poll).json()["changes-list"]) == [1]


def test_poll_ends_empty_at_its_time_out(feed: Feed) -> None:
    started = time.monotonic()
    answer = feed.poll(timeout_ms=300)
    assert answer.json()["changes-list"] == []
    assert time.monotonic() - started >= 0.3


async def test_hundreds_of_polls_wait_and_are_all_answered(feed: Feed, client: httpx.AsyncClient) -> None:
    params = {"listener-id": "listener-1", "after-sequence-id": "0", "timeout-ms": "60000"}
    polls = [
        asyncio.create_task(client.get(f"{feed.path}/poll", params=params))
        for _ in range(sized(150, soak=300))
    ]
    await _other_traffic(client)
    await asyncio.to_thread(feed.post, {"changes": changes(1)})
    answers = await asyncio.gather(*polls)
    assert all(_ids(answer.json()["changes-list"]) == [1] for answer in answers)


def test_another_incarnation_is_feed_recreated(feed: Feed) -> None:
    feed.post({"changes": {}})
    for answer in (
        feed.read(1, headers={"Headrace-Incarnation": "another"}),
        feed.poll(headers={"Headrace-Incarnation": "another"}),
    ):
        assert (answer.status_code, code_of(answer)) == (409, "feed-recreated")
        assert answer.json()["incarnation"] == feed.register().json()["incarnation"]


def test_another_lsn_at_the_named_place_is_feed_recreated(feed: Feed) -> None:
    feed.post({"changes": {}})
    feed.post({"changes": {}})
    lsns = [entry["lsn"] for entry in feed.entries()]
    assert feed.poll(after=1, headers={"Headrace-Lsn": lsns[0]}).status_code == 200
    assert feed.poll(after=2, headers={"Headrace-Lsn": lsns[1]}).status_code == 200
    assert feed.read(2, headers={"Headrace-Lsn": lsns[0]}).status_code == 200
    assert feed.poll(after=0, headers={"Headrace-Lsn": "0.0.0"}).status_code == 200
    for answer in (
        feed.poll(after=1, headers={"Headrace-Lsn": lsns[1]}),
        feed.poll(after=2, headers={"Headrace-Lsn": lsns[0]}),
        feed.poll(after=0, headers={"Headrace-Lsn": lsns[0]}),
        feed.read(2, headers={"Headrace-Lsn": lsns[1]}),
    ):
        assert code_of(answer) == "feed-recreated"


def test_place_above_the_head_is_beyond_head(feed: Feed) -> None:
    feed.post({"changes": {}})
    for answer in (feed.poll(after=2), feed.read(3)):
        assert (answer.status_code, code_of(answer)) == (409, "beyond-head")
        assert (answer.json()["head"], answer.json()["oldest"]) == (1, 1)
    assert feed.poll(after=1).status_code == feed.read(2).status_code == 200


def test_stored_frames_are_the_journal_s_bytes_and_decode_to_the_same_entries(feed: Feed) -> None:
    feed.post(*({"changes": changes(number)} for number in (1, 2, 3)))
    feed.post({"changes": changes(4), "op": "delete"})
    answer = feed.read(2, headers={"Accept": FRAMES_TYPE})
    assert answer.headers["content-type"] == FRAMES_TYPE
    assert answer.headers["Headrace-Incarnation"] == feed.read().json()["incarnation"]
    assert (answer.headers["Headrace-Head-Sequence-Id"], answer.headers["Headrace-Oldest-Sequence-Id"]) == (
        "4",
        "1",
    )
    frames = list(frames_of(answer.content))
    assert [(frame.header.first_sequence_id, frame.header.count) for frame in frames] == [(1, 3), (4, 1)]
    decoded = [
        decode_entry(stored, frame.header.first_sequence_id + index)
        for frame in frames
        for index, stored in enumerate(frame.entries())
    ]
    assert [(entry.sequence_id, str(entry.lsn), entry.change.op.value) for entry in decoded] == [
        (entry["sequence-id"], entry["lsn"], entry["op"]) for entry in feed.entries()
    ]
    assert answer.content in _journal(feed.server)


def test_stored_frames_obey_a_limit_given(feed: Feed) -> None:
    for number in range(6):
        feed.post({"changes": changes(number)}, {"changes": changes(number)})
    frames = list(frames_of(feed.read(1, limit=3, headers={"Accept": FRAMES_TYPE}).content))
    assert [frame.header.first_sequence_id for frame in frames] == [1, 3]
    assert len(list(frames_of(feed.read(1, headers={"Accept": FRAMES_TYPE}).content))) == 6


def test_unregistered_listener_may_not_poll(feed: Feed) -> None:
    answer = feed.poll(listener_id="nobody")
    assert (answer.status_code, code_of(answer)) == (409, "not-registered")


def test_position_is_kept_and_shows_as_lag(feed: Feed) -> None:
    feed.post({"changes": {}})
    feed.post({"changes": {}})
    first, second = feed.entries()
    incarnation = feed.read().json()["incarnation"]
    place = {"incarnation": incarnation, "sequence-id": 1, "lsn": first["lsn"]}
    answer = feed.server.http.put(f"/listeners/listener-1{feed.path}/position", json=place)
    assert answer.json() == {"listener-id": "listener-1", "change-feed-id": feed.name, **place}
    (listener,) = feed.server.http.get(feed.path).json()["listeners"]
    assert (listener["sequence-id"], listener["lag-entries"]) == (1, 1)
    assert listener["lag-seconds"] >= 0
    assert feed.listener().json()["position"] == 1
    wrong = feed.server.http.put(
        f"/listeners/listener-1{feed.path}/position", json={**place, "lsn": second["lsn"]}
    )
    assert code_of(wrong) == "feed-recreated"
    beyond = feed.server.http.put(
        f"/listeners/listener-1{feed.path}/position", json={**place, "sequence-id": 9}
    )
    assert code_of(beyond) == "beyond-head"
    stranger = feed.server.http.put(f"/listeners/nobody{feed.path}/position", json=place)
    assert code_of(stranger) == "not-registered"


def test_listener_names_may_hold_a_slash(feed: Feed) -> None:
    feed.listener("region/host:1")
    incarnation = feed.read().json()["incarnation"]
    path = f"/listeners/region%2Fhost%3A1{feed.path}/position"
    answer = feed.server.http.put(path, json={"incarnation": incarnation, "sequence-id": 0})
    assert answer.json()["listener-id"] == "region/host:1"


def test_feeds_are_listed_with_their_bounds(feed: Feed) -> None:
    feed.post({"changes": {}})
    feeds = feed.server.http.get("/feeds").json()["feeds"]
    (own,) = [view for view in feeds if view["change-feed-id"] == feed.name]
    assert own == feed.server.http.get(feed.path).json()
    assert (own["owner"], own["epoch"], own["tenant-id"]) == (feed.agent, 1, "default")


def test_health_and_readiness(server: ServerProcess) -> None:
    for path in ("/healthz", "/readyz"):
        answer = server.http.get(path)
        assert answer.status_code == 200
        assert answer.json()["status"] == "ok"


def _ids(entries: list[dict[str, int]]) -> list[int]:
    return [entry["sequence-id"] for entry in entries]


async def _other_traffic(client: httpx.AsyncClient) -> None:
    """A few round trips, in which what was sent before has reached the server."""
    for _ in range(20):
        assert (await client.get("/healthz")).status_code == 200


def _journal(server: ServerProcess) -> bytes:
    if "--store" in server.args:
        with psycopg.connect(server.args[server.args.index("--store") + 1]) as database:
            rows = database.execute("SELECT data FROM headrace_log.frame ORDER BY position", binary=True)
            return b"".join(row[0] for row in rows)
    return b"".join(path.read_bytes() for path in sorted((server.data_dir / "journal").iterdir()))
