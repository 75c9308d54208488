"""Feed -> frame places: arrays for the open segment, stored rows of a sealed one. Both find a range by bisection."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, Protocol, overload

from headrace.wire.frame import FrameHeader, FrameKind
from headrace.wire.segment import INDEX_HEAD_SIZE, ROW, FramePlace, encode_index, index_of_rows, rows_of_feed

ROWS_AT_ONCE: Final = 128
"""Rows of a stored index that one read fetches (4 KiB): the last steps of a bisection, and the rows after it."""


def place_of(header: FrameHeader) -> FramePlace:
    """Return where the frame of ``header`` stands, as an index lists it."""
    return FramePlace(header.region_id, header.count, header.first_sequence_id, header.position, header.size)


class Index(Protocol):
    """The frames of one segment, by feed."""

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> list[FramePlace]:
        """Return entry frames of the feed that overlap sequence ids ``first`` … ``last``, oldest first."""

    def by_feed(self) -> Iterator[Sequence[FramePlace]]:
        """Yield the entry frames of each feed, oldest first."""


class _FeedPlaces:
    __slots__ = ("counts", "firsts", "positions", "sizes")

    def __init__(self) -> None:
        self.firsts = array("Q")
        self.positions = array("Q")
        self.counts = array("I")
        self.sizes = array("I")


class OpenIndex:
    """An index in memory: 24 bytes a frame. Grows at the end only; control frames are not listed.

    One thread adds, any number may look meanwhile: a frame is there once its sequence id is, which is added last.
    """

    def __init__(self) -> None:
        self._feeds: dict[int, _FeedPlaces] = {}
        self.frames = 0
        """How many frames were added, those that are not listed included."""

    @property
    def weight(self) -> int:
        """Bytes of memory that this index takes, at most, about."""
        return 24 * self.frames + 512 * len(self._feeds)

    def extend(self, headers: Iterable[FrameHeader]) -> None:
        """Add the newest frames of their feeds, in journal order; those that carry no entries are passed over."""
        for header in headers:
            self.frames += 1
            if header.kind != FrameKind.ENTRIES:
                continue
            feed = self._feeds.get(header.region_id)
            if feed is None:
                feed = self._feeds[header.region_id] = _FeedPlaces()
            feed.positions.append(header.position)
            feed.counts.append(header.count)
            feed.sizes.append(header.size)
            feed.firsts.append(header.first_sequence_id)

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> list[FramePlace]:
        """Return entry frames of the feed that overlap sequence ids ``first`` … ``last``, oldest first."""
        feed = self._feeds.get(region_id)
        if feed is None:
            return []
        at = max(0, bisect_right(feed.firsts, first) - 1)
        found: list[FramePlace] = []
        while at < len(feed.firsts) and feed.firsts[at] <= last and len(found) < frames_max:
            if feed.firsts[at] + feed.counts[at] > first:
                found.append(self._place(region_id, feed, at))
            at += 1
        return found

    def by_feed(self) -> Iterator[Sequence[FramePlace]]:
        """Yield the entry frames of each feed, oldest first; those that were there when the feed's turn came."""
        for region_id, feed in list(self._feeds.items()):
            yield _Lazy(len(feed.firsts), partial(self._place, region_id, feed))

    def encode(self, first_position: int, end_position: int) -> bytes:
        """Return the index as it is stored behind the last frame of a segment that has these bounds."""
        rows: list[bytes] = []
        for region_id, feed in sorted(self._feeds.items()):
            columns = feed.firsts, feed.positions, feed.counts, feed.sizes
            if sys.byteorder == "big" or list(feed.firsts) != sorted(feed.firsts):
                # Frames that a damaged journal left out of order: sorted one by one.
                places = [place for one in self.by_feed() for place in one]
                return encode_index(places, first_position, end_position)
            rows.append(rows_of_feed(region_id, *columns))
        return index_of_rows(b"".join(rows), first_position, end_position)

    @staticmethod
    def _place(region_id: int, feed: _FeedPlaces, at: int) -> FramePlace:
        return FramePlace(region_id, feed.counts[at], feed.firsts[at], feed.positions[at], feed.sizes[at])


class _Lazy(Sequence[FramePlace]):
    """Places that are made when asked for."""

    def __init__(self, count: int, make: Callable[[int], FramePlace]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> FramePlace: ...

    @overload
    def __getitem__(self, at: slice) -> list[FramePlace]: ...

    def __getitem__(self, at: int | slice) -> FramePlace | list[FramePlace]:
        if isinstance(at, slice):
            return [self._make(one) for one in range(*at.indices(self._count))]
        if not 0 <= at < self._count:
            raise IndexError(at)
        return self._make(at)


class _Rows:
    """The rows of a stored index as a sequence of (region, first sequence id) keys, for one look-up.

    A few rows are in memory at a time: those around the one asked for last.
    """

    def __init__(self, read_at: Callable[[int, int], bytes], offset: int, count: int) -> None:
        self._read_at, self._offset, self._count = read_at, offset, count
        self._block, self._begin = b"", 0

    def __len__(self) -> int:
        return self._count

    def row(self, at: int) -> FramePlace:
        if not self._begin <= at < self._begin + len(self._block) // ROW.size:
            self._begin = at - at % ROWS_AT_ONCE
            rows = min(ROWS_AT_ONCE, self._count - self._begin)
            self._block = self._read_at(self._offset + self._begin * ROW.size, rows * ROW.size)
        return FramePlace(*ROW.unpack_from(self._block, (at - self._begin) * ROW.size))

    def __getitem__(self, at: int) -> tuple[int, int]:
        place = self.row(at)
        return place.region_id, place.first_sequence_id


class SealedIndex:
    """A sealed segment's index in its file: nothing of it is held in memory between look-ups."""

    def __init__(self, read_at: Callable[[int, int], bytes], offset: int, count: int) -> None:
        """Look into ``count`` rows, checked by the caller, of the index that begins at ``offset`` of the file."""
        self._open = partial(_Rows, read_at, offset + INDEX_HEAD_SIZE, count)

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> list[FramePlace]:
        """Return entry frames of the feed that overlap sequence ids ``first`` … ``last``, oldest first."""
        rows = self._open()
        at = max(0, bisect_right(rows, (region_id, first)) - 1)
        if at < len(rows) and rows.row(at).region_id < region_id:
            at += 1
        found: list[FramePlace] = []
        while at < len(rows) and len(found) < frames_max:
            place = rows.row(at)
            if place.region_id != region_id or place.first_sequence_id > last:
                break
            if place.first_sequence_id + place.count > first:
                found.append(place)
            at += 1
        return found

    def by_feed(self) -> Iterator[Sequence[FramePlace]]:
        """Yield the entry frames of each feed, oldest first."""
        rows = self._open()
        at = 0
        while at < len(rows):
            end = bisect_left(rows, (rows.row(at).region_id + 1, 0))
            yield _Lazy(end - at, partial(_row_after, rows, at))
            at = end


def _row_after(rows: _Rows, begin: int, at: int) -> FramePlace:
    return rows.row(begin + at)
