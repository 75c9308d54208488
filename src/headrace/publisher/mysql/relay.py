"""Marking and reading the outbox of one feed: the steps between which the agent posts.

MariaDB tells nobody a row's transaction. So all unmarked rows that one plain SELECT sees are one *unit*: whole
transactions, joined under one ``tx`` (the id of the unit's last row), in id order, marked in one transaction. A row that
commits later with a smaller id is in a later unit. Rows are marked by primary key, so no lock of ours is ever in an
application's way.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from contextlib import closing
from decimal import Decimal
from typing import Any, Final, NamedTuple

from pymysql.cursors import SSCursor

from headrace.errors import SourceUnavailable
from headrace.publisher.marked import (
    APPEND_BYTES_MAX,
    APPEND_ENTRIES_MAX,
    MarkedRow,
    RowPlace,
    whole_transactions,
)
from headrace.publisher.mysql.connection import (
    STATEMENTS_MAX,
    Source,
    execute,
    execute_many,
    fetch,
    mysql_errors,
    transaction,
)
from headrace.publisher.mysql.ownership import MysqlOwner, claim, read_owner
from headrace.publisher.mysql.parked import read_parked
from headrace.publisher.owner import FeedPlace, Resume, check_unmoved
from headrace.publisher.parked import ParkedRow, parked_as
from headrace.runtime.typed_json import decode_json

_UNMARKED: Final = """
FROM headrace_outbox FORCE INDEX (headrace_outbox_place) WHERE change_feed_id = %s AND sequence_id IS NULL"""
_MARK: Final = """
UPDATE headrace_outbox SET agent_id = {agent}, sequence_id = {place}, history = {history}, tx = {tx}, tx_index = {index}
WHERE id = {id}"""
_RANGE: Final = """
WHERE change_feed_id = %(feed)s AND sequence_id >= %(from)s AND sequence_id < %(below)s AND history = %(history)s"""
_PROCESSED: Final = f"""
UPDATE headrace_outbox FORCE INDEX (headrace_outbox_place) SET processed = 1, processed_at = %(now)s {_RANGE}"""
_SET_PROCESSED: Final = "UPDATE headrace_owner SET processed_next = %s, alarm = NULL WHERE feed = %s"
_SET_MARKED: Final = "UPDATE headrace_owner SET next_sequence_id = %s WHERE feed = %s"
_SIZES: Final = f"""
SELECT OCTET_LENGTH(changes) + COALESCE(OCTET_LENGTH(`key`), 0) + COALESCE(OCTET_LENGTH(changed), 0)
FROM headrace_outbox FORCE INDEX (headrace_outbox_place) {_RANGE} ORDER BY sequence_id LIMIT %(rows)s"""
_READ: Final = f"""
SELECT id, sequence_id, op, `key`, changes, changed, tx, tx_index, ROUND(UNIX_TIMESTAMP(created_at) * 1000)
FROM headrace_outbox FORCE INDEX (headrace_outbox_place) {_RANGE} ORDER BY sequence_id LIMIT %(rows)s"""


class _StoredRow(NamedTuple):
    """A row as :data:`_READ` gives it."""

    id: int
    sequence_id: int
    op: str
    key: str | None
    changes: str
    changed: str | None
    tx: int
    tx_index: int
    created_at_ms: Decimal


def unmarked_ids(connection: Source, feed: str) -> array[int]:
    """Return the ids of all unmarked rows that one snapshot sees, in order; eight bytes each."""
    with closing(connection.cursor(SSCursor)) as cursor:
        cursor.execute(f"SELECT id {_UNMARKED} ORDER BY id", (feed,))
        return array("q", (row[0] for row in cursor))


class OutboxRelay:
    """The outbox of one feed on one connection, from :meth:`claim` on. Not for several threads; no transaction stays open.

    It remembers the owner row as it left it: whatever else stands there was put there by a restore.
    """

    def __init__(self, connection: Source, feed: str, agent_id: str) -> None:
        self._connection = connection
        self._feed = feed
        self._agent_id = agent_id
        self._known: MysqlOwner | None = None
        self._parked: dict[int, ParkedRow] = {}

    def claim(self, place: FeedPlace, now_ms: int) -> Resume:
        """Own the feed: see :func:`~headrace.publisher.mysql.ownership.claim`."""
        resume, self._known = claim(self._connection, self._feed, self._agent_id, place, now_ms)
        with mysql_errors():
            self._parked = read_parked(self._connection, [self._feed])
        return resume

    def waiting(self) -> tuple[int, int] | None:
        """Return the least and the greatest id of the unmarked rows; None if there are none."""
        with mysql_errors():
            first, last = fetch(self._connection, f"SELECT MIN(id), MAX(id) {_UNMARKED}", (self._feed,))[0]
        return None if first is None else (first, last)

    def advance(
        self, epoch: int, done: RowPlace | None, now_ms: int, rows_max: int, *, ahead: bool = False
    ) -> int:
        """Mark the rows up to ``done`` as processed and, if ``rows_max`` is not 0, all that wait; returns how many wait.

        One transaction, which checks that this agent still owns the feed at ``epoch`` (AgentFenced) and that the outbox is
        where it left it (SourceUnavailable). Nothing new is marked while a unit is not processed, unless ``ahead``.
        """
        waiting = rows_max > 0 and self.waiting() is not None
        if done is None and not waiting:
            return 0
        with transaction(self._connection):
            owner = self._checked(epoch, lock=True)
            processed = owner.processed_next
            if done is not None:
                names = {"feed": self._feed, "history": owner.history, "now": now_ms}
                processed = done.sequence_id + 1
                execute(
                    self._connection, _PROCESSED, {**names, "from": owner.processed_next, "below": processed}
                )
                execute(self._connection, _SET_PROCESSED, (processed, self._feed))
            count = 0
            if waiting and (ahead or processed == owner.next_sequence_id):
                count = self._mark(owner, unmarked_ids(self._connection, self._feed))
            left = read_owner(self._connection, self._feed)
        self._known = left
        return count

    def mark_seen(self, epoch: int, ids: Sequence[int]) -> MysqlOwner:
        """Mark just the rows ``ids``, which another session's snapshot sees unmarked; returns the owner then.

        That session must have its snapshot after this relay's last call. Raises what :meth:`advance` raises.
        """
        with transaction(self._connection):
            owner = self._checked(epoch, lock=True)
            self._mark(owner, ids)
            left = read_owner(self._connection, self._feed) or owner
        self._known = left
        return left

    def _mark(self, owner: MysqlOwner, ids: Sequence[int]) -> int:
        if not ids:
            return 0
        agent = self._connection.escape(self._agent_id)
        for start in range(0, len(ids), STATEMENTS_MAX):
            execute_many(
                self._connection,
                [
                    _MARK.format(
                        agent=agent,
                        place=owner.next_sequence_id + index,
                        history=owner.history,
                        tx=ids[-1],
                        index=index,
                        id=row,
                    )
                    for index, row in enumerate(ids[start : start + STATEMENTS_MAX], start)
                ],
            )
        execute(self._connection, _SET_MARKED, (owner.next_sequence_id + len(ids), self._feed))
        return len(ids)

    def _checked(self, epoch: int, *, lock: bool = False) -> MysqlOwner:
        owner = read_owner(self._connection, self._feed, lock=lock)
        return check_unmoved(owner, self._feed, self._agent_id, epoch, self._known)

    def batch(
        self, entries_max: int = APPEND_ENTRIES_MAX, bytes_max: int = APPEND_BYTES_MAX
    ) -> list[MarkedRow]:
        """Return the next marked rows that are not processed, in order; empty if there are none.

        Whole units, or a part of one that is larger than an append. Checks what :meth:`advance` checks. SourceUnavailable,
        too, if rows were deleted since they were marked: the next :meth:`claim` says so for good.
        """
        if self._known is None:  # claimed by nobody on this connection: then nothing may be posted
            return []
        with transaction(self._connection):
            owner = self._checked(self._known.epoch)
            if owner.processed_next == owner.next_sequence_id:
                return []
            names: dict[str, Any] = {
                "feed": self._feed,
                "history": owner.history,
                "from": owner.processed_next,
                "below": owner.next_sequence_id,
                "rows": entries_max,
            }
            sizes = (row[0] for row in fetch(self._connection, _SIZES, names))
            names["rows"] = _fitting(sizes, bytes_max)
            rows = [_row(_StoredRow(*stored)) for stored in fetch(self._connection, _READ, names)]
        if not rows or [row.sequence_id for row in rows] != list(
            range(owner.processed_next, owner.processed_next + len(rows))
        ):
            raise SourceUnavailable(
                f"{self._feed}: marked rows are gone from the outbox, from the place {owner.processed_next} on",
                hint="The outbox is compared with the feed anew.",
            )
        return list(whole_transactions([self._unless_parked(row) for row in rows]))

    def _unless_parked(self, row: MarkedRow) -> MarkedRow:
        parked = self._parked.get(row.id)
        # The counter of ids begins anew where the table was emptied (older servers: at a restart). Then an id is no proof.
        if parked is None or (parked.op, parked.key, parked.changes) != (
            row.op,
            row.key,
            row.changes.decode(),
        ):
            return row
        return parked_as(row, parked)


def _fitting(sizes: Iterable[int], bytes_max: int) -> int:
    """Return how many rows from the first on make one append; at least one."""
    total = count = 0
    for size in sizes:
        total += int(size)
        if count and total > bytes_max:
            break
        count += 1
    return max(count, 1)


def _row(stored: _StoredRow) -> MarkedRow:
    names = None if stored.changed is None else tuple(decode_json(stored.changed, list[str]))
    return MarkedRow(
        id=stored.id,
        sequence_id=stored.sequence_id,
        op=stored.op,
        key=stored.key,
        changes=stored.changes.encode(),
        changed=names,
        before=None,
        table=(),
        control=None,
        copy=False,
        tx=stored.tx,
        tx_index=stored.tx_index,
        tx_last=stored.id == stored.tx,
        created_at_ms=int(stored.created_at_ms),
    )
