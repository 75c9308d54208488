"""Which transactions are open at a place of a log, where each began, and where it ends. Pure, over pieces of segments.

What a transaction is, :mod:`headrace.archive.moments.points` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headrace.archive.moments.marks import PAUSE_MAX_MS, Tx
from headrace.archive.moments.pieces import Pieces, Place
from headrace.entries.lsn import Lsn


class Live(NamedTuple):
    """A transaction with entries at or before a place and no end there: of its last piece with such, which unit it is.

    ``ms``: log time of the last entry there.
    """

    tx: Tx
    piece: int
    unit: int
    ms: int


class Judged(NamedTuple):
    """Transactions at a place: those that go on behind it, and those that nothing follows of, without a last entry."""

    open: list[Live]
    unended: list[Live]


def judge(pieces: Pieces, place: Place) -> Judged:
    """Return the transactions that no entry up to ``place`` ends, and of which one is not long before it."""
    at, row = place
    marks = pieces.marks(at)
    units, now = marks.units, int(marks.ms[row])
    begun = units.first <= row
    over = begun & (units.last > row)
    found = [_live(pieces, at, unit) for unit in np.flatnonzero(over).tolist()]
    left = begun & ~over & ~units.ended & (marks.ms[units.last] >= now - PAUSE_MAX_MS)
    hoped = [_live(pieces, at, unit) for unit in np.flatnonzero(left & units.tail).tolist()]
    waiting = {live.tx: live for live in hoped}
    given_up = [_live(pieces, at, unit) for unit in np.flatnonzero(left & ~units.tail).tolist()]
    for live in _from_before(pieces, place, now):
        waiting[live.tx] = live
    return _resolved(pieces, place, waiting, Judged(found, given_up))


def _live(pieces: Pieces, at: int, unit: int) -> Live:
    marks = pieces.marks(at)
    return Live(marks.units.tx(unit), at, unit, int(marks.ms[marks.units.last[unit]]))


def _from_before(pieces: Pieces, place: Place, now: int) -> Iterator[Live]:
    """Yield the transactions that earlier pieces leave open and that have no entry from there up to ``place``."""
    for at in range(place.piece - 1, -1, -1):
        if pieces.last_ms(at) < now - PAUSE_MAX_MS:
            return
        if all(one.ends_whole for one in pieces[at].feeds):
            continue
        marks = pieces.marks(at)
        units = marks.units
        left = np.flatnonzero(units.tail & ~units.ended & (marks.ms[units.last] >= now - PAUSE_MAX_MS))
        found = {live.tx: live for live in (_live(pieces, at, unit) for unit in left.tolist())}
        for later in range(at + 1, place.piece + 1):
            wanted = [tx for tx in found if later in pieces.of_feed[tx.region]]
            if wanted:
                there = pieces.marks(later).units
                for tx, unit in there.of(wanted, there.head).items():
                    if later < place.piece or there.first[unit] <= place.row:
                        del found[tx]
        yield from found.values()


def _may_leave(pieces: Pieces, at: int, region: int) -> bool:
    """Tell whether a feed's entries in a piece may leave a transaction open at its end."""
    return any(not one.ends_whole for one in pieces.ranges(at, region))


def _resolved(pieces: Pieces, place: Place, waiting: dict[Tx, Live], judged: Judged) -> Judged:
    """Look behind ``place`` for more of those that wait."""
    for at in range(place.piece, len(pieces)):
        late = [tx for tx, live in waiting.items() if pieces.first_ms(at) - live.ms > PAUSE_MAX_MS]
        judged.unended.extend(waiting.pop(tx) for tx in late)
        wanted = [tx for tx, live in waiting.items() if live.piece < at and _may_hold(pieces, at, tx)]
        if not waiting:
            break
        if wanted:
            marks = pieces.marks(at)
            for tx, unit in marks.units.of(wanted, marks.units.head).items():
                live = waiting.pop(tx)
                pause = int(marks.ms[marks.units.first[unit]]) - live.ms
                (judged.open if pause <= PAUSE_MAX_MS else judged.unended).append(live)
    for tx, live in waiting.items():
        if not pieces.is_over(tx.region, tx.incarnation, pieces.lsn(last_place(pieces, live))):
            known = pieces.last_ms(len(pieces) - 1) - live.ms > PAUSE_MAX_MS
            (judged.unended if known else judged.open).append(live)
    return judged


def _may_hold(pieces: Pieces, at: int, tx: Tx) -> bool:
    return any(one.incarnation == tx.incarnation for one in pieces.ranges(at, tx.region))


def last_place(pieces: Pieces, live: Live) -> Place:
    """Return the transaction's last entry in the piece that it is told of."""
    return Place(live.piece, int(pieces.marks(live.piece).units.last[live.unit]))


def begin_of(pieces: Pieces, live: Live) -> Place:
    """Return a transaction's first entry."""
    tx, units = live.tx, pieces.marks(live.piece).units
    found, is_head = Place(live.piece, int(units.first[live.unit])), bool(units.head[live.unit])
    ms = pieces.ms(found)
    for at in range(live.piece - 1, -1, -1):
        if not is_head or pieces.last_ms(at) < ms - PAUSE_MAX_MS or not _may_come(pieces, at, tx, ms):
            break
        if not _may_hold(pieces, at, tx):
            continue
        marks = pieces.marks(at)
        unit = marks.units.of([tx], marks.units.tail).get(tx)
        if unit is None:
            continue
        if marks.units.ended[unit] or ms - int(marks.ms[marks.units.last[unit]]) > PAUSE_MAX_MS:
            break
        found, is_head = Place(at, int(marks.units.first[unit])), bool(marks.units.head[unit])
        ms = int(marks.ms[found.row])
    return found


def _may_come(pieces: Pieces, at: int, tx: Tx, ms: int) -> bool:
    """Tell whether a piece up to ``at``, not long before ``ms``, may leave the transaction open."""
    for earlier in range(at, -1, -1):
        if pieces.last_ms(earlier) < ms - PAUSE_MAX_MS:
            return False
        if _may_leave(pieces, earlier, tx.region):
            return True
    return False


def end_of(pieces: Pieces, live: Live) -> Place | None:
    """Return a transaction's last entry; None if the pieces may not have it."""
    tx, at, unit = live.tx, live.piece, live.unit
    while True:
        marks = pieces.marks(at)
        last, ms = Place(at, int(marks.units.last[unit])), int(marks.ms[marks.units.last[unit]])
        if marks.units.ended[unit] or not marks.units.tail[unit]:
            return last
        for later in range(at + 1, len(pieces)):
            if pieces.first_ms(later) - ms > PAUSE_MAX_MS:
                return last
            if not _may_hold(pieces, later, tx):
                continue
            there = pieces.marks(later)
            following = there.units.of([tx], there.units.head).get(tx)
            if following is not None:
                if int(there.ms[there.units.first[following]]) - ms > PAUSE_MAX_MS:
                    return last
                at, unit = later, following
                break
        else:
            over = pieces.is_over(tx.region, tx.incarnation, marks.lsn(last.row))
            return last if over or pieces.last_ms(len(pieces) - 1) - ms > PAUSE_MAX_MS else None


def left_by_idle(pieces: Pieces, place: Place) -> Iterator[Live]:
    """Yield transactions without an end that the last entry of a feed is of, where that is long before ``place``."""
    now, lsn = pieces.ms(place), pieces.lsn(place)
    for region, here in pieces.of_feed.items():
        for at in reversed([one for one in here if one <= place.piece]):
            if at < place.piece:
                newest = max(pieces.ranges(at, region), key=lambda one: Lsn.parse(one.first_lsn))
                late = Lsn.parse(newest.last_lsn).committed_at_ms >= now - PAUSE_MAX_MS
                if late or newest.ends_whole or pieces.is_over(region, newest.incarnation, lsn):
                    break
            marks = pieces.marks(at)
            rows = marks.rows_of(region)
            count = len(rows) if at < place.piece else int(np.searchsorted(rows, place.row, "right"))
            if not count:
                continue
            row = int(rows[count - 1])
            if int(marks.ms[row]) < now - PAUSE_MAX_MS:
                for unit in np.flatnonzero((marks.units.last == row) & ~marks.units.ended).tolist():
                    yield _live(pieces, at, unit)
            break
