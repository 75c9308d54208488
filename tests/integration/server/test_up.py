"""``headrace up``: server and agent in one process, over a real SQLite database."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server.test_start import headrace, refused
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database with one table and one row."""
    path = tmp_path / "app.db"
    write(
        path,
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, state TEXT)",
        "INSERT INTO orders VALUES (1, 'new')",
    )
    return path


def write(database: Path, *statements: str) -> None:
    """Run the statements in one transaction of the application."""
    with contextlib.closing(sqlite3.connect(database, timeout=30)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def entries(server: ServerProcess) -> list[Any]:
    """What the feed holds; nothing while there is no feed."""
    answer = Feed(server, "shop").read(1, limit=10_000)
    return list(answer.json()["changes-list"]) if answer.status_code == 200 else []


def orders(server: ServerProcess) -> list[Any]:
    """What the feed says of the orders, in its order: (op, id, state)."""
    rows = [entry for entry in entries(server) if "control" not in entry]
    return [(row["op"], row["changes"]["id"], row["changes"]["state"]) for row in rows]


def controls(server: ServerProcess) -> list[str]:
    """The control entries of the feed, in its order: what each is."""
    return [entry["control"] for entry in entries(server) if "control" in entry]


def test_rows_before_and_after_reach_the_feed_once_across_a_kill(tmp_path: Path, database: Path) -> None:
    args = ["--source", f"sqlite:///{database}", "--table", "orders", "--feed", "shop"]
    expected = [("put", 1, "new")]
    with serving(tmp_path / "up", command="up", args=args) as server:
        wait_until(lambda: orders(server) == expected, what="the copied row")
        write(database, "INSERT INTO orders VALUES (2, 'new')")
        expected += [("put", 2, "new")]
        wait_until(lambda: orders(server) == expected, what="the inserted row")
        server.kill()
        write(database, "UPDATE orders SET state = 'paid' WHERE id = 1", "DELETE FROM orders WHERE id = 2")
        expected += [("put", 1, "paid"), ("delete", 2, "new")]
        server.start()
        wait_until(lambda: orders(server) == expected, what="what was committed meanwhile")
        assert server.stop() == 0
        assert "Traceback" not in server.errors()
        assert str(database) not in server.errors(), "a DSN is never printed"


def test_tables_with_commas_between_and_a_backup_of_what_up_serves(tmp_path: Path, database: Path) -> None:
    write(database, "CREATE TABLE customers (id INTEGER PRIMARY KEY)", "INSERT INTO customers VALUES (7)")
    args = ["--source", f"sqlite:///{database}", "--table", "orders, customers", "--feed", "shop"]
    with serving(tmp_path / "up", command="up", args=args, grpc=True) as server:
        wait_until(lambda: controls(server).count("copy-end") == 2, what="both copies")
        archive = [
            "--pitr-dir",
            str(tmp_path / "archive"),
            "--server",
            server.url,
            "--grpc",
            server.grpc_address,
        ]
        done = headrace("wal", "backup", "--once", *archive)
        assert done.returncode == 0, done.stderr
    assert list((tmp_path / "archive").glob("kdb-wal-*.bin"))


def test_wrong_source_and_table_are_refused_and_leave_no_server_behind(
    tmp_path: Path, database: Path
) -> None:
    rest = ["--http", "127.0.0.1:0", "--grpc", "off", "--data-dir", str(tmp_path / "data")]
    source = ["--source", f"sqlite:///{database}"]
    assert "orders" in refused(headrace("up", *source, "--table", "nothing", *rest), "table-not-found", 2)
    refused(headrace("up", "--source", "oracle://x", "--table", "orders", *rest), "dsn-invalid", 2)
    refused(
        headrace("up", "--source", f"sqlite:///{tmp_path}/no.db", "--table", "orders", *rest),
        "dsn-invalid",
        2,
    )
    refused(headrace("up", *source, *rest), "usage", 2)
    with serving(tmp_path, data_dir=tmp_path / "data") as server:
        assert server.http.get("/feeds").json() == {"feeds": []}


def test_locked_data_folder_ends_it_before_anything_is_attached(tmp_path: Path, database: Path) -> None:
    with serving(tmp_path / "other") as server:
        rest = ["--http", "127.0.0.1:0", "--grpc", "off", "--data-dir", str(server.data_dir)]
        refused(
            headrace("up", "--source", f"sqlite:///{database}", "--table", "orders", *rest),
            "data-folder-locked",
            3,
        )
    with contextlib.closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall() == []
