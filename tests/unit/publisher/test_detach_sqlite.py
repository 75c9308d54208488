"""Detach: triggers go at once, everything else once it is delivered, and nothing that belongs to the application."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import TableNotFound
from headrace.publisher.outbox import Outbox
from headrace.publisher.sqlite.source import SqliteSource, state_reader
from headrace.runtime.dsn import parse_dsn
from tests.states import read_lines, take
from tests.unit.publisher.outboxes import (
    AGENT,
    FEED,
    application,
    attach,
    claim,
    data_rows,
    drain,
    fold,
    opened,
)


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
    assert waiting.waiting == 5  # with the entry that ends the table
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


@pytest.mark.parametrize("discard", [False, True], ids=["keep", "discard"])
def test_who_follows_has_what_a_snapshot_has_after_a_detach(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path, discard: bool
) -> None:
    app.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    attach(source, "account", "other")
    claim(source)
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("INSERT INTO other VALUES (7)")
    posted = drain(source)
    app.execute("UPDATE account SET owner = 'b'")
    source.detach(["account"], discard=discard)
    app.execute("INSERT INTO other VALUES (8)")
    reader = state_reader(parse_dsn(f"sqlite:///{tmp_path / 'app.db'}"), FEED, None)
    place, lines = take(source, reader, FEED, AGENT)
    posted += drain(source)
    assert place.sequence_id == len(posted)
    rows, _ = read_lines(line.rstrip(b"\n") for line in lines)
    assert rows == fold(posted) == {'["main","other",7]': b'{"id":7}', '["main","other",8]': b'{"id":8}'}
    app.execute("DELETE FROM account")
    attach(source, "account")
    posted += drain(source)
    assert set(fold(posted)) == {'["main","other",7]', '["main","other",8]'}, (
        "what was deleted meanwhile is there"
    )


def test_nobody_is_told_of_the_end_of_what_nobody_was_told_of(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    attach(source, "account", "other")
    (gone,) = source.detach(["account"], discard=True)
    assert gone.waiting == 0
