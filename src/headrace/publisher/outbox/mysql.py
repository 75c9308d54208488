"""The outbox in MariaDB and MySQL: its tables, its format numbers, and the one insert. Only ``pymysql`` is needed.

The tables are a stored format (``docs/formats/outbox-mysql.md``): the application writes rows, the agent marks them. Two
traps of this database are met here. DDL commits the caller's transaction, so tables are not made inside one. And a
connection's character set may be too small for a value, which a lax ``sql_mode`` then cuts: so text travels as hexadecimal
digits of UTF-8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any, Final

import pymysql
from pymysql.connections import Connection
from pymysql.constants import ER, SERVER_STATUS
from pymysql.cursors import Cursor

from headrace.errors import AttachUnsafe, InvalidRequest, TableNotFound
from headrace.publisher.outbox.record import Record
from headrace.wire.versions import OUTBOX, check_readable

_OPTIONS: Final = "ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"

OUTBOX_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS headrace_outbox (
    id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    change_feed_id VARCHAR(200) NOT NULL,
    op VARCHAR(10) NOT NULL,                 -- put, patch, delete
    `key` LONGTEXT,
    changes LONGTEXT NOT NULL,               -- JSON, byte for byte as it was given
    changed LONGTEXT,                        -- JSON array
    created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    agent_id VARCHAR(200) NOT NULL DEFAULT '', -- blank until marked
    sequence_id BIGINT,                      -- NULL until marked
    history INT NOT NULL DEFAULT 0,          -- headrace_owner.history when it was marked
    tx BIGINT,                               -- id of the last row of the unit that this row was marked with
    tx_index BIGINT,
    processed TINYINT NOT NULL DEFAULT 0,
    processed_at BIGINT,                     -- UTC milliseconds
    KEY headrace_outbox_place (change_feed_id, sequence_id, id)
) {_OPTIONS}"""

OWNER_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS headrace_owner (
    feed VARCHAR(200) NOT NULL PRIMARY KEY,
    agent_id VARCHAR(200) NOT NULL DEFAULT '',
    epoch BIGINT NOT NULL DEFAULT 0,         -- only ever raised
    incarnation VARCHAR(64),                 -- of the feed; NULL before the first registration
    next_sequence_id BIGINT NOT NULL DEFAULT 0,
    processed_next BIGINT NOT NULL DEFAULT 0, -- sequence id of the first row that is not processed
    kept_from BIGINT NOT NULL DEFAULT 0,     -- least sequence id that was not swept
    history INT NOT NULL DEFAULT 0,          -- how often an operator accepted the feed as it was found
    alarm LONGTEXT,
    accepted LONGTEXT
) {_OPTIONS}"""

PARKED_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS headrace_parked (
    id BIGINT NOT NULL PRIMARY KEY,          -- of the outbox row, which may be swept
    feed VARCHAR(200) NOT NULL,
    sequence_id BIGINT NOT NULL,             -- its place, where a control entry stands
    op VARCHAR(10) NOT NULL,
    `key` LONGTEXT,
    changes LONGTEXT NOT NULL,
    changed LONGTEXT,
    code VARCHAR(64) NOT NULL,               -- why the server refused it
    reason TEXT NOT NULL,                    -- why an operator parked it
    parked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3),
    later_id BIGINT                          -- a later row of the same key, swept since
) {_OPTIONS}"""

FORMAT_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS headrace_format ENGINE = InnoDB
AS SELECT 'outbox' AS part, {OUTBOX.written_as} AS written_as, {OUTBOX.readable_from} AS readable_from"""
"""Made with its row and made last: where it is, all is there, though each statement commits by itself."""

TABLES: Final = (OUTBOX_TABLE, OWNER_TABLE, PARKED_TABLE, FORMAT_TABLE)

_NO_OUTBOX: Final = "this database has no outbox"
_MAKE_ONE: Final = "Call Outbox.create(connection) once, outside of a transaction."
_FORMAT: Final = "SELECT readable_from FROM headrace_format WHERE part = 'outbox'"
_CLUSTERED: Final = """
SHOW GLOBAL VARIABLES WHERE Variable_name IN (
    'wsrep_on', 'wsrep_provider', 'group_replication_group_name', 'group_replication_single_primary_mode')"""
_LOGGED: Final = "SHOW VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format')"
STATEMENTS_LOGGED: Final = (
    "binlog_format is STATEMENT: a replica would run the inserts anew and could give the rows other ids, so that after a "
    "failover the feed and the outbox would no longer fit together"
)
STATEMENTS_LOGGED_HINT: Final = "Set binlog_format to ROW or MIXED, for the server and for every session."
_ON: Final = ("ON", "1")
_TEXT: Final = "CONVERT(UNHEX(%s) USING utf8mb4)"
# One statement writes the row and checks format and binary log. It also begins the transaction before the id is handed out.
_INSERT: Final = f"""
INSERT INTO headrace_outbox (change_feed_id, op, `key`, changes, changed)
SELECT {_TEXT}, {_TEXT}, {_TEXT}, {_TEXT}, {_TEXT} FROM headrace_format
WHERE part = 'outbox' AND readable_from <= %s AND NOT (@@log_bin AND @@binlog_format = 'STATEMENT')"""


def create_tables(connection: Connection[Any]) -> None:
    """Make the outbox tables if they are not there; idempotent. Each statement commits by itself.

    Raises InvalidRequest inside a transaction, which DDL would commit; AttachUnsafe: see :func:`check_ordered`.
    """
    if _in_transaction(connection):
        raise InvalidRequest(
            "a transaction is open on this connection, and making tables would commit it",
            hint="Call Outbox.create before your transaction, or after its commit.",
        )
    check_ordered(connection)
    if has_tables(connection):
        check_format(connection)
    with closing(connection.cursor(Cursor)) as cursor:
        for statement in TABLES:
            cursor.execute(statement)
    if (
        not connection.get_autocommit()
    ):  # our reads have begun a transaction, which holds nothing of the caller's
        connection.rollback()


def set_used_by_application(connection: Connection[Any]) -> None:
    """Do nothing: here only the application writes an outbox."""


def check_ordered(connection: Connection[Any]) -> None:
    """Raise AttachUnsafe where several servers hand out ids, or a replica could give the rows other ones.

    That is Galera, group replication with several primaries, and a binary log of statements. With several writers the order
    of ids is not the order of the changes.
    """
    name = find_cluster(dict(_rows(connection, _CLUSTERED)))
    if name is not None:
        raise AttachUnsafe(
            f"this server is part of a cluster with {name}, where ids don't follow the order of changes",
            hint="An outbox needs one writing server. Capture reads changes from the binlog instead.",
        )
    _check_logged(connection)


def _check_logged(connection: Connection[Any]) -> None:
    logged = {name: str(value).upper() for name, value in _rows(connection, _LOGGED)}
    if logged.get("log_bin") in _ON and logged.get("binlog_format") == "STATEMENT":
        raise AttachUnsafe(STATEMENTS_LOGGED, hint=STATEMENTS_LOGGED_HINT)


def find_cluster(variables: Mapping[str, object]) -> str | None:
    """Return what makes several servers write, by the server's global variables; None if one alone does."""
    words = {name: str(value).upper() for name, value in variables.items()}
    if words.get("wsrep_on") in _ON and words.get("wsrep_provider", "NONE") not in ("", "NONE"):
        return "Galera"
    grouped = bool(words.get("group_replication_group_name"))
    if grouped and words.get("group_replication_single_primary_mode", "OFF") not in _ON:
        return "group replication in multi-primary mode"
    return None


def has_tables(connection: Connection[Any]) -> bool:
    """Return whether the database has an outbox."""
    return bool(_rows(connection, "SHOW TABLES LIKE 'headrace\\_format'"))


def check_format(connection: Connection[Any]) -> None:
    """Raise FormatTooNew if the outbox needs a newer Headrace, TableNotFound if there is no outbox."""
    if not has_tables(connection) or not (rows := _rows(connection, _FORMAT)):
        raise TableNotFound(_NO_OUTBOX, hint=_MAKE_ONE)
    check_readable("the outbox (headrace_format)", int(rows[0][0]), OUTBOX)


def add_row(connection: Connection[Any], record: Record) -> int:
    """Insert ``record`` in the caller's transaction; returns its id. See :meth:`Outbox.add` for the errors."""
    if connection.get_autocommit() and not _in_transaction(connection):
        raise InvalidRequest(
            "this connection is in autocommit mode with no transaction open: the row would commit without your data",
            hint="Call connection.begin() first, and connection.commit() after your data and this row are written.",
        )
    values = [None if value is None else value.encode().hex() for value in record]
    try:
        with closing(connection.cursor(Cursor)) as cursor:
            if cursor.execute(_INSERT, [*values, OUTBOX.written_as]):
                return int(cursor.lastrowid or 0)
    except pymysql.err.ProgrammingError as error:
        if error.args[0] != ER.NO_SUCH_TABLE:
            raise
        raise TableNotFound(_NO_OUTBOX, hint=_MAKE_ONE) from error
    check_format(connection)
    _check_logged(connection)
    raise TableNotFound("headrace_format is empty", hint=_MAKE_ONE)


def _in_transaction(connection: Connection[Any]) -> bool:
    # The driver keeps it from every answer; its type stubs don't know it.
    return bool(connection.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS)  # type: ignore[attr-defined]  # see above


def _rows(connection: Connection[Any], query: str) -> Sequence[tuple[Any, ...]]:
    """Return the rows of a query as tuples, whatever cursor class the caller uses."""
    with closing(connection.cursor(Cursor)) as cursor:
        cursor.execute(query)
        return cursor.fetchall()
