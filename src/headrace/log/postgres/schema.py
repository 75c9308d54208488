"""Opening the log's tables: made if they aren't there, refused before anything is touched if they are of a newer format."""

from __future__ import annotations

from importlib import resources
from typing import Final

import google_crc32c
import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.entries.lsn import ZERO
from headrace.errors import JournalCorrupt, JournalLoss, StoreForbidden
from headrace.log.postgres.connection import fetch_one, refused
from headrace.log.tail import JournalState
from headrace.wire.frame import FIRST_POSITION
from headrace.wire.versions import LOG_TABLES, check_readable

SCHEMA: Final = "headrace_log"
MAKING_LOCK: Final = 0x4865_6164_7261_6365
"""Advisory lock, per database: who makes the tables."""
_WHERE: Final = f"the schema {SCHEMA}"

_MISSING_RIGHTS: Final = """
SELECT string_agg(format('%s on %s', right_name, c.relname), ', ' ORDER BY c.relname, right_name)
FROM pg_class AS c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS right_name
WHERE c.relnamespace = 'headrace_log'::regnamespace AND c.relkind = 'r' AND NOT has_table_privilege(c.oid, right_name)"""

_ENDS: Final = """
SELECT j.end_position, j.oldest_position, j.global_ts, f.position + f.size, f.last_global_ts
FROM headrace_log.journal AS j
LEFT JOIN (SELECT * FROM headrace_log.frame ORDER BY position DESC LIMIT 1) AS f ON true"""


def open_tables(connection: Connection[TupleRow]) -> None:
    """Make the tables if the schema has none, and check that they are a whole log of a format that this program reads.

    Raises FormatTooNew, StoreForbidden, JournalCorrupt, JournalLoss, StoreUnavailable; nothing was changed then.
    """
    try:
        with connection.transaction():
            # Two servers may be started at once on an empty database.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING_LOCK,))
            if fetch_one(connection, "SELECT to_regclass('headrace_log.format')")[0] is None:
                _make_tables(connection)
            check_format(connection)
            missing = fetch_one(connection, _MISSING_RIGHTS)[0]
            if missing:
                raise StoreForbidden(f"this role lacks {missing} in {_WHERE}")
            _check_ends(connection)
    except psycopg.Error as error:
        raise refused(error) from error


def check_format(connection: Connection[TupleRow]) -> None:
    """Raise FormatTooNew if the tables were changed by a version that this one can't follow."""
    for (readable_from,) in connection.execute("SELECT readable_from FROM headrace_log.format").fetchall():
        check_readable(_WHERE, readable_from, LOG_TABLES)


def _make_tables(connection: Connection[TupleRow]) -> None:
    if fetch_one(connection, "SELECT to_regnamespace('headrace_log')")[0] is None:
        connection.execute("CREATE SCHEMA headrace_log")
    for room, file in (
        ("headrace.log.postgres", "schema.sql"),
        ("headrace.log.metadata", "postgres.sql"),
        ("headrace.log.metadata", "postgres_3.sql"),
        ("headrace.log.metadata", "postgres_4.sql"),
        ("headrace.log.metadata", "postgres_5.sql"),
        ("headrace.log.metadata", "postgres_6.sql"),
        ("headrace.log.metadata", "postgres_7.sql"),
    ):
        connection.execute(resources.files(room).joinpath(file).read_bytes())
    state = JournalState().encode()
    connection.execute("INSERT INTO headrace_log.format VALUES (%s, %s)", LOG_TABLES)
    connection.execute(
        "INSERT INTO headrace_log.segment VALUES (%s, 0, %s, %s)",
        (FIRST_POSITION, state, google_crc32c.value(state)),
    )
    connection.execute(
        "INSERT INTO headrace_log.journal (end_position, oldest_position, segment_position, global_ts, next_region_id,"
        " dropped_lsn) VALUES (%s, %s, %s, 0, 1, %s)",
        (FIRST_POSITION, FIRST_POSITION, FIRST_POSITION, str(ZERO)),
    )


def _check_ends(connection: Connection[TupleRow]) -> None:
    """The journal's row and the newest frame must be of one moment: tables restored one by one may not be."""
    rows = connection.execute(_ENDS).fetchall()
    if len(rows) != 1:
        raise JournalCorrupt(f"{_WHERE}: the table journal has {len(rows)} rows instead of one")
    end, oldest, clock, newest_end, newest_ts = rows[0]
    found = newest_end if newest_end is not None else oldest
    if found < end:
        raise JournalLoss(
            f"{_WHERE}: the newest frame ends at position {found:#x}, but everything up to {end:#x} was acknowledged",
            hint="Do not delete anything: restore the whole schema from one backup.",
        )
    if found > end or (newest_ts or 0) > clock:
        raise JournalCorrupt(
            f"{_WHERE}: the journal ends at {end:#x}, its newest frame at {found:#x}: the tables are not of one moment",
            hint="Do not delete anything: restore the whole schema from one backup.",
        )
