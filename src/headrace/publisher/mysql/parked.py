"""Parked rows in MariaDB and MySQL: ``headrace_parked``. All are of ``Outbox.add``: no table is attached here."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

from pymysql.cursors import SSCursor

from headrace.errors import Usage
from headrace.publisher.mysql.connection import (
    Source,
    execute,
    fetch,
    locked_tables,
    mysql_errors,
    transaction,
)
from headrace.publisher.mysql.ownership import read_owner
from headrace.publisher.parked import (
    ParkedRow,
    Retried,
    check_delivered,
    check_last,
    check_reason,
    find_parked,
    first_of_key,
    refused_of,
)

_SELECT: Final = """
SELECT id, feed, sequence_id, op, `key`, changes, changed, code, reason, ROUND(UNIX_TIMESTAMP(parked_at) * 1000), later_id
FROM headrace_parked ORDER BY id"""
_INSERT: Final = """
INSERT INTO headrace_parked (id, feed, sequence_id, op, `key`, changes, changed, code, reason)
SELECT id, change_feed_id, sequence_id, op, `key`, changes, changed, %s, %s FROM headrace_outbox
WHERE id = %s AND change_feed_id = %s AND sequence_id = %s AND NOT processed"""
_DELETE: Final = "DELETE FROM headrace_parked WHERE id = %s"
_LATER: Final = "SELECT MIN(id) FROM headrace_outbox WHERE id > %s AND change_feed_id = %s AND `key` = %s"
_KEYLESS: Final = """
SELECT id, changes FROM headrace_outbox WHERE id > %s AND change_feed_id = %s AND `key` IS NULL
AND (LOCATE(%s, changes) OR LOCATE(CHAR(92), changes)) ORDER BY id"""
"""With a backslash, any text may be spelt otherwise."""
_ADD: Final = """
INSERT INTO headrace_outbox (change_feed_id, op, `key`, changes, changed) VALUES (%s, %s, %s, %s, %s)"""
_SET_LATER: Final = "UPDATE headrace_parked SET later_id = %s WHERE id = %s"


def read_parked(connection: Source, feeds: Sequence[str] | None = None) -> dict[int, ParkedRow]:
    """Return the parked rows of ``feeds`` (all, if none are named) by id, oldest first."""
    found: dict[int, ParkedRow] = {}
    for number, feed, place, op, key, changes, changed, code, reason, at_ms, later in fetch(
        connection, _SELECT
    ):
        if feeds is None or feed in feeds:
            found[number] = ParkedRow(
                id=number,
                feed=feed,
                sequence_id=place,
                op=op,
                key=key,
                table=(),
                attached=None,
                changes=changes,
                changed=changed,
                row_key=None,
                code=code,
                reason=reason,
                parked_at_ms=int(at_ms),
                later_id=later,
            )
    return found


def skip(connection: Source, feed: str, row_id: int, reason: str) -> ParkedRow:
    """Note that a control entry takes the place of the row over which the feed stopped. Usage if it did not stop over it."""
    text = check_reason(reason)
    with transaction(connection):
        owner = read_owner(connection, feed, lock=True)
        refused = refused_of(owner, feed, row_id)
        known = read_parked(connection).get(row_id)
        if known is not None and known.sequence_id == refused.sequence_id:
            return known
        if known is not None:
            raise Usage(
                f"{feed}: another row with the id {row_id} is parked, from before the outbox was emptied",
                hint=f"Retry or drop that one first: headrace agent parked drop {row_id}.",
            )
        code = "" if owner is None or owner.alarm is None else owner.alarm.code
        if not execute(connection, _INSERT, (code, text, row_id, feed, refused.sequence_id)):
            raise Usage(f"{feed}: the row {row_id} does not wait any more", hint="Start the agent again.")
        return read_parked(connection)[row_id]


def retry(connection: Source, row_id: int) -> Retried:
    """Put the row at the end of its feed and forget that it was parked, if no later row has its key; else Usage.

    Nobody else writes the outbox meanwhile: an older row, not yet committed, would stand before this one in its unit, and
    what it says would be undone. SourceUnavailable if a transaction that wrote there does not end soon.
    """
    with locked_tables(connection, "headrace_outbox", "headrace_parked", "headrace_owner"):
        parked = find_parked(read_parked(connection), row_id)
        owner = read_owner(connection, parked.feed, lock=True)
        check_delivered(parked, 0 if owner is None else owner.processed_next)
        check_last(parked, _later(connection, parked))
        row = (parked.feed, parked.op, parked.key, parked.changes, parked.changed)
        execute(connection, _ADD, row)
        execute(connection, _DELETE, (row_id,))
        return Retried.ADDED


def drop(connection: Source, row_id: int) -> ParkedRow:
    """Forget a parked row; its control entry stays in the feed. Usage if there is none, or that is not there yet."""
    with transaction(connection):
        parked = find_parked(read_parked(connection), row_id)
        owner = read_owner(connection, parked.feed, lock=True)
        check_delivered(parked, 0 if owner is None else owner.processed_next)
        execute(connection, _DELETE, (row_id,))
        return parked


def note_later(connection: Source, feed: str) -> None:
    """Note which parked rows have a later one of their key, before rows are swept. In the caller's transaction."""
    for parked in read_parked(connection, [feed]).values():
        if parked.later_id is None and parked.key is not None:
            later = _later(connection, parked)
            if later is not None:
                execute(connection, _SET_LATER, (later, parked.id))


def parked_rows(connection: Source, feeds: Sequence[str]) -> list[ParkedRow]:
    """Return the parked rows of ``feeds``, oldest first."""
    with mysql_errors():
        return list(read_parked(connection, feeds).values())


def _later(connection: Source, parked: ParkedRow) -> int | None:
    found: int | None = fetch(connection, _LATER, (parked.id, parked.feed, parked.key))[0][0]
    if found is not None or parked.key is None:
        return found
    with closing(connection.cursor(SSCursor)) as cursor:
        cursor.execute(_KEYLESS, (parked.id, parked.feed, parked.key))
        return first_of_key(parked.key, cursor)
