"""Where a log may be cut without tearing an append or a source transaction. Pure, over segments that are read on demand.

A cut is *whole* if no append and no transaction of any feed has entries on both its sides. A transaction is a name that a
feed's entries carry, up to its last entry, whoever writes between, and however long it pauses: producers of a shared feed
mix theirs, and one may be away for a while. One without a last entry ends with the last one that the log has of it, or where
the feed's history ends; but until the log went on for :data:`headrace.archive.moments.marks.PAUSE_MAX_MS` of its own time
nobody knows what follows, and it is open. There is one cut for all feeds, so it moves back until it is whole for each of
them.

Little is read: the segment around the cut, those in which a transaction begins or ends that is open there, and of those that
are not long before it the ones that leave some open. Manifests tell which these are; :mod:`headrace.archive.moments.links`
says what is read where they do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from headrace.archive.moments.links import Links
from headrace.archive.moments.marks import Tx
from headrace.archive.moments.pieces import Piece, Pieces, Place
from headrace.archive.moments.transactions import Live, begin_of, end_of, judge, last_place, left_by_idle
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.kwal_left_open import History
from headrace.wire.kwal_manifest import FeedRange
from headrace.wire.walk import Ints

_BELOW: Final = Place(-1, -1)


class Torn(NamedTuple):
    """What a cut behind an entry would tear: an append of a feed, or its transaction ``tx``.

    ``first``: its first entry; None if that is below the start, as of a base that was made while it paused. ``last``: its
    last one; None if the pieces do not have it.
    """

    region: int
    feed: str
    first: Place | None
    last: Place | None
    tx: bytes | None

    def __str__(self) -> str:
        if self.tx is None:
            return f"inside an append of {self.feed}"
        return f"inside the transaction {self.tx.decode(errors='backslashreplace')} of {self.feed}"


class Unended(NamedTuple):
    """Transactions of one feed that count as ended without a last entry: how many, the newest one and its last LSN."""

    feed: str
    many: int
    tx: bytes
    lsn: Lsn


class Points:
    """The entries of pieces that join, above ``start``: a base snapshot's LSN, or ZERO.

    The log is whole there, but for transactions of which manifests say that they go on behind it. ``reached``: the last
    sequence id of each history that the base has. ``ahead``: what segments hold that the pieces do not join: a transaction
    that goes on there is open, too.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        start: Lsn = ZERO,
        reached: Mapping[History, int] | None = None,
        ahead: Sequence[Sequence[FeedRange]] = (),
    ) -> None:
        self._pieces = Pieces(pieces, start)
        self._links = Links(self._pieces, reached, ahead)
        self.last_at = self._pieces.last_at
        self.lsn = self._pieces.lsn
        self.before = self._pieces.before
        self.after = self._pieces.after
        self.last_of = self._pieces.last_of

    # -- whole cuts ----------------------------------------------------------------------------------------------------

    def torn_at_start(self) -> list[Torn]:
        """Return what the start itself tears; empty if it is whole."""
        return list(self._begun_below(None))

    def torn_at(self, place: Place) -> list[Torn]:
        """Return what a cut behind the entry would tear; empty if it is whole."""
        found = list(self._begun_below(place))
        if self._tears_append(place):
            region = self.lsn(place).region_id
            begin, stop = self._pieces.append_start(place), self._pieces.append_stop(place)
            found.append(Torn(region, self._pieces.feeds[region], begin, stop, None))
        for live in judge(self._pieces, self._links, place).open:
            begin, stop = begin_of(self._pieces, self._links, live), end_of(self._pieces, self._links, live)
            found.append(Torn(live.tx.region, self._pieces.feeds[live.tx.region], begin, stop, live.tx.name))
        return found

    def _begun_below(self, place: Place | None) -> Iterator[Torn]:
        """Yield the transactions that were begun below the start, and go on behind ``place`` (None: the start)."""
        pieces = self._pieces
        for tx, at in self._links.open_at_start.items():
            if place is not None and place.piece > at:
                continue
            if at >= len(pieces):
                yield Torn(tx.region, pieces.feeds[tx.region], None, None, tx.name)
                continue
            units = pieces.marks(at).units
            head = units.of([tx], units.head).get(tx)
            if head is None or (place is not None and place.piece == at and units.first[head] <= place.row):
                continue
            live = Live(tx, at, head, int(pieces.marks(at).ms[units.last[head]]))
            yield Torn(tx.region, pieces.feeds[tx.region], None, end_of(pieces, self._links, live), tx.name)

    def whole_at(self, place: Place | None) -> tuple[Place | None, Torn | None]:
        """Return the last entry at or before ``place`` behind which the log may be cut, and why it isn't ``place``.

        None if that is the start, or nothing: see :meth:`torn_at_start`. A ``place`` that is None is the start.
        """
        why, at = None, place
        while at is not None and (torn := self.torn_at(at)):
            first = min(torn, key=lambda one: one.first or _BELOW)
            why = why or first
            at = self.before(first.first) if first.first is not None else None
        if at is None and (torn := self.torn_at_start()):
            why = why or torn[0]
        return at, why

    def next_whole(self, place: Place | None) -> Place | None:
        """Return the first entry behind ``place`` (None: of all) behind which the log may be cut; None if there is none."""
        at = self.after(place)
        while at is not None and (torn := self.torn_at(at)):
            ends = [one.last for one in torn if one.last is not None]
            if len(ends) < len(torn):
                return None
            at = max(ends) if max(ends) > at else self.after(at)  # the rest of an append may be lost
        return at

    def append_around(self, place: Place) -> tuple[Place, Place | None] | None:
        """Return first and last entry of the append that a cut behind the entry would tear; None if it tears none.

        The last one is None if the pieces do not have it.
        """
        if not self._tears_append(place):
            return None
        last = self._pieces.append_stop(place)
        return self._pieces.append_start(place), last if last != place else None

    def _tears_append(self, place: Place) -> bool:
        """Tell whether the append of an entry goes on behind it. A history that ends takes its last one with it."""
        ends = bool(self._pieces.marks(place.piece).append_end[place.row])
        return not ends and not self._pieces.is_last_of_history(place)

    def unended(self, place: Place) -> list[Unended]:
        """Return the transactions up to ``place`` that only count as ended, so that more of them may have been to come.

        Of one that is longer ago than that takes, only where it has its feed's last entry.
        """
        lives = [
            *judge(self._pieces, self._links, place).unended,
            *left_by_idle(self._pieces, self._links, place),
        ]
        of_feeds: dict[int, list[tuple[Lsn, Tx]]] = {}
        for live in lives:
            lsn = self.lsn(last_place(self._pieces, live))
            of_feeds.setdefault(live.tx.region, []).append((lsn, live.tx))
        found = []
        for region, these in of_feeds.items():
            lsn, newest = max(these, key=lambda one: one[0])
            found.append(Unended(self._pieces.feeds[region], len(these), newest.name, lsn))
        return found

    # -- source times --------------------------------------------------------------------------------------------------

    def timed(self, place: Place) -> tuple[Lsn, int] | None:
        """Return LSN and source time of the last entry at or before ``place`` that has one, as far as its segment tells."""
        marks = self._pieces.marks(place.piece)
        rows = np.flatnonzero(marks.source_times[: place.row + 1] > 0)
        return (marks.lsn(int(rows[-1])), int(marks.source_times[rows[-1]])) if len(rows) else None

    def first_later(self, region: int, ms: int) -> Place | None:
        """Return the first entry of a feed, in log order, whose source time is above ``ms``; None if there is none."""
        for at in self._pieces.of_feed.get(region, []):
            if any(
                one.region_id == region and (one.source_time_last_ms or 0) > ms
                for one in self._pieces[at].feeds
            ):
                rows, times = self._timed(at, region)
                if (times > ms).any():
                    return Place(at, int(rows[np.argmax(times > ms)]))
        return None

    def has_time_before(self, region: int, place: Place) -> bool:
        """Tell whether an entry of the feed before ``place`` has a source time."""
        for at in self._pieces.of_feed.get(region, []):
            if at < place.piece and any(one.source_time_last_ms for one in self._pieces.ranges(at, region)):
                rows, _ = self._timed(at, region)
                if len(rows):
                    return True
            if at == place.piece:
                rows, _ = self._timed(at, region)
                return bool((rows < place.row).any())
        return False

    def is_earlier_again(self, region: int, place: Place, ms: int) -> bool:
        """Tell whether an entry of the feed at or behind ``place`` has a source time that is not above ``ms``."""
        for at in self._pieces.of_feed.get(region, []):
            firsts = [one.source_time_first_ms or 0 for one in self._pieces.ranges(at, region)]
            if at < place.piece or not any(0 < first <= ms for first in firsts):
                continue
            rows, times = self._timed(at, region)
            if bool((times[rows >= place.row] <= ms).any() if at == place.piece else (times <= ms).any()):
                return True
        return False

    def _timed(self, at: int, region: int) -> tuple[Ints, Ints]:
        """Return rows and source times of the feed's entries that have one."""
        rows, times = self._pieces.marks(at).rows_of(region), self._pieces.marks(at).source_times
        rows = rows[times[rows] > 0]
        return rows, times[rows]
