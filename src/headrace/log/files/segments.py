"""The segments of one journal in a row: which of them holds what, and reading over all of them.

One thread adds at the end and drops at the beginning; readers work on the row as it was when they began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.errors import JournalCorrupt, JournalLoss, SequenceNotAvailable
from headrace.log.contract import SegmentView
from headrace.log.files.cache import SegmentCache
from headrace.log.files.index import OpenIndex
from headrace.log.files.segment import SegmentFile
from headrace.log.tail import FeedTail, JournalState
from headrace.wire.frame import Frame
from headrace.wire.segment import FramePlace


class Segments:
    """The segments in ``folder``, oldest first; the last one is open. None before :meth:`open` or :meth:`begin`."""

    def __init__(self, cache: SegmentCache, folder: Path) -> None:
        """Open nothing yet."""
        self._cache, self._folder = cache, folder
        self._row: tuple[SegmentFile, ...] = ()

    def open(self, paths: Sequence[Path]) -> None:
        """Open the files ``paths``, sorted by name. Raises JournalCorrupt, JournalLoss, FormatTooNew."""
        row: list[SegmentFile] = []
        for path, later in zip(paths, [*paths[1:], None], strict=True):
            try:
                end = int(later.stem, 16) if later is not None else None
            except ValueError:
                raise JournalCorrupt(f"{later}: not a name of a journal segment") from None
            segment = SegmentFile(self._cache, path, end)
            row.append(segment)
            reaches = segment.first_position + segment.frame_bytes()
            if end is not None and reaches < end:
                raise JournalLoss(f"{path}: the journal has a gap from position {reaches:#x} to {end:#x}")
        self._row = tuple(row)

    def begin(self, position: int, state: JournalState) -> SegmentFile:
        """Make the segment that begins at ``position``, durably, and open it; it is not in the row before :meth:`add`."""
        return SegmentFile.create(self._cache, self._folder, position, state)

    def add(self, segment: SegmentFile) -> None:
        """Take a segment that was begun into the row: it is the open one now, and the one before it is sealed."""
        before = self._row
        self._row = (*before, segment)
        if before:
            before[-1].use_index(None)

    @property
    def newest(self) -> SegmentFile:
        """The open segment."""
        return self._row[-1]

    @property
    def oldest(self) -> SegmentFile:
        """The segment with the oldest retained frame."""
        return self._row[0]

    def __len__(self) -> int:
        return len(self._row)

    def dropped(self) -> Mapping[str, FeedTail]:
        """Return the feeds as they were where the oldest segment begins: all that they had then was dropped."""
        return self._row[0].state().feeds

    def behind_oldest(self) -> Mapping[str, FeedTail]:
        """Return what :meth:`dropped` will say once the oldest segment is dropped; there must be another one."""
        return self._row[1].state().feeds

    def drop_oldest(self) -> Path:
        """Take the oldest segment out of the row; returns its file, which is the caller's to remove."""
        gone, self._row = self._row[0], self._row[1:]
        gone.forget()
        return gone.path

    def at(self, position: int) -> SegmentFile:
        """Return the segment that holds ``position``; SequenceNotAvailable if it was dropped."""
        row = self._row
        at = bisect_right(row, position, key=lambda segment: segment.first_position) - 1
        if at < 0:
            raise SequenceNotAvailable(
                f"the journal's oldest retained position is {row[0].first_position:#x}, {position:#x} was dropped"
            )
        return row[at]

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> list[FramePlace]:
        """Return the frames of a feed that overlap sequence ids ``first`` … ``last``, oldest first."""
        row, found = self._row, list[FramePlace]()
        at = bisect_right(row, first, key=lambda segment: segment.next_at_start(region_id)) - 1
        for segment in row[max(0, at) :]:
            if len(found) >= frames_max or segment.next_at_start(region_id) > last:
                break
            found += segment.index().places(region_id, first, last, frames_max=frames_max - len(found))
        return found

    def read(self, places: Sequence[FramePlace]) -> list[Frame]:
        """Return whole verified frames; JournalCorrupt if one is damaged."""
        found: list[Frame] = []
        at = 0
        while at < len(places):
            segment, stop = self.at(places[at].position), at + 1
            while stop < len(places) and segment.first_position <= places[stop].position < segment.end:
                stop += 1
            found += segment.frames_at(places[at:stop])
            at = stop
        return found

    def seek(self, global_ts: int, end: int) -> int:
        """Return the position of the first frame with an entry at ``global_ts`` or later; ``end`` if there is none."""
        row = self._row
        at = bisect_left(row, global_ts, key=SegmentFile.clock) - 1
        for segment in row[max(0, at) :]:
            found = segment.seek(global_ts, min(segment.end, end))
            if found is not None:
                return found
        return end

    def row(self) -> tuple[SegmentFile, ...]:
        """Return the segments that are there at this moment."""
        return self._row

    @staticmethod
    def views(row: Sequence[SegmentFile], clock: int) -> list[SegmentView]:
        """Return the segments of a row as retention sees them; ``clock`` was the journal's at that moment."""
        clocks = [*(segment.clock() for segment in row[1:]), clock]
        return [
            SegmentView(one.first_position, one.end, one.file_bytes(), newest, one is row[-1])
            for one, newest in zip(row, clocks, strict=True)
        ]

    def index_bytes(self) -> int:
        """Return how much memory finds frames: the open segment's index and what is held of sealed ones, in bytes."""
        index = self.newest.index()
        return self._cache.indexes.weight + (index.weight if isinstance(index, OpenIndex) else 0)

    def close(self) -> None:
        """Close all files."""
        self._cache.close()
        for segment in self._row:
            segment.close()
