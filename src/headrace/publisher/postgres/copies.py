"""The copies that there are: begun on request, paused, resumed, cancelled, shown. ``copying`` does the work."""

from __future__ import annotations

from typing import Final

import psycopg

from headrace.errors import SourceForbidden, SourceUnavailable, Usage
from headrace.publisher.copies import (
    CopyRequest,
    CopyStanding,
    CopyState,
    check_request,
    choose_attached,
    going_on,
)
from headrace.publisher.outbox.postgres import check_format
from headrace.publisher.postgres.attachment import Attachment, AttachmentState, read_attachments
from headrace.publisher.postgres.catalogue import label_of
from headrace.publisher.postgres.connection import Source, postgres_errors, transaction
from headrace.publisher.postgres.copy_sql import check_condition, read_source_table
from headrace.publisher.postgres.copy_step import TABLE_WAIT_MS
from headrace.publisher.postgres.copying import begin_copy

_STANDING: Final = """
SELECT c.id, a.table_schema, a.table_name, a.feed, c.state, c.condition, c.rows_per_second, c.rows,
    (SELECT count(*) FROM headrace.headrace_copy_left WHERE copy = c.id),
    (SELECT CASE WHEN count(*) FILTER (WHERE r.reltuples < 0) = 0 THEN sum(r.reltuples)::bigint END
        FROM pg_class AS r
        WHERE r.relkind = 'r' AND (r.oid = a.table_oid OR r.oid IN (SELECT relid FROM pg_partition_tree(a.table_oid)))),
    coalesce(c.detail, '')
FROM headrace.headrace_copy AS c JOIN headrace.headrace_attached AS a ON a.id = c.attached
ORDER BY c.id"""
_LOCK: Final = "SELECT FROM headrace.headrace_attached WHERE id = %s FOR UPDATE"
_SET_STATE: Final = """
UPDATE headrace.headrace_copy SET state = %s, due_at = clock_timestamp(), detail = NULL WHERE id = %s AND state = ANY(%s)"""
_SET_RATE: Final = """
UPDATE headrace.headrace_copy SET rows_per_second = %s, due_at = clock_timestamp() WHERE id = %s"""
_FORGET_LEFT: Final = "DELETE FROM headrace.headrace_copy_left WHERE copy = %s"
_REFUSALS: Final = ("42", "22", "0A", "25", "08P01")
"""SQLSTATEs of a condition that the database does not take; the last: it names a parameter."""


def read_copies(connection: Source) -> list[CopyStanding]:
    """Return every copy whose attachment is still there, oldest first; in the caller's transaction."""
    found = []
    for number, schema, table, feed, state, *rest in connection.execute(_STANDING):
        found.append(CopyStanding(number, label_of(schema, table), feed, CopyState(state), *rest))
    return found


def request_copy(connection: Source, request: CopyRequest) -> int:
    """Begin a copy, or find the one of just these rows that runs; returns its number. A new rate holds from now on.

    Raises Usage (a condition that the database refuses, with its words; a copy that is paused), TableNotFound.
    """
    check_request(request)
    with transaction(connection):
        check_format(connection)
        attachment = _chosen(connection, request)
    if request.condition is not None:
        _check_condition(connection, attachment, request.condition)
    with transaction(connection):
        # Two that ask at once shall begin one copy.
        connection.execute(_LOCK, (attachment.number,))
        attachment = _chosen(connection, request)
        running = going_on(request, [one for one in read_copies(connection) if one.table == attachment.label])
        if running is None:
            return begin_copy(
                connection, attachment, condition=request.condition, rows_per_second=request.rows_per_second
            )
        if request.rows_per_second not in {None, running.rows_per_second}:
            connection.execute(_SET_RATE, (request.rows_per_second, running.number))
        return running.number


def _chosen(connection: Source, request: CopyRequest) -> Attachment:
    live = read_attachments(connection, AttachmentState.LIVE)
    return choose_attached(request.table, {one.label: one for one in live})


def set_copy_state(connection: Source, number: int, state: CopyState) -> None:
    """Pause (PAUSED), resume (RUNNING) or cancel (CANCELLED) a copy; nothing happens to one that is over."""
    with transaction(connection):
        connection.execute(_SET_STATE, (state, number, [CopyState.RUNNING, CopyState.PAUSED]))
        if state is CopyState.CANCELLED:
            connection.execute(_FORGET_LEFT, (number,))


def _check_condition(connection: Source, attachment: Attachment, condition: str) -> None:
    """Let the database plan a statement with it, in a transaction that may not write."""
    try:
        with postgres_errors(), connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {TABLE_WAIT_MS * 10}; SET TRANSACTION READ ONLY")
            table = read_source_table(connection, attachment.oid)
            if table is None:
                raise Usage(
                    f"there is no table {attachment.label} any more",
                    hint="headrace publisher check says more.",
                )
            check_condition(connection, table, condition)
    except (SourceUnavailable, SourceForbidden) as trouble:
        cause = trouble.__cause__
        if not isinstance(cause, psycopg.Error) or not (cause.sqlstate or "").startswith(_REFUSALS):
            raise
        text = " ".join((cause.diag.message_primary or str(cause)).split())
        raise Usage(
            f"--where: the database refuses it: {text}",
            hint=f"It is a condition over the columns of {attachment.label}, such as \"created > '2024-01-01'\".",
        ) from cause
