"""Opening a journal: replay the last segment up to the mark, then take over what is intact above it.

Below the mark everything was acknowledged: a bad frame there is *corruption*, reported and never cut. Above the mark
nothing was: intact frames are written again and synced (after a failed fsync the page cache may hold what the disk does
not) before the mark moves over them, and what follows the first bad one is the *torn end*, kept in a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from headrace.errors import JournalCorrupt, JournalLoss
from headrace.log.files.index import OpenIndex
from headrace.log.files.mark import MarkFile
from headrace.log.files.segment import SegmentFile, spare_header
from headrace.log.replay import Replay
from headrace.log.tail import decode_state
from headrace.runtime.disk import Disk
from headrace.runtime.logs import get_logger
from headrace.wire.frame import HEADER_SIZE, MAGIC, Frame, FrameHeader, FrameKind, parse_header
from headrace.wire.segment import INDEX_MAGIC, FramePlace

logger = get_logger("log")

CHUNK_BYTES = 8 << 20


@dataclass(slots=True)
class Recovered:
    """What opening found. ``blocked``: why no append may be judged. ``alarms``: what a person must look at."""

    replay: Replay
    index: OpenIndex
    end: int
    blocked: str | None = None
    alarms: list[str] = field(default_factory=list)


def recover(disk: Disk, segment: SegmentFile, mark: MarkFile, torn_folder: Path) -> Recovered:
    """Replay ``segment`` up to the mark and take over intact frames above it; leaves the mark at the journal's end.

    Raises JournalLoss if the segment ends below the mark.
    """
    if (
        segment.first_position + segment.frame_bytes() < mark.current.end
        or segment.first_position > mark.current.end
    ):
        raise JournalLoss(
            f"{segment.path}: the journal ends at position {segment.first_position + segment.frame_bytes():#x}, "
            f"but everything up to {mark.current.end:#x} was acknowledged"
        )
    found = Recovered(Replay(decode_state(segment.start.state)), OpenIndex(), mark.current.end)
    _replay_acknowledged(segment, found)
    segment.end = found.end
    if found.blocked is None:
        _take_over(disk, segment, mark, torn_folder, found)
    else:
        logger.error("the journal is damaged below the mark; appends are refused", reason=found.blocked)
    return found


def _replay_acknowledged(segment: SegmentFile, found: Recovered) -> None:
    position = segment.first_position
    buffer, base = b"", position
    while position < found.end:
        if position + HEADER_SIZE > base + len(buffer):
            buffer, base = segment.read(position, min(CHUNK_BYTES, found.end - position)), position
        header = parse_header(buffer, position - base)
        if header is None or header.position != position:
            header = spare_header(segment.read(position, found.end - position), position)
            if header is None:
                found.blocked = (
                    f"{segment.path}: both headers of the frame at position {position:#x} are damaged"
                )
                return
            buffer, base = b"", position
        if header.end > base + len(buffer):
            buffer, base = (
                segment.read(position, max(header.size, min(CHUNK_BYTES, found.end - position))),
                position,
            )
        try:
            _replay_one(segment, buffer, position - base, header, found)
        except JournalCorrupt as error:
            found.blocked = str(error)
            return
        position = header.end


def _replay_one(segment: SegmentFile, buffer: bytes, at: int, header: FrameHeader, found: Recovered) -> None:
    try:
        found.replay.apply(Frame(buffer, at, where=str(segment.path)))
    except JournalCorrupt as error:
        found.alarms.append(str(error))
        found.replay.apply_damaged(header)
    _list(found.index, header)


def _list(index: OpenIndex, header: FrameHeader) -> None:
    if header.kind == FrameKind.ENTRIES:
        index.add(
            FramePlace(header.region_id, header.count, header.first_sequence_id, header.position, header.size)
        )


def _take_over(disk: Disk, segment: SegmentFile, mark: MarkFile, torn_folder: Path, found: Recovered) -> None:
    above = segment.read(found.end, segment.frame_bytes())
    intact = 0
    while (header := parse_header(above, intact)) is not None and header.position == found.end + intact:
        try:
            frame = Frame(above, intact, where=str(segment.path))
            if parse_header(above, intact + header.size - HEADER_SIZE) != header:
                break
            found.replay.apply(frame)
        except JournalCorrupt:
            break
        _list(found.index, header)
        intact += header.size
    torn = above[intact:]
    if torn and not torn.startswith(INDEX_MAGIC) and torn.strip(b"\x00"):
        _keep_torn(disk, torn, found.end + intact, torn_folder, found)
    if above:
        segment.cut(found.end)
        segment.sync()
        segment.write(found.end, above[:intact])
        segment.sync()
    if intact:
        found.end += intact
        mark.store(found.end, found.replay.state.global_ts)
        logger.info("frames above the mark were taken over", bytes=intact, end=found.end)
    segment.end = found.end


def _keep_torn(disk: Disk, torn: bytes, position: int, torn_folder: Path, found: Recovered) -> None:
    path = torn_folder / f"torn-{position:016x}.bin"
    disk.write_whole(path, torn)
    logger.warning(
        "the torn end of the journal was set aside", bytes=len(torn), position=position, file=str(path)
    )
    at = torn.find(MAGIC)
    while at >= 0:
        header = parse_header(torn, at)
        if header is not None and header.position == position + at:
            found.alarms.append(
                f"{path}: the torn end ({len(torn)} bytes) holds an intact frame header; it was never acknowledged"
            )
            return
        at = torn.find(MAGIC, at + 1)
