"""Rows that the application's own triggers change once more within the statement: the last one told is always the truth.

A statement's row triggers fire when all of its rows are changed. What such a trigger does is captured before the rows of the
statement that are still to be told: told as they were, they would follow their own later versions.
"""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.publisher.attach.finding import FindingKind
from tests.integration.postgres.captured import Captured, captured
from tests.postgres import Database

App = psycopg.Connection[TupleRow]
TRIGGER = "CREATE TRIGGER app {} ON {} FOR EACH ROW EXECUTE FUNCTION app()"


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with database.connect() as connection:
        connection.execute("CREATE TABLE item (id int PRIMARY KEY, name text, doc json)")
        connection.execute("CREATE TABLE plain (id int PRIMARY KEY, name text)")
        connection.execute("CREATE TABLE other (id int PRIMARY KEY, item int)")
        connection.execute("INSERT INTO item SELECT n, 'n' || n FROM generate_series(1, 4) AS n")
        connection.execute("INSERT INTO plain SELECT n, 'n' || n FROM generate_series(1, 4) AS n")
        connection.execute("INSERT INTO other SELECT n, n FROM generate_series(1, 4) AS n")
        yield connection


@pytest.fixture
def source(app: App, database: Database) -> Iterator[Captured]:
    with captured(database) as found:
        yield found


def make_function(app: App, body: str) -> None:
    app.execute(
        f"CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF pg_trigger_depth() = 1 THEN {body} END IF; "
        "RETURN coalesce(NEW, OLD); END $$".encode()
    )


BODIES = {
    "changed again": "UPDATE {t} SET name = name || '!' WHERE id = 1 + NEW.id % 4;",
    "deleted": "DELETE FROM {t} WHERE id = 1 + NEW.id;",
    "given another key": "UPDATE {t} SET id = id + 100 WHERE id = 1 + NEW.id;",
    "deleted and inserted": "DELETE FROM {t} WHERE id = 1 + NEW.id; INSERT INTO {t} VALUES (1 + NEW.id, 'back');",
    "locked": "PERFORM 1 FROM {t} FOR UPDATE;",
}


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.replace(" ", "-"))
@pytest.mark.parametrize("table", ["plain", "item"])
@pytest.mark.parametrize("when", ["AFTER UPDATE", "AFTER INSERT OR UPDATE"])
def test_row_of_the_statement_is_changed_by_a_trigger(
    app: App, source: Captured, table: str, body: str, when: str
) -> None:
    source.attach(table)
    make_function(app, BODIES[body].format(t=table))
    app.execute(TRIGGER.format(when, table).encode())
    app.execute(f"UPDATE {table} SET name = 'first'".encode())
    if "INSERT" in when and "inserted" not in body:
        app.execute(
            f"INSERT INTO {table} (id, name) SELECT n, 'new' FROM generate_series(11, 14) AS n".encode()
        )
    source.assert_equal(table)


@pytest.mark.parametrize("table", ["plain", "item"])
def test_deleted_row_is_inserted_anew_by_a_trigger(app: App, source: Captured, table: str) -> None:
    source.attach(table)
    make_function(app, f"INSERT INTO {table} (id, name) VALUES (5 - OLD.id, 'back') ON CONFLICT DO NOTHING;")
    app.execute(TRIGGER.format("AFTER DELETE", table).encode())
    app.execute(f"DELETE FROM {table}".encode())
    source.assert_equal(table)
    assert len(app.execute(f"SELECT FROM {table}".encode()).fetchall()) == 4


@pytest.mark.parametrize("table", ["plain", "item"])
def test_key_that_a_row_left_is_taken_by_a_trigger(app: App, source: Captured, table: str) -> None:
    source.attach(table)
    make_function(app, f"INSERT INTO {table} (id, name) VALUES (14 - NEW.id, 'back') ON CONFLICT DO NOTHING;")
    app.execute(TRIGGER.format("AFTER UPDATE OF id", table).encode())
    app.execute(f"UPDATE {table} SET id = id + 10".encode())
    source.assert_equal(table)


def test_before_trigger_changes_rows_that_the_statement_inserted(app: App, source: Captured) -> None:
    source.attach("plain")
    make_function(app, "UPDATE plain SET name = 'late' WHERE id = NEW.id - 1;")
    app.execute(TRIGGER.format("BEFORE INSERT", "plain").encode())
    app.execute("INSERT INTO plain SELECT n, 'n' || n FROM generate_series(11, 14) AS n")
    source.assert_equal("plain")


def test_trigger_of_another_table_in_the_same_statement(app: App, source: Captured) -> None:
    source.attach("plain", "other")
    make_function(
        app,
        "DELETE FROM plain WHERE id = 2; INSERT INTO plain VALUES (3, 'anew'); UPDATE plain SET name = 'x' WHERE id = 1;",
    )
    app.execute(TRIGGER.format("AFTER UPDATE", "other").encode())
    app.execute(
        "WITH a AS (UPDATE other SET item = 9 WHERE id = 1), b AS (DELETE FROM plain WHERE id = 3) "
        "UPDATE plain SET name = 'first' WHERE id < 3"
    )
    source.assert_equal("plain", "other")


def test_function_called_by_the_statement(app: App, source: Captured) -> None:
    source.attach("plain")
    app.execute(
        "CREATE FUNCTION again(n int) RETURNS text LANGUAGE sql AS "
        "$$ UPDATE plain SET name = 'again' WHERE id = n RETURNING name $$"
    )
    app.execute(
        "INSERT INTO plain SELECT n, coalesce(again(n - 1), 'first') FROM generate_series(11, 14) AS n"
    )
    source.assert_equal("plain")


def test_savepoint_that_is_rolled_back_takes_the_note_with_it(app: App, source: Captured) -> None:
    source.attach("plain")
    make_function(app, "INSERT INTO plain VALUES (OLD.id, 'back');")
    app.execute(TRIGGER.format("AFTER DELETE", "plain").encode())
    with app.transaction():
        with app.transaction(force_rollback=True):
            app.execute("DELETE FROM plain")
        app.execute("DELETE FROM plain WHERE id = 1")
        app.execute("ALTER TABLE plain DISABLE TRIGGER app")
        app.execute("DELETE FROM plain WHERE id = 2")
    source.assert_equal("plain")


def test_row_level_security_does_not_hide_what_is_there(app: App, source: Captured) -> None:
    app.execute("ALTER TABLE plain ENABLE ROW LEVEL SECURITY")
    source.attach("plain")
    make_function(app, "UPDATE plain SET name = 'again' WHERE id = 1 + NEW.id;")
    app.execute(TRIGGER.format("AFTER UPDATE", "plain").encode())
    app.execute("UPDATE plain SET name = 'first'")
    source.assert_equal("plain")


@pytest.mark.parametrize(
    ("look", "statement"),
    [
        ("headrace_is_newest(relation oid, place tid)", "UPDATE plain SET name = 'first'"),
        ("headrace_has_key(relation oid, trigger_name name, key text, old record)", "DELETE FROM plain"),
    ],
    ids=["newest", "key"],
)
def test_without_the_look_the_feed_would_end_with_an_older_row(
    app: App, source: Captured, look: str, statement: str
) -> None:
    source.attach("plain")
    app.execute(
        """CREATE FUNCTION app() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF pg_trigger_depth() = 1 AND TG_OP = 'UPDATE' THEN UPDATE plain SET name = 'again' WHERE id = 1 + NEW.id;
        ELSIF pg_trigger_depth() = 1 THEN INSERT INTO plain VALUES (1 + OLD.id, 'back'); END IF; RETURN NULL; END $$"""
    )
    app.execute(TRIGGER.format("AFTER UPDATE OR DELETE", "plain").encode())
    blind = "true" if "newest" in look else "false"
    app.execute(
        f"CREATE OR REPLACE FUNCTION headrace.{look} RETURNS boolean LANGUAGE plpgsql "
        f"AS $$ BEGIN RETURN {blind}; END $$".encode()
    )
    app.execute(statement.encode())
    with pytest.raises(AssertionError):
        source.assert_equal("plain")


REKEYING = "CREATE TRIGGER before BEFORE UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION before()"


def make_rekeying(app: App) -> None:
    """A trigger that gives a row another key when its name is changed: no statement names the key."""
    app.execute(
        "CREATE FUNCTION before() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN IF NEW.name <> OLD.name THEN NEW.id := NEW.id + 100; END IF; RETURN NEW; END $$"
    )


def test_a_key_that_a_before_trigger_changes(app: App, source: Captured) -> None:
    make_rekeying(app)
    app.execute(REKEYING)
    source.attach("plain")
    source.copy()
    app.execute("UPDATE plain SET name = 'new' WHERE id < 3")
    source.assert_equal("plain")
    assert source.kinds() == []


def test_a_before_trigger_that_comes_later_is_found_and_the_table_copied_anew(
    app: App, source: Captured
) -> None:
    source.attach("plain")
    source.copy()
    make_rekeying(app)
    app.execute(REKEYING)
    app.execute("UPDATE plain SET name = 'unseen' WHERE id = 1")  # its old key is not told to be gone
    assert source.kinds() == [FindingKind.TRIGGER_OUTDATED]
    assert source.mend() == []
    app.execute("UPDATE plain SET name = 'seen' WHERE id = 2")
    source.copy()
    source.assert_equal("plain")
