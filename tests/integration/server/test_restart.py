"""SIGKILL, restart and graceful stop: what was acknowledged is there, and what was refused stays refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of the test's own, to be killed."""
    with serving(tmp_path) as running:
        yield running


def test_sigkill_and_restart_keep_everything(server: ServerProcess) -> None:
    feed = Feed(server, "test::feed")
    registered = feed.register(instance="process-1").json()
    feed.listener()
    feed.post(*({"changes": changes(number), "expected-offset": number} for number in (1, 2, 3)))
    before = feed.read().json()
    place = {"incarnation": before["incarnation"], "sequence-id": 2, "lsn": before["changes-list"][1]["lsn"]}
    server.http.put(f"/listeners/listener-1{feed.path}/position", json=place)
    server.restart()
    assert feed.read().json() == before
    assert feed.register(instance="process-1").json() == registered | {"next-sequence-id": 4}
    assert feed.poll(after=2, headers={"Headrace-Lsn": place["lsn"]}).status_code == 200
    assert feed.listener().json()["position"] == 2
    again = feed.post(*({"changes": changes(number), "expected-offset": number} for number in (2, 3)))
    assert again.json()["duplicate"] is True
    assert feed.post({"changes": changes(4)}).json()["first-lsn"] > before["changes-list"][-1]["lsn"]


def test_acknowledged_appends_survive_sigkill_amid_traffic(server: ServerProcess) -> None:
    feed = Feed(server, "test::feed")
    feed.register()
    acknowledged = 0

    def append_until_killed() -> int:
        done = 0
        with httpx.Client(base_url=server.url, timeout=30, trust_env=False) as client:
            while True:
                entry = {"agent-id": feed.agent, "changes": changes(done + 1), "expected-offset": done + 1}
                try:
                    answer = client.post(f"{feed.path}/entries", json=entry)
                except httpx.TransportError:
                    return done
                assert answer.status_code == 200, answer.text
                done += 1

    with ThreadPoolExecutor(1) as pool:
        appending = pool.submit(append_until_killed)
        wait_until(lambda: server.http.get(feed.path).json()["head-sequence-id"] > 50, what="50 appends")
        server.kill()
        acknowledged = appending.result(timeout=60)
    server.start()
    entries = feed.entries(1, limit=10_000)
    assert len(entries) in (acknowledged, acknowledged + 1), "at most the one whose answer was cut off"
    assert [entry["changes"] for entry in entries] == [
        changes(number) for number in range(1, len(entries) + 1)
    ]
    unclear = feed.post({"changes": changes(acknowledged + 1), "expected-offset": acknowledged + 1})
    assert unclear.status_code == 200
    assert unclear.json()["duplicate"] is (len(entries) > acknowledged)


def test_quarantine_and_its_alarm_survive(server: ServerProcess) -> None:
    feed = Feed(server, "test::feed")
    feed.register()
    for _ in range(2):
        feed.post({"changes": {}, "sequence-id": 1})
    server.restart()
    assert code_of(feed.post({"changes": {}})) == "quarantined"
    (alarm,) = server.http.get("/alarms").json()["alarms"]
    assert (alarm["code"], alarm["cleared-at"]) == ("duplicate-entry", None)


def test_alarm_that_a_crash_swallowed_is_raised_at_the_next_start(server: ServerProcess) -> None:
    feed = Feed(server, "test::feed")
    feed.register()
    for _ in range(2):
        feed.post({"changes": {}, "sequence-id": 1})
    server.kill()
    for path in server.data_dir.glob("metadata.sqlite3*"):
        path.unlink()
    server.start()
    (alarm,) = server.http.get("/alarms").json()["alarms"]
    assert (alarm["code"], alarm["agent-id"], alarm["change-feed-id"]) == (
        "duplicate-entry",
        feed.agent,
        feed.name,
    )


def test_stop_answers_the_long_polls_that_wait(server: ServerProcess) -> None:
    feed = Feed(server, "test::feed")
    feed.register()
    feed.listener()
    with (
        httpx.Client(base_url=server.url, timeout=70, trust_env=False) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        params = {"listener-id": "listener-1", "timeout-ms": "60000"}
        waiting = pool.submit(client.get, f"{feed.path}/poll", params=params)
        for _ in range(20):
            server.http.get("/healthz")
        assert not waiting.done()
        started = time.monotonic()
        assert server.stop() == 0
        answer = waiting.result(timeout=1)
    assert time.monotonic() - started < 10
    assert answer.json()["changes-list"] == []
    assert "Traceback" not in server.errors()


def test_old_copy_of_the_data_folder_is_noticed(server: ServerProcess, tmp_path: Path) -> None:
    feed = Feed(server, "test::feed")
    feed.register()
    feed.listener()
    feed.post({"changes": changes(1)})
    server.stop()
    copy = {path: path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file()}
    server.start()
    feed.post({"changes": changes(2)}, {"changes": changes(3)})
    bookmark = feed.entries()[1]
    server.stop()
    for path, data in copy.items():
        path.write_bytes(data)
    server.start()
    assert code_of(feed.poll(after=2)) == "beyond-head"
    feed.post({"changes": changes(4)}, {"changes": changes(5)})
    assert code_of(feed.poll(after=2, headers={"Headrace-Lsn": bookmark["lsn"]})) == "feed-recreated"
