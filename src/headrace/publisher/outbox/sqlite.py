"""The outbox in SQLite: its tables, its format numbers, and the one insert. Only ``sqlite3`` is needed.

The tables are a stored format (``docs/formats/attached-change.md`` describes them): the application writes rows, the agent
marks them, triggers of ``attach`` write rows whose values stand in a table of their own.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from headrace.errors import InvalidRequest, TableNotFound
from headrace.publisher.outbox.record import Record
from headrace.wire.versions import OUTBOX, check_readable

NOW_MS: Final = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
"""UTC milliseconds, as SQL that every SQLite version has."""

OUTBOX_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS headrace_outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,    -- never used twice, even when the newest rows are gone
    change_feed_id TEXT NOT NULL,
    op TEXT NOT NULL,                        -- put, patch, delete; nokey: a row whose key is NULL
    "key" TEXT,
    changes TEXT,                            -- JSON; NULL in a trigger's row: its values stand in headrace_row_{{attached}}
    changed TEXT,                            -- JSON array; in a trigger's row bit masks over the columns, 62 each, by commas
    control TEXT,                            -- a control entry's name
    table_name TEXT,                         -- the table that a control entry is about
    attached INTEGER,                        -- headrace_attached.id, in a row about an attached table
    copy INTEGER,                            -- 1: a row copied, not changed
    tx_end INTEGER,                          -- 1: known to be the last row of its transaction
    created_at INTEGER NOT NULL DEFAULT ({NOW_MS}),
    agent_id TEXT NOT NULL DEFAULT '',       -- blank until marked
    sequence_id INTEGER,
    tx INTEGER,                              -- the id of the last row of the unit that this row was marked with
    tx_index INTEGER,
    processed INTEGER NOT NULL DEFAULT 0,
    processed_at INTEGER
)"""

TX_END_INDEX: Final = """
CREATE INDEX IF NOT EXISTS headrace_outbox_tx_end ON headrace_outbox (change_feed_id, id) WHERE tx_end = 1"""

KEYLESS_INDEX: Final = """
CREATE INDEX IF NOT EXISTS headrace_outbox_nokey ON headrace_outbox (change_feed_id, id) WHERE op = 'nokey'"""

OWNER_TABLE: Final = """
CREATE TABLE IF NOT EXISTS headrace_owner (
    feed TEXT PRIMARY KEY,
    agent_id TEXT NOT NULL DEFAULT '',
    epoch INTEGER NOT NULL DEFAULT 0,        -- only ever raised
    incarnation TEXT,                        -- of the feed that the rows below went to; NULL before the first registration
    next_sequence_id INTEGER,                -- what the next marked row gets
    processed_next INTEGER,                  -- sequence id of the first row that is not processed
    kept_from INTEGER,                       -- least sequence id that was not swept
    marked_id INTEGER NOT NULL DEFAULT 0,    -- every row of the feed up to here is marked
    unit_end INTEGER NOT NULL DEFAULT 0,     -- the row that ends the unit being marked: above marked_id only within a unit
    unit_index INTEGER NOT NULL DEFAULT 0,   -- tx_index of the next row of that unit
    done_id INTEGER NOT NULL DEFAULT 0,      -- every row of the feed up to here is processed
    swept_id INTEGER NOT NULL DEFAULT 0,     -- every row of the feed up to here is gone
    history_id INTEGER NOT NULL DEFAULT 0,   -- rows up to here went to an earlier history of the feed
    alarm TEXT,                              -- what needs a person, as JSON; NULL when all is well
    accepted TEXT                            -- what an operator accepted (publisher accept), as JSON
)"""

ATTACHED_TABLE: Final = """
CREATE TABLE IF NOT EXISTS headrace_attached (
    id INTEGER PRIMARY KEY AUTOINCREMENT,    -- names the triggers headrace_{id}_... and the table headrace_row_{id}
    table_name TEXT NOT NULL,
    feed TEXT NOT NULL,
    version INTEGER NOT NULL,                -- the schema version that rows of this attachment have
    spec TEXT NOT NULL,                      -- columns, key, options, as JSON
    state TEXT NOT NULL,                     -- live, superseded, detached
    copy_state TEXT NOT NULL DEFAULT 'none', -- none, running, done
    copy_last INTEGER,                       -- outbox id of the row copied last, of a copy that headrace_copy does not have
    copy_rows INTEGER NOT NULL DEFAULT 0,
    checked_id INTEGER NOT NULL DEFAULT 0,   -- newest outbox id when triggers and catalogue were last found to agree
    alarm TEXT                               -- what the last check found wrong, as JSON; NULL when all is well
)"""

COPY_TABLE: Final = """
CREATE TABLE IF NOT EXISTS headrace_copy (
    id INTEGER PRIMARY KEY,                  -- in the keys of its copy-begin and copy-end entries
    attached INTEGER NOT NULL,
    condition TEXT,                          -- SQL over the table's columns; NULL: all rows
    state TEXT NOT NULL,                     -- running, paused, done, cancelled, failed
    rows_per_second INTEGER,                 -- NULL: as fast as it goes
    last_key TEXT,                           -- JSON: the copy goes on after this key, each value by its storage class
    rows INTEGER NOT NULL DEFAULT 0,         -- copied so far
    due_at INTEGER NOT NULL DEFAULT 0,       -- of the next step
    detail TEXT                              -- why it failed
)"""
"""An outbox of the first releases has none until the next copy begins; ``headrace_attached`` tells them what they need."""

FORMAT_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS headrace_format AS
SELECT 'outbox' AS part, {OUTBOX.written_as} AS written_as, {OUTBOX.readable_from} AS readable_from,
    0 AS used_by_application"""
"""Made with its row and made last: where it is, all is there, even if each statement committed by itself.
``used_by_application``: the application writes rows itself, so ``detach`` leaves the tables to it.
"""

TABLES: Final = (
    OUTBOX_TABLE,
    TX_END_INDEX,
    KEYLESS_INDEX,
    OWNER_TABLE,
    ATTACHED_TABLE,
    COPY_TABLE,
    FORMAT_TABLE,
)

_FORMAT_SELECT = "SELECT readable_from, used_by_application FROM headrace_format WHERE part = 'outbox'"
_SET_USED = "UPDATE headrace_format SET used_by_application = 1 WHERE part = 'outbox'"
_WRITE_NOTHING = "UPDATE headrace_format SET part = part WHERE part IS NULL"
_ROW_INSERT = """
INSERT INTO headrace_outbox (change_feed_id, op, "key", changes, changed) VALUES (?, ?, ?, ?, ?)"""


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the outbox tables if they are not there, statement by statement on the caller's transaction; idempotent."""
    cursor = _plain_cursor(connection)
    try:
        if has_tables(connection):
            check_format(connection)
        for statement in TABLES:
            cursor.execute(statement)
    finally:
        cursor.close()


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the database has an outbox."""
    cursor = _plain_cursor(connection)
    try:
        cursor.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'headrace_format'")
        return bool(cursor.fetchone()[0])
    finally:
        cursor.close()


def check_format(connection: sqlite3.Connection) -> bool:
    """Return whether the application writes the outbox itself (``Outbox.create`` or ``Outbox.add`` was called).

    Raises FormatTooNew if the outbox needs a newer Headrace, TableNotFound if there is no outbox.
    """
    cursor = _plain_cursor(connection)
    try:
        cursor.execute(_FORMAT_SELECT)
        row = cursor.fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        row = None
    finally:
        cursor.close()
    if row is None:
        raise TableNotFound(
            "this database has no outbox",
            hint="Call Outbox.create(connection) once, or attach a table: headrace publisher attach.",
        )
    check_readable("the outbox (headrace_format)", int(row[0]), OUTBOX)
    return bool(row[1])


def set_used_by_application(connection: sqlite3.Connection) -> None:
    """Note, in the caller's transaction, that the application writes the outbox itself; nothing if that is noted."""
    if connection.in_transaction:
        _take_write_lock(connection)
    if not check_format(connection):
        connection.execute(_SET_USED).close()


def _take_write_lock(connection: sqlite3.Connection) -> None:
    """Wait for the right to write, if the caller's transaction does not have it yet.

    SQLite waits for it (the connection's timeout) only where the transaction has not read before. Where it has, and somebody
    else has committed since, its first write fails at once with "database is locked".
    """
    try:
        connection.execute(_WRITE_NOTHING).close()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):  # which is told by who looks for it
            raise


def add_row(connection: sqlite3.Connection, record: Record) -> int:
    """Insert ``record`` in the caller's transaction; returns its id. See :meth:`Outbox.add` for the errors."""
    if not connection.in_transaction and _commits_each_statement(connection):
        raise InvalidRequest(
            "this connection is in autocommit mode with no transaction open: the row would commit without your data",
            hint="Execute BEGIN first, and COMMIT after your data and this row are written.",
        )
    set_used_by_application(connection)
    cursor = _plain_cursor(connection)
    try:
        cursor.execute(_ROW_INSERT, record)
        return cursor.lastrowid or 0
    finally:
        cursor.close()


def _commits_each_statement(connection: sqlite3.Connection) -> bool:
    # Python 3.12 has `autocommit` (True, False, or LEGACY = -1: `isolation_level` decides, as before 3.12).
    mode = getattr(connection, "autocommit", -1)
    return mode is True or (mode not in (True, False) and connection.isolation_level is None)


def _plain_cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    """Return a cursor whose rows are tuples, whatever row factory the caller uses."""
    cursor: Any = connection.cursor()
    cursor.row_factory = None
    return cursor  # type: ignore[no-any-return]  # typed Any above because typeshed takes no None row factory
