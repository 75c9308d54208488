"""Detach: triggers go at once, everything else once it is delivered, and nothing that belongs to the application."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import TableNotFound
from headrace.publisher.outbox import Outbox
from headrace.publisher.sqlite.source import SqliteSource
from tests.unit.publisher.outboxes import FEED, application, attach, claim, data_rows, drain, opened


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    app.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT, amount REAL)")
    with opened(tmp_path / "app.db") as found:
        yield found


def names_in(app: sqlite3.Connection) -> set[str]:
    return {name for (name,) in app.execute("SELECT name FROM sqlite_master WHERE name LIKE '%headrace%'")}


def test_detach_removes_everything_once_it_is_delivered(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    attach(source, "account", "other")
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    claim(source)
    (waiting,) = source.detach(["account"])
    assert waiting.waiting == 4
    app.execute("INSERT INTO account VALUES (2, 'b', 1)")
    rows = drain(source)
    assert [row.key for row in data_rows(rows)] == ['["main","account",1]']
    (gone,) = source.detach(["ACCOUNT"])
    assert gone.waiting == 0
    assert "headrace_row_1" not in names_in(app)
    source.detach([])
    assert names_in(app) == set()


def test_detach_discards_only_what_has_no_place_yet(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "account")
    claim(source)
    source.advance(FEED, "agent-1", 1, None, 1)
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    (detached,) = source.detach([], discard=True)
    assert detached.waiting == 3
    assert [row.control for row in drain(source)] == ["schema", "copy-begin", "copy-end"]
    source.detach([])
    assert names_in(app) == set()


def test_detach_leaves_the_outbox_to_an_application_that_writes_it(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "account")
    Outbox.create(app)
    source.detach([], discard=True)
    assert "headrace_outbox" in names_in(app)
    with pytest.raises(TableNotFound, match="not attached: account"):
        source.detach(["account"])


def test_detach_after_the_outbox_was_dropped_frees_the_application(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "account")
    app.executescript("DROP TABLE headrace_outbox; DROP TABLE headrace_format;")
    with pytest.raises(sqlite3.OperationalError):
        app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    source.detach([])
    app.execute("SELECT 1 FROM account").close()  # takes note of the new schema
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
