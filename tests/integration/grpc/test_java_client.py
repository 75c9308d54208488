"""A client in another language, generated from the RFC's proto, subscribes: everything, checked, acked, over a SIGKILL."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.integration.grpc.conftest import registered
from tests.integration.grpc.java_client import Program, Running, compiled
from tests.servers import Feed, ServerProcess, changes, serving
from tests.waiting import wait_until

HALF = 1500
HINT = 100


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return compiled(tmp_path_factory.mktemp("java"))


def post(feed: Feed, first: int, last: int) -> dict[str, Any]:
    answer = feed.post(*({"changes": changes(number)} for number in range(first, last + 1)))
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_it_reads_everything_and_goes_on_from_its_last_ack_after_a_sigkill(
    own: ServerProcess, program: Program, tmp_path: Path
) -> None:
    feed = registered(own, "java::feed")
    post(feed, 1, HALF)
    with Running(program, tmp_path, own.grpc_address, entries=2 * HALF, hint=HINT) as client:
        client.wait_said("acked")
        own.kill()
        own.start()  # at once: an ack that it was about to send waits for a server, and says nothing meanwhile
        client.wait_said("cut")
        post(feed, HALF + 1, 2 * HALF)
        client.wait_end()
        said = client.said()
    stored = [entry for first in range(1, 2 * HALF, 1000) for entry in feed.entries(first, first + 999)]
    read = [line for line in said if line["event"] == "entry"]
    assert [line["lsn"] for line in read] == [entry["lsn"] for entry in stored]
    assert [line["key"] for line in read] == [f"object-{number}" for number in range(1, 2 * HALF + 1)]
    assert {(line["op"], line["tenant"], line["prefix"]) for line in read} == {
        ("OP_PUT", "default", "local:default:java::feed:")
    }
    for line in read:
        assert int(line["hlc"]) == int(line["lsn"][:16], 16)
        assert int(line["at"]) == int(line["hlc"]) >> 18
    # Each stream but the first began at the last ack, inclusive.
    acked = ""
    for before, line in pairwise(said):
        if before["event"] == "acked":
            acked = before["lsn"]
        if line["event"] == "subscribe":
            assert line["start"] == acked
        if before["event"] == "subscribe" and acked:
            assert line == {"event": "again", "lsn": acked} or line["event"] == "cut"
    assert sum(line["event"] == "subscribe" for line in said) >= 2
    assert [line for line in said if line["event"] == "acked"][-1] == {
        "event": "acked",
        "lsn": stored[-1]["lsn"],
        "watermark": stored[-1]["lsn"],
    }


def test_it_is_told_word_for_word_that_its_start_is_gone(program: Program, tmp_path: Path) -> None:
    args = ["--retention", "1ms", "--retention-every", "100ms"]
    with serving(tmp_path / "server", args=args, grpc=True) as server:
        feed = registered(server, "java::feed")
        stored = post(feed, 1, 3)
        first, last = stored["first-lsn"], stored["last-lsn"]
        wait_until(lambda: feed.read(1, 1).status_code == 410, 60, what="everything to be dropped")
        with Running(program, tmp_path, server.grpc_address, entries=1, start=first) as client:
            client.wait_end()
            said = client.said("bounds", "entry", "error", "status")
    assert said == [
        {"event": "bounds", "head": last, "oldest": last},
        {
            "event": "error",
            "text": f"lsn_not_available: start_lsn={first} older than oldest_lsn={last}; "
            f"perform a base snapshot and restart from head_lsn={last}",
        },
    ]
