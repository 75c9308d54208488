"""Opening a journal: replay the last segment up to the mark, then take over what is intact above it.

Below the mark everything was acknowledged: a bad frame there is *corruption*, reported and never cut. Above the mark
something may have been, because a crash of the machine can set the mark back: intact frames are written again and synced
(after a failed fsync the page cache may hold what the disk does not) before the mark moves over them. Bad frames before one
that was written only after they were durable are corruption as well. What is left is the *torn end*, kept in a file of its
own; unless a copy of the mark is damaged, which may have named an end behind it: then nothing is cut without a person.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headrace.errors import JournalCorrupt, JournalLoss
from headrace.log.files.above import durable_end, is_index
from headrace.log.files.index import OpenIndex
from headrace.log.files.mark import MarkFile
from headrace.log.files.redo import Adopted, Damaged, Unjoined, redo
from headrace.log.files.scan import Hole
from headrace.log.files.segment import SegmentFile
from headrace.log.replay import Replay
from headrace.runtime.disk import Disk
from headrace.runtime.logs import get_logger
from headrace.wire.frame import MAGIC, FrameHeader, parse_header
from headrace.wire.run import intact_frames

logger = get_logger("log")


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

    Both its copies are the same then, and durable. Raises JournalLoss if the segment ends below the mark, JournalCorrupt if
    the mark stands inside a frame.
    """
    ends = segment.first_position + segment.frame_bytes()
    if not segment.first_position <= mark.current.end <= ends:
        raise JournalLoss(
            f"{segment.path}: the journal's last segment reaches from position {segment.first_position:#x} to "
            f"{ends:#x}, but everything up to {mark.current.end:#x} was acknowledged"
        )
    found = Recovered(Replay(segment.state()), OpenIndex(), segment.first_position)
    if mark.damaged_copy is not None:
        found.alarms.append(
            f"{torn_folder / 'mark'}: the copy of the mark at byte {mark.damaged_copy} is damaged, or half written; the "
            f"other one ends at {mark.current.end:#x}"
        )
    _replay_acknowledged(segment, mark.current.end, found)
    if found.blocked is None:
        _take_over(disk, segment, mark, torn_folder, found)
    segment.end = found.end
    if found.blocked is None:
        mark.settle(found.end, max(found.replay.state.global_ts, mark.current.global_ts))
    else:
        found.alarms.append(found.blocked)
        logger.error("the journal is damaged; appends are refused", reason=found.blocked)
    return found


def _replay_acknowledged(segment: SegmentFile, stop: int, found: Recovered) -> None:
    """Go on to ``stop``. After damage that hides what happened, for the readers' sake only: no append may be judged."""
    replay, where, begin = found.replay, str(segment.path), found.end
    found.end = stop
    for odd in redo(segment.read, begin, stop, replay, where, found.index.extend):
        match odd:
            case Hole():
                _block(found, f"{where}: both headers of the frame at position {odd.position:#x} are damaged")
            case Adopted():
                if not replay.gaps_allowed:  # else a repair has skipped that frame, and says more behind
                    what = f"the frame that made the feed of region {odd.header.region_id} can't be read"
                    _block(found, f"{where}: {what}")
            case Damaged():
                _over_damage(where, odd, found)
            case Unjoined():
                _block(found, str(odd.error))


def _block(found: Recovered, reason: str) -> None:
    found.blocked = found.blocked if found.blocked is not None else reason
    found.replay.gaps_allowed = True


def _over_damage(where: str, damaged: Damaged, found: Recovered) -> None:
    header = damaged.header
    if header.end > found.end:
        raise JournalCorrupt(
            f"{where}: the mark names {found.end:#x} as the journal's end, which is inside the frame at "
            f"position {header.position:#x}: it is not the mark of this journal",
            hint="Do not delete anything: put the mark and the segments of one moment together again.",
            position=header.position,
        )
    found.alarms.append(str(damaged.error))
    try:
        found.replay.apply_damaged(header)
    except JournalCorrupt as error:
        _block(found, str(error))


def _take_over(disk: Disk, segment: SegmentFile, mark: MarkFile, torn_folder: Path, found: Recovered) -> None:
    begin = found.end
    above = segment.read(begin, segment.frame_bytes())
    _apply_intact(above, begin, found)
    while (durable := durable_end(above[found.end - begin :], found.end)) is not None:
        _replay_acknowledged(segment, durable, found)
        if found.blocked is not None:
            return
        _apply_intact(above[found.end - begin :], found.end, found)
    kept, torn = above[: found.end - begin], above[found.end - begin :]
    is_doubtful = mark.damaged_copy is not None and not is_index(torn)
    if is_doubtful:
        _block(
            found,
            f"{segment.path}: what stands at position {found.end:#x} can't be read and may have been acknowledged, because "
            "a copy of the mark is damaged; `headrace log repair --cut` ends the journal there",
        )
    elif not is_index(torn) and torn.strip(b"\x00"):
        _keep_torn(disk, torn, found.end, torn_folder, found)
    if kept or (torn and not is_doubtful):
        # Written over in place, never cut first: a second crash in between must find them still there.
        segment.write(begin, kept)
        if not is_doubtful:
            segment.cut(found.end)
    # Where nothing stands above, a process before us may have cut it, and been killed before the cut was durable.
    segment.sync()
    if kept:
        logger.info("frames above the mark were taken over", bytes=len(kept), end=found.end)


def _apply_intact(above: bytes, position: int, found: Recovered) -> None:
    for frame in intact_frames(above, position):
        try:
            found.replay.apply(frame)
        except JournalCorrupt:
            break
        found.index.extend((frame.header,))
        found.end = frame.header.end


def _keep_torn(disk: Disk, torn: bytes, position: int, torn_folder: Path, found: Recovered) -> None:
    holds_frame = _holds_header(torn, position)  # FormatTooNew before anything is written
    path = disk.write_beside(torn_folder / f"torn-{position:016x}.bin", torn)
    logger.warning(
        "the torn end of the journal was set aside", bytes=len(torn), position=position, file=str(path)
    )
    if holds_frame:
        found.alarms.append(
            f"{path}: the torn end ({len(torn)} bytes) holds an intact frame header: a frame that was damaged before "
            "it was acknowledged, or since"
        )


def _holds_header(torn: bytes, position: int) -> bool:
    at = torn.find(MAGIC)
    while at >= 0:
        if parse_header(torn, at, stands=partial(_begins, position + at)) is not None:
            return True
        at = torn.find(MAGIC, at + 1)
    return False


def _begins(position: int, header: FrameHeader) -> bool:
    return header.position == position
