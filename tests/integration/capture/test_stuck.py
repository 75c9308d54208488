"""A capture that can't go on says so (its health, its report, an alarm), begins anew, and loses and doubles nothing."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.capture.commands import Capture
from tests.integration.capture.test_run_command import rows, running
from tests.mariadb import Database, Server
from tests.ports import free_port
from tests.proxy import Proxy
from tests.servers import ServerProcess, serving
from tests.stuck import WITHIN, stalled, wait_over, wait_state, wait_stuck
from tests.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running


def prepared(tmp_path: Path, database: Database, server: ServerProcess) -> tuple[Capture, int]:
    """A capture of a table with one row, and the port of its health."""
    database.sql("CREATE TABLE users (id INT PRIMARY KEY)")
    database.sql("INSERT INTO users VALUES (1)")
    port = free_port()
    lines = (f'health = "127.0.0.1:{port}"', 'stalled-after = "3s"')
    return Capture(tmp_path, database, server, *lines), port


def idle_stream(server: ServerProcess) -> dict[str, Any]:
    """What the report of an idle capture says of its stream, once that has a place in the source."""
    (stream, *_) = wait_state(server, "capture", "idle")["report"]["works"]
    return dict(stream) if stream["source-position"] else {}


def ids(server: ServerProcess, capture: Capture) -> list[int]:
    return [int(one["data"]["id"]) for one in rows(server, capture, "users")]


def test_a_source_that_stands_still(tmp_path: Path, unsteady: Server, server: ServerProcess) -> None:
    database = unsteady.create_captured("standing_still")
    capture, port = prepared(tmp_path, database, server)
    with running(capture, server) as run:
        run.wait_for_rows(1, "the snapshot")
        stream = wait_until(
            lambda: idle_stream(server), WITHIN, what="a stream that is idle and knows its place"
        )
        assert (stream["feed"], stream["reachable"], stream["waiting"]) == (capture.feed, True, 0)
        assert stream["source-position"].count("-") == 2, "a GTID"
        unsteady.suspend()
        try:
            wait_stuck(server, port, f"capture {capture.feed} does not move at ")
            (alarm,) = stalled(server)
            assert f"the capture capture@{capture.feed} on " in alarm
            assert wait_state(server, "capture", "stuck")["report"]["works"][0]["waiting"] == 1
        finally:
            unsteady.go_on()
        database.sql("INSERT INTO users VALUES (2), (3)")
        wait_until(lambda: ids(server, capture) == [1, 2, 3], WITHIN, what="the rows after it")
        wait_over(server, port)
    wait_state(server, "capture", "ending")


@pytest.mark.soak(sibling="test_a_source_that_stands_still")
def test_a_process_that_stands_still(tmp_path: Path, database: Database, server: ServerProcess) -> None:
    """A server says so after half a minute of silence, and of a listener in each run of the tests."""
    capture, _ = prepared(tmp_path, database, server)
    with running(capture, server) as run:
        run.wait_for_rows(1, "the snapshot")
        run.process.send_signal(signal.SIGSTOP)
        try:
            wait_state(server, "capture", "gone")
        finally:
            run.process.send_signal(signal.SIGCONT)
        database.sql("INSERT INTO users VALUES (2)")
        wait_until(lambda: ids(server, capture) == [1, 2], WITHIN, what="the row after its own stop")
        wait_state(server, "capture", "idle")


def test_a_half_open_line_to_the_server(tmp_path: Path, database: Database, server: ServerProcess) -> None:
    capture, port = prepared(tmp_path, database, server)
    assert server.grpc_address is not None
    with Proxy("127.0.0.1", int(server.grpc_address.rpartition(":")[2])) as proxy:
        config = capture.config.read_text().replace(server.grpc_address, f"127.0.0.1:{proxy.port}")
        capture.config.write_text(config)
        with running(capture, server) as run:
            run.wait_for_rows(1, "the snapshot")
            proxy.freeze()
            database.sql("INSERT INTO users VALUES (2)")
            wait_stuck(server, port, "the server's answers to appends")
            database.sql("INSERT INTO users VALUES (3)")
            proxy.thaw()
            wait_until(lambda: ids(server, capture) == [1, 2, 3], WITHIN, what="all rows, each once")
            wait_over(server, port)


def test_a_lock_that_keeps_a_copy_from_going_on(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    capture, port = prepared(tmp_path, database, server)
    with running(capture, server) as run, closing(database.connect(autocommit=True)) as holder:
        run.wait_for_rows(1, "the snapshot")
        with holder.cursor() as cursor:
            cursor.execute("LOCK TABLES users WRITE")
            code, out, err = capture.run("copy", f"{database.name}.users", "--no-wait")
            assert code == 0, out + err
            wait_stuck(server, port, "source-locked")
            cursor.execute("UNLOCK TABLES")
        database.sql("INSERT INTO users VALUES (2)")
        wait_until(lambda: sorted(ids(server, capture)) in ([1, 1, 2], [1, 1, 2, 2]), WITHIN, what="the copy")
        wait_over(server, port)
    check_alarms([json.loads(line) for line in run.said.splitlines() if line.startswith("{")])


def check_alarms(lines: list[dict[str, Any]]) -> None:
    """What is stuck is an error in the log: once, until it moves again, as it may for a moment when it begins anew."""
    stuck, alarms = set[str](), 0
    for line in lines:
        if line["event"] == "alarm":
            name = line["detail"].partition(" does not move ")[0]
            assert (line["level"], line["code"], name in stuck) == ("error", "stalled", False), line
            stuck.add(name)
            alarms += 1
        elif line["event"] == "it moves again":
            stuck.remove(line["work"])
    assert alarms
