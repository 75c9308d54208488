"""Parked rows in SQLite: ``headrace_parked``, made when the first row is parked."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headrace.errors import AttachUnsafe, Usage
from headrace.publisher.outbox.sqlite import NOW_MS
from headrace.publisher.owner import RefusedRow
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
from headrace.publisher.sqlite.attachment import (
    Attachment,
    AttachmentState,
    end_unit,
    newest_id,
    read_attachments,
)
from headrace.publisher.sqlite.connection import immediate, sqlite_errors
from headrace.publisher.sqlite.copies import read_key, write_key
from headrace.publisher.sqlite.ownership import read_owner
from headrace.publisher.sqlite.render import RowRenderer
from headrace.runtime.typed_json import decode_json

_TABLE: Final = f"""
CREATE TABLE IF NOT EXISTS headrace_parked (
    id INTEGER PRIMARY KEY,                  -- of the outbox row, which may be swept
    feed TEXT NOT NULL,
    sequence_id INTEGER NOT NULL,            -- its place, where a control entry stands
    op TEXT NOT NULL,
    "key" TEXT,
    table_name TEXT,                         -- JSON array: database, table
    attached INTEGER,
    changes TEXT NOT NULL,                   -- JSON, as it would have been posted
    changed TEXT,
    row_key TEXT,                            -- JSON: the key of an attached table's row, each value by its storage class
    code TEXT NOT NULL,                      -- why the server refused it
    reason TEXT NOT NULL,                    -- why an operator parked it
    parked_at INTEGER NOT NULL DEFAULT ({NOW_MS}),
    later_id INTEGER                         -- a later row of the same key, swept since
)"""
_HAS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'headrace_parked'"
_SELECT: Final = """
SELECT id, feed, sequence_id, op, "key", table_name, attached, changes, changed, row_key, code, reason, parked_at, later_id
FROM headrace_parked ORDER BY id"""
_INSERT: Final = """
INSERT INTO headrace_parked (id, feed, sequence_id, op, "key", table_name, attached, changes, changed, row_key, code, reason)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_DELETE: Final = "DELETE FROM headrace_parked WHERE id = ?"
_ROW: Final = """
SELECT op, changes, changed, attached FROM headrace_outbox
WHERE id = ? AND change_feed_id = ? AND sequence_id = ? AND NOT processed"""
_LATER: Final = """
SELECT min(id) FROM headrace_outbox WHERE id > ? AND change_feed_id = ? AND "key" = ? AND attached IS NULL"""
_KEYLESS: Final = """
SELECT id, changes FROM headrace_outbox
WHERE id > ? AND id <= ? AND change_feed_id = ? AND "key" IS NULL AND attached IS NULL AND control IS NULL
AND (instr(changes, ?) OR instr(changes, '\\')) ORDER BY id"""
"""With a backslash, any text may be spelt otherwise."""
_SET_LATER: Final = "UPDATE headrace_parked SET later_id = ? WHERE id = ?"
_ADD: Final = """
INSERT INTO headrace_outbox (change_feed_id, op, "key", changes, changed, table_name) VALUES (?, ?, ?, ?, ?, ?)"""
_NOTE_LATER: Final = """
UPDATE headrace_parked AS p SET later_id = (
    SELECT min(o.id) FROM headrace_outbox AS o
    WHERE o.id > p.id AND o.id <= :most AND o.change_feed_id = p.feed AND o."key" = p."key" AND o.attached IS NULL)
WHERE p.feed = :feed AND p.later_id IS NULL AND p.attached IS NULL"""


def read_parked(connection: sqlite3.Connection, feeds: Sequence[str] | None = None) -> dict[int, ParkedRow]:
    """Return the parked rows of ``feeds`` (all, if none are named) by id, oldest first."""
    found: dict[int, ParkedRow] = {}
    if connection.execute(_HAS).fetchone() is None:
        return found
    for stored in connection.execute(_SELECT):
        members = dict(zip(ParkedRow._fields, stored, strict=True))
        table = members["table"]
        parts = () if table is None else decode_json(table, tuple[str, ...])
        row = ParkedRow(**{**members, "table": parts})
        if feeds is None or row.feed in feeds:
            found[row.id] = row
    return found


def skip(connection: sqlite3.Connection, feed: str, row_id: int, reason: str) -> ParkedRow:
    """Note that a control entry takes the place of the row over which the feed stopped. Usage if it did not stop over it."""
    text = check_reason(reason)
    with immediate(connection):
        owner = read_owner(connection, feed)
        refused = refused_of(owner, feed, row_id)
        known = read_parked(connection).get(row_id)
        if known is not None:
            return known
        code = "" if owner is None or owner.alarm is None else owner.alarm.code
        stored = connection.execute(_ROW, (row_id, feed, refused.sequence_id)).fetchone()
        if stored is None:
            raise Usage(f"{feed}: the row {row_id} does not wait any more", hint="Start the agent again.")
        connection.execute(_TABLE)
        what = _kept(connection, refused, stored)
        connection.execute(_INSERT, (row_id, feed, refused.sequence_id, *what, code, text))
        return read_parked(connection)[row_id]


def _kept(connection: sqlite3.Connection, refused: RefusedRow, stored: Sequence[Any]) -> tuple[Any, ...]:
    """Return what is kept of an outbox row: the columns from ``op`` to ``row_key``."""
    op, changes, changed, attached = stored
    table = msgspec.json.encode(refused.table).decode() if refused.table else None
    if attached is None or changes is not None:
        return op, refused.key, table, None, changes or "{}", changed, None
    attachment = next((one for one in read_attachments(connection) if one.number == attached), None)
    if attachment is None:
        raise AttachUnsafe(f"the attachment {attached} is gone: headrace_attached was changed by hand")
    values = connection.execute(attachment.sql.select_values(), (refused.id,)).fetchone()
    key = connection.execute(attachment.sql.select_key(), (refused.id,)).fetchone()
    row = RowRenderer(attachment.spec).render(values, None)
    return op, row.key, table, attached, row.changes.decode(), None, write_key(key)


def retry(connection: sqlite3.Connection, row_id: int) -> Retried:
    """Put the row at the end of its feed, as it is now, and forget that it was parked.

    Of an attached table: its present state as a copy, a delete if it is gone. Of ``Outbox.add``: itself, if no later row has
    its key. Usage, naming what stands in the way. Under the write lock, so nothing can come in between.
    """
    with immediate(connection):
        parked = find_parked(read_parked(connection), row_id)
        owner = read_owner(connection, parked.feed)
        check_delivered(parked, 0 if owner is None else owner.processed_next)
        end_unit(connection, parked.feed)
        done = _added(connection, parked) if parked.attached is None else _copied(connection, parked)
        end_unit(connection, parked.feed)
        connection.execute(_DELETE, (row_id,))
        return done


def _added(connection: sqlite3.Connection, parked: ParkedRow) -> Retried:
    later = connection.execute(_LATER, (parked.id, parked.feed, parked.key)).fetchone()[0]
    check_last(parked, _keyless_later(connection, parked, newest_id(connection)) if later is None else later)
    table = parked.table[1] if parked.table else None
    connection.execute(_ADD, (parked.feed, parked.op, parked.key, parked.changes, parked.changed, table))
    return Retried.ADDED


def _copied(connection: sqlite3.Connection, parked: ParkedRow) -> Retried:
    live = _live(connection, parked)
    key = read_key(parked.row_key)
    if key is None or len(key) != len(live.spec.schema.key):
        raise Usage(
            f"{live.table} was attached with another key since",
            hint="headrace agent parked drop forgets the row.",
        )
    last = newest_id(connection)
    names = {f"k{place}": getattr(value, "data", value) for place, value in enumerate(key)}
    found = connection.execute(live.sql.copy_row(key), {"last": last, **names}).rowcount
    if found:
        connection.execute(live.sql.copy_rows(), {"last": last})
        return Retried.COPIED
    # Its other columns are left null: the old state may be what the server refused.
    values: list[Any] = [None] * len(live.spec.schema.columns)
    for place, value in zip(live.spec.key_places, key, strict=True):
        values[place] = value
    row = RowRenderer(live.spec).render(values, None)
    connection.execute(_ADD, (parked.feed, "delete", row.key, row.changes.decode(), None, parked.table[1]))
    return Retried.DELETED


def _live(connection: sqlite3.Connection, parked: ParkedRow) -> Attachment:
    for one in read_attachments(connection, AttachmentState.LIVE):
        if (one.table, one.feed) == (parked.table[1], parked.feed):
            return one
    raise Usage(
        f"{parked.table[1]} is not attached to {parked.feed} any more",
        hint="headrace agent parked drop forgets the row.",
    )


def drop(connection: sqlite3.Connection, row_id: int) -> ParkedRow:
    """Forget a parked row; its control entry stays in the feed. Usage if there is none, or that is not there yet."""
    with immediate(connection):
        parked = find_parked(read_parked(connection), row_id)
        owner = read_owner(connection, parked.feed)
        check_delivered(parked, 0 if owner is None else owner.processed_next)
        connection.execute(_DELETE, (row_id,))
        return parked


def note_later(connection: sqlite3.Connection, feed: str, most: int) -> None:
    """Note which parked rows have a later one of their key among the rows up to ``most``, before those are swept."""
    if connection.execute(_HAS).fetchone() is None:
        return
    connection.execute(_NOTE_LATER, {"feed": feed, "most": most})
    for parked in read_parked(connection, [feed]).values():
        if parked.later_id is None and parked.attached is None:
            later = _keyless_later(connection, parked, most)
            if later is not None:
                connection.execute(_SET_LATER, (later, parked.id))


def _keyless_later(connection: sqlite3.Connection, parked: ParkedRow, most: int) -> int | None:
    """Return the first later row up to ``most`` of the same object whose key was left to the feed."""
    if parked.key is None:
        return None
    return first_of_key(parked.key, connection.execute(_KEYLESS, (parked.id, most, parked.feed, parked.key)))


def parked_rows(connection: sqlite3.Connection, feeds: Sequence[str]) -> list[ParkedRow]:
    """Return the parked rows of ``feeds``, oldest first."""
    with sqlite_errors():
        return list(read_parked(connection, feeds).values())
