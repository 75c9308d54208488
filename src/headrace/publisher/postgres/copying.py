"""Copying the rows that are already there, in bounded chunks, each row ordered against every later change of it.

The trap: a row may change while it is copied, and of copy and change the later one must come later in the feed. It does,
because the copy holds the row's lock from before it takes its outbox id until it commits:

* A change that committed before had taken its outbox ids before its commit. The lock shows that version of the row (READ
  COMMITTED reads the newest one once it has the lock), and the copy's id is taken after that. So the greatest id of that
  transaction is smaller than the copy's, and than the greatest of ours: in the feed ours comes later as a whole.
* A change that comes later waits for the lock, and so for our commit; its trigger takes its id after all of ours.
* A change that has not committed yet holds the row's lock: that row is left for later.
* A row that is inserted meanwhile is not seen; its own trigger tells of it. One that was deleted is not found any more.

The lock is FOR SHARE, the weakest that every UPDATE and DELETE waits for; foreign keys' checks neither wait for it nor make
it wait. SKIP LOCKED: a transaction that holds rows' locks never waits for one, so the application can't be the victim of a
deadlock with us. It waits for us as long as a chunk takes, some 20 ms. Rows left are tried again in the same way. If all of
them are locked each time, one is waited for alone, holding no other, and for less time than a deadlock's detection takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from headrace.errors import SourceUnavailable
from headrace.publisher.copies import CopyStep
from headrace.publisher.postgres.attachment import Attachment, write_control, write_copy_begin
from headrace.publisher.postgres.connection import Source, fetch_one, transaction
from headrace.publisher.postgres.copy_sql import read_key
from headrace.publisher.postgres.copy_step import BUSY_S, CHUNK_ROWS_MAX, DUE_S, Step, statements_of

_RUNNING: Final = f"""
SELECT c.id, {DUE_S.format("c.due_at")} AS due_s
FROM headrace.headrace_copy AS c JOIN headrace.headrace_attached AS a ON a.id = c.attached
WHERE c.state = 'running' AND a.feed = %s ORDER BY due_s, c.due_at, c.id"""
_INSERT: Final = """
INSERT INTO headrace.headrace_copy (attached, condition, state, rows_per_second, key, scans_from)
VALUES (%s, %s, 'running', %s, %s, CASE WHEN %s THEN '0'::xid8 END) RETURNING id"""
_REPLACE: Final = """
WITH replaced AS (
    UPDATE headrace.headrace_copy SET state = 'cancelled', detail = 'a newer copy of all rows took its place'
    WHERE state IN ('running', 'paused') AND attached IN (
        SELECT id FROM headrace.headrace_attached
        WHERE feed = %(feed)s AND (table_oid = %(oid)s OR (table_schema, table_name) = (%(schema)s, %(table)s)))
    RETURNING id
)
DELETE FROM headrace.headrace_copy_left WHERE copy IN (SELECT id FROM replaced)"""
_DONE: Final = "UPDATE headrace.headrace_copy SET state = 'done', rows = %s WHERE id = %s"


def begin_copy(
    connection: Source,
    attachment: Attachment,
    *,
    condition: str | None = None,
    rows_per_second: int | None = None,
    after_running: bool = False,
) -> int:
    """Say in the feed that copies begin, in the caller's transaction; returns the copy's number. Chunks do the rest.

    A copy of all rows takes the place of those of this table that still run. ``after_running``: look for rows only once
    every transaction that runs now has ended. Needed after a TRUNCATE entry that was written without a lock on the table:
    what such a transaction inserted may stand before that entry in the feed, and must be seen.
    """
    if condition is None:
        names = {
            "feed": attachment.feed,
            "oid": attachment.oid,
            "schema": attachment.schema_name,
            "table": attachment.table,
        }
        connection.execute(_REPLACE, names)
    return _begin(connection, attachment, condition, rows_per_second, after_running=after_running)


def copy_chunk(connection: Source, number: int, rows_max: int = CHUNK_ROWS_MAX) -> CopyStep | None:
    """Take the next bounded step of the copy ``number``, in transactions of its own; None once it does not run (any more).

    May be interrupted anywhere and called by several processes: each step starts where the last one committed, and who comes
    while another is at work does nothing. What is wrong with the copy itself ends it (``failed``, with the reason).
    """
    return Step(connection, number, rows_max).run()


def copy_pending(connection: Source, feed: str) -> CopyStep | None:
    """Take the next step of a copy of ``feed``; None if none runs, else with the time until the next one is due."""
    rows = 0
    for number, due_s in _running(connection, feed):
        if due_s:
            break
        step = copy_chunk(connection, number)
        rows = step.rows if step else 0
        if rows:
            break
    left = _running(connection, feed)
    if not left:
        return None
    # Nothing to copy though something is due: another process works on it.
    return CopyStep(rows, left[0][1] if rows or left[0][1] else BUSY_S)


def _running(connection: Source, feed: str) -> list[tuple[int, float]]:
    with transaction(connection):
        return [(number, due_s) for number, due_s in connection.execute(_RUNNING, (feed,))]


def copy_written_since(
    connection: Source, attachment: Attachment, older_numbers: Sequence[int], since: int
) -> int:
    """Copy the rows whose keys the ``older_numbers`` attachments wrote above the outbox id ``since``.

    In the caller's transaction, which holds a lock on the table that lets nobody else write. Returns how many there were.
    """
    number = _begin(connection, attachment, None, None, partial=True)
    key = read_key(connection, attachment.oid, attachment.spec.schema.key)
    statements = statements_of(connection, attachment, key, None)
    if statements is None:
        raise SourceUnavailable(f"there is no table {attachment.label} any more")
    names = {
        "feed": attachment.feed,
        "attached": attachment.number,
        "older": list(older_numbers),
        "since": since,
    }
    connection.execute("SET LOCAL row_security = off")
    rows = int(fetch_one(connection, statements.written_since(), names)[0])
    write_control(connection, attachment, "copy-end", number=number, rows=rows)
    connection.execute(_DONE, (rows, number))
    return rows


def _begin(
    connection: Source,
    attachment: Attachment,
    condition: str | None,
    rows_per_second: int | None,
    *,
    after_running: bool = False,
    partial: bool = False,
) -> int:
    key = read_key(connection, attachment.oid, attachment.spec.schema.key)
    row = (attachment.number, condition, rows_per_second, msgspec.json.encode(key).decode(), after_running)
    number = int(fetch_one(connection, _INSERT, row)[0])
    write_copy_begin(connection, attachment, number, partial=partial or condition is not None)
    return number
