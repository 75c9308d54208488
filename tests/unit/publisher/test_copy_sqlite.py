"""Copies of the rows that were there before: in chunks, resumable, ordered against every later change."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import TableNotFound, Usage
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState
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


def standing(source: SqliteSource, number: int) -> CopyStanding:
    return next(one for one in source.copies() if one.number == number)


def drive(source: SqliteSource, number: int, rows_max: int = 1_000) -> CopyStanding:
    """Take a copy to its end."""
    while copy_chunk(source.connection, number, rows_max=rows_max) is not None:
        pass
    return standing(source, number)


def copied(source: SqliteSource) -> list[int]:
    return [changes_of(row)["b"] for row in data_rows(drain(source)) if row.copy]


def test_later_copies_are_told_apart_and_take_the_rows_that_meet_a_condition(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "item")
    claim(source)
    drain(source)
    number = source.begin_copy(CopyRequest("Item", "b % 5 = 0 AND item.a <> '' -- why not"))
    assert source.begin_copy(CopyRequest("item", "b % 5 = 0 AND item.a <> '' -- why not")) == number
    steps = 0
    while copy_chunk(source.connection, number, rows_max=1) is not None:
        steps += 1
    assert steps == 2
    controls = [row for row in drain(source) if row.control]
    assert [row.key for row in controls] == [
        f"\0{name}/main/item/{number}" for name in ("copy-begin", "copy-end")
    ]
    whole = source.begin_copy(CopyRequest("item"))
    assert drive(source, whole, rows_max=3).rows == 20
    assert sorted(copied(source)) == list(range(20))
    app.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("other",)))
    assert sorted({1, number, whole, attached.number}) == [1, 2, 3, 4]


def test_condition_that_matches_little_looks_at_bounded_numbers_of_rows(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE many (id INTEGER PRIMARY KEY, k BLOB)")
    app.executemany("INSERT INTO many VALUES (?, ?)", [(number, None) for number in range(-10, 25_000)])
    source.attach(AttachRequest(feed=FEED, tables=("many",), copy=False))
    number = source.begin_copy(CopyRequest("many", "id IN (-10, 15000, 24999)"))
    rows = []
    while (step := copy_chunk(source.connection, number)) is not None:
        rows.append(step.rows)
    assert (rows, standing(source, number).rows) == ([1, 1], 3)


@pytest.mark.parametrize(
    "condition",
    ["nope = 1", "b = ?", "b = :last", "true; DROP TABLE item", "true) OR (true", "'", "count(*) > 1", " "],
)
def test_conditions_that_are_refused_at_once(
    app: sqlite3.Connection, source: SqliteSource, condition: str
) -> None:
    attach(source, "item")
    claim(source)
    drain(source)
    with pytest.raises(Usage, match="--where"):
        source.begin_copy(CopyRequest("item", condition))
    assert drain(source) == []


def test_condition_that_fails_on_a_row_ends_the_copy_and_says_why(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "item")
    number = source.begin_copy(CopyRequest("item", "json_extract(a, '$.x') = 1"))
    found = drive(source, number)
    assert (found.state, "malformed JSON" in found.detail) == (CopyState.FAILED, True)


def test_paused_copy_stands_still_and_a_cancelled_one_does_not_come_back(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("item",)))
    copy_chunk(source.connection, attached.number, rows_max=7)
    source.set_copy_state(attached.number, CopyState.PAUSED)
    assert (source.copy_pending(FEED), source.copy_chunk(attached.number)) == (None, None)
    assert [one.copy_state for one in source.check()] == ["paused"]
    with pytest.raises(Usage, match="paused"):
        source.begin_copy(CopyRequest("item"))
    source.set_copy_state(attached.number, CopyState.RUNNING)
    assert drive(source, attached.number).rows == 20
    number = source.begin_copy(CopyRequest("item"))
    source.set_copy_state(number, CopyState.CANCELLED)
    source.set_copy_state(number, CopyState.RUNNING)
    assert source.copy_pending(FEED) is None
    assert [one.copy_state for one in source.check()] == ["cancelled"]
    attach(source, "item")
    assert len(source.copies()) == 2
    claim(source)
    rows = drain(source)
    assert [row.control for row in rows if row.control] == ["schema", "copy-begin", "copy-end", "copy-begin"]
    assert len(fold(rows)) == 20


def test_rate_bounds_the_chunk_and_says_when_the_next_is_due(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "item")
    number = source.begin_copy(CopyRequest("item", rows_per_second=8))
    step = source.copy_chunk(number)
    assert step is not None
    assert (step.rows, step.wait_s) == (2, 0.25)
    step = source.copy_pending(FEED)
    assert step is not None
    assert step.rows == 0 or standing(source, number).rows == 4
    assert source.begin_copy(CopyRequest("item", rows_per_second=1_000_000)) == number
    assert drive(source, number).rows == 20
    with pytest.raises(Usage, match="no rate"):
        source.begin_copy(CopyRequest("item", rows_per_second=0))


def test_table_that_is_not_attached_is_named_with_what_to_do(
    source: SqliteSource, app: sqlite3.Connection
) -> None:
    attach(source, "item")
    with pytest.raises(TableNotFound, match="nope is not attached; attached are: item") as refused:
        source.begin_copy(CopyRequest("nope"))
    assert "publisher attach" in refused.value.advice


def test_copies_go_on_when_the_table_is_altered_under_them(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("item",)))
    copy_chunk(source.connection, attached.number, rows_max=7)
    paused = source.begin_copy(CopyRequest("item", "b > 10"))
    source.set_copy_state(paused, CopyState.PAUSED)
    app.execute("UPDATE item SET v = 1 WHERE b = 19")
    app.execute("ALTER TABLE item ADD COLUMN w")
    app.execute("UPDATE item SET w = 'late' WHERE b IN (1, 18)")
    assert source.mend(FEED) == []
    source.set_copy_state(paused, CopyState.RUNNING)
    while source.copy_pending(FEED) is not None:
        pass
    claim(source)
    rows = drain(source)
    check_order(rows)
    assert (standing(source, attached.number).rows, standing(source, paused).rows) == (20, 9)
    expected = {b: (v, w) for b, v, w in app.execute("SELECT b, v, w FROM item")}
    state = [json.loads(changes) for changes in fold(rows).values()]
    assert {row["b"]: (row["v"], row.get("w")) for row in state} == expected


def test_whole_copy_takes_the_place_of_others_and_detach_ends_them(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "item")
    part = source.begin_copy(CopyRequest("item", "b > 3"))
    whole = source.begin_copy(CopyRequest("item"))
    assert standing(source, part).state is CopyState.CANCELLED
    source.detach(["item"])
    assert source.copy_chunk(whole) is None
    assert standing(source, whole).state is CopyState.FAILED
    source.detach(["item"], discard=True)
    assert app.execute("SELECT name FROM sqlite_master WHERE name LIKE 'headrace%'").fetchall() == []


def test_copy_begun_by_the_first_release_is_taken_over(app: sqlite3.Connection, source: SqliteSource) -> None:
    """It has no ``headrace_copy``: how far it is stands in ``headrace_attached``."""
    (attached,) = source.attach(AttachRequest(feed=FEED, tables=("item",)))
    copy_chunk(source.connection, attached.number, rows_max=7)
    last = app.execute("SELECT max(id) FROM headrace_row_1").fetchone()[0]
    app.execute("DROP TABLE headrace_copy")
    app.execute("UPDATE headrace_attached SET copy_state = 'running', copy_last = ?, copy_rows = 7", (last,))
    assert [(one.number, one.rows, one.state) for one in source.copies()] == [(1, 7, CopyState.RUNNING)]
    assert source.copy_pending(FEED) is None
    assert standing(source, 1).rows == 20
    claim(source)
    assert len(fold(drain(source))) == 20
