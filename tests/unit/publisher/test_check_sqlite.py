"""Triggers against catalogue: what is found, what is rebuilt without a person, and what is copied again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.publisher.attach.finding import FindingKind
from headrace.publisher.marked import MarkedRow
from headrace.publisher.sqlite.source import SqliteSource
from tests.unit.publisher.outboxes import (
    FEED,
    application,
    attach,
    changes_of,
    check_order,
    claim,
    drain,
    fold,
    opened,
)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        connection.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, secret TEXT)")
        connection.execute("INSERT INTO item VALUES (1, 'a', 's'), (2, 'b', 's')")
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    with opened(tmp_path / "app.db") as found:
        yield found


def kinds(source: SqliteSource) -> list[FindingKind]:
    (found,) = source.check()
    return [finding.kind for finding in found.findings]


def mended(source: SqliteSource) -> list[MarkedRow]:
    """Mend, copy what is to be copied, and return what is posted from now on."""
    drain(source)
    assert source.mend(FEED) == []
    while source.copy_pending(FEED):
        pass
    rows = drain(source)
    check_order(rows, rows[0].sequence_id if rows else 1)
    assert kinds(source) == []
    return rows


def test_all_is_right_after_attach(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item")
    claim(source)
    assert kinds(source) == []
    assert mended(source) == []


def test_new_column_copies_what_was_written_meanwhile(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item")
    claim(source)
    drain(source)
    source.mend(FEED)
    app.execute("ALTER TABLE item ADD COLUMN size INT")
    app.execute("UPDATE item SET size = 7 WHERE id = 2")
    app.execute("INSERT INTO item VALUES (3, 'c', 's', 8)")
    assert kinds(source) == [FindingKind.COLUMN_ADDED]
    rows = mended(source)
    assert [row.control for row in rows] == ["schema", "copy-begin", None, None, "copy-end"]
    assert changes_of(rows[0])["version"] == 2
    assert [column["name"] for column in changes_of(rows[0])["columns"]] == ["id", "name", "secret", "size"]
    assert [changes_of(row)["size"] for row in rows[2:4]] == [7, 8]
    app.execute("UPDATE item SET size = 9 WHERE id = 1")
    assert changes_of(drain(source)[0])["size"] == 9


def test_new_column_with_a_default_copies_everything(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item")
    claim(source)
    app.execute("ALTER TABLE item ADD COLUMN size INT DEFAULT 5")
    rows = mended(source)
    assert [changes_of(row)["size"] for row in rows if not row.control] == [5, 5]


def test_new_column_that_is_not_delivered_makes_no_entry(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "item", columns=("name",))
    claim(source)
    app.execute("ALTER TABLE item ADD COLUMN size INT")
    assert mended(source) == []
    app.execute("UPDATE item SET name = 'z' WHERE id = 1")
    assert [changes_of(row) for row in drain(source)] == [{"id": 1, "name": "z"}]


def test_renamed_column_copies_everything(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item")
    claim(source)
    rows = drain(source)
    app.execute("ALTER TABLE item RENAME COLUMN name TO title")
    app.execute("UPDATE item SET title = 'z' WHERE id = 1")
    assert FindingKind.COLUMN_CHANGED in kinds(source)
    rows += drain(source)
    assert changes_of(rows[-1]) == {"id": 1, "name": "z", "secret": "s"}
    rows += mended(source)
    assert list(fold(rows).values()) == [
        b'{"id":1,"title":"z","secret":"s"}',
        b'{"id":2,"title":"b","secret":"s"}',
    ]


def test_renamed_column_that_was_masked_needs_a_person(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item", mask=("secret",))
    claim(source)
    app.execute("ALTER TABLE item RENAME COLUMN secret TO hidden")
    app.execute("UPDATE item SET hidden = 'plain'")
    (finding,) = source.mend(FEED)
    assert finding.kind is FindingKind.UNSAFE
    assert "--mask" in finding.detail
    assert all(b"plain" not in row.changes for row in drain(source))


def test_dropping_a_delivered_column_fails_until_it_is_detached(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "item", exclude_columns=("secret",))
    claim(source)
    with pytest.raises(sqlite3.OperationalError, match="headrace_1"):
        app.execute("ALTER TABLE item DROP COLUMN name")
    app.execute("ALTER TABLE item DROP COLUMN secret")
    assert kinds(source) == [FindingKind.COLUMN_CHANGED]


def test_lost_trigger_is_an_alarm_until_attached_again(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item")
    claim(source)
    rows = drain(source)
    app.execute("DROP TRIGGER headrace_1_delete")
    app.execute("DELETE FROM item WHERE id = 1")
    (finding,) = source.mend(FEED)
    assert finding.kind is FindingKind.TRIGGER_MISSING
    assert "headrace_1_delete" in finding.detail
    attach(source, "item")
    assert list(fold(rows + drain(source))) == ['["main","item",2]']


def test_changed_trigger_is_rebuilt(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item")
    claim(source)
    app.execute("DROP TRIGGER headrace_1_insert")
    app.execute("CREATE TRIGGER headrace_1_insert AFTER INSERT ON item BEGIN SELECT 1; END")
    app.execute("INSERT INTO item VALUES (3, 'c', 's')")
    assert kinds(source) == [FindingKind.TRIGGER_OUTDATED]
    rows = mended(source)
    assert [row.control for row in rows] == ["copy-begin", None, None, None, "copy-end"]


def test_trigger_that_keeps_ours_from_firing_is_overtaken_again(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "item")
    claim(source)
    rows = drain(source)
    app.execute("CREATE TRIGGER quiet AFTER DELETE ON item BEGIN SELECT raise (IGNORE); END")
    app.execute("DELETE FROM item WHERE id = 1")
    assert kinds(source) == [FindingKind.TRIGGER_OVERTAKEN]
    rows += mended(source)
    assert list(fold(rows)) == ['["main","item",2]']
    app.execute("DELETE FROM item WHERE id = 2")
    assert fold(rows + drain(source)) == {}


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("DROP TABLE item", FindingKind.TABLE_MISSING),
        ("ALTER TABLE item RENAME TO thing", FindingKind.TABLE_RENAMED),
        ("CREATE UNIQUE INDEX twin ON item (name)", FindingKind.UNSAFE),
    ],
    ids=["dropped", "renamed", "second-unique"],
)
def test_what_only_a_person_can_mend(
    app: sqlite3.Connection, source: SqliteSource, statement: str, kind: FindingKind
) -> None:
    attach(source, "item")
    claim(source)
    app.execute(statement)
    assert kinds(source) == [kind]
    assert [finding.kind for finding in source.mend(FEED)] == [kind]


def test_renamed_table_goes_on_under_its_old_name(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item", copy=False)
    claim(source)
    drain(source)
    app.execute("ALTER TABLE item RENAME TO thing")
    app.execute("UPDATE thing SET name = 'z' WHERE id = 1")
    assert [row.key for row in drain(source)] == ['["main","item",1]']


def test_alarm_is_kept_for_whoever_asks(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "item")
    app.execute("DROP TRIGGER headrace_1_update")
    source.mend(FEED)
    stored = source.connection.execute("SELECT alarm FROM headrace_attached").fetchone()[0]
    assert "trigger-missing" in stored
    attach(source, "item")
    source.mend(FEED)
    assert source.connection.execute(
        "SELECT alarm FROM headrace_attached WHERE state = 'live'"
    ).fetchone() == (None,)
