"""Copying the rows that are already there, in bounded chunks, each ordered against every later change.

SQLite has one writer at a time. A chunk takes the write lock, so what it reads is the newest state: every change before it
has a smaller outbox id, every change after it a greater one. It also knows that it is a whole transaction by itself, and
says so in ``tx_end``, so that a large copy doesn't become one huge unit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from headrace.errors import Usage
from headrace.publisher.copies import (
    CopyRequest,
    CopyStanding,
    CopyState,
    CopyStep,
    check_request,
    choose_attached,
    chunk_rows,
    going_on,
    pause_s,
)
from headrace.publisher.outbox.sqlite import check_format
from headrace.publisher.sqlite.attachment import (
    Attachment,
    AttachmentState,
    end_unit,
    newest_id,
    read_attachments,
    write_control,
    write_copy_begin,
)
from headrace.publisher.sqlite.connection import immediate, snapshot, sqlite_errors
from headrace.publisher.sqlite.copies import Copy, insert_copy, read_copies, read_key, store_copy, write_key

CHUNK_ROWS_MAX: Final = 1_000
"""Rows copied under one hold of the write lock: the application's writers wait for some 10 ms."""

SCAN_ROWS_MAX: Final = 10 * CHUNK_ROWS_MAX
"""Rows that a condition is asked about under one hold of the write lock, however few meet it."""

DUE_AHEAD_MS_MAX: Final = 60_000
"""A step that is due later than this was put off by a clock that has gone back since."""


def begin_copy(
    connection: sqlite3.Connection,
    attachment: Attachment,
    *,
    condition: str | None = None,
    rows_per_second: int | None = None,
) -> int:
    """Say in the feed that copies begin, in the caller's transaction; returns the copy's number. Chunks do the rest.

    A copy of all rows takes the place of those of this table that still run.
    """
    every = {one.number: one for one in read_attachments(connection)}
    for copy in () if condition is not None else read_copies(connection):
        if not copy.state.is_over and _is_same(every.get(copy.attached), attachment):
            store_copy(
                connection, copy._replace(state=CopyState.CANCELLED, detail="a newer copy took its place")
            )
    number = insert_copy(connection, attachment, condition, rows_per_second)
    write_copy_begin(connection, attachment, number, partial=condition is not None)
    return number


def hand_on(connection: sqlite3.Connection, copies: Sequence[Copy], newer: Attachment) -> None:
    """Make the unfinished ones of ``copies`` those of ``newer``, which took the place of their attachment."""
    for copy in copies:
        if not copy.state.is_over:
            store_copy(connection, copy._replace(attached=newer.number))


def copy_chunk(
    connection: sqlite3.Connection, number: int, rows_max: int = CHUNK_ROWS_MAX
) -> CopyStep | None:
    """Copy the next rows of the copy ``number`` in a transaction of its own; None once it does not run (any more).

    May be interrupted anywhere and called by several processes: each chunk starts where the last one committed.
    """
    with immediate(connection):
        copy = next((one for one in read_copies(connection) if one.number == number), None)
        if copy is None or copy.state is not CopyState.RUNNING:
            return None
        if 0 < copy.due_in_ms < DUE_AHEAD_MS_MAX:
            return CopyStep(0, copy.due_in_ms / 1000)
        attachment = _attachment_of(connection, copy)
        if attachment is None:
            failed = copy._replace(state=CopyState.FAILED, detail="the table is not attached any more")
            store_copy(connection, failed)
            return None
        end_unit(connection, attachment.feed)
        try:
            rows, more = _copy_rows(connection, attachment, copy, chunk_rows(rows_max, copy.rows_per_second))
        except sqlite3.OperationalError as error:
            if copy.condition is None or error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise
            store_copy(
                connection, copy._replace(state=CopyState.FAILED, detail=f"the condition fails: {error}")
            )
            return None
        end_unit(connection, attachment.feed)
        return CopyStep(rows, pause_s(rows, copy.rows_per_second)) if more else None


def copy_pending(connection: sqlite3.Connection, feed: str) -> CopyStep | None:
    """Take the next step of a running copy of ``feed``; None if none runs, else with the time until the next one is due."""
    running = _running(connection, feed)
    if not running:
        return None
    step = copy_chunk(connection, running[0].number)
    left = _running(connection, feed)
    if not left:
        return None
    return CopyStep(step.rows if step else 0, max(0, left[0].due_in_ms) / 1000)


def copy_written_since(
    connection: sqlite3.Connection, attachment: Attachment, older: Sequence[Attachment], since: int
) -> int:
    """Copy the rows whose keys the ``older`` attachments wrote above the outbox id ``since``, in the caller's transaction.

    They were stored without a column that the table already had. Returns how many there were.
    """
    number = insert_copy(connection, attachment, None, None)
    write_copy_begin(connection, attachment, number, partial=True)
    last = newest_id(connection)
    sql = attachment.sql
    older_specs = [(one.number, one.spec) for one in older]
    copied = connection.execute(sql.copy_written_since(older_specs), {"last": last, "since": since}).rowcount
    connection.execute(sql.copy_rows(), {"last": last})
    write_control(connection, attachment, "copy-end", number=number, rows=copied)
    done = next(one for one in read_copies(connection) if one.number == number)
    store_copy(connection, done._replace(state=CopyState.DONE, rows=copied))
    return copied


def request_copy(connection: sqlite3.Connection, request: CopyRequest) -> int:
    """Begin a copy, or find the one of just these rows that runs; returns its number. A new rate holds from now on.

    Raises Usage (a condition that the database refuses, with its words; a copy that is paused), TableNotFound.
    """
    check_request(request)
    with immediate(connection):
        check_format(connection)
        live = {one.table: one for one in read_attachments(connection, AttachmentState.LIVE)}
        attachment = choose_attached(request.table, live)
        if request.condition is not None:
            _check_condition(connection, attachment, request.condition)
        standing = [one for one in _standing(connection) if one.table == attachment.table]
        running = going_on(request, standing)
        if running is None:
            end_unit(connection, attachment.feed)
            number = begin_copy(
                connection, attachment, condition=request.condition, rows_per_second=request.rows_per_second
            )
            end_unit(connection, attachment.feed)
            return number
        if request.rows_per_second is not None:
            copy = next(one for one in read_copies(connection) if one.number == running.number)
            store_copy(connection, copy._replace(rows_per_second=request.rows_per_second, due_in_ms=0))
        return running.number


def set_copy_state(connection: sqlite3.Connection, number: int, state: CopyState) -> None:
    """Pause (PAUSED), resume (RUNNING) or cancel (CANCELLED) a copy; nothing happens to one that is over."""
    with immediate(connection):
        for copy in read_copies(connection):
            if copy.number == number and not copy.state.is_over:
                store_copy(connection, copy._replace(state=state, due_in_ms=0))


def standing(connection: sqlite3.Connection) -> list[CopyStanding]:
    """Return every copy whose attachment is still there, oldest first."""
    with snapshot(connection):
        check_format(connection)
        return _standing(connection)


def _standing(connection: sqlite3.Connection) -> list[CopyStanding]:
    every = {one.number: one for one in read_attachments(connection)}
    return [
        CopyStanding(
            number=copy.number,
            table=every[copy.attached].table,
            feed=every[copy.attached].feed,
            state=copy.state,
            condition=copy.condition,
            rows_per_second=copy.rows_per_second,
            rows=copy.rows,
            rows_left=0,
            rows_estimated=None,
            detail=copy.detail,
        )
        for copy in read_copies(connection)
        if copy.attached in every
    ]


def _copy_rows(
    connection: sqlite3.Connection, attachment: Attachment, copy: Copy, rows_max: int
) -> tuple[int, bool]:
    """Copy the next rows, and end the copy where there are no more; returns how many, and whether there may be more."""
    sql, last = attachment.sql, newest_id(connection)
    after, upto = read_key(copy.last_key), None
    names: dict[str, Any] = {"last": last, "rows": rows_max, **_bound("k", after)}
    if copy.condition is not None:
        scan = {**names, "rows": max(rows_max, SCAN_ROWS_MAX)}
        upto = connection.execute(sql.key_ahead(after), scan).fetchone()
    query = sql.copy_values(after, upto, copy.condition)
    rows = connection.execute(query, {**names, **_bound("u", upto)}).rowcount
    connection.execute(sql.copy_rows(), {"last": last})
    copy = copy._replace(attached=attachment.number, rows=copy.rows + rows)
    if rows < rows_max and upto is None:
        write_control(connection, attachment, "copy-end", number=copy.number, rows=copy.rows)
        store_copy(connection, copy._replace(state=CopyState.DONE))
        return rows, False
    key = upto if rows < rows_max else connection.execute(sql.select_key(), (last + rows,)).fetchone()
    due_in_ms = round(1000 * pause_s(rows, copy.rows_per_second))
    store_copy(connection, copy._replace(last_key=write_key(key), due_in_ms=due_in_ms))
    return rows, True


def _bound(letter: str, key: Sequence[Any] | None) -> dict[str, Any]:
    return {f"{letter}{place}": getattr(value, "data", value) for place, value in enumerate(key or ())}


def _running(connection: sqlite3.Connection, feed: str) -> list[Copy]:
    """Return the running copies of ``feed``, the one that is due first before the others."""
    with sqlite_errors():
        feeds = {one.number: one.feed for one in read_attachments(connection)}
        found = [one for one in read_copies(connection) if one.state is CopyState.RUNNING]
    return sorted((one for one in found if feeds.get(one.attached) == feed), key=lambda one: one.due_in_ms)


def _attachment_of(connection: sqlite3.Connection, copy: Copy) -> Attachment | None:
    """Return the copy's attachment, or the live one that was rebuilt in its place; None if the table was detached."""
    every = {one.number: one for one in read_attachments(connection)}
    begun = every.get(copy.attached)
    live = [one for one in every.values() if one.state is AttachmentState.LIVE]
    return next((one for one in live if _is_same(begun, one)), None)


def _is_same(one: Attachment | None, other: Attachment) -> bool:
    return one is not None and (one.table, one.feed) == (other.table, other.feed)


def _check_condition(connection: sqlite3.Connection, attachment: Attachment, condition: str) -> None:
    """Let SQLite plan a statement with it. The driver takes one statement only, and no parameters are given."""
    try:
        connection.execute(attachment.sql.check_condition(condition)).close()
    except (sqlite3.OperationalError, sqlite3.ProgrammingError) as error:
        raise Usage(
            f"--where: the database refuses it: {error}",
            hint=f"It is a condition over the columns of {attachment.table}, such as \"created > '2024-01-01'\".",
        ) from error
