"""In which segments a transaction goes on that another one leaves open. Pure, over pieces of a log.

Manifests tell: no segment is read for those that have the names, however far apart the two are. Some do not: those of older
agents, and of segments that leave too many open. Of these the marks are read, and of the segments behind them, for
:data:`LOOK_SEGMENTS_MAX` segments and :data:`LOOK_MAX_MS` of the log's time at most.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from headrace.archive.moments.marks import PAUSE_MAX_MS, Tx
from headrace.archive.moments.pieces import Pieces
from headrace.archive.moments.ranges import in_order
from headrace.wire.kwal_left_open import History, LeftOpen, left_open
from headrace.wire.kwal_manifest import FeedRange
from headrace.wire.walk import Ints

LOOK_SEGMENTS_MAX: Final = 16
"""So many segments behind one that does not tell are read for more of its transactions: 2 GB of the usual size, seconds."""
LOOK_MAX_MS: Final = 86_400_000
"""And for so long, which is longer than a host takes to come back: a small archive of years is not read for each plan."""

Going = dict[Tx, int | None]
"""Transactions that a piece leaves open, and the next piece with entries of each; None if there is none."""


class _Spans(NamedTuple):
    """Told links over pieces, one a row: from which piece to which one."""

    froms: Ints
    tos: Ints
    txs: list[Tx]


class Links:
    """The links between pieces. What is read of pieces is read once for each stretch of them."""

    def __init__(
        self,
        pieces: Pieces,
        reached: Mapping[History, int] | None = None,
        ahead: Sequence[Sequence[FeedRange]] = (),
    ) -> None:
        """``reached``: the last sequence id of each history at the start, where that is a base.

        ``ahead``: the ranges of segments behind a gap that ends the pieces. They count as pieces that nobody can read.
        """
        self._pieces = pieces
        self._reached = reached or {}
        self._unopened: dict[Tx, int] = {}
        self._told: list[Going] = [{} for _ in range(len(pieces))]
        self._found: dict[int, Going] = {}
        self._before: dict[tuple[int, Tx], int] = {}
        untold: set[int] = set()
        waiting = LeftOpen()
        for at in range(len(pieces)):
            for part in in_order(pieces[at].feeds):
                if not waiting.is_moot(part):
                    self._take(waiting, part, at, untold)
        for at, parts in enumerate(ahead, len(pieces)):
            for part in in_order(parts):
                for name, left in waiting.take(part, at).continued:
                    if left < len(pieces):
                        self._told[left][_tx(part, name)] = at
        self._untold = sorted(untold)

    def _take(self, waiting: LeftOpen, part: FeedRange, at: int, untold: set[int]) -> None:
        self._note_unopened(waiting, part, at)
        taken = waiting.take(part, at)
        for name, left in taken.continued:
            tx = _tx(part, name)
            if left == at:
                del self._told[at][tx]  # of another range of the same segment: its marks tell
            else:
                self._told[left][tx] = at
                self._before[at, tx] = left
        for name, left in taken.unsure:
            del self._told[left][_tx(part, name)]
            untold.add(left)
        names = left_open(part)
        if names is None:
            untold.add(at)
        self._told[at].update((_tx(part, name), None) for name in names or ())

    def _note_unopened(self, waiting: LeftOpen, part: FeedRange, at: int) -> None:
        """Note what goes on in a range and was left open below the start: nothing between is lost, and all of that told."""
        known = waiting.of(part.region_id, part.incarnation)
        names = [name for name in part.continued or () if name not in known]
        if names and self._is_told_since_start(part, at):
            for name in names:
                self._unopened.setdefault(_tx(part, name), at)

    def _is_told_since_start(self, part: FeedRange, at: int) -> bool:
        history = part.region_id, part.incarnation
        reached = self._reached.get(history)
        for piece in self._pieces.of_feed[part.region_id]:
            for one in in_order(self._pieces.ranges(piece, part.region_id)) if piece <= at else ():
                if one.incarnation != part.incarnation:
                    continue
                if reached is None or one.first_sequence_id > reached + 1 or one.continued is None:
                    return False
                if one is part:
                    return True
                if left_open(one) is None:
                    return False
                reached = max(reached, one.last_sequence_id)
        return False

    @cached_property
    def open_at_start(self) -> dict[Tx, int]:
        """The transactions that were begun below the start and go on behind it: the first piece with entries of that.

        As far as manifests tell.
        """
        pieces = self._pieces
        if not pieces.starts_inside:
            return self._unopened
        claimed = {tx for tx, at in self._unopened.items() if at == 0}
        left = {tx: to for tx, to in self._told[0].items() if to is not None}
        found = {tx: at for tx, at in self._unopened.items() if at}
        if claimed or left:
            inside = pieces.open_at_start(claimed, left)
            found |= {
                tx: 0 if goes_on else left[tx] for tx, goes_on in inside.items() if goes_on or tx in left
            }
        return found

    @cached_property
    def _spans(self) -> _Spans:
        rows = [
            (left, at, tx)
            for left, going in enumerate(self._told)
            for tx, at in going.items()
            if at is not None
        ]
        return _Spans(
            np.asarray([row[0] for row in rows], np.int64),
            np.asarray([row[1] for row in rows], np.int64),
            [row[2] for row in rows],
        )

    def next_of(self, tx: Tx, at: int) -> int | None:
        """Return the next piece with entries of a transaction that ``at`` leaves open; None if there is none."""
        return self.left_by(at).get(tx)

    def before_of(self, tx: Tx, at: int) -> int | None:
        """Return the piece that leaves a transaction open which goes on in ``at``; None if there is none."""
        self._look(at)
        return self._before.get((at, tx))

    def left_by(self, at: int) -> Going:
        """Return what a piece leaves open, as far as that is told or goes on, or may have been left not long before."""
        self._look(at)
        return self._leaves(at)

    def over(self, at: int) -> Iterator[tuple[int, Going]]:
        """Yield pieces before ``at``, and what each leaves open: what goes on in ``at`` or behind it.

        And what goes on nowhere, of pieces whose last entry is not long before those of ``at``.
        """
        self._look(at)
        found: dict[int, Going] = {}
        spans = self._spans
        for row in np.flatnonzero((spans.froms < at) & (spans.tos >= at)).tolist():
            found.setdefault(int(spans.froms[row]), {})[spans.txs[row]] = int(spans.tos[row])
        for left in self._near(at - 1):
            going = self._found.get(left, {})
            here = {tx: to for tx, to in going.items() if to is not None and to >= at}
            if here:
                found.setdefault(left, {}).update(here)
        for left in range(at - 1, -1, -1):
            if self._pieces.last_ms(left) < self._pieces.first_ms(at) - PAUSE_MAX_MS:
                break
            nowhere = {tx: to for tx, to in self._leaves(left).items() if to is None}
            if nowhere:
                found.setdefault(left, {}).update(nowhere)
        yield from sorted(found.items())

    # -- pieces that do not tell ---------------------------------------------------------------------------------------

    def _leaves(self, at: int) -> Going:
        if at not in self._found and at in self._near(at):
            self._look(at)
        return self._told[at] | self._found.get(at, {})

    def _near(self, at: int) -> list[int]:
        """Return the pieces up to ``at`` that do not tell what they leave open, and may leave open what goes on there."""
        here = self._untold[
            bisect_left(self._untold, at - LOOK_SEGMENTS_MAX) : bisect_left(self._untold, at + 1)
        ]
        return [one for one in here if self._pieces.last_ms(one) >= self._pieces.first_ms(at) - LOOK_MAX_MS]

    def _look(self, at: int) -> None:
        """Find where what those pieces leave open goes on, by one walk over them and what is behind them."""
        wanted = [one for one in self._near(at) if one not in self._found]
        if not wanted:
            return
        pieces, waiting = self._pieces, dict[Tx, tuple[int, int]]()
        for here in range(wanted[0], len(pieces)):
            if not waiting and here > wanted[-1]:
                break
            for tx, (left, ms) in list(waiting.items()):
                if here - left > LOOK_SEGMENTS_MAX or pieces.first_ms(here) - ms > LOOK_MAX_MS:
                    del waiting[tx]
            some = [tx for tx in waiting if pieces.may_hold(here, tx.region, tx.incarnation)]
            if some:
                units = pieces.marks(here).units
                for tx in units.of(some, units.head):
                    left, _ = waiting.pop(tx)
                    self._found[left][tx], self._before[here, tx] = here, left
            if here in wanted:
                waiting |= self._leave(here)

    def _leave(self, at: int) -> dict[Tx, tuple[int, int]]:
        """Note what a piece leaves open that is not told, and return it: the piece, and log time of its last entry there."""
        marks = self._pieces.marks(at)
        units = marks.units
        left = {
            tx: (at, int(marks.ms[units.last[unit]]))
            for unit in np.flatnonzero(units.tail & ~units.ended).tolist()
            if (tx := units.tx(unit)) not in self._told[at]
        }
        self._found[at] = dict.fromkeys(left)
        return left


def _tx(part: FeedRange, name: str) -> Tx:
    return Tx(part.region_id, part.incarnation, bytes.fromhex(name))
