"""Whatever SQL an application runs on attached SQLite tables, a fold of the outbox equals the tables."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from headrace.publisher.marked import MarkedRow
from headrace.publisher.sqlite.attachment import AttachmentState, CopyState, read_attachments
from headrace.publisher.sqlite.connection import immediate
from headrace.publisher.sqlite.copying import begin_copy, copy_chunk
from headrace.publisher.sqlite.render import RowRenderer
from headrace.publisher.sqlite.source import SqliteSource
from tests.scale import scaled, sized
from tests.unit.publisher.outboxes import application, attach, check_order, claim, drain, fold, opened

TABLES = """
CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT, amount REAL, extra);
CREATE TABLE "odd ""name" (k TEXT PRIMARY KEY NOT NULL, "select" BLOB, v, g AS (length(k)) STORED);
CREATE TABLE pair (a INT NOT NULL, b TEXT NOT NULL, n NUMERIC, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE child (id INTEGER PRIMARY KEY, account INTEGER REFERENCES account ON DELETE CASCADE ON UPDATE SET NULL, t);
CREATE TRIGGER early AFTER UPDATE ON account WHEN NEW.extra IS NULL
    BEGIN UPDATE account SET extra = 'early' WHERE id = NEW.id; END;
"""
# Made after ours, so they fire before ours: what they change reaches the outbox first.
LATE_TRIGGERS = """
CREATE TRIGGER late AFTER INSERT ON account WHEN NEW.owner IS NULL
    BEGIN UPDATE account SET owner = 'late' WHERE id = NEW.id; END;
CREATE TRIGGER moved AFTER INSERT ON account WHEN NEW.owner = 'a'
    BEGIN UPDATE account SET id = NEW.id + 100, owner = 'moved' WHERE id = NEW.id; END;
CREATE TRIGGER undo AFTER DELETE ON pair WHEN OLD.n < 2
    BEGIN INSERT INTO pair VALUES (OLD.a, OLD.b, 2); END;
CREATE TRIGGER twin AFTER UPDATE ON pair WHEN OLD.a < NEW.a
    BEGIN INSERT OR IGNORE INTO pair VALUES (OLD.a, OLD.b, 9); END;
CREATE TRIGGER gone AFTER INSERT ON "odd ""name" WHEN NEW.v = 0
    BEGIN DELETE FROM "odd ""name" WHERE k = NEW.k; END;
"""

TRANSACTION_WORDS = {"BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"}

small = st.integers(0, 3)
texts = st.sampled_from(["a", "A", "b", "", "it's", "\x00nul", "é\U0001f600"])
odd_values = st.one_of(
    st.integers(-(2**62), 2**62), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5)
)
values = st.one_of(st.none(), small, texts, odd_values)
conflict = st.sampled_from(["", "OR REPLACE", "OR IGNORE", "OR ROLLBACK", "OR FAIL", "OR ABORT"])


def statement(
    template: str, *parts: st.SearchStrategy[Any]
) -> st.SearchStrategy[tuple[str, tuple[Any, ...]]]:
    """Return statements of ``template`` ({} is a conflict clause) with drawn parameters."""
    return st.tuples(conflict, st.tuples(*parts)).map(lambda drawn: (template.format(drawn[0]), drawn[1]))


statements = st.one_of(
    statement("INSERT {} INTO account VALUES (?, ?, ?, ?)", small, values, values, values),
    statement("INSERT {} INTO account (owner, amount) VALUES (?, ?)", values, values),
    statement("UPDATE {} account SET id = ?, amount = ? WHERE id = ?", small, values, small),
    statement("UPDATE {} account SET id = id + ?", small),
    statement("UPDATE account SET amount = amount + ?, extra = ? WHERE id >= ?", small, values, small),
    statement("DELETE FROM account WHERE id = ?", small),
    statement(
        "INSERT INTO account VALUES (?, ?, 1, 2) ON CONFLICT DO UPDATE SET owner = excluded.owner",
        small,
        values,
    ),
    statement("INSERT INTO account VALUES (?, ?, 1, 2) ON CONFLICT DO NOTHING", small, values),
    statement('INSERT {} INTO "odd ""name" (k, "select", v) VALUES (?, ?, ?)', texts, values, values),
    statement('UPDATE {} "odd ""name" SET k = ? WHERE k = ?', texts, texts),
    statement('UPDATE "odd ""name" SET "select" = ?, v = ?', values, values),
    statement('DELETE FROM "odd ""name" WHERE k = ?', texts),
    statement('DELETE FROM "odd ""name"'),
    statement("INSERT {} INTO pair VALUES (?, ?, ?)", small, texts, values),
    statement("UPDATE {} pair SET a = ?, n = ? WHERE b = ?", small, values, texts),
    statement("DELETE FROM pair WHERE a = ?", small),
    statement("REPLACE INTO pair SELECT a + ?, b, n FROM pair", small),
    statement("INSERT {} INTO child VALUES (?, ?, ?)", small, small, values),
    statement("UPDATE child SET account = ? WHERE id = ?", small, small),
    st.sampled_from(
        [(word, ()) for word in ("BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "RELEASE s", "ROLLBACK TO s")]
    ),
    st.sampled_from([("DRAIN", ()), ("COPY", ())]),
)


def state_of(source: SqliteSource) -> dict[str, bytes]:
    """Return what the tables hold, in the form of a fold."""
    state: dict[str, bytes] = {}
    for attachment in read_attachments(source.connection, AttachmentState.LIVE):
        renderer = RowRenderer(attachment.spec)
        names = ", ".join(
            '"' + column.name.replace('"', '""') + '"' for column in attachment.spec.schema.columns
        )
        table = attachment.table.replace('"', '""')
        for row in source.connection.execute(f'SELECT {names} FROM "{table}"'):
            rendered = renderer.render(row, None)
            assert rendered.key not in state
            state[str(rendered.key)] = rendered.changes
    return state


@settings(
    max_examples=sized(scaled(35), soak=scaled(80)),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(st.lists(statements, min_size=10, max_size=60), st.booleans(), st.booleans())
def test_fold_of_outbox_equals_tables(
    run: list[tuple[str, tuple[Any, ...]]], recursive: bool, late: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "app.db"
        with application(path) as app:
            app.executescript(TABLES)
            app.execute("INSERT INTO account VALUES (1, 'x', 0.1, NULL), (2, 'y', 1e300, x'00')")
            app.execute(
                "INSERT INTO pair VALUES (0, 'a', 0), (0, 'b', 1), (1, 'a', '1.10'), (2, 'a', 3), (3, 'A', 1)"
            )
            app.execute(f"PRAGMA recursive_triggers = {'ON' if recursive else 'OFF'}")
            app.execute("PRAGMA foreign_keys = ON")
            with opened(path) as source:
                attach(source, "account", 'odd "name', "pair", "child")
                if late:
                    app.executescript(LATE_TRIGGERS)
                claim(source)
                posted = run_statements(app, source, run)
                check_order(posted)
                assert fold(posted) == state_of(source), "a fold of the outbox is not what the tables hold"


def run_statements(
    app: sqlite3.Connection, source: SqliteSource, run: list[tuple[str, tuple[Any, ...]]]
) -> list[MarkedRow]:
    """Run what was drawn, with the agent's steps and copies in between; returns all that was posted."""
    posted = drain(source)
    for sql, parameters in run:
        if sql in ("DRAIN", "COPY"):
            if not app.in_transaction:
                posted += drain(source) if sql == "DRAIN" else copy_two_rows(source)
            continue
        try:
            app.execute(sql, parameters)
        except sqlite3.IntegrityError as error:
            note(f"{sql} {parameters}: {error}")
        except sqlite3.OperationalError:  # nothing of ours may ever fail the application
            if sql.split()[0] not in TRANSACTION_WORDS:
                raise
    if app.in_transaction:
        app.execute("COMMIT")
    return posted + drain(source)


def copy_two_rows(source: SqliteSource) -> list[MarkedRow]:
    """Copy two more rows of each table, beginning again where a copy is done."""
    for attachment in read_attachments(source.connection, AttachmentState.LIVE):
        if attachment.copy_state is not CopyState.RUNNING:
            with immediate(source.connection):
                begin_copy(source.connection, attachment)
        copy_chunk(source.connection, attachment.number, rows_max=2)
    return []
