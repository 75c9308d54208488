"""Parked rows in PostgreSQL: ``headrace.headrace_parked``.

A retry puts a row at the end of its feed. What must not be: that an older change of the same row, not yet committed, comes
after it there. So it holds a lock on the outbox that no writer of it can have beside: whoever has an outbox row already is
waited for, and whoever comes later gets a greater id. It waits for no other lock meanwhile, so it is in no deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from psycopg import sql

from headrace.errors import Usage
from headrace.publisher.outbox.postgres import PARKED_TABLE, has_parked
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
from headrace.publisher.postgres.attachment import Attachment, AttachmentState, newest_id, read_attachments
from headrace.publisher.postgres.connection import Source, postgres_errors, run_ddl, transaction
from headrace.publisher.postgres.copy_sql import ROW, identifier, read_source_table
from headrace.publisher.postgres.ownership import read_owner
from headrace.publisher.postgres.render import RowRenderer
from headrace.publisher.postgres.triggers import row_json
from headrace.runtime.typed_json import decode_json

PATIENCE_S: Final = 20.0
"""How long a retry is tried again while long transactions write the outbox."""

_SELECT: Final = """
SELECT id, feed, sequence_id, op, key, table_name, attached, changes, changed, code, reason,
    (extract(epoch FROM parked_at) * 1000)::bigint, later_id
FROM headrace.headrace_parked WHERE %(feeds)s::text[] IS NULL OR feed = ANY(%(feeds)s) ORDER BY id"""
_MEMBERS: Final = tuple(name for name in ParkedRow._fields if name != "row_key")
_INSERT: Final = """
INSERT INTO headrace.headrace_parked (id, feed, sequence_id, op, key, table_name, attached, changes, changed, code, reason)
SELECT o.id, o.change_feed_id, %(place)s, o.op, %(key)s, %(table)s, o.attached, o.changes, o.changed, %(code)s, %(reason)s
FROM headrace.headrace_outbox AS o WHERE o.id = %(id)s AND o.change_feed_id = %(feed)s"""
_DELETE: Final = "DELETE FROM headrace.headrace_parked WHERE id = %s"
_LOCK: Final = "LOCK TABLE headrace.headrace_outbox IN SHARE ROW EXCLUSIVE MODE"
_LATER: Final = """
SELECT min(id) FROM headrace.headrace_outbox
WHERE id > %s AND change_feed_id = %s AND key = %s AND attached IS NULL AND control IS NULL"""
_KEYLESS: Final = """
SELECT id, changes FROM headrace.headrace_outbox
WHERE id > %s AND id <= %s AND change_feed_id = %s AND key IS NULL AND attached IS NULL AND control IS NULL
    AND (strpos(changes, %s) > 0 OR strpos(changes, chr(92)) > 0)
ORDER BY id"""
"""With a backslash, any text may be spelt otherwise."""
_SET_LATER: Final = "UPDATE headrace.headrace_parked SET later_id = %s WHERE id = %s"
_ADD: Final = """
INSERT INTO headrace.headrace_outbox (change_feed_id, op, key, changes, changed, attached, copy)
VALUES (%s, %s, %s, %s, %s, %s, %s)"""
_NOTE_LATER: Final = """
UPDATE headrace.headrace_parked AS p SET later_id = (
    SELECT min(o.id) FROM headrace.headrace_outbox AS o
    WHERE o.id > p.id AND o.id <= %(most)s AND o.change_feed_id = p.feed AND o.key = p.key AND o.attached IS NULL)
WHERE p.feed = %(feed)s AND p.later_id IS NULL AND p.attached IS NULL"""


def read_parked(connection: Source, feeds: Sequence[str] | None = None) -> dict[int, ParkedRow]:
    """Return the parked rows of ``feeds`` (all, if none are named) by id, oldest first; in the caller's transaction."""
    found: dict[int, ParkedRow] = {}
    if not has_parked(connection):
        return found
    names = {"feeds": None if feeds is None else list(feeds)}
    for stored in connection.execute(_SELECT, names):
        members = dict(zip(_MEMBERS, stored, strict=True))
        table = members["table"]
        parts = () if table is None else decode_json(table, tuple[str, ...])
        row = ParkedRow(**{**members, "table": parts, "row_key": None})
        found[row.id] = row
    return found


def skip(connection: Source, feed: str, row_id: int, reason: str) -> ParkedRow:
    """Note that a control entry takes the place of the row over which the feed stopped. Usage if it did not stop over it."""
    text = check_reason(reason)
    with transaction(connection):
        owner = read_owner(connection, feed)
        refused = refused_of(owner, feed, row_id)
        if not has_parked(connection):
            connection.execute(PARKED_TABLE)
        known = read_parked(connection).get(row_id)
        if known is not None:
            return known
        names = {
            "id": row_id,
            "feed": feed,
            "place": refused.sequence_id,
            "key": refused.key,
            "table": msgspec.json.encode(refused.table).decode() if refused.table else None,
            "code": "" if owner is None or owner.alarm is None else owner.alarm.code,
            "reason": text,
        }
        waits = owner is not None and owner.processed_next <= refused.sequence_id
        if not waits or connection.execute(_INSERT, names).rowcount != 1:
            raise Usage(f"{feed}: the row {row_id} does not wait any more", hint="Start the agent again.")
        return read_parked(connection)[row_id]


def retry(connection: Source, row_id: int) -> Retried:
    """Put the row at the end of its feed, as it is now, and forget that it was parked.

    Of an attached table: its present state as a copy, a delete if it is gone. Of ``Outbox.add``: itself, if no later row has
    its key. Usage, naming what stands in the way; SourceUnavailable if others write the outbox for too long.
    """
    return run_ddl(connection, lambda: _retry(connection, row_id), patience_s=PATIENCE_S)


def _retry(connection: Source, row_id: int) -> Retried:
    connection.execute(_LOCK)
    parked = find_parked(read_parked(connection), row_id)
    owner = read_owner(connection, parked.feed)
    check_delivered(parked, 0 if owner is None else owner.processed_next)
    if parked.attached is None:
        row = connection.execute(_LATER, (parked.id, parked.feed, parked.key)).fetchone()
        later = None if row is None else row[0]
        check_last(
            parked, _keyless_later(connection, parked, newest_id(connection)) if later is None else later
        )
        added = (parked.feed, parked.op, parked.key, parked.changes, parked.changed, None, False)
        connection.execute(_ADD, added)
        done = Retried.ADDED
    else:
        live = _live(connection, parked)
        key = _key_of(live, parked)
        now = _present(connection, live, key)
        # A delete leaves the other columns null: the old state may be what the server refused.
        op, changes = ("delete", key) if now is None else ("put", now)
        connection.execute(_ADD, (parked.feed, op, None, changes, None, live.number, now is not None))
        done = Retried.DELETED if now is None else Retried.COPIED
    connection.execute(_DELETE, (row_id,))
    connection.execute("SELECT headrace.headrace_wake()")
    return done


def _key_of(live: Attachment, parked: ParkedRow) -> str:
    """Return the parked row's key as a JSON object of its columns, as the trigger wrote them."""
    try:
        return RowRenderer(live.spec).key_of(parked.changes)
    except KeyError:
        raise Usage(
            f"{live.label} was attached with another key since",
            hint="headrace agent parked drop forgets the row.",
        ) from None


def _present(connection: Source, live: Attachment, key_members: str) -> str | None:
    """Return the JSON of the row that has this key now, as the table's trigger writes it; None if there is none.

    Every other writer of the table waits for the outbox, so what is committed is what is there.
    """
    table = read_source_table(connection, live.oid)
    if table is None:
        raise Usage(
            f"there is no table {live.label} any more", hint="headrace agent parked drop forgets the row."
        )
    place = sql.SQL(".").join([identifier(table.schema), identifier(table.name)])
    key = live.spec.schema.key
    row, old = sql.Identifier(ROW), sql.Identifier("headrace_old")
    query = sql.SQL(
        "SELECT {json} FROM {only}{place} AS {row}, "
        "json_populate_record(NULL::{place}, %(key)s::json) AS {old} WHERE {match}"
    ).format(
        json=row_json(live, ROW),
        only=sql.SQL("" if table.partitioned else "ONLY "),
        place=place,
        row=row,
        old=old,
        match=sql.SQL(" AND ").join(
            sql.SQL("{0}.{2} = {1}.{2}").format(row, old, identifier(name)) for name in key
        ),
    )
    connection.execute("SET LOCAL row_security = off")
    found = connection.execute(query, {"key": key_members}).fetchone()
    return None if found is None else str(found[0])


def _live(connection: Source, parked: ParkedRow) -> Attachment:
    every = read_attachments(connection)
    begun = next((one for one in every if one.number == parked.attached), None)
    for one in every:
        is_same = begun is not None and one.oid == begun.oid
        if (
            one.state is AttachmentState.LIVE
            and one.feed == parked.feed
            and (is_same or (one.schema_name, one.table) == parked.table)
        ):
            return one
    raise Usage(
        f"{'.'.join(parked.table)} is not attached to {parked.feed} any more",
        hint="headrace agent parked drop forgets the row.",
    )


def drop(connection: Source, row_id: int) -> ParkedRow:
    """Forget a parked row; its control entry stays in the feed. Usage if there is none, or that is not there yet."""
    with transaction(connection):
        parked = find_parked(read_parked(connection), row_id)
        owner = read_owner(connection, parked.feed)
        check_delivered(parked, 0 if owner is None else owner.processed_next)
        connection.execute(_DELETE, (row_id,))
        return parked


def note_later(connection: Source, feed: str, most: int) -> None:
    """Note which parked rows have a later one of their key among the rows up to ``most``, before those are swept."""
    if not has_parked(connection):
        return
    connection.execute(_NOTE_LATER, {"feed": feed, "most": most})
    for parked in read_parked(connection, [feed]).values():
        if parked.later_id is None and parked.attached is None:
            later = _keyless_later(connection, parked, most)
            if later is not None:
                connection.execute(_SET_LATER, (later, parked.id))


def _keyless_later(connection: Source, parked: ParkedRow, most: int) -> int | None:
    """Return the first later row up to ``most`` of the same object whose key was left to the feed."""
    if parked.key is None:
        return None
    with connection.cursor(name="headrace_keyless") as cursor:
        cursor.execute(_KEYLESS, (parked.id, most, parked.feed, parked.key))
        return first_of_key(parked.key, cursor)


def parked_rows(connection: Source, feeds: Sequence[str]) -> list[ParkedRow]:
    """Return the parked rows of ``feeds``, oldest first."""
    with postgres_errors():
        return list(read_parked(connection, feeds).values())
