"""Which transactions are open at a place of a log, where each began, and where it ends. Pure, over pieces of segments.

What a transaction is, :mod:`headrace.archive.moments.points` says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from headrace.archive.moments.links import Links
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


def judge(pieces: Pieces, links: Links, place: Place) -> Judged:
    """Return the transactions that no entry up to ``place`` ends.

    Those that more follows of are open, however long that takes. Of those that nothing follows of, the ones that are long
    before ``place`` are left out.
    """
    at, row = place
    marks = pieces.marks(at)
    units, now = marks.units, int(marks.ms[row])
    begun = units.first <= row
    over = begun & (units.last > row)
    judged = Judged([_live(pieces, at, unit) for unit in np.flatnonzero(over).tolist()], [])
    left = begun & ~over & ~units.ended & units.tail
    going = [tx for tx, to in links.left_by(at).items() if to is not None]
    on = list(units.of(going, left).values()) if going else []
    judged.open.extend(_live(pieces, at, unit) for unit in on)
    left[on] = False
    left &= marks.ms[units.last] >= now - PAUSE_MAX_MS
    _settle(pieces, judged, now, (_live(pieces, at, unit) for unit in np.flatnonzero(left).tolist()))
    for piece, leaves in links.over(at):
        here = [tx for tx, to in leaves.items() if to == at]
        heads = units.of(here, units.head)
        done = {tx for tx, unit in heads.items() if units.first[unit] <= row}
        tails = pieces.marks(piece).units
        found = tails.of([tx for tx in leaves if tx not in done], tails.tail)
        lives = [_live(pieces, piece, unit) for unit in found.values()]
        judged.open.extend(live for live in lives if leaves[live.tx] is not None)
        _settle(pieces, judged, now, (live for live in lives if leaves[live.tx] is None))
    return judged


def _live(pieces: Pieces, at: int, unit: int) -> Live:
    marks = pieces.marks(at)
    return Live(marks.units.tx(unit), at, unit, int(marks.ms[marks.units.last[unit]]))


def _settle(pieces: Pieces, judged: Judged, now: int, lives: Iterable[Live]) -> None:
    """Judge those that nothing follows of: they are open as long as nobody can know."""
    for live in lives:
        if _is_over(pieces, live):
            continue
        if pieces.last_ms(len(pieces) - 1) - live.ms <= PAUSE_MAX_MS:
            judged.open.append(live)
        elif live.ms >= now - PAUSE_MAX_MS:
            judged.unended.append(live)


def _is_over(pieces: Pieces, live: Live) -> bool:
    return pieces.is_over(live.tx.region, live.tx.incarnation, pieces.lsn(last_place(pieces, live)))


def last_place(pieces: Pieces, live: Live) -> Place:
    """Return the transaction's last entry in the piece that it is told of."""
    return Place(live.piece, int(pieces.marks(live.piece).units.last[live.unit]))


def begin_of(pieces: Pieces, links: Links, live: Live) -> Place:
    """Return a transaction's first entry."""
    at, unit = live.piece, live.unit
    while True:
        units = pieces.marks(at).units
        before = links.before_of(live.tx, at) if units.head[unit] else None
        earlier = pieces.marks(before).units if before is not None else None
        found = earlier.of([live.tx], earlier.tail).get(live.tx) if earlier is not None else None
        if before is None or found is None:
            return Place(at, int(units.first[unit]))
        at, unit = before, found


def end_of(pieces: Pieces, links: Links, live: Live) -> Place | None:
    """Return a transaction's last entry; None if the pieces may not have it."""
    at, unit = live.piece, live.unit
    while True:
        units = pieces.marks(at).units
        last = Place(at, int(units.last[unit]))
        if units.ended[unit] or not units.tail[unit]:
            return last
        following = links.next_of(live.tx, at)
        if following is None:
            ended = pieces.last_ms(len(pieces) - 1) - pieces.ms(last) > PAUSE_MAX_MS
            return last if ended or _is_over(pieces, _live(pieces, at, unit)) else None
        if following >= len(pieces):
            return None
        later = pieces.marks(following).units
        found = later.of([live.tx], later.head).get(live.tx)
        if found is None:
            return last
        at, unit = following, found


def left_by_idle(pieces: Pieces, links: Links, place: Place) -> Iterator[Live]:
    """Yield transactions that nothing follows of and that the last entry of a feed is of, where that is long before."""
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
                    live = _live(pieces, at, unit)
                    if links.next_of(live.tx, at) is None:
                        yield live
            break
