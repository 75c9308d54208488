"""A base and segments cut into batches that tables are folded from: each of a bounded number of entries, in LSN
order. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.entries.lsn import Lsn
from headrace.pipeline.bases.scanning import Spans
from headrace.pipeline.restore.scanning import Part


class SegmentBatch(NamedTuple):
    """Segments that are folded at once, and the wanted feeds that they hold entries of."""

    parts: tuple[Part, ...]
    feeds: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """Bytes of the segments."""
        return sum(part.size for part in self.parts)


def segment_batches(
    parts: Sequence[Part], spans: Spans, after: Lsn, target: Lsn, entries_max: int
) -> list[SegmentBatch]:
    """Return the batches of the segments above ``after`` and up to ``target``: of about ``entries_max`` entries each.

    A segment is never cut, so it is read once.
    """
    found: list[SegmentBatch] = []
    taken: list[Part] = []
    entries = 0
    for part in parts:
        size = sum(
            one.last_sequence_id - one.first_sequence_id + 1
            for one in part.manifest.feeds
            if (one.feed, one.incarnation) in spans
        )
        if not size:
            continue
        if taken and entries + size > entries_max:
            found.append(_batch(taken, spans, after, target))
            taken, entries = [], 0
        taken.append(part)
        entries += size
    if taken:
        found.append(_batch(taken, spans, after, target))
    return found


def _batch(parts: Sequence[Part], spans: Spans, after: Lsn, target: Lsn) -> SegmentBatch:
    feeds = {
        one.feed
        for part in parts
        for one in part.manifest.feeds
        if (one.feed, one.incarnation) in spans
        and Lsn.parse(one.first_lsn) <= target
        and Lsn.parse(one.last_lsn) > after
    }
    return SegmentBatch(tuple(parts), tuple(sorted(feeds)))


def row_ranges(counts: Sequence[tuple[int, int]], entries_max: int) -> list[tuple[int, int]]:
    """Return ranges of sequence ids, inclusive, of about ``entries_max`` rows each; ``counts``: (first id, rows) of
    neighbouring stretches, in order. The first range begins at 0, so that nothing is left out.
    """
    ends: list[int] = []
    rows = 0
    for first, count in counts:
        if rows and rows + count > entries_max:
            ends.append(first - 1)
            rows = 0
        rows += count
    starts = [0, *(end + 1 for end in ends)]
    return list(zip(starts, [*ends, (1 << 63) - 1], strict=True))
