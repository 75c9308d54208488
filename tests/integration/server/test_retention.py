"""Retention in a real server process, with seconds for days: ages, holders, expiry, the byte cap, what is said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until

FAST = ["--retention-every", "100ms", "--segment-size", "4k"]
"""A pass every 100 ms over segments of some twelve entries."""


def post(feed: Feed, count: int) -> int:
    """Post entries one by one, so that segments fill; returns the head."""
    return max(
        int(feed.post({"changes": changes(number)}).json()["last-sequence-id"]) for number in range(count)
    )


def report(feed: Feed, place: int, listener_id: str = "listener-1") -> None:
    """Report a listener's place."""
    incarnation = feed.server.http.get(feed.path).json()["incarnation"]
    answer = feed.server.http.put(
        f"/listeners/{listener_id}{feed.path}/position",
        json={"incarnation": incarnation, "sequence-id": place},
    )
    assert answer.status_code == 200, answer.text


def view(feed: Feed) -> Any:
    """The feed as ``GET /feeds/{id}`` shows it."""
    return feed.server.http.get(feed.path).json()


def listener(feed: Feed, name: str) -> Any:
    """One of its listeners."""
    return next(one for one in view(feed)["listeners"] if one["listener-id"] == name)


def alarms(server: ServerProcess) -> dict[str, Any]:
    """The alarms that stand, by code."""
    found = server.http.get("/alarms").json()["alarms"]
    return {one["code"]: one for one in found if one["cleared-at"] is None}


def journal_bytes(server: ServerProcess) -> int:
    """What the journal's files take."""
    return sum(path.stat().st_size for path in (server.data_dir / "journal").iterdir())


def explain(server: ServerProcess, *args: str) -> str:
    """Run ``headrace feeds retention explain``."""
    command = [
        *forks.HEADRACE,
        "feeds",
        "retention",
        "explain",
        "--server",
        server.url,
    ]
    done = forks.run([*command, *args], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_old_entries_go_and_readers_are_told(tmp_path: Path) -> None:
    """Who falls out gets 410 on every way in; who stands at the edge goes on; ids go on; a restart changes nothing."""
    with serving(tmp_path, args=["--retention", "1s", *FAST]) as server:
        feed = Feed(server, "vm::a")
        feed.register()
        feed.listener("falls")
        head = post(feed, 40)
        newest = feed.entries(head)[0]
        report(feed, 2, "falls")
        wait_until(lambda: view(feed)["oldest-sequence-id"] == head + 1, what="all entries to age out")
        for _ in ("running", "restarted"):
            for answer in (
                feed.read(1),
                feed.read(head),
                feed.read(3, 4, headers={"Accept": "application/x-headrace-frames"}),
                feed.poll(2, "falls"),
                feed.poll(head - 1, "falls"),
            ):
                assert code_of(answer) == "sequence-not-available"
                assert answer.status_code == 410
                assert (answer.json()["oldest"], answer.json()["head"]) == (head + 1, head)
            place = {"Headrace-Incarnation": view(feed)["incarnation"], "Headrace-Lsn": newest["lsn"]}
            assert feed.poll(head, "falls", headers=place).json()["changes-list"] == []
            assert feed.entries(head + 1, headers=place) == []
            assert code_of(feed.poll(head + 1, "falls")) == "beyond-head"
            assert listener(feed, "falls")["time-to-loss"]["state"] == "lost"
            assert view(feed)["next-sequence-id"] == head + 1
            again = feed.post({"changes": changes(39), "expected-offset": head})
            assert again.json()["duplicate"] is True, again.text
            server.restart()
        assert post(feed, 1) == head + 1
        assert len(list((server.data_dir / "journal").iterdir())) <= 3


def test_a_holder_keeps_and_expiry_frees(tmp_path: Path) -> None:
    args = ["--retention", "500ms", "--subscriber-expiry", "3s", *FAST]
    with serving(tmp_path, args=args) as server:
        feed = Feed(server, "vm::a")
        feed.register()
        feed.listener("holds", hold=True)
        head = post(feed, 40)
        report(feed, 20, "holds")
        wait_until(lambda: view(feed)["oldest-sequence-id"] > 1, what="what it has read to go")
        assert view(feed)["oldest-sequence-id"] <= 21
        assert feed.poll(20, "holds").json()["changes-list"][0]["sequence-id"] == 21
        assert listener(feed, "holds")["lag-entries"] == head - 20
        wait_until(lambda: view(feed)["oldest-sequence-id"] == head + 1, what="it to expire")
        assert code_of(feed.poll(20, "holds")) == "sequence-not-available"
        assert "place-lost" not in alarms(server)


def test_the_byte_cap_wins_over_a_holder_and_raises_alarms(tmp_path: Path) -> None:
    cap = 40 * 1024
    with serving(tmp_path, args=["--retention-bytes-max", "40k", *FAST]) as server:
        feed = Feed(server, "vm::a")
        feed.register()
        feed.listener("holds", hold=True)
        report(feed, 0, "holds")
        wait_until(lambda: post(feed, 5) and "retention-bytes" in alarms(server), what="the alarm at 70 %")
        assert view(feed)["oldest-sequence-id"] == 1
        wait_until(lambda: post(feed, 5) and "place-lost" in alarms(server), what="the cap")
        lost = alarms(server)["place-lost"]
        assert (lost["change-feed-id"], lost["agent-id"]) == ("vm::a", "holds")
        assert str(cap) in lost["detail"]
        assert listener(feed, "holds")["time-to-loss"]["state"] == "lost"
        assert code_of(feed.poll(0, "holds")) == "sequence-not-available"
        wait_until(lambda: journal_bytes(server) <= cap, what="the journal to be below the cap")
        assert "loses its place" in server.errors()
        report(feed, view(feed)["head-sequence-id"], "holds")
        wait_until(lambda: "place-lost" not in alarms(server), what="the alarm to be cleared")


def fates(told: dict[str, Any]) -> list[str]:
    return [one["fate"] for one in told["segments"]]


def test_explain_tells_what_the_next_pass_does(tmp_path: Path) -> None:
    """No pass runs between the two: it is the start that runs one at once."""
    args = ["--retention", "1s", "--retention-every", "10m", "--segment-size", "4k"]
    with serving(tmp_path, args=args) as server:
        feed = Feed(server, "vm::a")
        feed.register()
        feed.listener("holds", hold=True)
        feed.listener("falls")
        head = post(feed, 60)
        report(feed, 33, "holds")
        report(feed, 5, "falls")

        def told_alike() -> Any:
            """What the command tells, once the server tells the same; segments may grow old between the two."""
            found = json.loads(explain(server, "--json"))
            same = server.http.get("/retention").json()["segments"] == found["segments"]
            return found if same and {"older-than-retention", "held"} <= set(fates(found)) else None

        told = wait_until(told_alike, what="something to be old, and something that is held")
        assert told["drops-before"] > 0x100
        assert fates(told)[-1] == "open"
        text = explain(server)
        assert "listener holds of vm::a at sequence id 33" in text
        assert "listener falls at sequence id 5 loses its place" in text
        assert view(feed)["oldest-sequence-id"] == 1, "explaining changes nothing"
        (after,) = told["feeds"]
        assert f"vm::a: entries 1 to {after['oldest-afterwards'] - 1}" in text
        server.restart()
        wait_until(lambda: view(feed)["oldest-sequence-id"] > 1, what="the pass at the start")
        assert view(feed)["oldest-sequence-id"] == after["oldest-afterwards"] <= 34
        now = json.loads(explain(server, "--json"))
        assert now["oldest-position"] == told["drops-before"]
        assert listener(feed, "falls")["time-to-loss"]["state"] == "lost"
        assert feed.entries(34, head)[0]["sequence-id"] == 34


def test_time_to_loss_is_when_it_is_lost(tmp_path: Path) -> None:
    """Nothing moves, so what is promised at any time comes to the same moment, and then it happens."""
    args = ["--retention", "4s", *FAST]
    with serving(tmp_path, args=args) as server:
        feed = Feed(server, "vm::a")
        feed.register()
        feed.listener("stands")
        post(feed, 30)
        report(feed, 1, "stands")
        losses = []

        def state() -> str:
            found = listener(feed, "stands")["time-to-loss"]
            losses.append(found["seconds"])
            return str(found["state"])

        assert state() == "by-age"
        assert 0 < losses[0] <= 4
        wait_until(lambda: state() == "lost", what="its place to be lost")
        assert losses == sorted(losses, reverse=True)
        metrics = server.http.get("/metrics")
        assert metrics.headers["content-type"].startswith("text/plain")
        assert (
            'headrace_time_to_loss_seconds{consumer="stands",feed="vm::a",kind="listener"} 0.0'
            in metrics.text
        )


@pytest.mark.parametrize(
    "args",
    [
        ["--retention", "2 weeks"],
        ["--retention", "0s"],
        ["--retention-bytes-max", "-1"],
        ["--retention-bytes-max", "0"],
        ["--subscriber-expiry", "x"],
        ["--segment-size", "12q"],
    ],
    ids=" ".join,
)
def test_settings_that_mean_nothing_are_refused(tmp_path: Path, args: list[str]) -> None:
    command = [*forks.HEADRACE, "serve", "--data-dir", str(tmp_path / "data"), *args]
    done = forks.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert args[0] in done.stderr
    assert not (tmp_path / "data").exists()
