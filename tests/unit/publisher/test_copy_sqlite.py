"""Copies of the rows that were there before: in chunks, resumable, ordered against every later change."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.sqlite.copying import copy_chunk
from headrace.publisher.sqlite.source import SqliteSource
from tests.unit.publisher.outboxes import (
    FEED,
    application,
    attach,
    changes_of,
    check_order,
    claim,
    data_rows,
    drain,
    fold,
    opened,
)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        connection.execute("CREATE TABLE item (a TEXT NOT NULL, b INT NOT NULL, v, PRIMARY KEY (a, b))")
        connection.executemany("INSERT INTO item VALUES (?, ?, 0)", [("x" * (n % 3), n) for n in range(20)])
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    with opened(tmp_path / "app.db") as found:
        yield found


def test_chunks_follow_the_key_and_changes_in_between_win(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("item",)))
    claim(source)
    rows = drain(source)
    chunks = 0
    while copy_chunk(source.connection, attached.number, rows_max=3):
        app.execute("UPDATE item SET v = v + 1 WHERE b IN (?, ?)", (chunks, 19 - chunks))
        app.execute("DELETE FROM item WHERE b = ?", (chunks * 2,))
        app.execute("INSERT OR IGNORE INTO item VALUES ('', ?, 'new')", (100 + chunks,))
        app.execute("VACUUM")  # gives the rows of a table without INTEGER PRIMARY KEY new rowids
        chunks += 1
        rows += drain(source)
    rows += drain(source)
    check_order(rows)
    assert chunks >= 6
    expected = {json.dumps(["main", "item", a, b]): v for a, b, v in app.execute("SELECT a, b, v FROM item")}
    assert {
        json.dumps(json.loads(key)): json.loads(changes)["v"] for key, changes in fold(rows).items()
    } == expected
    assert [row.control for row in rows if row.control] == ["schema", "copy-begin", "copy-end"]


def test_a_chunk_is_a_transaction_of_its_own(app: sqlite3.Connection, source: SqliteSource) -> None:
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("item",)))
    app.execute("UPDATE item SET v = 1 WHERE b < 2")
    while copy_chunk(source.connection, attached.number, rows_max=8):
        pass
    app.execute("UPDATE item SET v = 2 WHERE b = 0")
    claim(source)
    rows = drain(source)
    check_order(rows)
    units: dict[int, int] = {}
    for row in rows:
        units[row.tx] = units.get(row.tx, 0) + 1
    assert list(units.values()) == [2, 2, 8, 8, 5, 1]


def test_copy_that_was_cut_goes_on_elsewhere(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path
) -> None:
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("item",)))
    assert copy_chunk(source.connection, attached.number, rows_max=7)
    claim(source)
    rows = drain(source)
    # The row copied last was processed long ago; the copy still needs its key.
    source.sweep(FEED, 10**15)
    with opened(tmp_path / "app.db") as other:
        assert not other.copy_pending(FEED)
        assert not other.copy_pending(FEED)
    rows += drain(source)
    assert len(data_rows(rows)) == 20
    assert len(fold(rows)) == 20


def test_keys_of_every_kind_are_passed(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE odd (k PRIMARY KEY NOT NULL)")
    app.execute(
        "INSERT INTO odd VALUES (-1), (1.5), (9e999), (''), ('a'), ('a'||char(0)||'b'), (CAST(x'ff' AS TEXT)), "
        "(CAST(x'fffe' AS TEXT)), ('z'), (x''), (x'00'), (x'ff')"
    )
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("odd",)))
    while copy_chunk(source.connection, attached.number, rows_max=1):
        pass
    claim(source)
    assert [changes_of(row)["k"] for row in data_rows(drain(source))] == [
        -1, 1.5, {"real": "Infinity"}, "", "a", "a\0b", "z", {"invalid-utf8": "/w=="}, {"invalid-utf8": "//4="},
        {"blob": ""}, {"blob": "AA=="}, {"blob": "/w=="},
    ]  # fmt: skip


def test_empty_table_is_copied_too(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("DELETE FROM item")
    attach(source, "item")
    claim(source)
    assert [row.control for row in drain(source)] == ["schema", "copy-begin", "copy-end"]


def test_no_copy_may_be_made_up_for(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item", copy=False)
    claim(source)
    assert [row.control for row in drain(source)] == ["schema"]
    attach(source, "item")
    assert len(data_rows(drain(source))) == 20
