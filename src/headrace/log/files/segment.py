"""One journal segment file: its start, its frames, and once sealed its index. Knows nothing of rules or marks."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.errors import (
    HeadraceError,
    JournalCorrupt,
    JournalLoss,
    SequenceNotAvailable,
    StoreUnavailable,
)
from headrace.log.files import reading
from headrace.log.files.cache import SegmentCache
from headrace.log.files.index import Index, OpenIndex, SealedIndex
from headrace.log.files.scan import Hole, header_at, next_frame, scan
from headrace.log.tail import JournalState, StateBegins, decode_begins, decode_state
from headrace.runtime.disk import DiskFile
from headrace.runtime.logs import get_logger
from headrace.wire import segment as wire_segment
from headrace.wire.frame import HEADER_SIZE, Frame, parse_header
from headrace.wire.segment import FramePlace, IndexFooter, SegmentStart

logger = get_logger("log")

SUFFIX: Final = ".seg"
INDEX_PART_BYTES: Final = 1 << 18
"""A stored index is checked in parts of this size, so that no index takes memory as a whole."""


def file_name(first_position: int) -> str:
    """Return the name of the segment whose first frame stands at ``first_position``; names sort by position."""
    return f"{first_position:016x}{SUFFIX}"


class _NextIds:
    """Each feed's next sequence id where a segment begins, by region id: 12 bytes a feed."""

    __slots__ = ("_next_ids", "_regions")

    def __init__(self, begins: StateBegins) -> None:
        """Take the feeds that have entries."""
        feeds = sorted(
            (one.region_id, one.next_sequence_id) for one in begins.feeds.values() if one.first_sequence_id
        )
        self._regions = array("I", (region_id for region_id, _ in feeds))
        self._next_ids = array("Q", (next_id for _, next_id in feeds))

    @property
    def weight(self) -> int:
        return 256 + 12 * len(self._regions)

    def of(self, region_id: int) -> int:
        at = bisect_left(self._regions, region_id)
        found = at < len(self._regions) and self._regions[at] == region_id
        return self._next_ids[at] if found else 0


class SegmentFile:
    """A segment on disk. ``end`` is the position after its last frame; frames above it are not looked at.

    There is one of these for every segment of a journal, so a sealed one holds only some numbers. What a look at it needs
    (its open file, what finds frames in it) is fetched through a :class:`SegmentCache`.
    """

    __slots__ = (
        "_cache", "_clock", "_file_bytes", "_folder", "_index", "_open_file", "_rows", "_start_size", "end",
        "first_position", "is_dropped",
    )  # fmt: skip

    def __init__(self, cache: SegmentCache, path: Path, end: int | None) -> None:
        """Open ``path``; ``end`` None for the open segment, whose end is then set by who replays it.

        Raises JournalCorrupt, FormatTooNew (of its start or its index).
        """
        self._cache, self._folder = cache, path.parent
        self._open_file: DiskFile | None = None
        self._index: OpenIndex | None = OpenIndex() if end is None else None
        self._rows: int | None = None
        self._clock: int | None = None
        self.is_dropped = False
        file = cache.disk.open(path)
        try:
            start = _read_start(file, path)
            if path.name != file_name(start.first_position):
                raise JournalCorrupt(
                    f"{path}: this is the segment that begins at position {start.first_position:#x}, "
                    f"so its name must be {file_name(start.first_position)}"
                )
            self._file_bytes = file.size()
            if end is not None:
                _read_footer(file, path)
        except BaseException:
            file.close()
            raise
        self.first_position, self._start_size = start.first_position, start.size
        self.end = self.first_position if end is None else end
        if end is None:
            self._open_file = file
        else:
            cache.keep_file(self.first_position, file)

    @classmethod
    def create(
        cls, cache: SegmentCache, folder: Path, first_position: int, state: JournalState
    ) -> SegmentFile:
        """Put a new, empty segment into ``folder``, whole and durable, and open it."""
        path = folder / file_name(first_position)
        cache.disk.write_whole(path, state.start_at(first_position).encode())
        return cls(cache, path, None)

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._folder / file_name(self.first_position)

    @property
    def _file(self) -> DiskFile:
        """The open file.

        SequenceNotAvailable if the segment was dropped, JournalLoss if somebody else took it away, StoreUnavailable.
        """
        file = self._open_file or self._cache.files.get(DiskFile, self.first_position)
        if file is None:
            if self._cache.is_closed:
                raise StoreUnavailable(f"{self.path}: the journal was closed")
            try:
                file = self._cache.disk.open(self.path, readonly=True)
            except FileNotFoundError:
                raise self._gone() from None
            except OSError as error:  # such as too many open files
                raise StoreUnavailable(f"{self.path} can't be opened: {error}") from error
            self._cache.keep_file(self.first_position, file)
            if self.is_dropped:  # meanwhile: its space must not be held
                self._cache.forget(self.first_position)
        return file

    def _gone(self) -> HeadraceError:
        if self.is_dropped:
            return SequenceNotAvailable(f"the journal from position {self.first_position:#x} on was dropped")
        return JournalLoss(f"{self.path}: this segment of the journal is not there any more")

    def state(self) -> JournalState:
        """Read the state that this segment continues from; JournalCorrupt if it was damaged meanwhile."""
        return decode_state(_read_start(self._file, self.path).state)

    def clock(self) -> int:
        """Return the newest ``global_ts`` before this segment."""
        if self._clock is None:
            self._begins()
        return self._clock or 0

    def next_at_start(self, region_id: int) -> int:
        """Return the feed's next sequence id where this segment begins; 0 if it had no entry yet."""
        return (self._cache.indexes.get(_NextIds, self.first_position) or self._begins()).of(region_id)

    def _begins(self) -> _NextIds:
        begins = decode_begins(_read_start(self._file, self.path).state)
        self._clock = begins.global_ts
        next_ids = _NextIds(begins)
        self._cache.indexes.put(_NextIds, self.first_position, next_ids, next_ids.weight)
        return next_ids

    def offset_of(self, position: int) -> int:
        """Return where ``position`` stands in the file."""
        return self._start_size + position - self.first_position

    def frame_bytes(self) -> int:
        """Return how many bytes stand after the start record: frames, torn end or index."""
        return self.file_bytes() - self._start_size

    def file_bytes(self) -> int:
        """Return how many bytes the whole file takes."""
        file = self._open_file
        return file.size() if file is not None else self._file_bytes

    def seek(self, global_ts: int, stop: int) -> int | None:
        """Return the position of the first frame below ``stop`` with an entry at ``global_ts`` or later, or None.

        By bisection over the index, feed by feed: a frame's place is never guessed from bytes that look like a header.
        """
        found = []
        for places in self.index().by_feed():
            at = bisect_left(places, global_ts, key=self._clock_after)
            if at < len(places) and places[at].position < stop:
                found.append(places[at].position)
        return min(found, default=None)

    def _clock_after(self, place: FramePlace) -> int:
        """Return the clock after a frame.

        Where neither of its headers can be read: what the next one leaves room for, so that a stream finds what is behind;
        if there is none, later than any, because a walk must meet it.
        """
        for at in (place.position, place.position + place.size - HEADER_SIZE):
            header = parse_header(self.read(at, HEADER_SIZE))
            if header is not None and (header.position, header.size) == (place.position, place.size):
                return header.last_global_ts
        end = place.position + place.size
        header = parse_header(self.read(end, HEADER_SIZE))
        if header is None or header.position != end:  # damaged as well, or the last one
            at = next_frame(self.read, end - 1, self.end)
            header = header_at(self.read, at, self.end) if at < self.end else None
        return header.global_ts - 1 if header is not None else 1 << 64

    def read(self, position: int, size: int) -> bytes:
        """Return up to ``size`` bytes from ``position`` on; fewer at the end of the file."""
        return self._file.read_at(self.offset_of(position), size)

    def write(self, position: int, data: bytes) -> None:
        """Write at ``position``; not durable before :meth:`sync`."""
        self._file.write_at(self.offset_of(position), data)

    def cut(self, position: int) -> None:
        """Cut the file at ``position``; not durable before :meth:`sync`."""
        self._file.truncate(self.offset_of(position))

    def sync(self) -> None:
        """Make what was written durable, or raise SyncFailed."""
        self._file.sync()

    def frames_at(self, places: Sequence[FramePlace]) -> list[Frame]:
        """Return the whole verified frames of ``places``, which the index named; JournalCorrupt if one is damaged."""
        try:
            return reading.frames_at(self.read, places, str(self.path))
        except JournalCorrupt:
            self._rows = None  # the index may be what is wrong: the next look checks it again
            raise

    def frames_from(self, position: int, stop: int, bytes_max: int) -> list[Frame]:
        """Return the verified frames of ``position`` … ``stop`` - 1: see :func:`reading.frames_from`."""
        return reading.frames_from(self.read, position, stop, bytes_max, str(self.path))

    # -- index --------------------------------------------------------------------------------------------------------

    def index(self) -> Index:
        """Return what finds frames: the stored index, checked when first used, or one made again from the frames.

        The latter is stored if all frames could be made out, else held while there is room.
        """
        index = self._index
        if index is not None:
            return index
        return self._kept_index() or self._rebuilt_index()

    def use_index(self, index: OpenIndex | None) -> None:
        """Serve the open segment from ``index``; None once it is sealed: from the one in the file."""
        file = self._open_file
        if index is None and file is not None:
            self._file_bytes = file.size()
            self._cache.keep_file(self.first_position, file)
            self._open_file = None
        self._index = index

    def seal(self, index: OpenIndex) -> None:
        """Write the index behind the last frame, durably; the segment takes no more frames."""
        self._store_index(self._file, index)

    def _store_index(self, file: DiskFile, index: OpenIndex) -> None:
        data, offset = index.encode(self.first_position, self.end), self.offset_of(self.end)
        file.truncate(offset)
        file.write_at(offset, data)
        file.sync()
        self._file_bytes = offset + len(data)

    def _kept_index(self) -> Index | None:
        held = self._cache.indexes.get(OpenIndex, self.first_position)
        if held is not None:
            return held
        if self._rows is None:
            file = self._file
            footer = _read_footer(file, self.path)
            if footer is None or footer.bounds != (self.first_position, self.end):
                return None
            if not _is_whole(file, self.offset_of(self.end), footer):
                return None
            self._rows = footer.rows
        return SealedIndex(self._read_index, self.offset_of(self.end), self._rows)

    def _read_index(self, offset: int, size: int) -> bytes:
        data = self._file.read_at(offset, size)
        if len(data) != size:
            self._rows = None
            raise JournalCorrupt(f"{self.path}: the index was cut off at byte {offset + len(data)}")
        return data

    def _rebuilt_index(self) -> Index:
        """Make the index again; appends go on meanwhile, other readers that need it wait for it."""
        with self._cache.rebuilding:
            kept = self._kept_index()
            if kept is not None:
                return kept
            index, holes = OpenIndex(), 0
            for found in scan(self.read, self.first_position, self.end):
                if isinstance(found, Hole):
                    holes += 1
                else:
                    index.extend((found[0],))
            logger.warning(
                "a segment's index was rebuilt", file=str(self.path), frames=index.frames, holes=holes
            )
            if not holes:
                try:
                    with self._cache.disk.open(self.path) as file:
                        self._store_index(file, index)
                    return index
                except OSError as error:  # it serves from memory all the same
                    logger.warning("the index could not be stored", file=str(self.path), reason=str(error))
            self._cache.indexes.put(OpenIndex, self.first_position, index, index.weight)
            if self.is_dropped:  # meanwhile
                self.forget()
            return index

    def forget(self) -> None:
        """Say that this segment was dropped, and let go of what is held of it; a reader that is in it ends in peace."""
        self.is_dropped = True
        self._cache.forget(self.first_position, _NextIds, OpenIndex)

    def close(self) -> None:
        """Let go of the open segment's file; sealed ones are closed with the cache."""
        if self._open_file is not None:
            self._open_file.close()


def _read_start(file: DiskFile, path: Path) -> SegmentStart:
    where = str(path)
    size = wire_segment.start_size_of(file.read_at(0, wire_segment.START_SIZE), where)
    return wire_segment.decode_start(file.read_at(0, size), where)


def _read_footer(file: DiskFile, path: Path) -> IndexFooter | None:
    foot_at = max(0, file.size() - wire_segment.INDEX_FOOT_SIZE)
    return wire_segment.decode_footer(file.read_at(foot_at, wire_segment.INDEX_FOOT_SIZE), str(path))


def _is_whole(file: DiskFile, offset: int, footer: IndexFooter) -> bool:
    """Read a stored index once, part by part, and tell whether it is the one that its footer was written for."""
    if file.size() - offset != footer.index_size:
        return False
    rows_at, rows_end = (
        offset + wire_segment.INDEX_HEAD_SIZE,
        offset + footer.index_size - wire_segment.INDEX_FOOT_SIZE,
    )
    head = file.read_at(offset, wire_segment.INDEX_HEAD_SIZE)
    parts = (
        file.read_at(at, min(INDEX_PART_BYTES, rows_end - at))
        for at in range(rows_at, rows_end, INDEX_PART_BYTES)
    )
    return head == wire_segment.index_head(footer.rows) and wire_segment.rows_fit(parts, footer)
