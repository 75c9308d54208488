"""The outbox in PostgreSQL: its tables and functions (the two ``.sql`` files), its format numbers, and the one insert.

Only ``psycopg`` 3 is needed. A connection of any row factory will do; nothing of it is changed.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any, Final

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from headrace.errors import InvalidRequest, TableNotFound
from headrace.publisher.outbox.record import Record
from headrace.wire.versions import OUTBOX, check_readable

Connection = psycopg.Connection[Any]

_ROOM: Final = files("headrace.publisher.outbox")
TABLES_SQL: Final = (_ROOM / "postgres_tables.sql").read_text(encoding="utf-8")

_CAPTURES: Final = re.compile(
    r"^CREATE OR REPLACE FUNCTION headrace\.(headrace_capture(?:_update|_rekey)?)\(\).*?^\$\$;\n",
    re.MULTILINE | re.DOTALL,
)
_VALUE_SETTINGS: Final = re.compile(r"^SET timezone .*?(?=^AS )", re.MULTILINE | re.DOTALL)
_LAST: Final = "-- Trigger functions need no right"


def _with_plain_captures(text: str) -> str:
    """Return the functions' SQL with a ``..._plain`` form of those that capture rows, without the settings of values."""
    plain = [
        _VALUE_SETTINGS.sub("", found[0]).replace(f"{found[1]}()", f"{found[1]}_plain()", 1)
        for found in _CAPTURES.finditer(text)
    ]
    before, last, after = text.partition(_LAST)
    return "\n".join([before, *plain, last + after])


FUNCTIONS_SQL: Final = _with_plain_captures((_ROOM / "postgres_functions.sql").read_text(encoding="utf-8"))

PARKED_TABLE: Final = """
CREATE TABLE IF NOT EXISTS headrace.headrace_parked (
    id bigint PRIMARY KEY,                  -- of the outbox row, which may be swept
    feed text NOT NULL,
    sequence_id bigint NOT NULL,            -- its place, where a control entry stands
    op text NOT NULL,
    key text,
    table_name text,                        -- JSON array: schema, table
    attached integer,
    changes text NOT NULL,                  -- as the outbox had them
    changed text,
    code text NOT NULL,                     -- why the server refused it
    reason text NOT NULL,                   -- why an operator parked it
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    later_id bigint                         -- a later row of the same key, swept since
)"""
"""An outbox of the first releases has none until tables are attached again or a row is parked."""

ADDED_TABLE: Final = """
CREATE TABLE IF NOT EXISTS headrace.headrace_added_feed (
    feed text PRIMARY KEY                   -- rows of Outbox.add were swept from it
)"""
"""The same; or until such rows are swept."""

_SEED_ADDED: Final = """
INSERT INTO headrace.headrace_added_feed (feed)
SELECT o.feed FROM headrace.headrace_owner AS o
WHERE o.kept_from > 1 AND (SELECT is_called FROM headrace.headrace_added)
    AND NOT EXISTS (SELECT FROM headrace.headrace_attached AS a WHERE a.feed = o.feed)
ON CONFLICT DO NOTHING"""
"""What was swept before there was this table: a feed without tables had no other rows."""

_AGENT_GRANTS = """
DO $$
DECLARE agent record;
BEGIN
    FOR agent IN SELECT DISTINCT grantee FROM information_schema.role_table_grants
        WHERE table_schema = 'headrace' AND table_name = 'headrace_outbox' AND privilege_type = 'DELETE'
            AND grantee <> current_user
    LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON headrace.{table} TO %I', agent.grantee);
    END LOOP;
END $$"""
"""Who is the agent of an older outbox may go on as it is."""
_HAS_PARKED = "SELECT to_regclass('headrace.headrace_parked') IS NOT NULL"
_HAS_ADDED = "SELECT to_regclass('headrace.headrace_added_feed') IS NOT NULL"
_NO_OUTBOX = "this database has no outbox"
_MAKE_ONE = "Call Outbox.create(connection) once, or attach a table: headrace publisher attach."
_HAS = "SELECT to_regclass('headrace.headrace_format') IS NOT NULL"
_FORMAT_ROW = """
INSERT INTO headrace.headrace_format (part, written_as, readable_from) VALUES ('outbox', %s, %s)
ON CONFLICT (part) DO NOTHING"""
_READ_FORMAT = "SELECT readable_from, used_by_application FROM headrace.headrace_format WHERE part = 'outbox'"
_SET_USED = """
UPDATE headrace.headrace_format SET used_by_application = true WHERE part = 'outbox' AND NOT used_by_application"""
_ADD = "SELECT headrace.headrace_add(%s, %s, %s, %s, %s)"


def create_tables(connection: Connection) -> None:
    """Make schema, tables and functions if they are not there, on the caller's transaction; idempotent.

    Functions are made anew: their text is this version's. Raises FormatTooNew, untouched, if a newer Headrace made them in a
    form that this one can't read.
    """
    with connection.transaction(), _plain_cursor(connection) as cursor:
        if has_tables(connection):
            check_format(connection)
        # One of two that make them at once would fail on the catalogue's unique indexes.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext('headrace.create_tables'))")
        cursor.execute("SET LOCAL client_min_messages = warning")
        # Not again: CREATE INDEX IF NOT EXISTS locks its table even if there is nothing to do, and writers of attached
        # tables would wait for us there, holding the very tables that attach waits for.
        if not has_tables(connection):
            cursor.execute(TABLES_SQL)
        if not has_parked(connection):
            cursor.execute(PARKED_TABLE)
            cursor.execute(_AGENT_GRANTS.replace("{table}", "headrace_parked"))
        if not has_added(connection):
            create_added(connection)
        cursor.execute(FUNCTIONS_SQL)
        cursor.execute(_FORMAT_ROW, (OUTBOX.written_as, OUTBOX.readable_from))


def has_tables(connection: Connection) -> bool:
    """Return whether the database has an outbox."""
    with _plain_cursor(connection) as cursor:
        found = cursor.execute(_HAS).fetchone()
        return bool(found and found[0])


def has_parked(connection: Connection) -> bool:
    """Return whether the outbox has a place for parked rows."""
    with _plain_cursor(connection) as cursor:
        found = cursor.execute(_HAS_PARKED).fetchone()
        return bool(found and found[0])


def has_added(connection: Connection) -> bool:
    """Return whether the outbox can say which feeds had rows of ``Outbox.add``."""
    with _plain_cursor(connection) as cursor:
        found = cursor.execute(_HAS_ADDED).fetchone()
        return bool(found and found[0])


def create_added(connection: Connection) -> None:
    """Make the place where it is noted which feeds had rows of ``Outbox.add``, in the caller's transaction."""
    with _plain_cursor(connection) as cursor:
        cursor.execute(ADDED_TABLE)
        cursor.execute(_AGENT_GRANTS.replace("{table}", "headrace_added_feed"))
        cursor.execute(_SEED_ADDED)


def check_format(connection: Connection) -> bool:
    """Return whether the application writes the outbox itself (``Outbox.create`` was called).

    Raises FormatTooNew if the outbox needs a newer Headrace, TableNotFound if there is no outbox.
    """
    if not has_tables(connection):
        raise TableNotFound(_NO_OUTBOX, hint=_MAKE_ONE)
    with _plain_cursor(connection) as cursor:
        row = cursor.execute(_READ_FORMAT).fetchone()
    if row is None:
        raise TableNotFound(
            "headrace.headrace_format is empty", hint="Attach again: headrace publisher attach."
        )
    check_readable("the outbox (headrace.headrace_format)", int(row[0]), OUTBOX)
    return bool(row[1])


def set_used_by_application(connection: Connection) -> None:
    """Note, in the caller's transaction, that the application writes the outbox itself."""
    with _plain_cursor(connection) as cursor:
        cursor.execute(_SET_USED)


def add_row(connection: Connection, record: Record) -> int:
    """Insert ``record`` in the caller's transaction; returns its id. See :meth:`Outbox.add` for the errors.

    One statement, which fails as any of the caller's would: the transaction can then only be rolled back.
    """
    if connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE:
        raise InvalidRequest(
            "this connection is in autocommit mode with no transaction open: the row would commit without your data",
            hint="Write your data and this row inside `with connection.transaction():`.",
        )
    if record.key is not None and "\0" in record.key:
        raise InvalidRequest("key: PostgreSQL's text holds no NUL character", member="key")
    try:
        with _plain_cursor(connection) as cursor:
            row = cursor.execute(_ADD, record).fetchone()
    except (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction) as error:
        raise TableNotFound(_NO_OUTBOX, hint=_MAKE_ONE) from error
    return int(row[0]) if row else 0


def _plain_cursor(connection: Connection) -> psycopg.Cursor[tuple[Any, ...]]:
    """Return a cursor whose rows are tuples, whatever row factory the caller uses."""
    return connection.cursor(row_factory=tuple_row)
