"""Outbox.add: on the caller's connection, in the caller's transaction, both or neither; and what it refuses."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import FormatTooNew, InvalidRequest, TableNotFound, TooLarge, Usage
from headrace.publisher.outbox import Outbox
from tests.unit.publisher.outboxes import application


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Give a database with the application's table and an outbox."""
    path = tmp_path / "app.db"
    with application(path) as app:
        app.execute("CREATE TABLE vm (uuid TEXT PRIMARY KEY, alias TEXT)")
        Outbox.create(app)
    return path


@pytest.fixture
def app(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection in sqlite3's default mode: the driver begins a transaction at the first write."""
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def stored(path: Path) -> list[tuple[Any, ...]]:
    with application(path) as other:
        return other.execute(
            'SELECT change_feed_id, op, "key", changes, changed, agent_id, processed FROM headrace_outbox'
        ).fetchall()


def test_row_commits_with_the_data(app: sqlite3.Connection, path: Path) -> None:
    app.execute("INSERT INTO vm VALUES ('a', 'one')")
    number = Outbox.add(app, "vmapi::vm", {"uuid": "a", "alias": "öne"}, key="a", changed=["alias"])
    assert app.in_transaction
    assert stored(path) == []
    app.commit()
    assert number == 1
    assert stored(path) == [("vmapi::vm", "put", "a", '{"uuid":"a","alias":"öne"}', '["alias"]', "", 0)]


def test_row_vanishes_with_the_data(app: sqlite3.Connection, path: Path) -> None:
    Outbox.add(app, "vmapi::vm", {"uuid": "a"})
    app.execute("INSERT INTO vm VALUES ('a', 'one')")
    app.rollback()
    assert stored(path) == []
    assert app.execute("SELECT count(*) FROM vm").fetchone() == (0,)


def test_a_transaction_that_begins_with_the_row_waits_for_others_before_it_reads(path: Path) -> None:
    """Between what the call reads and what it writes nobody else commits: SQLite would refuse the write without waiting."""
    with application(path) as app, application(path) as other:
        other.execute("PRAGMA busy_timeout = 0")
        refused = []

        def commit(statement: str) -> None:
            if statement.lstrip().startswith("INSERT"):
                try:
                    other.execute("INSERT INTO vm VALUES ('b', 'of another process')")
                except sqlite3.OperationalError as error:
                    refused.append(str(error))

        app.execute("BEGIN")
        app.set_trace_callback(commit)
        Outbox.add(app, "vmapi::vm", {"uuid": "a"})
        app.execute("COMMIT")
    assert refused == ["database is locked"]
    assert len(stored(path)) == 1


def test_savepoint_takes_the_row_back(app: sqlite3.Connection, path: Path) -> None:
    Outbox.add(app, "f", {"n": 1})
    app.execute("SAVEPOINT s")
    Outbox.add(app, "f", {"n": 2})
    app.execute("ROLLBACK TO s")
    Outbox.add(app, "f", {"n": 3})
    app.commit()
    assert [row[3] for row in stored(path)] == ['{"n":1}', '{"n":3}']


def test_autocommit_needs_an_open_transaction(path: Path) -> None:
    with application(path) as app:
        with pytest.raises(InvalidRequest, match="autocommit"):
            Outbox.add(app, "f", {})
        app.execute("BEGIN")
        Outbox.add(app, "f", {})
        app.execute("COMMIT")
    assert len(stored(path)) == 1


def test_ready_json_passes_byte_for_byte(app: sqlite3.Connection, path: Path) -> None:
    text = '{ "b" : 1.10, "a":[1, 2] , "ü" : "\\u00fc"}'
    Outbox.add(app, "f", text.encode())
    Outbox.add(app, "f", text, op="delete")
    app.commit()
    assert [(row[1], row[3]) for row in stored(path)] == [("put", text), ("delete", text)]


def test_callers_factories_do_not_matter(app: sqlite3.Connection, path: Path) -> None:
    app.row_factory = lambda cursor, row: {"row": row}
    app.text_factory = bytes
    Outbox.create(app)
    Outbox.add(app, "f", {})
    app.commit()
    assert len(stored(path)) == 1


@pytest.mark.parametrize(
    ("arguments", "member"),
    [
        ({"feed": "no spaces"}, "change-feed-id"),
        ({"op": "upsert"}, "op"),
        ({"key": "\0schema"}, "key"),
        ({"changed": "alias"}, "changed"),
        ({"changes": [1]}, "changes"),
        ({"changes": "[1]"}, "changes"),
        ({"changes": b"{"}, "changes"),
        ({"changes": b"\xff"}, "changes"),
        ({"changes": '{"a": NaN}'}, "changes"),
        ({"changes": {"a": float("nan")}}, "changes"),
        ({"changes": {"a": {1}}}, "changes"),
        ({"changes": {"a": "\ud800"}}, "changes"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_bad_argument_is_refused_by_name(
    app: sqlite3.Connection, path: Path, arguments: dict[str, Any], member: str
) -> None:
    given: dict[str, Any] = {"feed": "f", "changes": {}, **arguments}
    with pytest.raises(InvalidRequest) as caught:
        Outbox.add(app, **given)
    assert caught.value.members["member"] == member
    app.commit()
    assert stored(path) == []


def test_too_large_a_row_is_refused(app: sqlite3.Connection) -> None:
    with pytest.raises(TooLarge):
        Outbox.add(app, "f", {"a": "x" * (1 << 20)})


def test_no_outbox_says_how_to_make_one(tmp_path: Path) -> None:
    with application(tmp_path / "other.db") as app:
        app.execute("BEGIN")
        with pytest.raises(TableNotFound, match="no outbox") as caught:
            Outbox.add(app, "f", {})
        assert "Outbox.create" in caught.value.advice


def test_newer_format_is_not_touched(app: sqlite3.Connection, path: Path) -> None:
    app.execute("UPDATE headrace_format SET written_as = 9, readable_from = 9")
    app.commit()
    for call in (lambda: Outbox.add(app, "f", {}), lambda: Outbox.create(app)):
        with pytest.raises(FormatTooNew):
            call()
    assert stored(path) == []


def test_format_that_is_still_readable_is_used(app: sqlite3.Connection, path: Path) -> None:
    app.execute("UPDATE headrace_format SET written_as = 9")
    Outbox.add(app, "f", {})
    app.commit()
    assert len(stored(path)) == 1


def test_other_drivers_are_refused() -> None:
    with pytest.raises(Usage, match=r"builtins\.str"):
        Outbox.add("app.db", "f", {})  # type: ignore[arg-type]  # that is the point


def test_client_needs_nothing_but_the_driver() -> None:
    code = (
        "import sys; import headrace.publisher.outbox; "
        "print([name for name in sys.modules if name.split('.')[0] in "
        "('msgspec', 'httpx', 'structlog', 'uvicorn', 'starlette', 'google', 'cyclopts', 'rich')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
