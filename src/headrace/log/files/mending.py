"""What a repair makes again without loss: a segment's start, the mark, one copy of a header, an index."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from headrace.log.damage import Damage, DamageKind
from headrace.log.files.above import intact_above, is_index
from headrace.log.files.findings import Findings, Segment
from headrace.log.files.index import place_of
from headrace.log.files.mark import MarkFile
from headrace.log.files.plan import Repairing
from headrace.log.files.rebuild import end_of_intact, rebuilt, rebuilt_start
from headrace.log.files.scan import Hole, scan
from headrace.log.tail import decode_state
from headrace.wire.frame import HEADER_SIZE, FrameKind
from headrace.wire.mark import Mark
from headrace.wire.segment import SegmentStart, encode_index


def mend_starts(work: Repairing) -> None:
    """A damaged start is made again from the segment before it, or from nothing where the journal begins."""
    before: Segment | None = None
    for segment in work.findings.segments:
        if not segment.is_start_intact:
            start = rebuilt_start(before, segment)
            segment.state, segment.is_start_intact = decode_state(start.state), True
            work.step(f"{segment.path}: make its start again", _start_writer(work, segment, start))
        before = segment


def _start_writer(work: Repairing, segment: Segment, start: SegmentStart) -> Callable[[], None]:
    def write() -> None:
        data, size = segment.file.read_at(0, segment.file.size()), segment.start_size or 0
        work.disk.write_whole(work.kept(f"{segment.path.name}.start"), data[:size])
        work.disk.write_whole(segment.path, start.encode() + data[size:])
        segment.start_size = start.size
        segment.file.close()
        segment.file = work.disk.open(segment.path, readonly=True)

    return write


def mend_end(work: Repairing) -> None:
    """The journal ends at the mark, and behind intact frames above it.

    Without a whole mark nobody knows whether the end was torn or acknowledged: damage there is damage, too.
    """
    findings = work.findings
    last = findings.segments[-1]
    above = last.file.read_at(last.offset_of(last.end), last.file.size())
    if work.mark is None or work.mark.end < last.first_position:
        end = end_of_intact(last)
        findings.is_end_doubtful = not is_index(last.read(end, last.file.size()))
        if not findings.is_end_doubtful:
            findings.damages = [one for one in findings.damages if (one.position, one.end) != (end, last.end)]
            last.end = end
    elif not any(damage.kind == DamageKind.END for damage in findings.damages):
        last.end += intact_above(above, last.end)
    if findings.is_end_doubtful:
        _make_room(findings, last)


def _make_room(findings: Findings, last: Segment) -> None:
    """What is too short for a frame to be put over it is taken for longer: nothing stands behind it."""
    for number, damage in enumerate(findings.damages):
        short = damage.position + 2 * HEADER_SIZE - damage.end
        if damage.kind == DamageKind.HOLE and damage.end == last.end and short > 0:
            last.end += short
            findings.damages[number] = replace(damage, end=last.end)


def mend_mark(work: Repairing) -> None:
    """Write a damaged mark again."""
    if any(damage.kind == DamageKind.MARK for damage in work.findings.damages):
        last = work.findings.segments[-1]
        work.step(
            f"{work.folder / 'mark'}: write the mark again, at {last.end:#x}", partial(_set_mark_to_end, work)
        )


def _set_mark_to_end(work: Repairing) -> None:
    last = work.findings.segments[-1]
    state = rebuilt(last, last.end).replay.state
    counter = work.mark.counter + 1 if work.mark is not None else 1
    work.mark = Mark(
        counter, last.end, max(state.global_ts, work.mark.global_ts if work.mark is not None else 0)
    )
    MarkFile.create(work.disk, work.folder / "mark", work.mark)


def mend_copies(work: Repairing, bad: Sequence[Damage]) -> None:
    """Write damaged copies of headers again; not where the whole frame is damaged."""
    for damage in work.findings.damages:
        whole = not any(other.position <= damage.position < other.end for other in bad)
        if damage.kind == DamageKind.HEADER and damage.header is not None and whole:
            header, position = damage.header, damage.position
            work.step(
                f"{damage.file}: write the damaged header at position {position:#x} again from its other copy",
                _writer(work, damage.file, position, header.encode()),
                file=damage.file,
            )


def _writer(work: Repairing, path: Path, position: int, data: bytes) -> Callable[[], None]:
    def write() -> None:
        segment = next(segment for segment in work.findings.segments if segment.path == path)
        with work.disk.open(path) as file:
            file.write_at(segment.offset_of(position), data)
            file.sync()

    return write


def mend_indexes(work: Repairing) -> None:
    """After everything else: the index of each sealed segment that was damaged or changed."""
    hurt = {damage.file for damage in work.findings.damages if damage.kind != DamageKind.MARK}
    for segment in work.findings.segments[:-1]:
        if segment.path in hurt and not any(damage.file == segment.path for damage in work.made.unmended):
            work.step(
                f"{segment.path}: make its index again", _index_writer(work, segment), file=segment.path
            )


def _index_writer(work: Repairing, segment: Segment) -> Callable[[], None]:
    def write() -> None:
        places = [
            place_of(found[0])
            for found in scan(segment.read, segment.first_position, segment.end)
            if not isinstance(found, Hole) and found[0].kind == FrameKind.ENTRIES
        ]
        with work.disk.open(segment.path) as file:
            at = segment.offset_of(segment.end)
            index = encode_index(places, segment.first_position, segment.end)
            file.write_at(at, index)
            file.truncate(at + len(index))
            file.sync()

    return write
