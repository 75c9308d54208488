"""Marking and reading the outbox of one feed: the steps between which the agent posts.

A *mark* says which place in the feed a whole transaction's rows have. Marks are rows of their own (``headrace_mark``), one a
transaction, so that neither marking nor processing writes to the outbox itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from psycopg import sql

from headrace.errors import AttachUnsafe
from headrace.publisher.marked import (
    APPEND_BYTES_MAX,
    APPEND_ENTRIES_MAX,
    MarkedRow,
    RowPlace,
    whole_transactions,
)
from headrace.publisher.owner import FeedPlace, Resume, check_unmoved
from headrace.publisher.parked import ParkedRow, parked_as
from headrace.publisher.postgres.attachment import read_attachments
from headrace.publisher.postgres.connection import Source, array_of, transaction
from headrace.publisher.postgres.look import NOWHERE, Snapshot, Transaction, may_wait
from headrace.publisher.postgres.looking import look, poll
from headrace.publisher.postgres.ownership import PostgresOwner, claim, lock_owner, read_owner, write_pass
from headrace.publisher.postgres.parked import read_parked
from headrace.publisher.postgres.render import RowRenderer
from headrace.runtime.typed_json import decode_json

UNWRITTEN_IDS_MAX: Final = 50_000
"""Ids that may be looked over in vain before that is noted: so much is looked over again after a restart."""

SEEN_ROWS: Final = 20_000
"""Rows marked at a time for a snapshot: all of a backlog is, however long."""

FETCH_ROWS: Final = 500
"""Rows fetched at a time while a batch is read, so that a few large ones don't all come at once."""

_MARK: Final = """
INSERT INTO headrace.headrace_mark (feed, history, first_sequence_id, rows, tx, first_id, last_id, agent_id)
SELECT %(feed)s, %(history)s, m.place, m.rows, m.tx, m.first, m.last, %(agent)s
FROM unnest(%(places)s::bigint[], %(rows)s::bigint[], %(txs)s::xid8[], %(firsts)s::bigint[], %(lasts)s::bigint[])
    AS m (place, rows, tx, first, last)"""
_WELL_AGAIN: Final = "UPDATE headrace.headrace_owner SET alarm = NULL WHERE feed = %s AND alarm IS NOT NULL"
_MARKS: Final = """
SELECT first_sequence_id, rows, tx::text::bigint, first_id, last_id FROM headrace.headrace_mark
WHERE feed = %(feed)s AND history = %(history)s AND first_sequence_id < %(next)s AND first_sequence_id >= (
    SELECT first_sequence_id FROM headrace.headrace_mark
    WHERE feed = %(feed)s AND history = %(history)s AND first_sequence_id <= %(processed)s
    ORDER BY first_sequence_id DESC LIMIT 1)
ORDER BY first_sequence_id LIMIT %(limit)s"""
_COLUMNS: Final = """
o.id, o.op, o.key, o.changes, o.before, o.changed, o.control, o.attached, o.copy,
(date_part('epoch', o.created_at) * 1000)::bigint"""
_WHOLE: Final = f"""
SELECT m.place, {_COLUMNS}
FROM unnest(%(places)s::bigint[], %(txs)s::xid8[], %(firsts)s::bigint[], %(lasts)s::bigint[]) AS m (place, tx, first, last)
JOIN headrace.headrace_outbox AS o ON o.tx = m.tx AND o.id BETWEEN m.first AND m.last AND o.change_feed_id = %(feed)s
ORDER BY m.place, o.id"""
_PART: Final = f"""
SELECT %(place)s::bigint, {_COLUMNS} FROM headrace.headrace_outbox AS o
WHERE o.tx = %(tx)s::xid8 AND o.id > %(after)s AND o.id <= %(last)s AND o.change_feed_id = %(feed)s
ORDER BY o.id OFFSET %(skip)s LIMIT %(limit)s"""


class _Mark(NamedTuple):
    """A row of ``headrace_mark``: ``rows`` entries from ``place`` on."""

    place: int
    rows: int
    tx: int
    first_id: int
    last_id: int


class _Stored(NamedTuple):
    """A row as :data:`_COLUMNS` gives it, after the place of its mark."""

    place: int
    id: int
    op: str
    key: str | None
    changes: str
    before: str | None
    changed: str | None
    control: str | None
    attached: int | None
    copy: bool
    created_at_ms: int


class OutboxRelay:
    """The outbox of one feed on one connection, from :meth:`claim` on. For one thread; no transaction stays open."""

    def __init__(self, connection: Source, feed: str, agent_id: str) -> None:
        self._connection = connection
        self._feed = feed
        self._agent_id = agent_id
        self._known: PostgresOwner | None = None
        self._place = NOWHERE
        self._read_to: RowPlace | None = None
        self._renderers: dict[int, RowRenderer] = {}
        self._parked: dict[int, ParkedRow] = {}

    def claim(self, place: FeedPlace) -> Resume:
        """Own the feed: see :func:`~headrace.publisher.postgres.ownership.claim`."""
        with transaction(self._connection):
            resume, known = claim(self._connection, self._feed, self._agent_id, place)
            self._parked = read_parked(self._connection, [self._feed])
        self._known, self._place, self._read_to = known, known.place, None
        return resume

    def is_waiting(self, newest: int, snapshot: Snapshot) -> bool:
        """Return whether a look may find rows that were not there at the last one."""
        return may_wait(self._place, newest, snapshot)

    def advance(
        self,
        epoch: int,
        done: RowPlace | None,
        rows_max: int = APPEND_ENTRIES_MAX,
        *,
        ahead: bool = False,
    ) -> int:
        """Mark rows up to ``done`` as processed and transactions of about ``rows_max`` rows as ours; returns how many rows.

        One transaction, which checks that this agent still owns the feed at ``epoch`` (AgentFenced) and that the outbox is
        where it left it (SourceUnavailable). Without ``done`` and with nothing waiting, no lock is taken. A transaction is
        marked whole, however large. While as many rows are marked and not processed, none are marked, unless ``ahead``.
        """
        before = poll(self._connection)
        waiting = rows_max > 0 and self.is_waiting(before.newest_id, before.snapshot)
        if done is None and not waiting:
            return 0
        with transaction(self._connection, repeatable_read=True):
            owner = self._read_owner(epoch)
            next_id = owner.next_sequence_id
            processed = owner.processed_next if done is None else done.sequence_id + 1
            room = rows_max if ahead else rows_max - (next_id - processed)
            place, chosen = self._place, tuple[Transaction, ...]()
            if waiting and room > 0:
                choice = look(self._connection, self._feed, self._place, before, room)
                place, chosen = choice.place, tuple(choice.transactions)
            count, known = 0, owner
            if done is not None or chosen or place.looked_id - owner.looked_id > UNWRITTEN_IDS_MAX:
                owner = lock_owner(self._connection, self._feed, self._agent_id, epoch, owner)
                count = self._mark(owner, next_id, chosen)
                if done is not None:
                    self._connection.execute(_WELL_AGAIN, (self._feed,))
                write_pass(
                    self._connection, owner, next_id=next_id + count, processed_next=processed, place=place
                )
                known = read_owner(self._connection, self._feed) or owner
        self._known, self._place = known, place
        return count

    def mark_seen(self, epoch: int, exported: str) -> PostgresOwner:
        """Mark every row that the snapshot ``exported`` by another session sees, and no other; returns the owner then.

        One transaction, which reads in that snapshot. The newest id is asked for *in* it: a row that the snapshot sees took
        its id before, and whoever took one up to there has begun by the time that the next xid is asked for. That session
        must have its snapshot after this relay's last call, and keep it until this one returns. Raises what
        :meth:`advance` raises.
        """
        with transaction(self._connection, repeatable_read=True):
            snapshot = sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported))
            self._connection.execute(snapshot)
            before = poll(self._connection)
            known = self._read_owner(epoch)
            owner = lock_owner(self._connection, self._feed, self._agent_id, epoch, known)
            place, next_id = self._place, owner.next_sequence_id
            while True:
                choice = look(self._connection, self._feed, place, before, SEEN_ROWS)
                place = choice.place
                if not choice.transactions:
                    break
                next_id += self._mark(owner, next_id, tuple(choice.transactions))
            if next_id > owner.next_sequence_id:
                processed = owner.processed_next
                write_pass(self._connection, owner, next_id=next_id, processed_next=processed, place=place)
                owner = read_owner(self._connection, self._feed) or owner
        self._known, self._place = owner, place
        return owner

    def _read_owner(self, epoch: int) -> PostgresOwner:
        owner = read_owner(self._connection, self._feed)
        return check_unmoved(owner, self._feed, self._agent_id, epoch, self._known)

    def _mark(self, owner: PostgresOwner, next_id: int, chosen: Sequence[Transaction]) -> int:
        if not chosen:
            return 0
        places, place = [], next_id
        for one in chosen:
            places.append(place)
            place += one.rows
        names = {
            "feed": self._feed,
            "history": owner.history,
            "agent": self._agent_id,
            "places": array_of(places),
            "rows": array_of(one.rows for one in chosen),
            "txs": array_of(one.tx for one in chosen),
            "firsts": array_of(one.first_id for one in chosen),
            "lasts": array_of(one.last_id for one in chosen),
        }
        self._connection.execute(_MARK, names)
        return place - next_id

    def batch(
        self, entries_max: int = APPEND_ENTRIES_MAX, bytes_max: int = APPEND_BYTES_MAX
    ) -> list[MarkedRow]:
        """Return the next marked rows that are not processed, in order; empty if there are none.

        Whole transactions, or a part of one that is larger than an append. Read in one snapshot, which checks what
        :meth:`advance` checks.
        """
        known = self._known
        if known is not None and known.next_sequence_id == known.processed_next:
            return []
        with transaction(self._connection, repeatable_read=True):
            if known is None:  # claimed by nobody on this connection: then nothing may be posted
                return []
            owner = self._read_owner(known.epoch)
            if owner.next_sequence_id == owner.processed_next:
                return []
            rows = list(self._bounded(owner, self._marks(owner, entries_max), entries_max, bytes_max))
        rows = list(whole_transactions(rows))
        self._read_to = RowPlace(rows[-1].id, rows[-1].sequence_id)
        return rows

    def _marks(self, owner: PostgresOwner, limit: int) -> list[_Mark]:
        names = {
            "feed": self._feed,
            "history": owner.history,
            "next": owner.next_sequence_id,
            "processed": owner.processed_next,
            "limit": limit,
        }
        marks = [_Mark(*row) for row in self._connection.execute(_MARKS, names)]
        if not marks or marks[0].place + marks[0].rows <= owner.processed_next:
            raise AttachUnsafe(f"the marks of {self._feed} are gone: headrace_mark was changed by hand")
        return marks

    def _bounded(
        self, owner: PostgresOwner, marks: Sequence[_Mark], entries_max: int, bytes_max: int
    ) -> Iterator[MarkedRow]:
        """Give rows from the first unprocessed one on, until the next would make too large an append."""
        size = 0
        for row in self._rows(owner, marks, entries_max):
            if size and size + row.size > bytes_max:
                return
            size += row.size
            yield row

    def _rows(self, owner: PostgresOwner, marks: Sequence[_Mark], entries_max: int) -> Iterator[MarkedRow]:
        first = marks[0]
        skip = owner.processed_next - first.place
        if skip or first.rows > entries_max:
            yield from self._part(first, skip, entries_max)
            return
        fitting, total = [], 0
        for mark in marks:
            total += mark.rows
            if total > entries_max:
                break
            fitting.append(mark)
        names = {
            "feed": self._feed,
            "places": array_of(mark.place for mark in fitting),
            "txs": array_of(mark.tx for mark in fitting),
            "firsts": array_of(mark.first_id for mark in fitting),
            "lasts": array_of(mark.last_id for mark in fitting),
        }
        yield from self._read(_WHOLE, names, fitting, 0)

    def _part(self, mark: _Mark, skip: int, entries_max: int) -> Iterator[MarkedRow]:
        """Read on in a transaction of which ``skip`` rows are processed; after the row read last, if it is known."""
        after = mark.first_id - 1
        left = skip
        if skip and self._read_to is not None and self._read_to.sequence_id == mark.place + skip - 1:
            after, left = self._read_to.id, 0
        names = {
            "feed": self._feed,
            "place": mark.place,
            "tx": str(mark.tx),
            "after": after,
            "last": mark.last_id,
            "skip": left,
            "limit": min(entries_max, mark.rows - skip),
        }
        yield from self._read(_PART, names, [mark], skip)

    def _read(
        self, query: str, names: dict[str, Any], marks: Sequence[_Mark], skipped: int
    ) -> Iterator[MarkedRow]:
        """Give the rows of ``marks`` but for ``skipped`` ones; AttachUnsafe where one of them is missing."""
        waiting = iter(marks)
        mark, index = next(waiting), skipped
        with self._connection.cursor(name="headrace_batch") as cursor:
            cursor.itersize = FETCH_ROWS
            cursor.execute(query, names)
            for values in cursor:
                stored = _Stored(*values)
                if index == mark.rows:
                    mark, index = next(waiting), 0
                if stored.place != mark.place:
                    break
                row = self._row(stored, mark, index)
                yield row if row.id not in self._parked else parked_as(row, self._parked[row.id])
                index += 1
            else:
                if (
                    index == min(mark.rows, skipped + names.get("limit", mark.rows))
                    and next(waiting, None) is None
                ):
                    return
        raise AttachUnsafe(
            f"rows of transaction {mark.tx} are gone: {mark.rows} were marked for {self._feed}, {index} are there; "
            "headrace_outbox was changed by hand"
        )

    def _row(self, stored: _Stored, mark: _Mark, index: int) -> MarkedRow:
        key, changes, before = stored.key, stored.changes.encode(), None
        changed = None if stored.changed is None else tuple(decode_json(stored.changed, list[str]))
        table: tuple[str, ...] = ()
        if stored.attached is not None:
            renderer = self._renderer(stored.attached)
            table = renderer.table
            if stored.control is None:
                key, changes, changed, before = renderer.render(stored.op, stored.changes, stored.before)
        return MarkedRow(
            id=stored.id,
            sequence_id=mark.place + index,
            op=stored.op,
            key=f"\0{key}" if stored.control is not None else key,
            changes=changes,
            changed=changed,
            before=before,
            table=table,
            control=stored.control,
            copy=stored.copy,
            tx=mark.tx,
            tx_index=index,
            tx_last=index == mark.rows - 1,
            created_at_ms=stored.created_at_ms,
        )

    def _renderer(self, number: int) -> RowRenderer:
        if number not in self._renderers:
            self._renderers = {
                one.number: RowRenderer(one.spec) for one in read_attachments(self._connection)
            }
        if number not in self._renderers:
            raise AttachUnsafe(f"the attachment {number} is gone: headrace_attached was changed by hand")
        return self._renderers[number]
