"""``headrace trace`` against real servers, consumers and agents: its times hold what the test measured itself."""

from __future__ import annotations

import json
import socket
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from headrace.client.wal_stream import WalClient
from headrace.wire.batch import ReceivedBatch
from headrace.wire.documents import ms_of_rfc3339
from tests import forks
from tests.agents import AgentProcess
from tests.integration.backup.agents import backup
from tests.reports import report
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with gRPC for all tests here; one of them kills and restarts it."""
    with serving(tmp_path_factory.mktemp("traced"), grpc=True) as running:
        yield running
    assert "Traceback" not in running.errors()


def feed_of(server: ServerProcess, name: str, *entries: int) -> Feed:
    made = Feed(server, name)
    assert made.register().status_code == 200
    if entries:
        assert made.post(*({"changes": changes(number)} for number in entries)).status_code == 200
    return made


def trace(feed: Feed, sequence_id: int) -> Any:
    answer = feed.server.http.get(f"{feed.path}/trace", params={"sequence-id": sequence_id})
    assert answer.status_code == 200, answer.text
    return answer.json()


def consumer(document: Any, name: str) -> Any:
    (found,) = (one for one in document["consumers"] if one["name"] == name)
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def holds(span: Any, began_ms: int, ended_ms: int) -> bool:
    """May the true time, which lies between the two, lie in the span?"""
    after = ms_of_rfc3339(span["after"]) if span["after"] is not None else 0
    return bool(after <= ended_ms and began_ms - 1 <= ms_of_rfc3339(span["by"]))


def run_trace(server: ServerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*forks.HEADRACE, "trace", *words, "--server", server.url]
    return forks.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_times_are_those_of_the_poll_and_of_the_report_and_survive_sigkill(here: ServerProcess) -> None:
    began = now_ms()
    feed = feed_of(here, "trace::polled", 1, 2)
    ended = now_ms()
    incarnation = feed.listener().json()["incarnation"]
    waiting = consumer(trace(feed, 2), "listener-1")
    assert (waiting["state"], waiting["delivered"], waiting["acked"]) == ("waiting", None, None)

    polled = now_ms()
    assert len(feed.poll(0).json()["changes-list"]) == 2
    given = now_ms()
    wait_until(lambda: consumer(trace(feed, 2), "listener-1")["state"] == "delivered", 30)
    document = trace(feed, 2)
    steps = {step["step"]: step for step in document["steps"]}
    assert document["state"] == "retained"
    assert began <= ms_of_rfc3339(steps["appended"]["by"]) <= ended
    assert began <= ms_of_rfc3339(steps["posted"]["by"]) <= ended
    assert holds(steps["durable"], began, ended)
    assert holds(consumer(document, "listener-1")["delivered"], polled, given)
    place = document["place"]
    with (here.data_dir / "journal" / place["segment"]).open("rb") as file:
        data = file.read()
    assert b'"object-2"' in data
    assert (document["producer"]["producer"], place["index-in-append"], place["entries-in-append"]) == (
        feed.agent, 1, 2,
    )  # fmt: skip

    reported = now_ms()
    path = f"/listeners/listener-1{feed.path}/position"
    body = {"incarnation": incarnation, "sequence-id": 2, "lsn": document["lsn"]}
    assert here.http.put(path, json=body).status_code == 200
    acked = now_ms()
    told = consumer(trace(feed, 2), "listener-1")
    assert (told["state"], told["place"]) == ("acked", "2")
    assert holds(told["acked"], reported, acked)
    here.restart()
    assert consumer(trace(feed, 2), "listener-1") | {"seen-at": ""} == told | {"seen-at": ""}
    assert consumer(trace(feed, 1), "listener-1")["delivered"]["by"] == told["delivered"]["by"]


async def test_a_subscriber_has_what_it_was_sent_and_acked(here: ServerProcess) -> None:
    feed = feed_of(here, "trace::streamed", 1)
    async with WalClient(here.grpc_address, subscriber_id="traced") as wal:
        began = now_ms()
        lsn = None
        async with aclosing(wal.subscribe(None)) as items:
            async for item in items:
                if isinstance(item, ReceivedBatch) and str(item.last_lsn) == trace(feed, 1)["lsn"]:
                    lsn = item.last_lsn
                    break
            assert lsn is not None
            sent = now_ms()
            assert feed.post({"changes": changes(2)}).status_code == 200
            async for item in items:
                if isinstance(item, ReceivedBatch):
                    break  # asked for the second, so the first was handed over
            await wal.ack(lsn)
        acked = now_ms()
    told = consumer(trace(feed, 1), "traced")
    assert (told["state"], told["subject"]) == ("acked", "anonymous")
    assert holds(told["delivered"], began, sent)
    assert holds(told["acked"], sent, acked)
    behind = consumer(trace(feed, 2), "traced")
    assert behind["acked"] is None


def test_an_entry_that_a_filter_leaves_out_or_that_lies_before_the_begin_is_not_told_as_delivered(
    here: ServerProcess,
) -> None:
    feed = feed_of(here, "trace::filtered", 1, 2, 3)
    for name in ("filters", "begins"):
        feed.listener(name)
    feed.poll(0, "filters", key="object-2")
    feed.poll(2, "begins")
    wait_until(lambda: consumer(trace(feed, 3), "begins")["state"] == "delivered", 30)
    states = {
        name: [consumer(trace(feed, number), name)["state"] for number in (1, 2, 3)]
        for name in ("filters", "begins")
    }
    assert states == {
        "filters": ["filtered", "delivered", "filtered"],
        "begins": ["skipped", "skipped", "delivered"],
    }


def test_a_poll_whose_client_has_gone_is_given_nothing(here: ServerProcess) -> None:
    feed = feed_of(here, "trace::gone")
    for name in ("gone", "stays"):
        feed.listener(name)
    host, _, port = here.address.rpartition(":")
    with socket.create_connection((host, int(port))) as line:
        path = f"{feed.path}/poll?listener-id=gone&timeout-ms=60000"
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: {here.address}\r\n\r\n".encode())
        assert feed.poll(0, "stays").status_code == 200, "the server has read what came before"
    assert feed.poll(0, "stays").status_code == 200, "and met the end of the line"
    assert feed.post({"changes": changes(1)}).status_code == 200
    feed.poll(0, "stays")
    wait_until(lambda: consumer(trace(feed, 1), "stays")["state"] == "delivered", 30)
    told = consumer(trace(feed, 1), "gone")
    assert (told["state"], told["delivered"]) == ("waiting", None)


def test_what_is_not_there_says_why(here: ServerProcess) -> None:
    feed = feed_of(here, "trace::absent", 1)
    beyond = trace(feed, 2)
    assert (beyond["state"], beyond["consumers"]) == ("beyond-head", [])
    assert "nothing was appended as 2" in beyond["detail"]
    wrong = here.http.get(f"{feed.path}/trace")
    assert code_of(wrong) == "invalid-request"
    assert code_of(here.http.get("/feeds/trace::none/trace?sequence-id=1")) == "feed-not-found"


def test_the_command_finds_a_key_and_the_file_in_the_archive(here: ServerProcess, tmp_path: Path) -> None:
    feed = feed_of(here, "trace::archived", 1, 2, 1)
    backup(here, tmp_path / "archive")
    done = run_trace(here, feed.name, "--key", "object-1", "--pitr-dir", str(tmp_path / "archive"), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["sequence-id"], document["same-key"]) == (3, [3, 1])
    assert document["archived"]["state"] == "archived"
    (told,) = (one for one in document["consumers"] if one["kind"] == "subscriber" and one["acked"])
    assert here.http.put(f"/reports/backup/{told['name']}", json=report()).status_code == 200
    (step,) = (one for one in trace(feed, 3)["steps"] if one["step"] == "archived")
    assert (step["after"], step["by"]) == (told["acked"]["after"], told["acked"]["by"])
    assert (tmp_path / "archive" / document["archived"]["file"]).is_file()
    assert feed.post({"changes": changes(4)}).status_code == 200
    later = run_trace(here, feed.name, "4", "--pitr-dir", str(tmp_path / "archive"))
    assert later.returncode == 0, later.stderr
    assert "archived     not in" in later.stdout
    assert run_trace(here, feed.name, "--key", "nobody").returncode == 1
    assert run_trace(here, feed.name).returncode == 2


def test_a_row_that_an_agent_relayed_shows_its_commit_and_its_marking(
    here: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)")
    words = [
        "publisher",
        "attach",
        "--feed",
        "trace::orders",
        "--table",
        "orders",
        "--dsn",
        f"sqlite:///{path}",
    ]
    done = forks.run([*forks.HEADRACE, *words], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    began = now_ms()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO orders VALUES (1, 5)")
    feed = Feed(here, "trace::orders")
    with AgentProcess(tmp_path, here.url, f"sqlite:///{path}", feed.name):
        wait_until(lambda: here.http.get(feed.path).json().get("head-sequence-id", 0) >= 1, 60)
    ended = now_ms()
    head = here.http.get(feed.path).json()["head-sequence-id"]
    steps = {step["step"]: ms_of_rfc3339(step["by"]) for step in trace(feed, head)["steps"]}
    assert steps["committed"] <= steps["marked"] <= steps["posted"] <= steps["appended"] <= ended
    assert steps["marked"] >= began


def test_a_listener_that_moved_back_is_not_told_to_have_what_it_no_longer_has(here: ServerProcess) -> None:
    feed = feed_of(here, "trace::back", *range(1, 11))
    incarnation = feed.listener().json()["incarnation"]
    lsn = {place: trace(feed, place)["lsn"] for place in (2, 8, 10)}

    def report(place: int) -> None:
        body = {"incarnation": incarnation, "sequence-id": place, "lsn": lsn[place]}
        assert here.http.put(f"/listeners/listener-1{feed.path}/position", json=body).status_code == 200

    feed.poll(0)
    report(10)
    told = consumer(trace(feed, 7), "listener-1")
    assert (told["state"], told["place"]) == ("acked", "10")
    report(2)
    assert consumer(trace(feed, 2), "listener-1")["state"] == "acked"
    told = consumer(trace(feed, 7), "listener-1")
    assert (told["state"], told["acked"], told["place"]) == ("delivered", None, "2"), (
        "it still has been given it"
    )
    here.restart()
    assert consumer(trace(feed, 7), "listener-1")["state"] == "delivered"
    feed.poll(2, limit=3)
    wait_until(lambda: consumer(trace(feed, 7), "listener-1")["state"] == "waiting", 30)
    told = consumer(trace(feed, 7), "listener-1")
    assert (told["delivered"], told["behind"]) == (None, 1), "it asked again, and was given up to 5"
    report(8)
    assert consumer(trace(feed, 7), "listener-1")["acked"] is not None
