"""Which schema each row of a stream has: the last schema entry of its table in front of it, or the version that it names.

What stands in the frames that were rendered is remembered, as long as they follow one another. Everything else is asked of
:class:`~headrace.server.pg.output.contract.Schemas`: rows of a stream that begins in the middle, or whose schema entry stood
in a frame that the slot's filters took away.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from headrace.log.schemas.entries import schemas_of
from headrace.server.pg.output.contract import Piece, Schemas
from headrace.server.pg.output.table_shapes import Shape, ShapeOptions, shape_of

SHAPES_MAX: Final = 10_000
"""Most shapes that one stream remembers, some kilobytes each; beyond them it begins anew."""

_Name = tuple[str, str]


class _Feed:
    """What is known of one feed: of the sequence ids ``first`` … ``last`` every schema entry, and what was asked."""

    def __init__(self, incarnation: str, first: int, last: int) -> None:
        self.incarnation, self.first, self.last = incarnation, first, last
        self.in_force: dict[_Name, list[tuple[int, Shape | None]]] = {}
        self.versions: dict[tuple[str, str, int], Shape | None] = {}
        self.size = 0

    def begin_table(self, name: _Name, sequence_id: int, shape: Shape | None) -> None:
        """Note that rows from ``sequence_id`` on have this shape, up to the next that is noted."""
        found = self.in_force.setdefault(name, [])
        found.insert(bisect_right(found, sequence_id, key=lambda one: one[0]), (sequence_id, shape))
        self.size += 1


class ShapesInForce:
    """The shapes of one stream's rows. Blocks where it has to ask."""

    def __init__(self, schemas: Schemas, options: ShapeOptions) -> None:
        self._schemas, self._options = schemas, options
        self._feeds: dict[str, _Feed] = {}

    def enter(self, piece: Piece) -> None:
        """Take in the schema entries of the piece's frame; call it before rows of the piece are asked for."""
        header = piece.frame.header
        first, last = header.first_sequence_id, header.last_sequence_id
        feed = self._feeds.get(piece.feed)
        if feed is not None and feed.incarnation == piece.incarnation and feed.size < SHAPES_MAX:
            if feed.first <= first and last <= feed.last:
                return
            if first == feed.last + 1:
                feed.last = last
                self._note(feed, piece)
                return
        feed = self._feeds[piece.feed] = _Feed(piece.incarnation, first, last)
        self._note(feed, piece)

    def newest(self, piece: Piece, name: _Name, sequence_id: int) -> Shape | None:
        """Return what a row of this table at ``sequence_id`` looks like; None if no schema stands before it."""
        feed = self._feeds[piece.feed]
        found = feed.in_force.get(name, [])
        at = bisect_right(found, sequence_id, key=lambda one: one[0])
        if at:
            return found[at - 1][1]
        value = self._schemas.newest(piece.feed, *name, sequence_id)
        shape = shape_of(value, self._options) if value is not None else None
        feed.begin_table(name, sequence_id, shape)
        return shape

    def version(self, piece: Piece, name: _Name, version: int) -> Shape | None:
        """Return what rows of this version of a table look like; None if nobody knows it."""
        feed, key = self._feeds[piece.feed], (*name, version)
        if key not in feed.versions:
            value = self._schemas.version(piece.feed, *key)
            feed.versions[key] = shape_of(value, self._options) if value is not None else None
            feed.size += 1
        return feed.versions[key]

    def _note(self, feed: _Feed, piece: Piece) -> None:
        for name, sequence_id, _, value in schemas_of(piece.frame):
            shape = shape_of(value, self._options)
            feed.begin_table((name.database, name.table), sequence_id + 1, shape)
            feed.versions[name] = shape
