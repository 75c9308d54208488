"""Which transactions are whole and wait to be marked. Pure decisions here; the queries are in ``looking``.

An id is handed out before its transaction commits, so a reader that remembers the greatest id it has seen loses rows. What
is remembered instead, between two looks, is a :class:`Place`: an id up to which all is marked, *and the transactions that
were still open then*. A transaction has its xid before it takes an id (the column order of the outbox sees to that). So
with the newest id, then the next xid, and then a snapshot read, every transaction that holds an id up to the newest is over
in that snapshot, or it runs there, or it is one of the xids from the snapshot's ``xmax`` to the next xid: a snapshot lists
as running only those below the newest that has *ended*. The next look takes the ids above, and asks for the remembered ones
by name. So a look never crawls over what is marked already, however long another transaction stays open.

Transactions are ordered by their greatest outbox id. A second writer of a row has waited for the first one's commit, and its
outbox row is written after its data row: its greatest id is greater. Whoever saw a commit and then writes has a greater id
too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple


class Snapshot(NamedTuple):
    """What PostgreSQL calls a snapshot: transactions from ``xmax`` on, and ``running`` ones, were not over."""

    xmax: int
    running: frozenset[int]

    def is_over(self, xid: int) -> bool:
        """Return whether the transaction had committed or rolled back."""
        return xid < self.xmax and xid not in self.running


def parse_snapshot(text: str) -> Snapshot:
    """Return what ``pg_current_snapshot()::text`` says: ``xmin:xmax:xid,xid``."""
    _, xmax, running = text.split(":")
    return Snapshot(int(xmax), frozenset(int(xid) for xid in running.split(",") if xid))


class Place(NamedTuple):
    """Rows up to ``looked_id`` are marked, but for those of transactions ``late``, and ``open_from`` to ``open_to`` - 1."""

    looked_id: int
    late: frozenset[int]
    open_from: int
    open_to: int


NOWHERE: Final = Place(0, frozenset(), 0, 0)
"""Before the first look: nothing is marked."""


class Transaction(NamedTuple):
    """The rows that one transaction wrote for one feed: how many, and the least and greatest outbox id."""

    tx: int
    first_id: int
    last_id: int
    rows: int


class Choice(NamedTuple):
    """What to mark now, in order, and the place afterwards."""

    transactions: Sequence[Transaction]
    place: Place


def may_wait(place: Place, newest_id: int, snapshot: Snapshot) -> bool:
    """Return whether there may be rows to mark: ids were handed out, or a remembered transaction is over."""
    return (
        newest_id > place.looked_id
        or any(snapshot.is_over(xid) for xid in place.late)
        or place.open_from < min(place.open_to, snapshot.xmax)
    )


def choose(
    whole: Iterable[Transaction],
    unfinished: Collection[int],
    snapshot: Snapshot,
    place: Place,
    rows_max: int,
) -> Choice:
    """Return the ``whole`` transactions to mark, by greatest id, at least one and at most ``rows_max`` rows otherwise.

    ``unfinished``: those that are over, but have rows above the look's end. ``place``: that end, the transactions that were
    remembered before, and the next xid (``open_to``). What is still running of them, what is left over, and all that runs
    now is remembered again.
    """
    ordered = sorted(whole, key=lambda one: one.last_id)
    count = rows = 0
    for one in ordered:
        if count and rows + one.rows > rows_max:
            break
        count, rows = count + 1, rows + one.rows
    remembered = {xid for xid in place.late if not snapshot.is_over(xid)} | snapshot.running | set(unfinished)
    remembered |= {one.tx for one in ordered[count:]}
    open_to = max(place.open_to, snapshot.xmax)
    return Choice(ordered[:count], Place(place.looked_id, frozenset(remembered), snapshot.xmax, open_to))
