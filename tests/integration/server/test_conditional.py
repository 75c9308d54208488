"""Conditional appends over HTTP: shared feeds, a feed's settings, races at the tail, and the tail after retention."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.client.http import FeedClient
from headrace.client.producer import Producer
from headrace.errors import Fenced, OffsetMismatch
from tests import forks
from tests.integration.server.folders import SMALL_SEGMENTS, drop_all_but_newest, write_feed
from tests.scale import scaled, sized
from tests.servers import Feed, ServerProcess, code_of, serving


@pytest.fixture
def shared(server: ServerProcess, request: pytest.FixtureRequest) -> Feed:
    """A shared feed with the producers agent-1 and agent-2."""
    made = Feed(server, f"test::{request.node.originalname}")
    for agent in ("agent-1", "agent-2"):
        assert made.register(agent, shared=True).status_code == 200
    return made


def put_settings(feed: Feed, **members: str) -> Any:
    answer = feed.server.http.put(f"{feed.path}/settings", json=members)
    assert answer.status_code == 200, answer.text
    return answer.json()


def tail_of(feed: Feed, producer: str = "agent-1") -> Any:
    answer = feed.server.http.get(f"{feed.path}/tail", params={"producer": producer})
    assert answer.status_code == 200, answer.text
    return answer.json()


# -- shared feeds -----------------------------------------------------------------------------------------------------


def test_shared_feed_is_registered_beside_others(shared: Feed) -> None:
    answer = shared.register("agent-3", shared=True, instance="one").json()
    assert (answer["epoch"], answer["shared"], answer["next-sequence-id"]) == (1, True, 1)
    assert shared.register("agent-3", shared=True, instance="two").json()["epoch"] == 2
    assert tail_of(shared, "agent-3")["producer-epoch"] == 2
    assert tail_of(shared, "agent-1")["producer-epoch"] == 1
    view = shared.server.http.get(shared.path).json()
    assert (view["shared"], view["owner"], view["epoch"]) == (True, "", 0)
    late = shared.post({"changes": {}, "agent-id": "agent-3"}, headers={"Headrace-Epoch": "1"})
    assert (code_of(late), late.json()["epoch"]) == ("fenced", 2)


def test_feed_stays_what_it_was_made_as(shared: Feed, feed: Feed) -> None:
    for answer in (shared.register("agent-1"), feed.register("agent-1", shared=True)):
        assert (answer.status_code, code_of(answer)) == (400, "invalid-request")
        assert answer.json()["member"] == "shared"
    both = shared.register("agent-1", shared=True, takeover=True)
    assert (both.status_code, both.json()["member"]) == (400, "takeover")


def test_sequence_id_is_no_place_in_a_shared_feed(shared: Feed) -> None:
    answer = shared.post({"changes": {}, "expected-offset": 1}, {"changes": {}, "sequence-id": 2})
    assert (answer.status_code, answer.json()["member"], answer.json()["index"]) == (400, "sequence-id", 1)
    assert tail_of(shared)["next-sequence-id"] == 1


def test_refusal_tells_what_may_be_thought_of_it(shared: Feed) -> None:
    shared.post({"changes": {"n": 1}}, {"changes": {"n": 2}})
    entries = [
        {"changes": {"n": number}, "agent-id": "agent-2", "expected-offset": number} for number in (2, 3)
    ]
    refusal = shared.post(*entries).json()
    told = {
        name: refusal[name]
        for name in ("code", "index", "expected", "actual-next", "retryable", "side-effects")
    }
    assert told == {
        "code": "offset-mismatch", "index": 0, "expected": 2, "actual-next": 3, "retryable": False,
        "side-effects": "none",
    }  # fmt: skip
    ahead = shared.post({"changes": {}, "expected-offset": 9}).json()
    assert (ahead["retryable"], ahead["actual-next"]) == (True, 3)


async def test_producers_race_at_the_tail(shared: Feed) -> None:
    """Each place is won once, by whoever; each producer's values stand there once and in order."""
    producers, each = 6, scaled(sized(10, soak=25))

    async def run(name: str) -> int:
        lost = 0
        async with FeedClient(shared.server.url) as client:
            producer = await Producer.register(client, shared.name, name, shared=True)
            for number in range(each):
                # The second entry makes it plain that a batch stands whole or not at all.
                batch = [{"by": name, "n": number, "part": part} for part in (1, 2)]
                while True:
                    try:
                        appended = await producer.append(batch)
                    except OffsetMismatch as refusal:
                        lost += 1
                        producer.next_sequence_id = refusal.members["actual-next"]
                    else:
                        assert not appended.duplicate
                        break
        return lost

    names = [f"racer-{number}" for number in range(producers)]
    lost = await asyncio.gather(*[run(name) for name in names])
    assert sum(lost) > 0, "there was no race"
    entries = [entry["changes"] for entry in shared.entries(limit=10_000)]
    assert len(entries) == 2 * producers * each
    for one, two in zip(entries[::2], entries[1::2], strict=True):
        assert (one["by"], one["n"], one["part"], two["part"]) == (two["by"], two["n"], 1, 2)
    for name in names:
        assert [entry["n"] for entry in entries[::2] if entry["by"] == name] == list(range(each))


async def test_all_want_the_same_place(shared: Feed) -> None:
    async with FeedClient(shared.server.url) as client:
        racers = [await Producer.register(client, shared.name, f"racer-{n}", shared=True) for n in range(12)]
        for place in range(1, 6):
            outcomes = await asyncio.gather(
                *[racer.append([{"same": "bytes"}]) for racer in racers], return_exceptions=True
            )
            kinds = Counter(type(outcome).__name__ for outcome in outcomes)
            assert kinds == {"Appended": 1, "OffsetMismatch": 11}, outcomes
            for racer in racers:
                racer.next_sequence_id = place + 1
    assert len(shared.entries()) == 5


async def test_twin_of_the_same_agent_is_fenced(shared: Feed) -> None:
    async with FeedClient(shared.server.url) as client:
        first = await Producer.register(client, shared.name, "agent-1", shared=True)
        await first.append([{"n": 1}])
        twin = await Producer.register(client, shared.name, "agent-1", shared=True)
        assert twin.next_sequence_id == 2
        with pytest.raises(Fenced) as refusal:
            await first.append([{"n": 2}])
        assert (refusal.value.members["actual-next"], refusal.value.members["side-effects"]) == (2, "none")
        await twin.append([{"n": 2}])
        other = await Producer.register(client, shared.name, "agent-2", shared=True)
        assert (await other.append([{"n": 3}])).first_sequence_id == 3


# -- settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_changed_one_by_one(feed: Feed) -> None:
    first = feed.server.http.get(f"{feed.path}/settings").json()
    assert first == {
        "change-feed-id": feed.name, "key-field": "uuid", "changes": "full", "expected-offset": "optional",
    }  # fmt: skip
    assert put_settings(feed, **{"key-field": "id"}) == first | {"key-field": "id"}
    assert put_settings(feed, changes="delta") == first | {"key-field": "id", "changes": "delta"}
    feed.post({"changes": {"id": "seven", "uuid": "other"}})
    (entry,) = feed.entries()
    assert (entry["key"], entry["op"]) == ("seven", "patch")
    assert feed.server.http.get(feed.path).json()["settings"] == first | {
        "key-field": "id",
        "changes": "delta",
    }


@pytest.mark.parametrize("body", [{"expected-offset": "sometimes"}, {"key-field": ""}, {"retention": 1}, []])
def test_settings_that_make_no_sense(feed: Feed, body: Any) -> None:
    answer = feed.server.http.put(f"{feed.path}/settings", json=body)
    assert (answer.status_code, code_of(answer)) == (400, "invalid-request")


def test_required_and_ignored(feed: Feed) -> None:
    put_settings(feed, **{"expected-offset": "required"})
    refusal = feed.post({"changes": {}, "expected-offset": 1}, {"changes": {}})
    assert (refusal.status_code, code_of(refusal)) == (409, "expected-offset-required")
    assert (refusal.json()["index"], refusal.json()["actual-next"]) == (1, 1)
    assert tail_of(feed)["expected-offset"] == "required"
    assert feed.post({"changes": {}, "expected-offset": 1}).status_code == 200
    put_settings(feed, **{"expected-offset": "ignored"})
    assert feed.post({"changes": {}, "expected-offset": 1}).json()["first-sequence-id"] == 2


def test_settings_command(feed: Feed) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [*forks.HEADRACE, "feeds", "settings", feed.name]
        return forks.run(
            [*command, "--server", feed.server.url, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert "expected-offset  optional" in run().stdout
    changed = run("--expected-offset", "required", "--key-field", "id", "--json")
    assert changed.returncode == 0, changed.stderr
    assert json.loads(changed.stdout) == {
        "change-feed-id": feed.name, "key-field": "id", "changes": "full", "expected-offset": "required",
    }  # fmt: skip
    assert "expected-offset  required" in run().stdout
    assert run("--expected-offset", "sometimes").returncode == 2


def test_shared_feeds_and_settings_outlive_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        feed = Feed(server, "shared")
        assert feed.register("agent-1", shared=True, instance="one").json()["epoch"] == 1
        assert feed.register("agent-1", shared=True, instance="two").json()["epoch"] == 2
        put_settings(feed, **{"expected-offset": "required"})
        first = feed.post({"changes": {"n": 1}, "expected-offset": 1}).json()
        server.restart()
        assert feed.register("agent-1", shared=True, instance="two").json()["epoch"] == 2
        assert code_of(feed.post({"changes": {}})) == "expected-offset-required"
        again = feed.post({"changes": {"n": 1}, "expected-offset": 1}).json()
        assert again == first | {"duplicate": True}
        assert code_of(feed.register("agent-2")) == "invalid-request"


# -- the tail after retention -----------------------------------------------------------------------------------------


async def test_tail_is_right_after_retention_dropped_everything(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await write_feed(data_dir, "quiet", 3, settings=SMALL_SEGMENTS)
    await write_feed(data_dir, "busy", 40, settings=SMALL_SEGMENTS)
    drop_all_but_newest(data_dir)
    with serving(tmp_path, data_dir=data_dir) as server:
        quiet = Feed(server, "quiet")
        for _ in ("as it was opened", "after a kill"):
            tail = tail_of(quiet)
            assert tail["next-sequence-id"] == 4
            assert tail["newest-lsn"].endswith(".0000000003")
            assert (tail["last-frame"]["first-sequence-id"], tail["last-frame"]["count"]) == (3, 1)
            assert quiet.read(1).status_code == 410
            again = quiet.post({"changes": {"n": 3}, "expected-offset": 3}).json()
            assert (again["duplicate"], again["last-lsn"]) == (True, tail["newest-lsn"])
            older = quiet.post({"changes": {"n": 2}, "expected-offset": 2}).json()
            assert (older["code"], older["side-effects"]) == ("offset-mismatch", "possible")
            server.restart()
        async with FeedClient(server.url) as client:
            producer = await Producer.register(client, "quiet", "agent-1")
            assert (await producer.append([{"n": 4}])).first_sequence_id == 4
            assert (await producer.resume()).next_sequence_id == 5
