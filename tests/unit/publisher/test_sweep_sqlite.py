"""Sweeping: oldest first, in bounded chunks, never what may still be needed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.publisher.outbox import Outbox
from headrace.publisher.sqlite.source import SqliteSource
from headrace.publisher.sqlite.sweep import sweep
from tests.unit.publisher.outboxes import FEED, application, attach, claim, drain, opened

EVER = 10**15


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    with opened(tmp_path / "app.db") as found:
        attach(found, "t")
        claim(found)
        yield found


def count(app: sqlite3.Connection, table: str = "headrace_outbox") -> int:
    return int(app.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_processed_rows_go_in_chunks_with_their_values(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.executemany("INSERT INTO t VALUES (?, 1)", [(number,) for number in range(20)])
    drain(source)
    app.execute("INSERT INTO t VALUES (99, 1)")
    source.mend(FEED)
    assert [sweep(source.connection, FEED, EVER, rows_max=9) for _ in range(4)] == [9, 9, 5, 0]
    assert (count(app), count(app, "headrace_row_1")) == (1, 1)
    assert len(drain(source)) == 1


def test_young_rows_stay(app: sqlite3.Connection, source: SqliteSource) -> None:
    drain(source)
    source.mend(FEED)
    assert source.sweep(FEED, 2_000) == 0
    assert source.sweep(FEED, 2_001) == 3


def test_rows_above_the_last_check_stay(app: sqlite3.Connection, source: SqliteSource) -> None:
    drain(source)
    source.mend(FEED)
    app.execute("INSERT INTO t VALUES (1, 1)")
    drain(source)
    source.sweep(FEED, EVER)
    assert count(app) == 1


def test_other_feeds_rows_stay(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("BEGIN")
    Outbox.add(app, "other", {})
    app.execute("COMMIT")
    drain(source)
    source.mend(FEED)
    source.sweep(FEED, EVER)
    assert app.execute("SELECT change_feed_id FROM headrace_outbox").fetchall() == [("other",)]


def test_ended_attachments_go_when_nothing_needs_them(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("INSERT INTO t VALUES (1, 1)")
    app.execute("ALTER TABLE t ADD COLUMN w DEFAULT 3")
    source.mend(FEED)
    while source.copy_pending(FEED):
        pass
    assert source.sweep(FEED, EVER) == 0
    assert count(app, "headrace_attached") == 2
    drain(source)
    source.mend(FEED)
    while source.sweep(FEED, EVER):
        pass
    assert count(app, "headrace_attached") == 1
    assert app.execute("SELECT name FROM sqlite_master WHERE name LIKE 'headrace_row%'").fetchall() == [
        ("headrace_row_2",)
    ]
