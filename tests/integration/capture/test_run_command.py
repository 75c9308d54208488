"""``headrace capture run`` as a process: rules for columns hold in snapshot, stream and copy alike, or it does not start."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.capture.commands import TIMEOUT_S, Capture
from tests.mariadb import Database
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), grpc=True) as running:
        yield running


class Running:
    """A ``capture run``."""

    def __init__(self, capture: Capture, server: ServerProcess, *words: str) -> None:
        self.capture = capture
        self.server = server
        self.said = ""
        self.process = capture.start("run", *words)

    def wait_for_rows(self, count: int, what: str) -> None:
        """Wait until the feed has so many rows of ``users``; fails at once if the capture ends before."""
        wait_until(
            lambda: self.process.poll() is not None or len(rows(self.server, self.capture, "users")) == count,
            TIMEOUT_S,
            what=what,
        )
        assert self.process.poll() is None, self.process.communicate(timeout=TIMEOUT_S)


@contextmanager
def running(capture: Capture, server: ServerProcess, *words: str) -> Iterator[Running]:
    """A capture, stopped at the end, as it should end."""
    run = Running(capture, server, *words)
    try:
        yield run
        run.process.send_signal(signal.SIGTERM)
        _, err = run.process.communicate(timeout=TIMEOUT_S)
        run.said = err
    finally:
        run.process.kill()
        run.process.communicate(timeout=TIMEOUT_S)
    assert run.process.returncode == 0, err


def rows(server: ServerProcess, capture: Capture, table: str) -> list[dict[str, Any]]:
    """The messages of a table's rows so far."""
    feed = Feed(server, capture.feed)
    if server.http.get(feed.path).status_code != 200:
        return []
    entries = [one for one in feed.entries() if one.get("table") == [capture.name, table]]
    return [one["changes"] for one in entries if "control" not in one]


def test_columns_are_hidden_and_masked_in_snapshot_stream_and_copy(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    database.sql(
        "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), email VARCHAR(80), secret INT, pin CHAR(2))"
    )
    database.sql("INSERT INTO users VALUES (1, 'Ann', 'ann@example', 17, '99')")
    capture = Capture(
        tmp_path,
        database,
        server,
        f'mask = ["{database.name}.users.email", "*.*.pin"]',
        'watermark-idle-interval = "1s"',
    )
    with running(capture, server, "--exclude-columns", "*.*.secret") as run:
        run.wait_for_rows(1, "the snapshot")
        database.sql("INSERT INTO users VALUES (2, 'Bob', NULL, 18, '98')")
        database.sql("UPDATE users SET name = 'Bea', email = 'bea@example' WHERE id = 2")
        database.sql("DELETE FROM users WHERE id = 2")
        run.wait_for_rows(4, "the changes")
        code, out, _ = capture.run("copy", f"{database.name}.users")
        assert (code, out) == (0, f"the copy of {database.name}.users has begun\n")
        run.wait_for_rows(5, "the copy")
    ann = {"id": "1", "name": "Ann", "email": "***", "pin": "**"}
    bob = {"id": "2", "name": "Bob", "email": None, "pin": "**"}
    bea = {"id": "2", "name": "Bea", "email": "***", "pin": "**"}
    found = rows(server, capture, "users")
    assert [(one["type"], one.get("data"), one.get("old")) for one in found] == [
        ("INSERT", ann, None),
        ("INSERT", bob, None),
        ("UPDATE", bea, bob),
        ("DELETE", None, bea),
        ("INSERT", ann, None),
    ]
    stored = json.dumps(Feed(server, capture.feed).entries())
    for secret in ("ann@example", "bea@example", '"17"', '"18"', '"99"', '"98"'):
        assert secret not in stored
    assert '"secret"' in stored, "the schema lists all columns"
    assert capture.document("status")["stopped"] == []


def test_a_misspelt_rule_stops_it_before_anything_is_captured(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    database.sql("CREATE TABLE users (id INT PRIMARY KEY, email VARCHAR(80))")
    database.sql("INSERT INTO users VALUES (1, 'ann@example')")
    capture = Capture(tmp_path, database, server)
    process = capture.start("run", "--mask", "*.users.emial")
    try:
        _, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 3
    assert "code: source-unfit" in err
    assert "'*.users.emial' names no column" in err
    assert rows(server, capture, "users") == []
