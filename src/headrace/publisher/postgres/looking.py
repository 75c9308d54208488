"""The queries of a look at the outbox; see ``look`` for the reasoning. All run in the caller's one snapshot."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from headrace.publisher.postgres.connection import Source, array_of, fetch_one, postgres_errors
from headrace.publisher.postgres.look import Choice, Place, Snapshot, Transaction, choose, parse_snapshot

WINDOW_IDS_MIN: Final = 1_000
"""Ids that one look goes over at least, of all feeds."""

WINDOW_PER_ROW: Final = 2
"""And for each row that may be marked: what is left over has to be asked for again, by name."""

_POLL: Final = """
SELECT CASE WHEN is_called THEN last_value ELSE 0 END, age('3'::xid), pg_current_snapshot()::text, pg_is_in_recovery()
FROM headrace.headrace_outbox_id"""
# age() counts from the next xid that would be given, without taking one.
_FIRST_NORMAL_XID: Final = 3
_WINDOW_END: Final = """
SELECT id FROM headrace.headrace_outbox WHERE id > %(looked)s AND id <= %(newest)s ORDER BY id OFFSET %(ids)s LIMIT 1"""
_NEW: Final = """
SELECT tx::text::bigint, min(id), max(id), count(*) FROM headrace.headrace_outbox
WHERE id > %(looked)s AND id <= %(end)s AND change_feed_id = %(feed)s GROUP BY tx"""
_GO_ON: Final = """
SELECT asked.tx::text::bigint FROM unnest(%(txs)s::xid8[]) AS asked (tx)
CROSS JOIN LATERAL (
    SELECT FROM headrace.headrace_outbox AS o
    WHERE o.tx = asked.tx AND o.id > %(end)s AND o.change_feed_id = %(feed)s
    ORDER BY o.tx, o.id LIMIT 1
) AS later"""
# LATERAL and ORDER BY leave the planner one way: a probe of the index on (tx, id) for each transaction.
_OPENED: Final = """
SELECT DISTINCT tx::text::bigint FROM headrace.headrace_outbox
WHERE tx >= %(from)s::xid8 AND tx < %(to)s::xid8 AND id <= %(looked)s AND change_feed_id = %(feed)s"""
_BY_NAME: Final = """
SELECT tx::text::bigint, min(id), max(id), count(*) FROM headrace.headrace_outbox
WHERE tx = ANY(%(txs)s::xid8[]) AND change_feed_id = %(feed)s GROUP BY tx"""


class Poll(NamedTuple):
    """The newest id handed out; then the next xid; a snapshot taken *before* both; whether the database is a standby."""

    newest_id: int
    next_xid: int
    snapshot: Snapshot
    standby: bool

    @property
    def still_open(self) -> Place:
        """The transactions that had begun and were not over, as a place that remembers nothing else."""
        return Place(self.newest_id, self.snapshot.running, self.snapshot.xmax, self.next_xid)


def poll(connection: Source) -> Poll:
    """Ask for what a look needs to know beforehand, outside of any transaction; costs some 0.1 ms."""
    with postgres_errors():
        newest, age, text, standby = fetch_one(connection, _POLL)
    snapshot = parse_snapshot(text)
    # Of the next xid only 32 bits are told; it is at or a little above the snapshot's end.
    ahead = (age + _FIRST_NORMAL_XID - snapshot.xmax) % (1 << 32)
    return Poll(int(newest), snapshot.xmax + ahead, snapshot, standby)


def look(connection: Source, feed: str, place: Place, before: Poll, rows_max: int) -> Choice:
    """Return what waits of ``feed``, seen in the caller's snapshot, which must have been taken after ``before`` was asked.

    The window ends at the newest id, or earlier if it would be too long; what goes on beyond it is left for later looks. If
    nothing in it is whole, the window is moved on until something is, or its end is reached.
    """
    snapshot = parse_snapshot(fetch_one(connection, "SELECT pg_current_snapshot()::text")[0])
    while True:
        window = max(WINDOW_IDS_MIN, WINDOW_PER_ROW * rows_max)
        end = _window_end(connection, place.looked_id, before.newest_id, window)
        names = {"feed": feed, "looked": place.looked_id, "end": end}
        new = [Transaction(*row) for row in connection.execute(_NEW, names)]
        # Those that were remembered have rows below the window too, so all of their rows are asked for by name.
        over = {xid for xid in place.late if snapshot.is_over(xid)}
        opened = {**names, "from": str(place.open_from), "to": str(min(place.open_to, snapshot.xmax))}
        over |= {row[0] for row in connection.execute(_OPENED, opened)}
        # Also where the window ends at the newest id: that was read before the snapshot, and ids were given out since.
        going_on = _going_on(connection, feed, over | {one.tx for one in new}, end)
        known = [one for one in new if one.tx not in over and one.tx not in going_on]
        whole = [*known, *_by_name(connection, feed, over - going_on)]
        choice = choose(whole, going_on, snapshot, Place(end, place.late, 0, before.next_xid), rows_max)
        if choice.transactions or end >= before.newest_id:
            return choice
        place = choice.place


def _window_end(connection: Source, looked: int, newest: int, window: int) -> int:
    names = {"looked": looked, "newest": newest, "ids": window - 1}
    row = connection.execute(_WINDOW_END, names).fetchone()
    return newest if row is None else int(row[0])


def _going_on(connection: Source, feed: str, txs: Collection[int], end: int) -> set[int]:
    names = {"feed": feed, "txs": array_of(txs), "end": end}
    return {row[0] for row in connection.execute(_GO_ON, names)}


def _by_name(connection: Source, feed: str, txs: Collection[int]) -> list[Transaction]:
    if not txs:
        return []
    names = {"feed": feed, "txs": array_of(txs)}
    return [Transaction(*row) for row in connection.execute(_BY_NAME, names)]
