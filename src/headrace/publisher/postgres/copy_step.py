"""One step of one copy: a chunk of the scan, a try at the rows that were locked, or the end. ``copying`` says why it holds.

A step holds the copy's row and a share of its attachment's: who comes second does nothing, and what rebuilds the triggers
waits for the step, so that no row comes under an older schema than that of the entry before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg

from headrace.errors import SourceForbidden, SourceUnavailable
from headrace.publisher.copies import CopyState, CopyStep, chunk_rows, pause_s
from headrace.publisher.postgres.attachment import (
    Attachment,
    AttachmentState,
    read_attachments,
    write_control,
)
from headrace.publisher.postgres.connection import Source, describe_in_the_way, fetch_one, transaction
from headrace.publisher.postgres.copy_sql import ROW, ChunkSql, KeyColumn, read_source_table
from headrace.publisher.postgres.triggers import row_json
from headrace.runtime.typed_json import decode_json

CHUNK_ROWS_MAX: Final = 1_000
"""Rows copied in one transaction: so many does an UPDATE of the application find locked, for some 20 ms."""

CHUNK_BYTES_MAX: Final = 4 << 20
"""Bytes of JSON written by one transaction, reckoned roughly; one row may be larger."""

SCANNED_PER_ROW: Final = 10
"""Rows that a condition is asked about in one transaction, for each that may be copied: one that few rows meet must not
make an endless statement."""

STATEMENT_S_MAX: Final = 10
"""How long a statement may take: the agent does nothing else meanwhile. Only a costly condition takes longer."""

TABLE_WAIT_MS: Final = 100
"""How long a step waits for the table's lock, holding no row: an ALTER TABLE may be at work."""

ROW_WAIT_MS: Final = 100
"""How long one row's lock is waited for, holding no other; well below any deadlock_timeout (1 s by default)."""

HOLDER_AGE_S: Final = 1.0
"""A transaction that has lasted so long may last longer: its rows are asked for again, but not waited for."""

RETRY_S: Final = (0.05, 2.0)
"""How long a row that is locked is left alone: the shortest time, doubled with each try, and the longest."""

LATER_S: Final = 1.0
"""How long what others hold for longer is left alone."""

BUSY_S: Final = 0.25
"""When to look again at a copy that another process works on."""

DUE_S: Final = """
(CASE WHEN {0} > clock_timestamp() + interval '1 minute' THEN 0
    ELSE greatest(0, extract(epoch FROM {0} - clock_timestamp())) END)::float8"""
"""In how many seconds a step is due. One that is due much later was put off by a clock that has gone back since."""

_TAKE: Final = f"""
SELECT id, attached, condition, rows_per_second, key, scans_from::text, end_key, last_key, scanned, rows,
    {DUE_S.format("due_at")}
FROM headrace.headrace_copy WHERE id = %s AND state = 'running' FOR UPDATE SKIP LOCKED"""
_IS_RUNNING: Final = "SELECT FROM headrace.headrace_copy WHERE id = %s AND state = 'running'"
_SHARE: Final = "SELECT FROM headrace.headrace_attached WHERE id = %s FOR SHARE SKIP LOCKED"
_SCAN_LATER: Final = "UPDATE headrace.headrace_copy SET scans_from = pg_current_xact_id() WHERE id = %s"
_BEGIN_SCAN: Final = """
UPDATE headrace.headrace_copy SET end_key = %s, scanned = %s, detail = NULL WHERE id = %s"""
_IS_SETTLED: Final = "SELECT pg_snapshot_xmin(pg_current_snapshot()) >= %s::text::xid8"
_HAND_ON: Final = """
UPDATE headrace.headrace_copy SET attached = %s WHERE attached = ANY(%s) AND state IN ('running', 'paused')"""
_END: Final = "UPDATE headrace.headrace_copy SET state = %s, detail = %s WHERE id = %s AND state = 'running'"
_FORGET_LEFT: Final = "DELETE FROM headrace.headrace_copy_left WHERE copy = %s"
_POSTPONE: Final = """
UPDATE headrace.headrace_copy SET due_at = clock_timestamp() + %s * interval '1 second', detail = %s
WHERE id = %s AND state = 'running'"""
_FIRST_LEFT: Final = """
SELECT key, tries FROM headrace.headrace_copy_left WHERE copy = %s ORDER BY tries, key LIMIT 1"""
_HOLDER: Final = """
SELECT extract(epoch FROM clock_timestamp() - a.xact_start)::float8,
    format('Session %%s (%%s) has it: role %%s, %%s, its transaction is %%s s old.', l.pid,
        coalesce(nullif(a.application_name, ''), '-'), a.usename, coalesce(a.state, 'not to be seen'),
        extract(epoch FROM clock_timestamp() - a.xact_start)::bigint)
FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid
WHERE l.locktype = 'transactionid' AND l.granted AND l.transactionid = %s::text::xid"""
_SETTINGS: Final = f"""
SET LOCAL lock_timeout = {TABLE_WAIT_MS};
SET LOCAL statement_timeout = {STATEMENT_S_MAX * 1000};
SET LOCAL row_security = off;
SET LOCAL synchronous_commit = off;
SET LOCAL enable_bitmapscan = off"""
"""row_security off: a policy makes an error, never fewer rows. synchronous_commit off: the rows' locks don't wait for the
disk; the commit that marks the rows is flushed, and all before it. enable_bitmapscan off: the index gives the order."""

_AWAY: Final = ("08", "25", "53", "57P", "58")
"""SQLSTATEs of a database that does nothing now: no connection, read-only, no resources, shut down, the system."""
_IN_THE_WAY: Final = ("40", "55")
"""SQLSTATEs of what others do meanwhile: locks, and rows that move to another partition."""
_TOO_SLOW: Final = "57014"


class Copy(NamedTuple):
    """A running copy, its row locked by this transaction. ``key``: JSON of its columns; ``due_in_s``: seconds."""

    number: int
    attached: int
    condition: str | None
    rows_per_second: int | None
    key: str
    scans_from: str | None
    end_key: str | None
    last_key: str | None
    scanned: bool
    rows: int
    due_in_s: float


def hand_on(connection: Source, older_numbers: Sequence[int], number: int) -> None:
    """Make the unfinished copies of ``older_numbers`` those of ``number``, the attachment that took their place.

    In the caller's transaction. A step does it too, but one that is paused takes none.
    """
    connection.execute(_HAND_ON, (number, list(older_numbers)))


def statements_of(
    connection: Source, attachment: Attachment, key: Sequence[KeyColumn], condition: str | None
) -> ChunkSql | None:
    """Return the statements that copy rows of the attachment's table; None if there is no such table any more."""
    table = read_source_table(connection, attachment.oid)
    return None if table is None else ChunkSql(table, key, condition, row_json(attachment, ROW))


class _CopyFailed(Exception):
    """This copy can't go on; the message says why."""


class Step:
    """One step of the copy ``number``."""

    def __init__(self, connection: Source, number: int, rows_max: int) -> None:
        self._connection = connection
        self._number = number
        self._rows_max = rows_max
        self._conditional = False

    def run(self) -> CopyStep | None:
        """Take it; None if the copy does not run (any more). What is wrong with the copy itself ends it."""
        try:
            step = self._advance()
        except _CopyFailed as failure:
            self._fail(str(failure))
            return None
        except (SourceUnavailable, SourceForbidden) as trouble:
            return self._after(trouble)
        if step is not None and step.rows:
            # Apart from the chunk: a commit that notifies waits for others that do.
            with transaction(self._connection):
                self._connection.execute("SELECT headrace.headrace_wake()")
        return step

    def _after(self, trouble: SourceUnavailable | SourceForbidden) -> CopyStep | None:
        """Try later where others are in the way, end the copy where it is itself wrong, raise if the database is away."""
        cause = trouble.__cause__
        state = (cause.sqlstate if isinstance(cause, psycopg.Error) else None) or ""
        if not state or state.startswith(_AWAY):
            raise trouble
        if state.startswith(_IN_THE_WAY):
            return self._postpone(LATER_S, f"the table is locked. {describe_in_the_way(self._connection)}")
        slow = f"a chunk took longer than {STATEMENT_S_MAX} s"
        if state == _TOO_SLOW and not self._conditional:
            return self._postpone(LATER_S, f"{slow}, and is tried again")
        self._fail(slow if state == _TOO_SLOW else trouble.detail)
        return None

    def _advance(self) -> CopyStep | None:
        with transaction(self._connection):
            copy = self._take()
            if not isinstance(copy, Copy):
                return copy
            attachment = self._attachment(copy)
            if attachment is None:
                return CopyStep(0, BUSY_S)
            statements = self._statements(copy, attachment)
            if copy.end_key is None and not copy.scanned:
                return self._begin_scan(copy, statements)
            names = self._names(copy, attachment)
            if not copy.scanned:
                rows = fetch_one(self._connection, statements.scan(after=copy.last_key is not None), names)[0]
                return CopyStep(rows, pause_s(rows, copy.rows_per_second))
            rows, found = fetch_one(self._connection, statements.rows_left(wait=False), names)
            left = self._connection.execute(_FIRST_LEFT, (copy.number,)).fetchone()
            if left is None and not rows:  # rows of this step are not in ``copy.rows`` yet
                write_control(self._connection, attachment, "copy-end", number=copy.number, rows=copy.rows)
                self._connection.execute(_END, (CopyState.DONE, None, copy.number))
                return None
            if left is None or rows or not found:  # not all that were tried are locked
                return CopyStep(rows, pause_s(rows, copy.rows_per_second))
        return self._wait_for_row(statements, names, *left)

    def _take(self) -> Copy | CopyStep | None:
        """Lock the copy's row; a step that does nothing if another has it, or if it is not due; None if it doesn't run."""
        row = self._connection.execute(_TAKE, (self._number,)).fetchone()
        if row is None:
            running = self._connection.execute(_IS_RUNNING, (self._number,)).fetchone()
            return None if running is None else CopyStep(0, BUSY_S)
        self._connection.execute(_SETTINGS)
        copy = Copy(*row)
        self._conditional = copy.condition is not None
        return CopyStep(0, copy.due_in_s) if copy.due_in_s else copy

    def _attachment(self, copy: Copy) -> Attachment | None:
        """Lock a share of the copy's attachment, and return it; None while somebody rebuilds or ends it.

        Where another was made in its place, the copy is that one's from now on.
        """
        if self._connection.execute(_SHARE, (copy.attached,)).fetchone() is None:
            return None
        every = {one.number: one for one in read_attachments(self._connection)}
        begun = every[copy.attached]
        if begun.state is AttachmentState.LIVE:
            return begun
        for one in every.values():
            if one.state is AttachmentState.LIVE and (one.oid, one.feed) == (begun.oid, begun.feed):
                hand_on(self._connection, [begun.number], one.number)
                return None
        raise _CopyFailed("the table is not attached any more")

    def _statements(self, copy: Copy, attachment: Attachment) -> ChunkSql:
        key = decode_json(copy.key, tuple[KeyColumn, ...])
        statements = statements_of(self._connection, attachment, key, copy.condition)
        if statements is None:
            raise _CopyFailed(f"there is no table {attachment.label} any more")
        return statements

    def _begin_scan(self, copy: Copy, statements: ChunkSql) -> CopyStep:
        """Fix where the scan ends, so that it doesn't follow an application that inserts faster than it copies.

        Where it is to begin after all transactions that ran when the copy was begun: a snapshot's xmax is no bound for
        those, as it counts from the newest one that has *ended*. But this transaction is younger than all of them.
        """
        if copy.scans_from == "0":
            self._connection.execute(_SCAN_LATER, (copy.number,))
            return CopyStep(0, 0.0)
        settled = copy.scans_from is None or fetch_one(self._connection, _IS_SETTLED, (copy.scans_from,))[0]
        if not settled:
            waits_for = (
                f"waits for transactions that ran when it began. {describe_in_the_way(self._connection)}"
            )
            self._connection.execute(_POSTPONE, (LATER_S, waits_for, copy.number))
            return CopyStep(0, LATER_S)
        row = self._connection.execute(statements.last_key(), ()).fetchone()
        self._connection.execute(_BEGIN_SCAN, (row and row[0], row is None, copy.number))
        return CopyStep(0, 0.0)

    def _names(self, copy: Copy, attachment: Attachment) -> dict[str, Any]:
        rows = chunk_rows(self._rows_max, copy.rows_per_second)
        return {
            "copy": copy.number,
            "attached": attachment.number,
            "feed": attachment.feed,
            "rows": rows,
            "bytes": CHUNK_BYTES_MAX,
            "scan": rows if copy.condition is None else rows * SCANNED_PER_ROW,
            "after": copy.last_key,
            "end": copy.end_key,
        }

    def _wait_for_row(
        self, statements: ChunkSql, names: dict[str, Any], key: str, tries: int
    ) -> CopyStep | None:
        """All rows left are locked: wait for the one that was tried least, alone and shortly."""
        age_s, holder = self._holder(statements, key)
        if age_s >= HOLDER_AGE_S:
            return self._postpone(LATER_S, f"the row {key} is locked. {holder}")
        try:
            with transaction(self._connection):
                copy = self._take()
                if not isinstance(copy, Copy):
                    return copy
                if self._attachment(copy) is None:
                    return CopyStep(0, BUSY_S)
                self._connection.execute(f"SET LOCAL lock_timeout = {ROW_WAIT_MS}")
                rows, _ = fetch_one(self._connection, statements.rows_left(wait=True), {**names, "scan": 1})
                return CopyStep(rows, pause_s(rows, copy.rows_per_second))
        except SourceUnavailable as trouble:
            if not isinstance(trouble.__cause__, psycopg.errors.LockNotAvailable):
                raise
        delay = min(RETRY_S[1], RETRY_S[0] * 2 ** min(tries, 16))
        return self._postpone(delay, f"the row {key} is locked. {holder}")

    def _holder(self, statements: ChunkSql, key: str) -> tuple[float, str]:
        """Return how old the transaction is that has locked a row, and who it is."""
        with transaction(self._connection):
            row = self._connection.execute(statements.holder(), {"key": key}).fetchone()
            found = None if row is None else self._connection.execute(_HOLDER, (str(row[0]),)).fetchone()
        return (0.0, describe_in_the_way(self._connection)) if found is None else (found[0] or 0.0, found[1])

    def _postpone(self, delay_s: float, detail: str) -> CopyStep:
        with transaction(self._connection):
            self._connection.execute(_POSTPONE, (delay_s, detail, self._number))
        return CopyStep(0, delay_s)

    def _fail(self, reason: str) -> None:
        with transaction(self._connection):
            self._connection.execute(_END, (CopyState.FAILED, reason, self._number))
            self._connection.execute(_FORGET_LEFT, (self._number,))
