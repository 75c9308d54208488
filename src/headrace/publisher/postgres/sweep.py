"""Taking away processed rows that are older than the retention, in bounded chunks. Each call is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, LiteralString, NamedTuple

from headrace.publisher.postgres.added import note_added
from headrace.publisher.postgres.attachment import AttachmentState, forget, read_attachments
from headrace.publisher.postgres.connection import Source, array_of, fetch_one, postgres_errors, transaction
from headrace.publisher.postgres.parked import note_later

CHUNK_ROWS_MAX: Final = 5_000
"""Rows taken away in one transaction."""

PASS_KEPT_S: Final = 60
"""Of the passes that are over, one in this many seconds is kept: so exactly is known when rows were processed."""

_PROCESSED_BEFORE: Final = """
SELECT history, processed_next FROM headrace.headrace_pass
WHERE feed = %s AND at < to_timestamp(%s / 1000.0) ORDER BY number DESC LIMIT 1"""
_CHECKED: Final = "SELECT min(checked_id) FROM headrace.headrace_attached WHERE feed = %s AND state = 'live'"
_MARKS: Final = """
SELECT history, first_sequence_id, rows, tx::text, first_id, last_id FROM headrace.headrace_mark
WHERE feed = %s ORDER BY feed, history, first_sequence_id LIMIT %s"""
_DELETE_ROWS: Final = """
WITH gone AS (DELETE FROM headrace.headrace_outbox AS o
USING unnest(%(txs)s::xid8[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS m (tx, first, last)
WHERE o.tx = m.tx AND o.id BETWEEN m.first AND m.last AND o.change_feed_id = %(feed)s
RETURNING o.attached, o.control)
SELECT count(*), coalesce(bool_or(attached IS NULL AND control IS NULL), false) FROM gone"""
_DELETE_PART: Final = """
WITH gone AS (DELETE FROM headrace.headrace_outbox WHERE id IN (
    SELECT id FROM headrace.headrace_outbox
    WHERE tx = %(tx)s::xid8 AND id BETWEEN %(first)s AND %(last)s AND change_feed_id = %(feed)s
    ORDER BY id LIMIT %(limit)s)
RETURNING attached, control)
SELECT count(*), coalesce(bool_or(attached IS NULL AND control IS NULL), false) FROM gone"""
_DELETE_MARKS: Final = """
DELETE FROM headrace.headrace_mark WHERE feed = %s AND (history, first_sequence_id) <= (%s, %s)"""
_KEPT_FROM: Final = """
UPDATE headrace.headrace_owner SET kept_from = greatest(kept_from, %s) WHERE feed = %s AND history = %s"""
_OLD_PASSES: Final = """
DELETE FROM headrace.headrace_pass WHERE feed = %(feed)s AND number < (
    SELECT max(number) FROM headrace.headrace_pass WHERE feed = %(feed)s
) AND number NOT IN (
    SELECT max(number) FROM headrace.headrace_pass WHERE feed = %(feed)s
    GROUP BY floor(extract(epoch FROM at) / %(seconds)s)
)"""
_TOO_OLD_PASSES: Final = """
DELETE FROM headrace.headrace_pass WHERE feed = %(feed)s AND number < (
    SELECT max(number) FROM headrace.headrace_pass WHERE feed = %(feed)s AND at < to_timestamp(%(before)s / 1000.0))"""


class _Mark(NamedTuple):
    history: int
    place: int
    rows: int
    tx: str
    first_id: int
    last_id: int


def sweep(connection: Source, feed: str, processed_before_ms: int, rows_max: int = CHUNK_ROWS_MAX) -> int:
    """Delete up to about ``rows_max`` rows of ``feed`` that were processed before ``processed_before_ms``; returns how many.

    In the feed's order, never past an unprocessed row, and never past the newest row at which the triggers were last found
    right: a rebuild needs to know what was written since.
    """
    with transaction(connection):
        row = connection.execute(_PROCESSED_BEFORE, (feed, processed_before_ms)).fetchone()
        if row is None:
            return 0
        history, processed = row
        checked = connection.execute(_CHECKED, (feed,)).fetchone()
        newest = checked[0] if checked else None
        old: list[_Mark] = []
        total = 0
        for mark in map(_Mark._make, connection.execute(_MARKS, (feed, rows_max))):
            is_old = (mark.history, mark.place + mark.rows) <= (history, processed)
            if not is_old or (newest is not None and mark.last_id > newest) or (old and total >= rows_max):
                break
            old.append(mark)
            total += mark.rows
        return _delete(connection, feed, old, rows_max) if old else 0


def _delete(connection: Source, feed: str, old: Sequence[_Mark], rows_max: int) -> int:
    last = old[-1]
    note_later(connection, feed, max(mark.last_id for mark in old))
    # Said in the same transaction: a feed that lost entries must not be filled again from half a transaction.
    connection.execute(_KEPT_FROM, (last.place + last.rows, feed, last.history))
    if len(old) == 1 and last.rows > rows_max:
        names = {"feed": feed, "tx": last.tx, "first": last.first_id, "last": last.last_id, "limit": rows_max}
        count = _gone(connection, feed, _DELETE_PART, names)
        if count == rows_max:
            return count
    else:
        parts = {
            "feed": feed,
            "txs": array_of(mark.tx for mark in old),
            "firsts": array_of(mark.first_id for mark in old),
            "lasts": array_of(mark.last_id for mark in old),
        }
        count = _gone(connection, feed, _DELETE_ROWS, parts)
    connection.execute(_DELETE_MARKS, (feed, last.history, last.place))
    return max(count, 1)


def _gone(connection: Source, feed: str, statement: LiteralString, names: Mapping[str, Any]) -> int:
    """Run a statement that deletes rows; notes if rows of ``Outbox.add`` were among them. Returns how many there were."""
    count, were_added = fetch_one(connection, statement, names)
    if were_added:
        note_added(connection, feed)
    return int(count)


def sweep_passes(connection: Source, feed: str, processed_before_ms: int) -> None:
    """Delete the passes that say nothing any more: all but the newest, and one a minute within the retention."""
    with transaction(connection):
        names = {"feed": feed, "seconds": PASS_KEPT_S, "before": processed_before_ms}
        connection.execute(_TOO_OLD_PASSES, names)
        connection.execute(_OLD_PASSES, names)


def clear_ended(connection: Source, feed: str) -> int:
    """Forget ended attachments of ``feed`` that no outbox row needs; returns how many."""
    with postgres_errors():
        ended = [
            one
            for one in read_attachments(connection, AttachmentState.SUPERSEDED, AttachmentState.DETACHED)
            if one.feed == feed
        ]
    removed = 0
    if ended:
        with transaction(connection):
            for one in ended:
                query = "SELECT coalesce(min(id) > %s, true) FROM headrace.headrace_outbox"
                row = connection.execute(query, (one.ended_id,)).fetchone()
                if row is not None and row[0]:
                    forget(connection, one.number)
                    removed += 1
    return removed
