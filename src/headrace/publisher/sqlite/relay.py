"""Marking and reading the outbox of one feed: the steps between which the agent posts.

SQLite names no transaction to a trigger. So all unmarked rows that one look under the write lock sees are one *unit*: whole
transactions, joined under one ``tx`` (the id of the unit's last row). A unit may be marked in chunks; its end stands in
``headrace_owner.unit_end``, where every look begins, so no look crawls over old rows. Copied chunks are whole transactions
of their own (``tx_end``) and end a unit earlier.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from headrace.errors import AttachUnsafe, SourceUnavailable
from headrace.publisher.attach.rendered import RenderedRow
from headrace.publisher.marked import (
    APPEND_BYTES_MAX,
    APPEND_ENTRIES_MAX,
    MarkedRow,
    RowPlace,
    whole_transactions,
)
from headrace.publisher.owner import FeedPlace, Resume
from headrace.publisher.parked import ParkedRow, parked_as
from headrace.publisher.sqlite.attachment import Attachment, AttachmentState, newest_id, read_attachments
from headrace.publisher.sqlite.connection import immediate, snapshot, sqlite_errors
from headrace.publisher.sqlite.ownership import SqliteOwner, checked_owner, claim, read_owner
from headrace.publisher.sqlite.parked import read_parked
from headrace.publisher.sqlite.render import RowRenderer
from headrace.publisher.sqlite.spec import DATABASE
from headrace.runtime.typed_json import decode_json

_WAITING: Final = "SELECT 1 FROM headrace_outbox WHERE id > ? AND change_feed_id = ? LIMIT 1"
_PROCESSED: Final = """
UPDATE headrace_outbox SET processed = 1, processed_at = :now
WHERE id > :done AND id <= :id AND change_feed_id = :feed"""
_SET_PROCESSED: Final = (
    "UPDATE headrace_owner SET done_id = :id, processed_next = :next, alarm = NULL WHERE feed = :feed"
)
_KEYLESS: Final = """
SELECT DISTINCT attached FROM headrace_outbox WHERE id > ? AND change_feed_id = ? AND op = 'nokey'"""
_DROP_KEYLESS: Final = (
    "DELETE FROM headrace_outbox WHERE id > ? AND change_feed_id = ? AND op = 'nokey' AND attached = ?"
)
_UNIT_END: Final = """
SELECT coalesce(
    (SELECT min(id) FROM headrace_outbox WHERE change_feed_id = :feed AND id > :floor AND tx_end = 1),
    (SELECT max(id) FROM headrace_outbox WHERE change_feed_id = :feed AND id > :floor))"""
_CHOOSE: Final = """
SELECT id FROM headrace_outbox
WHERE id > :floor AND id <= :end AND change_feed_id = :feed AND sequence_id IS NULL
ORDER BY id LIMIT :rows"""
_MARK: Final = "UPDATE headrace_outbox SET agent_id = ?, sequence_id = ?, tx = ?, tx_index = ? WHERE id = ?"
_SET_MARKED: Final = """
UPDATE headrace_owner SET next_sequence_id = ?, marked_id = ?, unit_end = ?, unit_index = ? WHERE feed = ?"""
_READ: Final = """
SELECT id, sequence_id, op, "key", changes, changed, control, table_name, attached, copy, tx, tx_index, created_at
FROM headrace_outbox WHERE id > ? AND id <= ? AND change_feed_id = ? AND NOT processed ORDER BY id"""


class _StoredRow(NamedTuple):
    """A row as :data:`_READ` gives it."""

    id: int
    sequence_id: int
    op: str
    key: str | None
    changes: str | None
    changed: str | None
    control: str | None
    table_name: str | None
    attached: int | None
    copy: int | None
    tx: int
    tx_index: int
    created_at: int


class OutboxRelay:
    """The outbox of one feed on one connection, from :meth:`claim` on. Not for several threads; no transaction stays open.

    It remembers the owner row as it left it: whatever else stands there was put there by a restore.
    """

    def __init__(self, connection: sqlite3.Connection, feed: str, agent_id: str) -> None:
        self._connection = connection
        self._feed = feed
        self._agent_id = agent_id
        self._known: SqliteOwner | None = None
        self._renderers: dict[int, tuple[RowRenderer, str]] = {}
        self._looked_at = 0
        self._parked: dict[int, ParkedRow] = {}

    def claim(self, place: FeedPlace, now_ms: int) -> Resume:
        """Own the feed: see :func:`~headrace.publisher.sqlite.ownership.claim`."""
        resume, self._known = claim(self._connection, self._feed, self._agent_id, place, now_ms)
        with sqlite_errors():
            self._parked = read_parked(self._connection, [self._feed])
        return resume

    def advance(
        self, epoch: int, done: RowPlace | None, now_ms: int, rows_max: int = APPEND_ENTRIES_MAX
    ) -> int:
        """Mark the rows up to ``done`` as processed and the next up to ``rows_max`` rows as ours; returns how many are new.

        One transaction, which checks that this agent still owns the feed at ``epoch`` (AgentFenced) and that the outbox is
        where it left it (SourceUnavailable). Without ``done`` and with nothing waiting, no lock is taken.
        """
        waiting = self._is_waiting()
        if done is None and not waiting:
            return 0
        with immediate(self._connection):
            owner = checked_owner(self._connection, self._feed, self._agent_id, epoch, self._known)
            if done is not None:
                names = {"feed": self._feed, "id": done.id, "next": done.sequence_id + 1}
                self._connection.execute(_PROCESSED, {**names, "done": owner.done_id, "now": now_ms})
                self._connection.execute(_SET_PROCESSED, names)
            count, blocked = 0, None
            try:
                count = self._mark(owner, rows_max) if waiting else 0
            except AttachUnsafe as unsafe:
                blocked = unsafe  # nothing was marked; what is done stays done
            left = read_owner(self._connection, self._feed)
        self._known = left
        if blocked is not None:
            raise blocked
        return count

    def mark_seen(self, epoch: int) -> SqliteOwner:
        """Mark all rows that there are, in the caller's transaction, which holds the write lock; returns the owner then.

        For a snapshot: the last place given stands for all that is committed. Give the owner to :meth:`moved_to` once that
        transaction has committed. Raises what :meth:`advance` raises.
        """
        owner = checked_owner(self._connection, self._feed, self._agent_id, epoch, self._known)
        while self._mark(owner, APPEND_ENTRIES_MAX):
            owner = self._read_owner()
        return self._read_owner()

    def moved_to(self, owner: SqliteOwner) -> None:
        """Note that the outbox is where :meth:`mark_seen` left it."""
        self._known = owner

    def _read_owner(self) -> SqliteOwner:
        owner = read_owner(self._connection, self._feed)
        if owner is None:
            raise SourceUnavailable(f"the owner row of {self._feed} is gone")
        return owner

    def _is_waiting(self) -> bool:
        """Return whether there are unmarked rows.

        What was looked through in vain (rows of other feeds) is not looked at again: with one writer at a time, no row can
        still appear below an id that is there.
        """
        with sqlite_errors():
            owner = read_owner(self._connection, self._feed)
            newest = newest_id(self._connection)
            floor = max(owner.marked_id if owner else 0, self._looked_at if self._looked_at <= newest else 0)
            waiting = self._connection.execute(_WAITING, (floor, self._feed)).fetchone() is not None
        self._looked_at = 0 if waiting else newest
        return waiting

    def _mark(self, owner: SqliteOwner, rows_max: int) -> int:
        """Mark whole units while they fit in ``rows_max``, and a larger one in chunks."""
        next_id, marked, end, index = (
            owner.next_sequence_id,
            owner.marked_id,
            owner.unit_end,
            owner.unit_index,
        )
        count = 0
        while count < rows_max:
            if marked >= end:
                self._settle_keyless(marked)
                found = self._one(_UNIT_END, {"feed": self._feed, "floor": marked})
                if found is None:
                    break
                end, index = found, 0
            names = {"feed": self._feed, "floor": marked, "end": end, "rows": rows_max - count + 1}
            ids = [row[0] for row in self._connection.execute(_CHOOSE, names)]
            if len(ids) > rows_max - count:
                if index == 0 and count:
                    end = marked  # this unit is left for the next call, whole
                    break
                ids.pop()
            marks = [
                (self._agent_id, next_id + place, end, index + place, row) for place, row in enumerate(ids)
            ]
            self._connection.executemany(_MARK, marks)
            count, next_id, index = count + len(ids), next_id + len(ids), index + len(ids)
            marked = ids[-1] if ids else end
        if marked > owner.marked_id:
            self._connection.execute(_SET_MARKED, (next_id, marked, end, index, self._feed))
        return count

    def _settle_keyless(self, floor: int) -> None:
        """Drop what the outbox tells of rows whose key is NULL, once the table has none any more; until then raise.

        Such rows can't be delivered. Their deletion, or the put of the key that they got, has made it void by then. They are
        counted as the table is attached now: the attachment that told of them may have been rebuilt since.
        """
        for (number,) in self._connection.execute(_KEYLESS, (floor, self._feed)).fetchall():
            live = self._live(self._attachment(number))
            if live is not None:
                count = self._connection.execute(live.sql.count_null_keys()).fetchone()[0]
                if count:
                    raise AttachUnsafe(
                        f"{live.table}: {count} row(s) have NULL in the key, which names no row; {self._feed} waits",
                        hint="Give those rows a key or delete them: the agent then goes on by itself.",
                    )
            self._connection.execute(_DROP_KEYLESS, (floor, self._feed, number))

    def batch(
        self, entries_max: int = APPEND_ENTRIES_MAX, bytes_max: int = APPEND_BYTES_MAX
    ) -> list[MarkedRow]:
        """Return the next marked rows that are not processed, in order; empty if there are none.

        Whole transactions, or a part of one that is larger than an append. Read in one transaction, which checks what
        :meth:`advance` checks.
        """
        rows: list[MarkedRow] = []
        size = 0
        with snapshot(self._connection):
            owner = read_owner(self._connection, self._feed)
            if self._known is not None:
                owner = checked_owner(
                    self._connection, self._feed, self._agent_id, self._known.epoch, self._known
                )
            if owner is None or owner.done_id == owner.marked_id:
                return rows
            for row in self._marked(owner):
                size += row.size
                if rows and (size > bytes_max or len(rows) == entries_max):
                    break
                rows.append(row)
        return list(whole_transactions(rows))

    def _marked(self, owner: SqliteOwner) -> Iterator[MarkedRow]:
        cursor = self._connection.execute(_READ, (owner.done_id, owner.marked_id, self._feed))
        try:
            for row in cursor:
                marked = self._row(_StoredRow(*row))
                yield marked if marked.id not in self._parked else parked_as(marked, self._parked[marked.id])
        finally:
            cursor.close()

    def _row(self, stored: _StoredRow) -> MarkedRow:
        if stored.changes is None and stored.attached is not None:
            renderer, select = self._renderer(stored.attached)
            values = self._connection.execute(select, (stored.id,)).fetchone()
            if values is None:
                table = f"headrace_row_{stored.attached}"
                raise AttachUnsafe(
                    f"the values of outbox row {stored.id} are gone: {table} was changed by hand"
                )
            what = renderer.render(values, stored.changed)
            table_parts: tuple[str, ...] = renderer.table
        else:
            names = None if stored.changed is None else tuple(decode_json(stored.changed, list[str]))
            what = RenderedRow(stored.key, (stored.changes or "{}").encode(), names, None)
            table_parts = () if stored.table_name is None else (DATABASE, stored.table_name)
        return MarkedRow(
            id=stored.id,
            sequence_id=stored.sequence_id,
            op=stored.op,
            key=what.key,
            changes=what.changes,
            changed=what.changed,
            before=what.before,
            table=table_parts,
            control=stored.control,
            copy=bool(stored.copy),
            tx=stored.tx,
            tx_index=stored.tx_index,
            tx_last=stored.id == stored.tx,
            created_at_ms=stored.created_at,
        )

    def _renderer(self, number: int) -> tuple[RowRenderer, str]:
        if number not in self._renderers:
            attachment = self._attachment(number)
            self._renderers[number] = (RowRenderer(attachment.spec), attachment.sql.select_values())
        return self._renderers[number]

    def _live(self, attachment: Attachment) -> Attachment | None:
        """Return what stands in the place of ``attachment`` now; None if the table was detached."""
        for live in read_attachments(self._connection, AttachmentState.LIVE):
            if (live.table, live.feed) == (attachment.table, attachment.feed):
                return live
        return None

    def _attachment(self, number: int) -> Attachment:
        for attachment in read_attachments(self._connection):
            if attachment.number == number:
                return attachment
        raise AttachUnsafe(f"the attachment {number} is gone: headrace_attached was changed by hand")

    def _one(self, query: str, names: dict[str, Any]) -> Any:
        return self._connection.execute(query, names).fetchone()[0]
