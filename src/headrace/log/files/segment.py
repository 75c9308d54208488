"""One journal segment file: its start, its frames, and once sealed its index. Knows nothing of rules or marks."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import google_crc32c

from headrace.errors import JournalCorrupt
from headrace.log.files.index import Index, OpenIndex, SealedIndex
from headrace.log.tail import JournalState, decode_state
from headrace.runtime.disk import Disk, DiskFile
from headrace.wire import segment as wire_segment
from headrace.wire.frame import HEADER_SIZE, MAGIC, Frame, FrameHeader, FrameKind, parse_header
from headrace.wire.segment import FramePlace, SegmentStart

SUFFIX: Final = ".seg"


def file_name(first_position: int) -> str:
    """Return the name of the segment whose first frame stands at ``first_position``; names sort by position."""
    return f"{first_position:016x}{SUFFIX}"


class SegmentFile:
    """A segment on disk. ``end`` is the position after its last frame; frames above it are not looked at."""

    def __init__(self, disk: Disk, path: Path, end: int | None) -> None:
        """Open ``path``; ``end`` None for the open segment, whose end is then set by who replays it."""
        self.path = path
        self._disk = disk
        self._file: DiskFile = disk.open(path)
        head = self._file.read_at(0, wire_segment.START_SIZE)
        try:
            size = wire_segment.start_size_of(head, str(path))
            self.start = wire_segment.decode_start(self._file.read_at(0, size), str(path))
        except Exception:
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
        """Make what was written durable."""
        self._file.sync()

    def header_at(self, position: int) -> FrameHeader | None:
        """Return the intact header of the frame that stands at ``position``; None if there is none."""
        header = parse_header(self.read(position, HEADER_SIZE))
        return header if header is not None and header.position == position else None

    def frame_at(self, place: FramePlace) -> Frame:
        """Return the whole verified frame; its second header serves where only the first is damaged."""
        data = self.read(place.position, place.size)
        where = f"{self.path} (frame at position {place.position:#x})"
        header = parse_header(data)
        if header is None:
            spare = parse_header(data[-HEADER_SIZE:])
            if spare is not None and spare.position == place.position and spare.size == len(data):
                data = data[-HEADER_SIZE:] + data[HEADER_SIZE:]
        elif header.position != place.position or header.size != place.size:
            raise JournalCorrupt(f"{where}: another frame stands here", position=place.position)
        return Frame(data, where=where)

    def index(self) -> Index:
        """Return the sealed index, mapped when first used; a lost or damaged one is rebuilt from the frames."""
        if self._index is None:
            self._index = self._mapped_index() or self._rebuilt_index()
        return self._index

    def use_index(self, index: OpenIndex) -> None:
        """Serve the open segment from ``index``."""
        self._index = index

    def seal(self, places: Sequence[FramePlace]) -> None:
        """Write the index behind the last frame, durably; the segment takes no more frames."""
        index = wire_segment.encode_index(places, self.first_position, self.end)
        self.cut(self.end)
        self.write(self.end, index)
        self.sync()
        self._index = None

    def _mapped_index(self) -> SealedIndex | None:
        size = self._file.size()
        foot = self._file.read_at(size - wire_segment.INDEX_FOOT_SIZE, wire_segment.INDEX_FOOT_SIZE)
        footer = wire_segment.decode_footer(foot, str(self.path))
        offset = self.offset_of(self.end)
        if footer is None or footer.end_position != self.end or offset + footer.index_size != size:
            return None
        self._map = self._file.map_shared(size, writable=False)
        rows = offset + wire_segment.INDEX_HEAD_SIZE
        row_bytes = self._map[rows : rows + footer.rows * wire_segment.ROW.size]
        if google_crc32c.value(row_bytes) != footer.rows_crc:
            return None
        return SealedIndex(self._map, offset, footer.rows)

    def _rebuilt_index(self) -> SealedIndex:
        places: list[FramePlace] = []
        position = self.first_position
        while position < self.end:
            header = self.header_at(position) or self._spare_header(position)
            if header is None:
                raise JournalCorrupt(
                    f"{self.path}: both headers of the frame at position {position:#x} are damaged",
                    position=position,
                )
            if header.kind == FrameKind.ENTRIES:
                places.append(
                    FramePlace(
                        header.region_id, header.count, header.first_sequence_id, position, header.size
                    )
                )
            position = header.end
        self.seal(places)
        data = wire_segment.encode_index(places, self.first_position, self.end)
        return SealedIndex(data, 0, len(places))

    def _spare_header(self, position: int) -> FrameHeader | None:
        """Find the second copy of the header of the frame at ``position``, whose first copy is damaged."""
        return spare_header(self.read(position, self.end - position), position)

    def close(self) -> None:
        """Let go of file and mapping."""
        if self._map is not None:
            self._map.close()
            self._map = None
        self._file.close()


def spare_header(data: bytes, position: int) -> FrameHeader | None:
    """Return the second header of the frame that begins at ``data[0]`` = ``position``; None if it is damaged too."""
    at = data.find(MAGIC, HEADER_SIZE)
    while at >= 0:
        header = parse_header(data, at)
        if header is not None and header.position == position and header.size == at + HEADER_SIZE:
            return header
        if header is not None and header.position == position + at:
            return None  # the next frame begins here, so both headers of this one are damaged
        at = data.find(MAGIC, at + 1)
    return None
