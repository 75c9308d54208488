"""Two real servers on one database: one order, one owner, one history; and what B tells of what A did."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from headrace.entries.lsn import Lsn
from tests.integration.store_postgres.shared import connections, opened
from tests.postgres import Cluster, Database
from tests.scale import scaled
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until

FEEDS = ["shop", "bank", "quiet"]


@pytest.fixture(scope="module")
def pair(
    tmp_path_factory: pytest.TempPathFactory, cluster: Cluster
) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """Two servers for all tests that leave them running; each test has feeds of its own."""
    folder = tmp_path_factory.mktemp("pair")
    args = ["--store", cluster.create_database("two_servers")]
    with serving(folder / "a", args=args) as a, serving(folder / "b", args=args) as b:
        yield a, b
    cluster.drop_database("two_servers")


@pytest.fixture
def servers(tmp_path: Path, database: Database) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    args = ["--store", database.dsn]
    with serving(tmp_path / "a", args=args) as a, serving(tmp_path / "b", args=args) as b:
        yield a, b


class Sent(NamedTuple):
    """One answered append: when it was sent and answered, and where it stands."""

    began: float
    ended: float
    feed: str
    thread: int
    number: int
    sequence_id: int
    lsn: Lsn


def send(server: ServerProcess, feed: str, thread: int, appends: int) -> list[Sent]:
    """Append one after another without naming a place; what is not answered with 200 fails."""
    done = []
    for number in range(appends):
        began = time.monotonic()
        answer = Feed(server, feed).post({"changes": {"uuid": f"{thread}-{number}"}})
        assert answer.status_code == 200, answer.text
        said = answer.json()
        place = int(said["first-sequence-id"])
        done.append(Sent(began, time.monotonic(), feed, thread, number, place, Lsn.parse(said["first-lsn"])))
    return done


def test_appends_of_two_servers_stand_in_one_order(
    servers: tuple[ServerProcess, ServerProcess], database: Database
) -> None:
    for feed in FEEDS:
        assert Feed(servers[0], feed).register().status_code == 200
    with ThreadPoolExecutor(8) as threads:
        tasks = [threads.submit(send, servers[at % 2], FEEDS[at % 4 // 2], at, scaled(15)) for at in range(8)]
        sent = [one for task in tasks for one in task.result()]
    by_lsn = sorted(sent, key=lambda one: one.lsn)
    for feed in FEEDS[:2]:
        here = [one for one in by_lsn if one.feed == feed]
        assert [one.sequence_id for one in here] == list(range(1, len(here) + 1)), "dense, and in LSN order"
        for thread in {one.thread for one in here}:
            numbers = [one.number for one in here if one.thread == thread]
            assert numbers == sorted(numbers), "each producer's order is kept"
        wanted = [f"{one.thread}-{one.number}" for one in here]
        for server in servers:
            assert _stored(server, feed, len(here)) == wanted
    # Over all feeds and both servers: whoever was answered before another was sent stands before it.
    earliest_end = float("inf")
    for one in reversed(by_lsn):
        assert one.began <= earliest_end
        earliest_end = min(earliest_end, one.ended)
    with opened(database.dsn) as bench:
        assert [lsn for lsn, _ in bench.walked()] == [one.lsn for one in by_lsn]


def _stored(server: ServerProcess, name: str, count: int) -> list[str]:
    feed = Feed(server, name)
    wait_until(
        lambda: len(feed.entries(limit=10_000)) >= count, what="the other server's appends to be shown"
    )
    return [entry["changes"]["uuid"] for entry in feed.entries(limit=10_000)]


def test_epoch_bumped_at_one_server_fences_at_the_other_at_once(
    pair: tuple[ServerProcess, ServerProcess],
) -> None:
    a, b = (Feed(server, "epochs") for server in pair)
    epoch = int(a.register(instance="i-0").json()["epoch"])
    for round_ in range(scaled(6)):
        old, new = (a, b) if round_ % 2 else (b, a)
        assert old.post({"changes": changes(1)}, headers={"Headrace-Epoch": str(epoch)}).status_code == 200
        epoch = int(new.register(instance=f"i-{round_ + 1}").json()["epoch"])
        fenced = old.post({"changes": changes(2)}, headers={"Headrace-Epoch": str(epoch - 1)})
        assert code_of(fenced) == "fenced"
        assert fenced.json()["epoch"] == epoch


def test_client_that_was_at_the_other_server_is_not_told_otherwise(
    pair: tuple[ServerProcess, ServerProcess],
) -> None:
    for number in range(scaled(8)):
        name = f"known-{number}"
        a, b = (Feed(server, name) for server in pair)
        assert a.register().status_code == 200
        assert b.listener().status_code == 200
        posted = a.post({"changes": changes(number)}).json()
        known = {"Headrace-Incarnation": posted["incarnation"], "Headrace-Lsn": posted["last-lsn"]}
        assert b.server.http.get(f"{b.path}/tail").json()["next-sequence-id"] == 2
        assert b.read(2, headers=known).status_code == 200
        assert b.poll(1, headers=known).status_code == 200
        (listed,) = [
            feed for feed in b.server.http.get("/feeds").json()["feeds"] if feed["change-feed-id"] == name
        ]
        assert listed["listeners"][0]["listener-id"] == "listener-1"


def test_long_poll_at_one_server_is_woken_by_an_append_at_the_other(
    pair: tuple[ServerProcess, ServerProcess],
) -> None:
    a, b = (Feed(server, "polled") for server in pair)
    a.register()
    b.listener()
    with ThreadPoolExecutor(1) as thread:
        for number in range(scaled(5)):
            polled = thread.submit(b.poll, number, timeout_ms=60_000)
            assert a.post({"changes": changes(number)}).status_code == 200
            (entry,) = polled.result(50).json()["changes-list"]
            assert entry["sequence-id"] == number + 1


def test_sigkill_of_one_server_loses_nothing_and_stops_nobody(
    servers: tuple[ServerProcess, ServerProcess], database: Database
) -> None:
    a, b = servers
    Feed(a, "f").register()
    stored: dict[int, str] = {}
    stop = threading.Event()

    def produce(server: ServerProcess, name: str) -> int:
        number = 0
        while not stop.is_set():
            try:
                answer = Feed(server, "f").post({"changes": {"uuid": f"{name}-{number}"}})
            except (httpx.HTTPError, AssertionError, RuntimeError):
                break
            assert answer.status_code == 200, answer.text
            stored[int(answer.json()["first-sequence-id"])] = f"{name}-{number}"
            number += 1
        return number

    with ThreadPoolExecutor(4) as threads:
        tasks = [
            threads.submit(produce, server, f"{server.folder.name}{at}") for server in (a, b) for at in (1, 2)
        ]
        wait_until(lambda: len(stored) > 60)
        assert a.process is not None
        a.process.kill()
        before = len(stored)
        wait_until(lambda: len(stored) > before + 60, what="the other server to go on")
        stop.set()
        done = [task.result() for task in tasks]
    assert min(done) > 0
    a.kill()
    a.start()
    held = {int(one["sequence-id"]): one["changes"]["uuid"] for one in Feed(a, "f").entries(limit=10_000)}
    assert held.items() >= stored.items()
    assert len(held) - len(stored) <= 2, (
        "at most what the killed server had in hand was stored without an answer"
    )
    assert len(set(held.values())) == len(held)
    with opened(database.dsn) as bench:
        assert sorted(bench.values("f")) == sorted(held)


def test_many_requests_leave_few_connections_and_a_stopped_server_none(
    servers: tuple[ServerProcess, ServerProcess], database: Database
) -> None:
    for server in servers:
        Feed(server, f"of-{server.folder.name}").register()

    def use(at: int) -> None:
        server = servers[at % 2]
        feed = Feed(server, f"of-{server.folder.name}")
        assert feed.listener(f"l-{at % 7}").status_code == 200
        assert feed.post({"changes": changes(at)}).status_code == 200
        assert feed.read(1).status_code == 200
        assert feed.poll(0, f"l-{at % 7}").status_code == 200

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(use, range(scaled(60))))
    assert connections(database) <= 2 * 10
    assert [server.stop() for server in servers] == [0, 0]
    wait_until(lambda: connections(database) == 0)
