"""Taking away processed rows that are older than the retention, in bounded chunks. Each call is one transaction."""

from __future__ import annotations

from typing import Final

from headrace.publisher.mysql.connection import Source, execute, execute_many, fetch, transaction
from headrace.publisher.mysql.ownership import read_owner
from headrace.publisher.mysql.parked import note_later

CHUNK_ROWS_MAX: Final = 1_000
"""Rows taken away in one transaction."""

_OLD: Final = """
SELECT id, sequence_id, processed_at FROM headrace_outbox FORCE INDEX (headrace_outbox_place)
WHERE change_feed_id = %(feed)s AND sequence_id >= %(from)s AND sequence_id < %(below)s AND history = %(history)s
ORDER BY sequence_id LIMIT %(rows)s"""
_OLD_HISTORY: Final = """
SELECT id, sequence_id, processed_at FROM headrace_outbox FORCE INDEX (headrace_outbox_place)
WHERE change_feed_id = %(feed)s AND sequence_id IS NOT NULL AND history < %(history)s AND processed
ORDER BY sequence_id LIMIT %(rows)s"""
_SET_KEPT: Final = "UPDATE headrace_owner SET kept_from = %s WHERE feed = %s"


def sweep(connection: Source, feed: str, processed_before_ms: int, rows_max: int = CHUNK_ROWS_MAX) -> int:
    """Delete up to ``rows_max`` rows of ``feed`` that were processed before ``processed_before_ms``; returns how many.

    Oldest first, never past an unprocessed row. Rows are deleted by primary key: no gap is locked.
    """
    with transaction(connection):
        owner = read_owner(connection, feed, lock=True)
        if owner is None:
            return 0
        names = {
            "feed": feed,
            "from": owner.kept_from,
            "below": owner.processed_next,
            "history": owner.history,
            "rows": rows_max,
        }
        old: list[int] = []
        kept_from = owner.kept_from
        for row, sequence_id, processed_at in fetch(connection, _OLD, names):
            if processed_at is None or processed_at >= processed_before_ms:
                break
            old.append(row)
            kept_from = sequence_id + 1
        if not old and owner.history:
            rows = fetch(connection, _OLD_HISTORY, names)
            old = [row for row, _, at in rows if at is not None and at < processed_before_ms]
        if old:
            note_later(connection, feed)
            execute_many(connection, [f"DELETE FROM headrace_outbox WHERE id = {row}" for row in old])
            execute(connection, _SET_KEPT, (kept_from, feed))
        return len(old)
