"""Taking away processed rows that are older than the retention, and what attachments leave behind, in bounded chunks."""

from __future__ import annotations

import sqlite3
from typing import Final

from headrace.publisher.sqlite.added import note_added
from headrace.publisher.sqlite.attachment import AttachmentState, forget, read_attachments
from headrace.publisher.sqlite.connection import immediate
from headrace.publisher.sqlite.ownership import read_owner
from headrace.publisher.sqlite.parked import note_later
from headrace.publisher.sqlite.triggers import row_table

CHUNK_ROWS_MAX: Final = 1_000
"""Rows taken away under one hold of the write lock."""

_OLD: Final = """
SELECT id, sequence_id, processed_at FROM headrace_outbox
WHERE id > :floor AND id <= :most AND change_feed_id = :feed ORDER BY id LIMIT :rows"""
_DELETE: Final = "DELETE FROM headrace_outbox WHERE id > ? AND id <= ? AND change_feed_id = ?"
_SET_SWEPT: Final = """
UPDATE headrace_owner SET swept_id = ?, kept_from = max(coalesce(kept_from, 0), ?) WHERE feed = ?"""


def sweep(
    connection: sqlite3.Connection, feed: str, processed_before_ms: int, rows_max: int = CHUNK_ROWS_MAX
) -> int:
    """Delete up to ``rows_max`` rows of ``feed`` that were processed before ``processed_before_ms``; returns how many.

    Oldest first, never past an unprocessed row, and never past the newest row at which the triggers were last found right:
    a rebuild needs to know what was written since.
    """
    owner = read_owner(connection, feed)
    if owner is None or owner.swept_id >= owner.done_id:
        return 0
    with immediate(connection):
        owner = read_owner(connection, feed)
        if owner is None:
            return 0
        ours = [one for one in read_attachments(connection) if one.feed == feed]
        checked = [one.checked_id for one in ours if one.state is AttachmentState.LIVE]
        names = {
            "feed": feed,
            "floor": owner.swept_id,
            "most": min([owner.done_id, *checked]),
            "rows": rows_max,
        }
        swept, kept_from, count = owner.swept_id, 0, 0
        for row, sequence_id, processed_at in connection.execute(_OLD, names):
            if processed_at is None or processed_at >= processed_before_ms:
                break
            count += 1
            # Rows of an earlier history of the feed say nothing about what is kept of this one.
            swept, kept_from = row, (sequence_id or 0) + 1 if row > owner.history_id else 0
        if not count:
            return 0
        note_later(connection, feed, swept)
        note_added(connection, feed, owner.swept_id, swept)
        connection.execute(_DELETE, (owner.swept_id, swept, feed))
        for one in ours:
            # A running copy goes on after the key of the row that it copied last.
            connection.execute(
                f"DELETE FROM {row_table(one.number)} WHERE id <= ? AND id IS NOT ?", (swept, one.copy_last)
            )
        connection.execute(_SET_SWEPT, (swept, kept_from, feed))
        return count


def clear_ended(connection: sqlite3.Connection, feed: str) -> int:
    """Remove what ended attachments of ``feed`` left, once no outbox row needs it; returns how many were removed."""
    ended = [
        one
        for one in read_attachments(connection)
        if one.feed == feed and one.state is not AttachmentState.LIVE
    ]
    if not ended:
        return 0
    removed = 0
    with immediate(connection):
        for one in ended:
            used = "SELECT 1 FROM headrace_outbox WHERE attached = ? LIMIT 1"
            if connection.execute(used, (one.number,)).fetchone() is None:
                forget(connection, one.number)
                removed += 1
    return removed
