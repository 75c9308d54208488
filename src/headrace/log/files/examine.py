"""Look at every byte of a data folder and say what is damaged, without changing anything: ``headrace log verify``.

It takes no lock and trusts only what has a checksum, so it can look at the folder of a running server (up to the mark) and
at one that no server opens any more. ``repair`` works from its findings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from headrace.errors import JournalCorrupt, JournalLoss, StoreUnavailable
from headrace.log.control import decode_control
from headrace.log.damage import Damage, DamageKind
from headrace.log.files.above import acknowledged_end, intact_above, is_index
from headrace.log.files.findings import Findings, Segment
from headrace.log.files.index import place_of
from headrace.log.files.scan import Hole, scan
from headrace.log.files.segment import SUFFIX
from headrace.log.tail import decode_state
from headrace.runtime.disk import Disk
from headrace.wire import mark as wire_mark
from headrace.wire import segment as wire_segment
from headrace.wire.frame import FIRST_POSITION, HEADER_SIZE, Frame, FrameHeader, FrameKind, parse_header
from headrace.wire.mark import damaged_copy, decode_marks
from headrace.wire.segment import FramePlace

START_SEARCH_BYTES: Final = 1 << 20
"""How far into a file with a damaged start its first frame is looked for."""

Progress = Callable[[int, int], None]
"""``progress(done, total)`` in bytes."""


def examine(
    folder: Path,
    *,
    disk: Disk | None = None,
    feed: str | None = None,
    newest: bool = False,
    progress: Progress | None = None,
) -> Findings:
    """Look at the journal in ``folder``; with ``feed`` the payloads of other feeds are passed over.

    ``newest``: at the mark and the newest segment alone, which is what a start of the server reads.

    Raises StoreUnavailable if there is no journal or it can't be read, FormatTooNew.
    """
    disk = disk if disk is not None else Disk()
    findings = Findings(folder)
    try:
        paths = disk.list(folder / "journal", SUFFIX)
        page = _mark_page(disk, folder / "mark")
        _examine_mark(page, findings)
        for path in paths[-1:] if newest else paths:
            _open_segment(disk, path, findings)
        _join(findings)
        _look_above(disk, page, findings)
        _Reading(findings, feed, progress).all()
    except OSError as error:
        findings.close()
        raise StoreUnavailable(
            f"{folder}: the journal can't be read: {error}",
            hint="Check --data-dir, its owner and its rights.",
        ) from error
    return findings


def _examine_mark(page: bytes | None, findings: Findings) -> None:
    path = findings.folder / "mark"
    if page is None:
        findings.damages.append(Damage(DamageKind.MARK, path, 0, f"{path}: the mark is missing"))
        return
    findings.mark = mark = decode_marks(page, str(path))
    if mark is None:
        findings.damages.append(
            Damage(DamageKind.MARK, path, 0, f"{path}: both copies of the mark are damaged")
        )
        return
    other = damaged_copy(page, mark, str(path))
    if other is not None:
        detail = f"{path}: one copy of the mark is damaged; the other ends at {mark.end:#x}"
        findings.damages.append(Damage(DamageKind.MARK, path, other, detail))
    rest = page[2 * wire_mark.SLOT_SIZE :]
    if len(page) != wire_mark.FILE_SIZE or rest.strip(b"\x00"):
        at = 2 * wire_mark.SLOT_SIZE + len(rest) - len(rest.lstrip(b"\x00"))
        findings.damages.append(
            Damage(DamageKind.MARK, path, at, f"{path}: the page around the mark is damaged")
        )


def _mark_page(disk: Disk, path: Path) -> bytes | None:
    if not disk.exists(path):
        return None
    with disk.open(path, readonly=True) as file:
        return file.read_at(0, wire_mark.FILE_SIZE + 1)


def _open_segment(disk: Disk, path: Path, findings: Findings) -> None:
    try:
        first_position = int(path.stem, 16)
    except ValueError:
        detail = f"{path}: not a name of a journal segment"
        findings.damages.append(Damage(DamageKind.START, path, 0, detail))
        return
    segment = Segment(path, disk.open(path, readonly=True), first_position)
    findings.segments.append(segment)
    where = str(path)
    try:
        head = segment.file.read_at(0, wire_segment.START_SIZE)
        size = wire_segment.start_size_of(head, where)
        start = wire_segment.decode_start(segment.file.read_at(0, size), where)
        if start.first_position != first_position:
            raise JournalCorrupt(f"{where}: this segment begins at position {start.first_position:#x}")
        segment.start_size, segment.state, segment.is_start_intact = size, decode_state(start.state), True
        findings.names |= {tail.region_id: name for name, tail in segment.state.feeds.items()}
    except JournalCorrupt as error:
        segment.start_size = _start_size(segment)
        findings.damages.append(Damage(DamageKind.START, path, 0, error.detail, first_position))


def _start_size(segment: Segment) -> int | None:
    """Find where the frames begin in a file whose start is damaged: at the frame that names the file's own position."""
    data = segment.file.read_at(0, START_SEARCH_BYTES)
    at = data.find(b"HRFR")
    while at >= 0:
        if parse_header(data, at, stands=partial(_begins, segment.first_position)) is not None:
            return at if data.find(data[at : at + HEADER_SIZE]) == at else None
        at = data.find(b"HRFR", at + 1)
    return None


def _begins(position: int, header: FrameHeader) -> bool:
    return header.position == position


def _join(findings: Findings) -> None:
    """Say where each segment ends, and what is missing between and behind them."""
    segments, mark = findings.segments, findings.mark
    if not segments:
        if mark is not None and mark.end > FIRST_POSITION:
            detail = f"{findings.folder}: no journal segment is there, but everything up to {mark.end:#x} was acknowledged"
            findings.damages.append(
                Damage(DamageKind.END, findings.folder / "journal", 0, detail, FIRST_POSITION, mark.end)
            )
        return
    for segment, later in pairwise(segments):
        segment.end = later.first_position
        _check_end(segment, DamageKind.GAP, later.first_position, findings)
    last = segments[-1]
    last.end = last.first_position + max(0, last.file.size() - (last.start_size or last.file.size()))
    if mark is not None:
        if mark.end < last.first_position:
            detail = f"{findings.folder / 'mark'}: the mark ends at {mark.end:#x}, below the newest segment"
            findings.damages.append(Damage(DamageKind.MARK, findings.folder / "mark", 0, detail))
            return
        last.end = min(last.end, mark.end)
        _check_end(last, DamageKind.END, mark.end, findings)


def _look_above(disk: Disk, page: bytes | None, findings: Findings) -> None:
    """Take for the journal what stands above the mark and must, or may, have been acknowledged."""
    mark, last = findings.mark, findings.segments[-1] if findings.segments else None
    if mark is None or last is None or last.start_size is None:
        return
    if not last.first_position <= mark.end <= last.end:
        return
    above = last.read(mark.end, last.file.size())
    end = acknowledged_end(above, mark.end)
    intact = end + intact_above(above[end - mark.end :], end)
    has_damaged_copy = damaged_copy(page or b"", mark, "mark") is not None
    is_doubtful = has_damaged_copy and not is_index(above[intact - mark.end :])
    is_still = page == _mark_page(disk, findings.folder / "mark")  # else a server is at work
    if is_still and (is_doubtful or end > mark.end):
        findings.is_end_doubtful = is_doubtful
        last.end = mark.end + len(above) if is_doubtful else end
    left = mark.end + len(above) - last.end
    if left > 0:
        findings.notes.append(
            f"{last.path}: {left} bytes above the mark were not looked at (what a crash left, or a server at work)"
        )


def _check_end(segment: Segment, kind: DamageKind, wanted: int, findings: Findings) -> None:
    size = segment.file.size()
    reaches = segment.first_position + max(0, size - (segment.start_size or size))
    if reaches < wanted:
        segment.end = reaches
        if segment.start_size is not None:
            detail = f"{segment.path}: the journal is missing from position {reaches:#x} to {wanted:#x}"
            findings.damages.append(Damage(kind, segment.path, size, detail, reaches, wanted))


class _Reading:
    """One pass over all frames."""

    def __init__(self, findings: Findings, feed: str | None, progress: Progress | None) -> None:
        self.findings = findings
        self.feed = feed
        self.progress = progress
        self.total = sum(segment.end - segment.first_position for segment in findings.segments)

    def all(self) -> None:
        last = self.findings.segments[-1] if self.findings.segments else None
        for segment in self.findings.segments:
            if segment.start_size is None:
                continue
            places = self.segment(segment)
            if segment is not last and self.feed is None:
                self.index(segment, places)
        names = self.findings.names  # a feed's name may stand behind the damage
        self.findings.damages = [
            replace(damage, feed=names.get(damage.header.region_id)) if damage.header is not None else damage
            for damage in self.findings.damages
        ]

    def segment(self, segment: Segment) -> list[FramePlace] | None:
        """Check each frame; returns the places that its index must list, None if a frame can't be made out."""
        places: list[FramePlace] | None = []
        for found in scan(segment.read, segment.first_position, segment.end):
            if isinstance(found, Hole):
                places = None
                self.damage(
                    segment,
                    DamageKind.HOLE,
                    found.position,
                    found.end,
                    "both headers of the frame are damaged",
                )
            else:
                header, data = found
                self.frame(segment, header, data)
                if header.kind == FrameKind.ENTRIES and places is not None:
                    places.append(place_of(header))
            done = found.end if isinstance(found, Hole) else found[0].end
            if self.progress is not None:
                self.progress(self.findings.bytes + done - segment.first_position, self.total)
        self.findings.bytes += segment.end - segment.first_position
        return places

    def frame(self, segment: Segment, header: FrameHeader, data: bytes) -> None:
        if header.end > segment.end:
            kind = DamageKind.HOLE
            self.damage(
                segment,
                kind,
                header.position,
                segment.end,
                "the frame reaches beyond the journal's end",
                header,
            )
            return
        head = segment.read(header.position, HEADER_SIZE)
        for copy, at in ((head, header.position), (data[-HEADER_SIZE:], header.end - HEADER_SIZE)):
            if copy != data[:HEADER_SIZE]:
                self.damage(
                    segment, DamageKind.HEADER, at, header.end, "one header of the frame is damaged", header
                )
        name = self.findings.names.get(header.region_id)
        if self.feed is not None and name not in {None, self.feed}:
            return
        try:
            frame = Frame(data, where=str(segment.path), header=header)
            if header.kind == FrameKind.CONTROL:
                tail = decode_control(frame.body).feed
                self.findings.names[tail.region_id] = tail.name
        except JournalCorrupt as error:
            kind = DamageKind.CONTROL if header.kind == FrameKind.CONTROL else DamageKind.PAYLOAD
            self.damage(segment, kind, header.position, header.end, error.detail, header)
            return
        self.findings.frames += 1
        self.findings.entries += header.count if header.kind == FrameKind.ENTRIES else 0

    def index(self, segment: Segment, places: list[FramePlace] | None) -> None:
        """A sealed segment's index must be, byte for byte, what its frames make."""
        offset = segment.offset_of(segment.end)
        size = segment.file.size()
        stored = segment.file.read_at(offset, max(0, size - offset))
        if places is None:
            footer = wire_segment.decode_footer(stored, str(segment.path))
            whole = footer is not None and wire_segment.index_fits(stored, footer)
        else:
            wanted = wire_segment.encode_index(places, segment.first_position, segment.end)
            whole = stored == wanted
            if not whole:
                offset += next(
                    (at for at, pair in enumerate(zip(stored, wanted, strict=False)) if pair[0] != pair[1]), 0
                )
        if not whole:
            detail = f"{segment.path}: the index is damaged or missing"
            self.findings.damages.append(Damage(DamageKind.INDEX, segment.path, offset, detail))

    def damage(  # noqa: PLR0917  # the columns of one finding
        self,
        segment: Segment,
        kind: DamageKind,
        position: int,
        end: int,
        detail: str,
        header: FrameHeader | None = None,
    ) -> None:
        named = (
            f"{segment.path}: position {position:#x}: {detail}" if str(segment.path) not in detail else detail
        )
        self.findings.damages.append(
            Damage(kind, segment.path, segment.offset_of(position), named, position, end, header)
        )


def frames_of_feed(findings: Findings, feed: str, first: int) -> Iterator[Frame]:
    """Yield the intact frames of ``feed`` that hold sequence ids from ``first`` on, oldest first, up to the mark.

    Raises JournalCorrupt at the first that is damaged, JournalLoss where a segment's frames can't be found.
    """
    for segment in findings.segments:
        if segment.start_size is None:
            raise JournalLoss(f"{segment.path}: the frames of this segment can't be found")
        for found in scan(segment.read, segment.first_position, segment.end):
            if isinstance(found, Hole):
                raise JournalCorrupt(
                    f"{segment.path}: both headers of the frame at position {found.position:#x} are damaged",
                    position=found.position,
                )
            header, data = found
            if findings.names.get(header.region_id) != feed or header.kind != FrameKind.ENTRIES:
                continue
            if header.last_sequence_id >= first:
                yield Frame(data, where=str(segment.path), header=header)
