"""What the manifests of an archive say of feeds: found by history and by segment, without a look at all of them. Pure.

An archive may have a million ranges (segments x feeds), and each base is compared with them. LSNs of a range lie in its
segment, whose own are in its name: so hardly any is ever read from its text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from headrace.entries.lsn import Lsn
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import FeedRange, Manifest

History = tuple[int, str]
"""Region id and incarnation."""


class Row(NamedTuple):
    """The ranges of one history, in LSN order.

    ``segments``: in which segment each is, by number, ascending. ``ids``: the greatest sequence id up to and with each.
    """

    segments: list[int]
    parts: list[FeedRange]
    ids: list[int]

    def before(self, segment: int) -> int:
        """Return how many of the ranges stand in segments before that one."""
        return bisect_left(self.segments, segment)


class Ranges:
    """The ranges of all segments that have a manifest."""

    def __init__(self, names: Sequence[SegmentName], told: Sequence[Manifest]) -> None:
        """``names``: of the segments, in LSN order, none overlapping another; ``told``: their manifests."""
        self._told = told
        self._firsts = [one.first for one in names]
        self._lasts = [one.last for one in names]
        self.rows: dict[History, Row] = {}
        """By history, in the order in which they begin."""
        for at, manifest in enumerate(told):
            for part in in_order(manifest.feeds):
                row = self.rows.setdefault((part.region_id, part.incarnation), Row([], [], []))
                row.segments.append(at)
                row.parts.append(part)
                row.ids.append(max(part.last_sequence_id, row.ids[-1]) if row.ids else part.last_sequence_id)

    @cached_property
    def begun(self) -> dict[History, int]:
        """The first sequence id of each history whose beginning the server knew."""
        return {
            (one.region_id, one.incarnation): one.first_sequence_id
            for manifest in self._told
            for one in manifest.registry
            if one.first_sequence_id
        }

    def spans(self, lsn: Lsn) -> bool:
        """Tell whether the LSN lies between the first and the last one of all segments, neither of them."""
        return bool(self._told) and self._firsts[0] < lsn < self._lasts[-1]

    def at(self, lsn: Lsn) -> Manifest | None:
        """Return the manifest of the segment that spans an LSN; None if there is none."""
        found = self.below(lsn)
        if found and self._lasts[found - 1] == lsn:
            return self._told[found - 1]
        return self._told[found] if found < len(self._told) and self._firsts[found] <= lsn else None

    def below(self, lsn: Lsn) -> int:
        """Return how many segments lie at or below an LSN with all their entries."""
        return bisect_right(self._lasts, lsn)


def in_order(feeds: Sequence[FeedRange]) -> Sequence[FeedRange]:
    """Return a segment's ranges with those of one feed in LSN order; LSNs are read only where a feed has several."""
    if len({one.region_id for one in feeds}) == len(feeds):
        return feeds
    return sorted(feeds, key=lambda one: Lsn.parse(one.first_lsn))


def between(feeds: Sequence[FeedRange], name: SegmentName, after: Lsn, last: Lsn) -> Iterator[FeedRange]:
    """Yield a segment's ranges with entries above ``after`` and at or below ``last``; those of one feed in LSN order."""
    if after < name.first and name.last <= last:
        yield from in_order(feeds)
        return
    for one in in_order(feeds):
        if Lsn.parse(one.first_lsn) <= last and Lsn.parse(one.last_lsn) > after:
            yield one
