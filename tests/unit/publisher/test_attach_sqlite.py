"""Attached SQLite tables: what each kind of statement becomes, and which tables are refused by name."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import AttachUnsafe, FormatTooNew, HeadraceError, TableNotFound, Usage
from headrace.publisher.attach.selection import AttachRequest
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
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    app.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT, amount REAL)")
    with opened(tmp_path / "app.db") as found:
        yield found


def relayed(source: SqliteSource) -> list[tuple[str, str, Any]]:
    """What the statements since the last call became: op, key without the table, changes."""
    claim(source)
    return [
        (row.op, json.dumps(json.loads(str(row.key))[2:]), changes_of(row))
        for row in data_rows(drain(source))
    ]


def names_in(app: sqlite3.Connection) -> set[str]:
    return {name for (name,) in app.execute("SELECT name FROM sqlite_master WHERE name LIKE '%headrace%'")}


def test_schema_first_then_copies_then_changes(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("INSERT INTO account VALUES (1, 'a', 1.5), (2, 'b', 2)")
    attach(source, "account")
    app.execute("UPDATE account SET amount = 3 WHERE id = 1")
    claim(source)
    rows = drain(source)
    check_order(rows)
    assert [(row.control, row.copy) for row in rows] == [
        ("schema", False), ("copy-begin", False), (None, True), (None, True), ("copy-end", False), (None, False),
    ]  # fmt: skip
    assert rows[0].key == "\0schema/main/account/1"
    assert changes_of(rows[0]) == {
        "database": "main",
        "table": "account",
        "version": 1,
        "columns": [
            {"name": "id", "type": "int64", "source-type": "INTEGER", "nullable": False},
            {"name": "owner", "type": "string", "source-type": "TEXT", "nullable": True},
            {"name": "amount", "type": "float64", "source-type": "REAL", "nullable": True},
        ],
        "key": ["id"],
    }
    assert {row.table for row in rows} == {("main", "account")}
    assert rows[5].changed == ("amount",)
    assert rows[5].changes == b'{"id":1,"owner":"a","amount":3.0}'
    assert changes_of(rows[4])["rows"] == 2


def test_insert_update_delete(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "account", copy=False)
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("UPDATE account SET owner = 'b'")
    app.execute("DELETE FROM account")
    assert relayed(source) == [
        ("put", "[1]", {"id": 1, "owner": "a", "amount": 1.0}),
        ("put", "[1]", {"id": 1, "owner": "b", "amount": 1.0}),
        ("delete", "[1]", {"id": 1, "owner": "b", "amount": 1.0}),
    ]


def test_change_of_key_is_delete_and_put(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "account", copy=False)
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("UPDATE account SET rowid = 7")
    assert [row[:2] for row in relayed(source)] == [("put", "[1]"), ("delete", "[1]"), ("put", "[7]")]


def test_replace_and_upsert(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "account", copy=False)
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("REPLACE INTO account VALUES (1, 'b', 2)")
    app.execute(
        "INSERT INTO account VALUES (1, 'c', 3) ON CONFLICT (id) DO UPDATE SET owner = excluded.owner"
    )
    app.execute("INSERT OR IGNORE INTO account VALUES (1, 'd', 4)")
    app.execute("INSERT INTO account VALUES (2, 'x', 0)")
    app.execute("UPDATE OR REPLACE account SET id = 2 WHERE id = 1")
    found = relayed(source)
    assert [row[:2] for row in found] == [
        ("put", "[1]"), ("put", "[1]"), ("put", "[1]"), ("put", "[2]"), ("delete", "[1]"), ("put", "[2]"),
    ]  # fmt: skip
    assert found[-1][2] == {"id": 2, "owner": "c", "amount": 2.0}


def test_cascades_fire(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("PRAGMA foreign_keys = ON")
    app.execute(
        "CREATE TABLE child (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES account ON DELETE CASCADE)"
    )
    app.execute("CREATE TABLE tree (id INTEGER PRIMARY KEY, up INTEGER REFERENCES tree ON DELETE CASCADE)")
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("INSERT INTO child VALUES (5, 1), (6, 1)")
    app.execute("INSERT INTO tree VALUES (1, NULL), (2, 1), (3, 2)")
    attach(source, "child", "tree", copy=False)
    app.execute("DELETE FROM account")
    app.execute("DELETE FROM tree WHERE id = 1")
    assert sorted(row[1] for row in relayed(source)) == ["[1]", "[2]", "[3]", "[5]", "[6]"]


def test_rolled_back_statement_leaves_nothing(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "account", copy=False)
    app.execute("BEGIN")
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("SAVEPOINT s")
    app.execute("INSERT INTO account VALUES (2, 'b', 1)")
    app.execute("ROLLBACK TO s")
    app.execute("INSERT INTO account VALUES (3, 'c', 1)")
    app.execute("COMMIT")
    app.execute("BEGIN")
    app.execute("DELETE FROM account")
    app.execute("ROLLBACK")
    assert [row[:2] for row in relayed(source)] == [("put", "[1]"), ("put", "[3]")]


def test_application_sees_no_difference(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "account", copy=False)
    cursor = app.execute("INSERT INTO account (owner) VALUES ('a'), ('b')")
    assert (cursor.rowcount, cursor.lastrowid) == (2, 2)
    cursor = app.execute("UPDATE account SET amount = 1")
    assert cursor.rowcount == 2
    assert app.execute("SELECT changes(), last_insert_rowid()").fetchone() == (2, 2)


def test_trigger_of_the_application_made_later_fires_first_and_truth_wins(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    attach(source, "account", copy=False)
    app.execute(
        "CREATE TRIGGER stamp AFTER INSERT ON account BEGIN UPDATE account SET owner = 'stamped' WHERE id = NEW.id; END"
    )
    app.execute(
        "CREATE TRIGGER back AFTER DELETE ON account BEGIN INSERT INTO account VALUES (OLD.id, 'back', 0); END"
    )
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    app.execute("DELETE FROM account")
    claim(source)
    assert list(fold(drain(source)).values()) == [b'{"id":1,"owner":"stamped","amount":0.0}']


def test_names_that_need_quoting(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute(
        """CREATE TABLE "it's ""quoted"" [x]" ("select" TEXT NOT NULL, "a b" INT, "c""d'" INT, "new" INT, "id" INT, "c0" INT,
        PRIMARY KEY ("select", "c""d'"))"""
    )
    attach(source, 'IT\'S "quoted" [X]', before=True)
    app.execute("""INSERT INTO "it's ""quoted"" [x]" VALUES ('k', 1, 2, 3, 4, 5)""")
    app.execute("""UPDATE "it's ""quoted"" [x]" SET "a b" = 9, "new" = 8""")
    claim(source)
    last = drain(source)[-1]
    assert json.loads(str(last.key)) == ["main", 'it\'s "quoted" [x]', "k", 2]
    assert last.changed == ("a b", "new")
    assert changes_of(last) == {"select": "k", "a b": 9, "c\"d'": 2, "new": 8, "id": 4, "c0": 5}
    assert json.loads(last.before or b"") == {"select": "k", "a b": 1, "c\"d'": 2, "new": 3, "id": 4, "c0": 5}


def test_columns_that_hide_the_rowid(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE hide (rowid TEXT, _rowid_ TEXT, oid TEXT, k INTEGER PRIMARY KEY)")
    attach(source, "hide")
    app.execute("INSERT INTO hide VALUES ('a', 'b', 'c', 5)")
    app.execute("UPDATE hide SET oid = 'd', k = 6")
    assert [row[:2] for row in relayed(source)] == [("put", "[5]"), ("delete", "[5]"), ("put", "[6]")]


def test_generated_columns_without_rowid_and_strict(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute(
        "CREATE TABLE g (id INT, n INT AS (id * 2), s TEXT AS ('x' || id) STORED, PRIMARY KEY (id)) WITHOUT ROWID"
    )
    app.execute("CREATE TABLE st (id TEXT PRIMARY KEY, v ANY) STRICT")
    attach(source, "g", "st")
    app.execute("INSERT INTO g (id) VALUES (1)")
    app.execute("UPDATE g SET id = 2")
    app.execute("INSERT INTO st VALUES ('a', 1.0)")
    assert [row[2] for row in relayed(source)] == [
        {"id": 1, "n": 2, "s": "x1"},
        {"id": 1, "n": 2, "s": "x1"},
        {"id": 2, "n": 4, "s": "x2"},
        {"id": "a", "v": 1.0},
    ]


def test_many_columns_have_their_changes_told(app: sqlite3.Connection, source: SqliteSource) -> None:
    names = [f"n{number}" for number in range(150)]
    app.execute(f"CREATE TABLE wide (id INTEGER PRIMARY KEY, {', '.join(names)})")
    attach(source, "wide", before=True)
    app.execute("INSERT INTO wide (id) VALUES (1)")
    app.execute("UPDATE wide SET n0 = 1, n61 = 2, n62 = 3, n149 = 4")
    claim(source)
    assert drain(source)[-1].changed == ("n0", "n61", "n62", "n149")


def test_changes_that_comparison_would_miss(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE c (id INTEGER PRIMARY KEY, t TEXT COLLATE NOCASE, v)")
    app.execute("INSERT INTO c VALUES (1, 'a', 1)")
    attach(source, "c", copy=False)
    app.execute("UPDATE c SET t = 'A'")
    app.execute("UPDATE c SET v = 1.0")
    app.execute("UPDATE c SET v = v")
    claim(source)
    assert [row.changed for row in data_rows(drain(source))] == [("t",), ("v",), ()]


def test_keys_that_their_column_takes_for_equal_are_two(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE n (k TEXT COLLATE NOCASE NOT NULL, v)")
    app.execute("CREATE UNIQUE INDEX exact ON n (k COLLATE BINARY)")
    attach(source, "n", key=("k",), copy=False)
    app.execute("INSERT INTO n VALUES ('a', 1)")
    app.execute("UPDATE n SET k = 'A'")
    assert [row[:2] for row in relayed(source)] == [("put", '["a"]'), ("delete", '["a"]'), ("put", '["A"]')]


def test_columns_left_out_and_masked(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, ssn INTEGER, seen TEXT)")
    app.execute("INSERT INTO person VALUES (1, 'a', 123, 'x')")
    attach(source, "person", "account", mask=("person.ssn",), exclude_columns=("seen",))
    app.execute("UPDATE person SET seen = 'y'")
    app.execute("UPDATE person SET ssn = 456, seen = 'z'")
    app.execute("UPDATE person SET ssn = NULL")
    claim(source)
    rows = drain(source)
    schema = next(row for row in rows if row.control == "schema" and row.table == ("main", "person"))
    assert [(column["name"], column["type"]) for column in changes_of(schema)["columns"]] == [
        ("id", "int64"), ("name", "string"), ("ssn", "string"),
    ]  # fmt: skip
    assert [(changes_of(row), row.changed) for row in data_rows(rows)] == [
        ({"id": 1, "name": "a", "ssn": "***"}, None),
        ({"id": 1, "name": "a", "ssn": "***"}, ("ssn",)),
        ({"id": 1, "name": "a", "ssn": None}, ("ssn",)),
    ]
    stored = source.connection.execute("SELECT * FROM headrace_row_1").fetchall()
    assert all(123 not in row and 456 not in row for row in stored), "a masked value was stored"


def test_only_named_columns(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    attach(source, "account", columns=("amount",))
    assert relayed(source) == [("put", "[1]", {"id": 1, "amount": 1.0})]


def test_patterns(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE app_a (id INTEGER PRIMARY KEY)")
    app.execute("CREATE TABLE app_b (id INTEGER PRIMARY KEY)")
    found = source.attach(AttachRequest(feed=FEED, include=("app_*",), exclude=("*_b",)))
    assert [table.table for table in found] == ["app_a"]


UNSAFE = {
    "no key": ("CREATE TABLE t (a)", {}),
    "view": ("CREATE VIEW t AS SELECT 1 AS a", {}),
    "virtual table": ("CREATE VIRTUAL TABLE t USING fts5(a)", {}),
    "second unique": ("CREATE TABLE t (id INTEGER PRIMARY KEY, e TEXT UNIQUE)", {}),
    "unique expression": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, e); CREATE UNIQUE INDEX i ON t (lower(e))",
        {},
    ),
    "partial unique": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, e); CREATE UNIQUE INDEX i ON t (e) WHERE e > 1",
        {},
    ),
    "key without case": ("CREATE TABLE t (k TEXT COLLATE NOCASE PRIMARY KEY NOT NULL)", {}),
    "null in key": ("CREATE TABLE t (k TEXT PRIMARY KEY); INSERT INTO t VALUES (NULL)", {}),
    "given key may be null": ("CREATE TABLE t (k TEXT UNIQUE)", {"key": ("k",)}),
    "given key is not unique": ("CREATE TABLE t (k TEXT NOT NULL)", {"key": ("k",)}),
    "given key beside rowid": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, k TEXT NOT NULL UNIQUE)",
        {"key": ("k",)},
    ),
    "key left out": ("CREATE TABLE t (id INTEGER PRIMARY KEY, a)", {"exclude_columns": ("id",)}),
    "key masked": ("CREATE TABLE t (id INTEGER PRIMARY KEY, a)", {"mask": ("id",)}),
}


@pytest.mark.parametrize("case", UNSAFE, ids=lambda case: case.replace(" ", "-"))
def test_unsafe_table_is_refused_and_nothing_is_written(
    app: sqlite3.Connection, source: SqliteSource, case: str
) -> None:
    script, options = UNSAFE[case]
    app.executescript(script)
    with pytest.raises(AttachUnsafe, match="t") as caught:
        attach(source, "account", "t", **options) if not options else attach(source, "t", **options)
    assert caught.value.advice
    assert names_in(app) == set()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tables": ("nope",)}, TableNotFound),
        ({"include": ("nope*",)}, TableNotFound),
        ({}, Usage),
        ({"tables": ("account",), "mask": ("nope",)}, Usage),
        ({"tables": ("account",), "key": ("nope",)}, Usage),
        ({"tables": ("sqlite_master",)}, TableNotFound),
    ],
    ids=["table", "pattern", "nothing", "mask", "key", "internal"],
)
def test_wrong_names_are_refused(
    app: sqlite3.Connection, source: SqliteSource, options: dict[str, Any], error: type[HeadraceError]
) -> None:
    with pytest.raises(error):
        source.attach(AttachRequest(feed=FEED, **options))
    assert names_in(app) == set()


def test_accepted_danger_is_attached_and_told(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, e TEXT UNIQUE)")
    attach(source, "t", accept="nobody uses REPLACE")
    (found,) = source.check()
    assert (found.accepted, found.findings) == ("nobody uses REPLACE", ())


def test_given_key(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE t (v, b TEXT NOT NULL, a INT NOT NULL, UNIQUE (a, b))")
    attach(source, "t", key=("A", "b"))
    app.execute("INSERT INTO t VALUES (1, 'x', 2)")
    assert relayed(source) == [("put", '[2, "x"]', {"v": 1, "b": "x", "a": 2})]


def test_attach_again_changes_nothing(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("INSERT INTO account VALUES (1, 'a', 1)")
    attach(source, "account")
    (again,) = source.attach(AttachRequest(feed=FEED, tables=("account",)))
    assert (again.new, again.version) == (False, 1)
    claim(source)
    assert len(drain(source)) == 4
    with pytest.raises(Usage, match=f"feed {FEED}"):
        source.attach(AttachRequest(feed="other", tables=("account",)))


def test_attach_again_after_the_table_was_made_anew_begins_anew(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("INSERT INTO account VALUES (1, 'a', 1), (2, 'b', 2)")
    attach(source, "account")
    app.executescript(
        "CREATE TABLE new (id INTEGER PRIMARY KEY, owner TEXT, amount REAL); INSERT INTO new SELECT * FROM account;"
        "DROP TABLE account; ALTER TABLE new RENAME TO account; DELETE FROM account WHERE id = 1;"
    )
    attach(source, "account")
    claim(source)
    rows = drain(source)
    assert [row.control for row in rows if row.control] == [
        "schema", "copy-begin", "copy-end", "schema", "truncate", "copy-begin", "copy-end",
    ]  # fmt: skip
    assert list(fold(rows)) == ['["main","account",2]']


def test_newer_format_is_not_touched(app: sqlite3.Connection, source: SqliteSource) -> None:
    attach(source, "account")
    app.execute("UPDATE headrace_format SET readable_from = 9")
    before = names_in(app)
    app.execute("CREATE TABLE other (id INTEGER PRIMARY KEY)")
    for call in (
        lambda: attach(source, "other"),
        lambda: source.detach([]),
        source.check,
        lambda: claim(source),
    ):
        with pytest.raises(FormatTooNew):
            call()
    assert names_in(app) == before
