"""A table that was safe when it was attached, and is not any more: found, not hushed by an older acceptance, and healed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import AttachUnsafe
from headrace.publisher.attach.finding import FindingKind
from headrace.publisher.marked import MarkedRow
from headrace.publisher.sqlite.source import SqliteSource
from tests.unit.publisher.outboxes import FEED, application, attach, claim, drain, fold, opened


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    with opened(tmp_path / "app.db") as found:
        yield found


@pytest.fixture
def keyed(app: sqlite3.Connection, source: SqliteSource) -> None:
    """A table that is attached by a unique index."""
    app.execute("CREATE TABLE t (a TEXT NOT NULL, x)")
    app.execute("CREATE UNIQUE INDEX ua ON t (a)")
    attach(source, "t", key=("a",))
    claim(source)


def kinds(source: SqliteSource) -> list[FindingKind]:
    return [finding.kind for finding in source.mend(FEED)]


def copied(source: SqliteSource) -> list[MarkedRow]:
    while source.copy_pending(FEED):
        pass
    return drain(source)


@pytest.mark.usefixtures("keyed")
def test_key_without_its_index_is_unsafe_until_it_is_there_again(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    rows = drain(source)
    app.execute("DROP INDEX ua")
    app.execute("INSERT INTO t VALUES ('k', 1), ('k', 2)")
    app.execute("DELETE FROM t WHERE x = 2")
    assert kinds(source) == [FindingKind.UNSAFE]
    assert [finding.kind for finding in source.check([FEED])[0].findings] == [FindingKind.UNSAFE]
    app.execute("CREATE UNIQUE INDEX ua ON t (a)")
    assert kinds(source) == []
    rows += copied(source)
    assert fold(rows) == {'["main","t","k"]': b'{"a":"k","x":1}'}
    assert kinds(source) == []
    assert copied(source) == [], "it is healed once"


@pytest.mark.usefixtures("keyed")
def test_rows_written_while_a_rebuild_is_unsafe_are_copied_after_it(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("DROP INDEX ua")
    app.execute("ALTER TABLE t ADD COLUMN b")
    assert FindingKind.UNSAFE in kinds(source)
    app.execute("INSERT INTO t VALUES ('k', 1, 'important')")
    assert FindingKind.UNSAFE in kinds(source)
    app.execute("CREATE UNIQUE INDEX ua ON t (a)")
    assert kinds(source) == []
    assert fold(copied(source)) == {'["main","t","k"]': b'{"a":"k","x":1,"b":"important"}'}


def test_refused_rebuild_is_not_taken_for_a_check(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, secret)")
    attach(source, "t", mask=("secret",))
    claim(source)
    source.mend(FEED)
    query = "SELECT checked_id FROM headrace_attached WHERE state = 'live'"
    before = app.execute(query).fetchone()
    app.execute("ALTER TABLE t RENAME COLUMN secret TO hidden")
    app.execute("INSERT INTO t VALUES (1, 'x')")
    assert kinds(source) == [FindingKind.UNSAFE]
    assert app.execute(query).fetchone() == before


def test_acceptance_covers_the_dangers_of_its_time(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name UNIQUE, mail)")
    attach(source, "t", accept="no REPLACE")
    claim(source)
    assert kinds(source) == []
    app.execute("CREATE UNIQUE INDEX mails ON t (mail)")
    (finding,) = source.mend(FEED)
    assert finding.kind is FindingKind.UNSAFE
    assert "(mail)" in finding.detail
    assert "(name)" not in finding.detail
    app.execute("ALTER TABLE t ADD COLUMN b")
    assert set(kinds(source)) == {FindingKind.COLUMN_ADDED, FindingKind.UNSAFE}
    attach(source, "t", accept="no REPLACE over mail either")
    assert kinds(source) == []
    assert source.check([FEED])[0].accepted == "no REPLACE over mail either"


def test_danger_is_accepted_where_the_table_is_attached_already(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, name)")
    attach(source, "t")
    claim(source)
    app.execute("CREATE UNIQUE INDEX names ON t (name)")
    assert kinds(source) == [FindingKind.UNSAFE]
    with pytest.raises(AttachUnsafe):
        attach(source, "t")
    attach(source, "t", accept="no REPLACE")
    assert kinds(source) == []


def test_null_key_is_still_counted_after_a_rebuild(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE t (id TEXT PRIMARY KEY, x)")
    attach(source, "t")
    claim(source)
    rows = drain(source)
    app.execute("INSERT INTO t VALUES (NULL, 'kept')")
    app.execute("ALTER TABLE t ADD COLUMN b")
    assert kinds(source) == []
    with pytest.raises(AttachUnsafe, match="1 row"):
        drain(source)
    app.execute("UPDATE t SET id = 'k'")
    rows += drain(source)
    assert fold(rows) == {'["main","t","k"]': b'{"id":"k","x":"kept","b":null}'}


def test_numbers_in_a_blob_key_are_one_key_as_in_sqlite(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE t (id BLOB PRIMARY KEY NOT NULL, x)")
    attach(source, "t")
    claim(source)
    app.execute("INSERT INTO t VALUES (1, 'a'), (2.5, 'c')")
    app.execute("UPDATE t SET id = 1.0, x = 'b' WHERE id = 1")
    state = fold(drain(source))
    assert state['["main","t",{"integer":1}]'] == b'{"id":{"real":1.0},"x":"b"}'
    assert sorted(state) == ['["main","t",{"integer":1}]', '["main","t",{"real":2.5}]']
