"""Feed -> frame places: arrays for the open segment, the mapped rows of a sealed one. Both find a range by bisection."""

from __future__ import annotations

import mmap
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol, overload

from headrace.wire.segment import INDEX_HEAD_SIZE, ROW, FramePlace


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
    """The open segment's index: 24 bytes a frame. Grows at the end only; control frames are not listed."""

    def __init__(self) -> None:
        self._feeds: dict[int, _FeedPlaces] = {}

    def add(self, place: FramePlace) -> None:
        """Add the newest frame of its feed."""
        feed = self._feeds.setdefault(place.region_id, _FeedPlaces())
        feed.positions.append(place.position)
        feed.counts.append(place.count)
        feed.sizes.append(place.size)
        feed.firsts.append(place.first_sequence_id)

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

    def __iter__(self) -> Iterator[FramePlace]:
        for region_id, feed in self._feeds.items():
            for at in range(len(feed.firsts)):
                yield self._place(region_id, feed, at)

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
        return (
            [self._make(one) for one in range(*at.indices(self._count))]
            if isinstance(at, slice)
            else self._make(at)
        )


class _Rows:
    """The rows of a sealed index as a sequence of (region, first sequence id) keys."""

    def __init__(self, data: mmap.mmap | bytes, offset: int, count: int) -> None:
        self.data, self.offset, self.count = data, offset, count

    def __len__(self) -> int:
        return self.count

    def row(self, at: int) -> FramePlace:
        return FramePlace(*ROW.unpack_from(self.data, self.offset + at * ROW.size))

    def __getitem__(self, at: int) -> tuple[int, int]:
        place = self.row(at)
        return place.region_id, place.first_sequence_id


class SealedIndex:
    """A sealed segment's index over its mapped file (or, rebuilt, over bytes). ``offset`` is where the index begins."""

    def __init__(self, data: mmap.mmap | bytes, offset: int, count: int) -> None:
        self._rows = _Rows(data, offset + INDEX_HEAD_SIZE, count)

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> list[FramePlace]:
        """Return entry frames of the feed that overlap sequence ids ``first`` … ``last``, oldest first."""
        begin = bisect_left(self._rows, (region_id, 0))
        at = max(begin, bisect_right(self._rows, (region_id, first)) - 1)
        found: list[FramePlace] = []
        while at < len(self._rows) and len(found) < frames_max:
            place = self._rows.row(at)
            if place.region_id != region_id or place.first_sequence_id > last:
                break
            if place.first_sequence_id + place.count > first:
                found.append(place)
            at += 1
        return found

    def by_feed(self) -> Iterator[Sequence[FramePlace]]:
        """Yield the entry frames of each feed, oldest first."""
        at = 0
        while at < len(self._rows):
            end = bisect_left(self._rows, (self._rows.row(at).region_id + 1, 0))
            yield _Lazy(end - at, partial(self._row_after, at))
            at = end

    def _row_after(self, begin: int, at: int) -> FramePlace:
        return self._rows.row(begin + at)
