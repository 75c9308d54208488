"""Hydration leases in real servers, on each store: what they hold, for how long, and where their listener may stand."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import forks
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.stores import STORES, database_of
from tests.waiting import wait_until

FAST = ["--retention", "1s", "--retention-every", "100ms", "--segment-size", "4k"]
"""A pass every 100 ms over segments of some twelve entries, which are old after a second."""


@pytest.fixture(params=list(STORES))
def fast(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose entries are soon too old, on each store in turn."""
    args = list(FAST)
    if request.param == "postgres":
        args += ["--store", database_of(request.getfixturevalue("cluster"), tmp_path)]
    with serving(tmp_path, args=args) as server:
        yield server


def post(feed: Feed, count: int) -> int:
    """Post entries one by one, so that segments fill; returns the head."""
    return max(
        int(feed.post({"changes": changes(number)}).json()["last-sequence-id"]) for number in range(count)
    )


def lease(feed: Feed, listener_id: str = "listener-1", **body: Any) -> httpx.Response:
    """Take or renew a lease."""
    named = {name.replace("_", "-"): value for name, value in body.items()}
    return feed.server.http.post(f"/listeners/{listener_id}{feed.path}/hydration", json=named)


def end(feed: Feed, listener_id: str = "listener-1") -> httpx.Response:
    """End a lease."""
    return feed.server.http.delete(f"/listeners/{listener_id}{feed.path}/hydration")


def oldest(feed: Feed) -> int:
    """The oldest entry that is retained."""
    return int(feed.server.http.get(feed.path).json()["oldest-sequence-id"])


def made(server: ServerProcess, name: str = "vm::a") -> Feed:
    """A feed with a publisher and a listener."""
    feed = Feed(server, name)
    assert feed.register().status_code == 200
    assert feed.listener().status_code == 200
    return feed


def test_lease_holds_from_the_oldest_entry_then_from_behind_the_snapshot_and_is_durable(
    fast: ServerProcess,
) -> None:
    feed = made(fast)
    head = post(feed, 60)
    taken = lease(feed)
    assert taken.status_code == 200, taken.text
    said = taken.json()
    held = int(said["holds-from-sequence-id"])
    assert said["oldest-sequence-id"] == held
    assert (said["head-sequence-id"], said["listener-id"], said["change-feed-id"]) == (
        head,
        "listener-1",
        feed.name,
    )
    fast.restart()
    (shown,) = fast.http.get(feed.path).json()["hydrations"]
    assert shown["listener-id"] == "listener-1"
    assert shown["holds-from-sequence-id"] == held
    (holder,) = [one for one in fast.http.get("/retention").json()["consumers"] if one["kind"] == "hydration"]
    assert holder["name"] == "listener-1"
    assert holder["holds-until"]
    assert f"hydration listener-1 of {feed.name} at sequence id {held - 1}" in explained(fast)
    renewed = lease(feed, snapshot_id="s1", sequence_id=head - 5).json()
    assert renewed["holds-from-sequence-id"] == head - 4
    assert renewed["expires-at"] >= said["expires-at"]

    def grown() -> bool:
        post(feed, 6)
        return oldest(feed) > held

    wait_until(grown, what="what lies below the snapshot to go")
    assert oldest(feed) <= head - 4
    wait_until(
        lambda: post(feed, 12) > 0 and len(fast.http.get("/retention").json()["segments"]) > 3, what="more"
    )
    assert oldest(feed) <= head - 4, "held, however old"
    assert end(feed).status_code == 204
    assert end(feed).status_code == 204, "it may be repeated"
    assert fast.http.get(feed.path).json()["hydrations"] == []
    wait_until(lambda: post(feed, 6) > 0 and oldest(feed) > head - 4, what="the rest to go")


def test_a_new_snapshot_holds_from_the_oldest_entry_again(server: ServerProcess, feed: Feed) -> None:
    head = post(feed, 10)
    assert lease(feed).json()["holds-from-sequence-id"] == 1
    assert lease(feed, snapshot_id="s1", sequence_id=8).json()["holds-from-sequence-id"] == 9
    assert lease(feed, snapshot_id="s1", sequence_id=8).json()["holds-from-sequence-id"] == 9
    assert lease(feed).json()["holds-from-sequence-id"] == 1
    assert lease(feed, snapshot_id="s2", sequence_id=head + 5).json()["holds-from-sequence-id"] == head + 6


def test_a_lease_that_is_not_renewed_ends(tmp_path: Path) -> None:
    with serving(tmp_path, args=[*FAST, "--hydration-lease", "1s"]) as server:
        feed = made(server)
        post(feed, 40)
        held = lease(feed).json()["holds-from-sequence-id"]
        wait_until(lambda: post(feed, 6) > 0 and oldest(feed) > held, what="the lease to end")
        assert server.http.get(feed.path).json()["hydrations"] == []


def test_listener_may_wait_behind_the_head_up_to_its_snapshot(feed: Feed) -> None:
    """The source has marked more than the feed has got."""
    head = post(feed, 3)
    feed.listener("other")
    assert code_of(feed.poll(head + 1)) == "beyond-head"
    lease(feed, snapshot_id="s1", sequence_id=head + 2)
    incarnation = {"Headrace-Incarnation": feed.server.http.get(feed.path).json()["incarnation"]}
    waited = feed.poll(head + 2, headers=incarnation)
    assert waited.status_code == 200, waited.text
    assert waited.json()["changes-list"] == []
    assert feed.entries(head + 3) == []
    assert code_of(feed.poll(head + 3)) == "beyond-head"
    assert code_of(feed.read(head + 4)) == "beyond-head"
    assert code_of(feed.poll(head + 2, "other")) == "beyond-head"
    assert code_of(feed.poll(head + 2, headers={"Headrace-Lsn": "1.1.1"})) == "beyond-head"
    assert code_of(feed.poll(head + 2, headers={"Headrace-Incarnation": "another"})) == "feed-recreated"
    post(feed, 3)
    assert [one["sequence-id"] for one in feed.poll(head + 2).json()["changes-list"]] == [head + 3]
    end(feed)
    assert code_of(feed.poll(head + 5)) == "beyond-head"


def test_a_poll_behind_the_head_gets_what_comes(feed: Feed) -> None:
    head = post(feed, 1)
    lease(feed, snapshot_id="s1", sequence_id=head + 2)
    params = {"listener-id": "listener-1", "after-sequence-id": str(head + 2), "timeout-ms": "60000"}
    address = f"{feed.server.url}{feed.path}/poll?" + "&".join(
        f"{name}={value}" for name, value in params.items()
    )
    command = [sys.executable, "-c", f"import httpx; print(httpx.get({address!r}, timeout=70).text)"]
    with forks.start(command, stdout=subprocess.PIPE, text=True) as polling:
        assert polling.stdout is not None
        post(feed, 3)
        found = json.loads(polling.stdout.readline())
    assert [one["sequence-id"] for one in found["changes-list"]] == [head + 3]


@pytest.mark.parametrize(
    "body",
    [
        {"snapshot-id": "s"},
        {"sequence-id": 1},
        {"snapshot-id": "s", "sequence-id": -1},
        {"snapshot-id": "s", "sequence-id": 1 << 63},
        {"snapshot-id": "s", "sequence-id": 1 << 70},
        {"snapshot-id": "a b", "sequence-id": 1},
        {"snapshot-id": "s" * 201, "sequence-id": 1},
        {"snapshot-id": 1, "sequence-id": 1},
        {"sequence": 1},
        [],
    ],
)
def test_what_is_no_lease_is_refused(feed: Feed, body: Any) -> None:
    answer = feed.server.http.post(f"/listeners/listener-1{feed.path}/hydration", json=body)
    assert answer.status_code == 400, answer.text
    assert code_of(answer) == "invalid-request"


def test_who_is_not_registered_gets_no_lease(feed: Feed) -> None:
    assert code_of(lease(feed, "nobody")) == "not-registered"
    assert code_of(lease(Feed(feed.server, "no::feed"))) == "feed-not-found"
    assert code_of(end(Feed(feed.server, "no::feed"))) == "feed-not-found"


@pytest.mark.parametrize("given", ["7h", "0s", "x"])
def test_lease_of_more_than_six_hours_cant_be_set(tmp_path: Path, given: str) -> None:
    command = [*forks.HEADRACE, "serve", "--hydration-lease", given]
    done = forks.run(
        [*command, "--data-dir", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "hydration-lease" in done.stderr


def explained(server: ServerProcess) -> str:
    """What ``headrace feeds retention explain`` prints."""
    command = [
        *forks.HEADRACE,
        "feeds",
        "retention",
        "explain",
        "--server",
        server.url,
    ]
    return forks.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
