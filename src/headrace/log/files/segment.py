"""One journal segment file: its start, its frames, and once sealed its index. Knows nothing of rules or marks."""

from __future__ import annotations

import mmap
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt, SequenceLost
from headrace.log.files.index import Index, OpenIndex, SealedIndex
from headrace.log.files.scan import Hole, header_at, scan
from headrace.log.tail import JournalState, decode_state
from headrace.runtime.disk import Disk, DiskFile
from headrace.runtime.logs import get_logger
from headrace.wire import segment as wire_segment
from headrace.wire.frame import HEADER_SIZE, Frame, FrameHeader, FrameKind, parse_header
from headrace.wire.segment import FramePlace, IndexFooter, SegmentStart

logger = get_logger("log")

SUFFIX: Final = ".seg"


def file_name(first_position: int) -> str:
    """Return the name of the segment whose first frame stands at ``first_position``; names sort by position."""
    return f"{first_position:016x}{SUFFIX}"


def place_of(header: FrameHeader) -> FramePlace:
    """Return where the frame of ``header`` stands, as an index lists it."""
    return FramePlace(header.region_id, header.count, header.first_sequence_id, header.position, header.size)


def _walked(frame: Frame, where: str) -> Frame:
    """The frame, for who walks over all feeds; SequenceLost where a repair skipped entries, or nobody knows what."""
    header = frame.header
    if header.kind != FrameKind.SKIPPED or (header.region_id and not header.count):
        return frame
    raise SequenceLost(
        f"{where}: what stood at position {header.position:#x} was damaged, and a repair skipped it",
        position=header.position,
        resume_position=header.end,
        resume_lsn=str(Lsn(header.last_global_ts + 1, 0, 0)),
    )


class SegmentFile:
    """A segment on disk. ``end`` is the position after its last frame; frames above it are not looked at."""

    def __init__(self, disk: Disk, path: Path, end: int | None) -> None:
        """Open ``path``; ``end`` None for the open segment, whose end is then set by who replays it.

        Raises JournalCorrupt, FormatTooNew (of its start or its index).
        """
        self.path = path
        self._disk = disk
        self._file: DiskFile = disk.open(path)
        head = self._file.read_at(0, wire_segment.START_SIZE)
        try:
            size = wire_segment.start_size_of(head, str(path))
            self.start = wire_segment.decode_start(self._file.read_at(0, size), str(path))
            if path.name != file_name(self.start.first_position):
                raise JournalCorrupt(
                    f"{path}: this is the segment that begins at position {self.start.first_position:#x}, "
                    f"so its name must be {file_name(self.start.first_position)}"
                )
            if end is not None:
                self._footer()
        except BaseException:
            self._file.close()
            raise
        self.first_position = self.start.first_position
        self.end = self.first_position if end is None else end
        self._state: JournalState | None = None
        self._next_ids: dict[int, int] | None = None
        self._index: Index | None = None
        self._map: mmap.mmap | None = None

    @classmethod
    def create(cls, disk: Disk, folder: Path, first_position: int, state: JournalState) -> SegmentFile:
        """Put a new, empty segment into ``folder``, whole and durable, and open it."""
        path = folder / file_name(first_position)
        disk.write_whole(path, SegmentStart(first_position, state.encode()).encode())
        return cls(disk, path, None)

    @property
    def state(self) -> JournalState:
        """The state that this segment continues from."""
        if self._state is None:
            self._state = decode_state(self.start.state)
        return self._state

    @property
    def next_ids(self) -> dict[int, int]:
        """Each feed's next sequence id where this segment begins, by region id; feeds without entries are left out."""
        if self._next_ids is None:
            self._next_ids = {
                tail.region_id: tail.next_sequence_id
                for tail in self.state.feeds.values()
                if tail.first_sequence_id
            }
        return self._next_ids

    def offset_of(self, position: int) -> int:
        """Return where ``position`` stands in the file."""
        return self.start.size + position - self.first_position

    def frame_bytes(self) -> int:
        """Return how many bytes stand after the start record: frames, torn end or index."""
        return self._file.size() - self.start.size

    def file_bytes(self) -> int:
        """Return how many bytes the whole file takes."""
        return self._file.size()

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
        """Return the clock after a frame; where neither of its headers can be read, later than any: a walk must meet it."""
        for at in (place.position, place.position + place.size - HEADER_SIZE):
            header = parse_header(self.read(at, HEADER_SIZE))
            if header is not None and (header.position, header.size) == (place.position, place.size):
                return header.last_global_ts
        return 1 << 64

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

    def frame_at(self, place: FramePlace) -> Frame:
        """Return the whole verified frame; its second header serves where only the first is damaged."""
        data = self.read(place.position, place.size)
        header = parse_header(data)
        if header is None:
            header = parse_header(data[-HEADER_SIZE:])
            data = data[-HEADER_SIZE:] + data[HEADER_SIZE:]
        if header is None:
            raise JournalCorrupt(
                f"{self.path}: both headers of the frame at position {place.position:#x} (region {place.region_id}, "
                f"sequence ids {place.first_sequence_id} to {place.first_sequence_id + place.count - 1}) are damaged",
                position=place.position,
            )
        if header.position != place.position or header.size != place.size:
            raise JournalCorrupt(
                f"{self.path}: another frame stands at position {place.position:#x}", position=place.position
            )
        return Frame(data, where=str(self.path))

    def frames_from(self, position: int, stop: int, bytes_max: int) -> list[Frame]:
        """Return the verified frames of ``position`` … ``stop`` - 1: up to ``bytes_max`` bytes, at least one.

        Ends before a damaged frame, so that what stands before it can be had; JournalCorrupt if that is the first.
        SequenceLost if the first is one that a repair skipped, with ``resume_lsn`` and ``resume_position`` to go on from.
        """
        data = self.read(position, min(max(bytes_max, HEADER_SIZE), stop - position))
        frames: list[Frame] = []
        where, at = str(self.path), 0
        while at < len(data):
            header = parse_header(data, at)
            if header is None or header.position != position + at or at + header.size > len(data):
                break  # damaged, or beyond what was read
            try:
                frames.append(_walked(Frame(data, at, where=where, header=header), where))
            except (JournalCorrupt, SequenceLost):
                if not frames:
                    raise
                break
            at += header.size
        if not frames and position < stop:
            header = header_at(self.read, position, stop)
            if header is None:
                raise JournalCorrupt(
                    f"{self.path}: both headers of the frame at position {position:#x} are damaged",
                    position=position,
                )
            frames.append(_walked(self.frame_at(place_of(header)), where))
        return frames

    def index(self) -> Index:
        """Return the sealed index, mapped when first used; a lost or damaged one is rebuilt from the frames."""
        if self._index is None:
            self._index = self._mapped_index() or self._rebuilt_index()
        return self._index

    def use_index(self, index: OpenIndex | None) -> None:
        """Serve the open segment from ``index``; None once it is sealed: from the one in the file."""
        self._index = index

    def seal(self, places: Sequence[FramePlace]) -> None:
        """Write the index behind the last frame, durably; the segment takes no more frames."""
        index = wire_segment.encode_index(places, self.first_position, self.end)
        self.cut(self.end)
        self.write(self.end, index)
        self.sync()

    def _footer(self) -> IndexFooter | None:
        size = self._file.size()
        foot = self._file.read_at(max(0, size - wire_segment.INDEX_FOOT_SIZE), wire_segment.INDEX_FOOT_SIZE)
        return wire_segment.decode_footer(foot, str(self.path))

    def _mapped_index(self) -> SealedIndex | None:
        footer, offset, size = self._footer(), self.offset_of(self.end), self._file.size()
        if footer is None or (footer.first_position, footer.end_position) != (self.first_position, self.end):
            return None
        if not wire_segment.index_fits(self._file.read_at(offset, size - offset), footer):
            return None
        self._map = self._file.map_shared(size, writable=False)
        return SealedIndex(self._map, offset, footer.rows)

    def _rebuilt_index(self) -> SealedIndex:
        places: list[FramePlace] = []
        holes: list[Hole] = []
        for found in scan(self.read, self.first_position, self.end):
            if isinstance(found, Hole):
                holes.append(found)
            elif found[0].kind == FrameKind.ENTRIES:
                places.append(place_of(found[0]))
        logger.warning(
            "a segment's index was rebuilt", file=str(self.path), frames=len(places), holes=len(holes)
        )
        if not holes:
            try:
                self.seal(places)
            except OSError as error:  # it serves from memory all the same
                logger.warning("the index could not be stored", file=str(self.path), reason=str(error))
        data = wire_segment.encode_index(places, self.first_position, self.end)
        return SealedIndex(data, 0, len(places))

    def close(self) -> None:
        """Let go of file and mapping."""
        if self._map is not None:
            self._map.close()
            self._map = None
        self._file.close()
