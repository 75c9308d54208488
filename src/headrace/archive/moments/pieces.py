"""Segments that join, as one row of entries: which entry comes before, after, last. Marks are read when they are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from headrace.archive.moments.marks import Marks, Tx
from headrace.archive.moments.ranges import in_order
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import FeedRange

_KEPT_MAX: Final = 4
"""Segments whose marks are kept in memory."""


class Piece(NamedTuple):
    """A segment of the log: its name, what its manifest says of feeds, and how the marks above an LSN are read."""

    name: SegmentName
    feeds: Sequence[FeedRange]
    read: Callable[[Lsn], Marks]


class Place(NamedTuple):
    """An entry: which piece, which row of it. Places sort as LSNs do."""

    piece: int
    row: int


class Pieces:
    """The entries of pieces that join, above ``start``."""

    def __init__(self, pieces: Sequence[Piece], start: Lsn = ZERO) -> None:
        self._pieces = [piece for piece in pieces if piece.name.last > start]
        self._start = start
        self._kept: dict[int, Marks] = {}
        self.feeds: dict[int, str] = {}
        """Names by region id."""
        self.of_feed: dict[int, list[int]] = {}
        """By region id: in which pieces a feed has entries, ascending."""
        self._parts: dict[int, list[FeedRange]] = {}
        for at, piece in enumerate(self._pieces):
            around = piece.name.first <= start
            for one in in_order(piece.feeds):
                self.feeds.setdefault(one.region_id, one.feed)
                self._parts.setdefault(one.region_id, []).append(one)
                here = self.of_feed.setdefault(one.region_id, [])
                if at not in here[-1:] and not (around and Lsn.parse(one.last_lsn) <= start):
                    here.append(at)

    def __len__(self) -> int:
        return len(self._pieces)

    def __getitem__(self, at: int) -> Piece:
        return self._pieces[at]

    def marks(self, at: int) -> Marks:
        """Return a piece's marks above the start."""
        if at in self._kept:
            self._kept[at] = found = self._kept.pop(at)  # the newest is the last
            return found
        while len(self._kept) >= _KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[at] = found = self._pieces[at].read(self._start)
        return found

    @property
    def starts_inside(self) -> bool:
        """Tell whether the first piece has entries at or below the start, too."""
        return bool(self._pieces) and self._pieces[0].name.first <= self._start

    def open_at_start(self, claimed: Collection[Tx], left: Collection[Tx]) -> dict[Tx, bool]:
        """Return which transactions of the first piece are open at the start, and whether they go on in that piece.

        ``claimed`` are open before the piece, ``left`` behind it; what stands below the start is read for that.
        """
        marks = self._pieces[0].read(ZERO)
        units, count = marks.units, marks.rows_to(self._start)
        wanted = {*claimed, *left}
        heads, tails = units.of(wanted, units.head), units.of(wanted, units.tail)
        found = {}
        for tx, head in heads.items():
            below = [unit for unit in range(head, tails[tx] + 1) if units.first[unit] < count]
            if not below:
                is_open = tx in claimed
            else:
                is_open = bool(not units.ended[below[-1]] or units.last[below[-1]] >= count)
            if is_open:
                found[tx] = bool(units.last[tails[tx]] >= count)
        return found

    def ranges(self, at: int, region: int) -> list[FeedRange]:
        """Return what a piece's manifest says of a feed."""
        return [one for one in self._pieces[at].feeds if one.region_id == region]

    def may_hold(self, at: int, region: int, incarnation: str | None) -> bool:
        """Tell whether a piece has entries of a history."""
        return any(one.incarnation == incarnation for one in self.ranges(at, region))

    def first_ms(self, at: int) -> int:
        """Return the log time of a piece's first entry."""
        return self._pieces[at].name.first.committed_at_ms

    def last_ms(self, at: int) -> int:
        """Return the log time of a piece's last entry."""
        return self._pieces[at].name.last.committed_at_ms

    def is_over(self, region: int, incarnation: str | None, lsn: Lsn) -> bool:
        """Tell whether a feed goes on with another history behind ``lsn``, where it had this one."""
        newest = self._parts[region][-1]
        return newest.incarnation != incarnation and Lsn.parse(newest.first_lsn) > lsn

    def is_last_of_history(self, place: Place) -> bool:
        """Tell whether an entry is its history's last one, and the feed goes on with another one."""
        lsn = self.lsn(place)
        parts = self._parts[lsn.region_id]
        at = next(at for at, one in enumerate(parts) if lsn <= Lsn.parse(one.last_lsn))
        ends = lsn == Lsn.parse(parts[at].last_lsn)
        return ends and at + 1 < len(parts) and parts[at + 1].incarnation != parts[at].incarnation

    def last_at(self, lsn: Lsn) -> Place | None:
        """Return the last entry at or below ``lsn``; None if there is none above the start."""
        for at in range(len(self._pieces) - 1, -1, -1):
            if self._pieces[at].name.first <= lsn and (count := self.marks(at).rows_to(lsn)):
                return Place(at, count - 1)
        return None

    def lsn(self, place: Place) -> Lsn:
        """Return an entry's LSN."""
        return self.marks(place.piece).lsn(place.row)

    def ms(self, place: Place) -> int:
        """Return an entry's log time."""
        return int(self.marks(place.piece).ms[place.row])

    def before(self, place: Place) -> Place | None:
        """Return the entry before another, of whatever feed; None at the start."""
        piece, row = place
        if row:
            return Place(piece, row - 1)
        return Place(piece - 1, len(self.marks(piece - 1).lsns) - 1) if piece else None

    def after(self, place: Place | None) -> Place | None:
        """Return the entry behind another (None: the first one); None at the end."""
        if place is None:
            return Place(0, 0) if self._pieces else None
        piece, row = place
        if row + 1 < len(self.marks(piece).lsns):
            return Place(piece, row + 1)
        return Place(piece + 1, 0) if piece + 1 < len(self._pieces) else None

    def last_of(self, region: int, place: Place) -> Place | None:
        """Return the last entry of a feed at or before ``place``, None if there is none above the start."""
        for at in reversed(self.of_feed.get(region, [])):
            if at > place.piece:
                continue
            rows = self.marks(at).rows_of(region)
            count = int(np.searchsorted(rows, place.row, "right")) if at == place.piece else len(rows)
            if count:
                return Place(at, int(rows[count - 1]))
        return None

    # -- appends -------------------------------------------------------------------------------------------------------

    def append_start(self, place: Place) -> Place:
        """Return the first entry of the append that an entry is in; all of it is in one row."""
        at, row = place
        region = int(self.marks(at).regions[row])
        while True:
            ended = np.flatnonzero(self.marks(at).ends()[:row])
            if len(ended):
                return Place(at, int(ended[-1]) + 1)
            before = self.marks(at - 1) if at else None
            if before is None or bool(before.append_end[-1]) or int(before.regions[-1]) != region:
                return Place(at, 0)
            at, row = at - 1, len(before.lsns) - 1

    def append_stop(self, place: Place) -> Place | None:
        """Return the last entry of the append that an entry is in; None if the pieces do not have it."""
        at, row = place
        region = int(self.marks(at).regions[row])
        while True:
            marks = self.marks(at)
            if int(marks.regions[row]) != region:
                return self.before(Place(at, row))
            ended = np.flatnonzero(marks.ends()[row:])
            if len(ended):
                return Place(at, row + int(ended[0]))
            if at + 1 >= len(self._pieces):
                return None
            at, row = at + 1, 0
