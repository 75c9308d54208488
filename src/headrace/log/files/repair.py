"""Mend a damaged journal on demand: ``headrace log repair``. Never run by itself; everything it removes is kept in a file.

``skip`` puts a frame over each damaged one, of the same size, so nothing after it moves or goes. ``cut`` ends the journal
before the first damage. Each feed that lost entries gets a new incarnation, and where entries were skipped its tail names
the range. So every reader finds out (design §4, rule 4). A feed whose state may have changed in a damaged frame gets a new
epoch as well: whoever was fenced by what can't be read any more stays fenced.

The order makes a crash in the middle harmless. ``skip`` first writes what feeds must know at the journal's end, then
changes frames in place; run again it goes on. ``cut`` first writes the new file beside the old and then notes in
``repair-pending`` that it is to take its place; no server opens such a folder before the repair has been run again.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from headrace.entries.hlc import HybridClock
from headrace.errors import DataFolderLocked, JournalCorrupt, Usage
from headrace.log.control import Control, ControlKind
from headrace.log.files import pending
from headrace.log.files.examine import COSTS_NOTHING, Damage, DamageKind, Findings, Segment, examine
from headrace.log.files.mark import MarkFile
from headrace.log.files.plan import Mode, Plan, Step
from headrace.log.files.rebuild import (
    Rebuilt,
    end_of_intact,
    fillers,
    intact_above,
    left_of,
    lost_ranges,
    rebuilt,
    rebuilt_start,
)
from headrace.log.files.scan import Hole, scan
from headrace.log.files.segment import place_of
from headrace.log.tail import FeedTail, LostRange, decode_state
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk
from headrace.wire.frame import FrameHeader, FrameKind, encode_frame
from headrace.wire.mark import Mark
from headrace.wire.segment import SegmentStart, encode_index

NO_DIGEST: Final = bytes(16)


class Repair:
    """One data folder under repair, its lock held. Use :meth:`plan`, then :meth:`apply`; close it afterwards."""

    def __init__(self, folder: Path, *, disk: Disk | None = None, clock: Clock | None = None) -> None:
        """Take the folder's lock; DataFolderLocked if a server has it. An earlier repair's ``cut`` is finished first."""
        self.disk = disk if disk is not None else Disk()
        self.folder = folder
        self._clock = clock if clock is not None else SystemClock()
        if not self.disk.exists(folder / "mark") and not self.disk.exists(folder / "journal"):
            raise Usage(
                f"{folder}: there is no journal here", hint="Give the server's folder with --data-dir."
            )
        self._lock = self.disk.open(folder / "lock", create=True)
        if not self._lock.lock():
            self._lock.close()
            raise DataFolderLocked(
                f"{folder}: a server owns this data folder", hint="Stop the server first, then repair."
            )
        self.finished_earlier = pending.finish(self.disk, folder)

    def close(self) -> None:
        """Let go of the lock."""
        self._lock.close()

    def plan(self, findings: Findings, mode: Mode) -> Plan:
        """Return what is to be done about ``findings``; writes nothing.

        Raises JournalCorrupt for damage that no repair can mend (a backup must), naming it.
        """
        return _Planning(self, findings, mode, self._clock).plan()

    def apply(self, plan: Plan, said: Callable[[str], None] = lambda _: None) -> None:
        """Do what the plan says, telling each step before it is done."""
        for step in plan.steps:
            said(step.text)
            step.do()

    def examine(self) -> Findings:
        """Look at the folder (again)."""
        return examine(self.folder, disk=self.disk)


class _Planning:
    def __init__(self, repair: Repair, findings: Findings, mode: Mode, clock: Clock) -> None:
        self.disk, self.folder = repair.disk, repair.folder
        self.findings, self.mode = findings, mode
        self.clock = clock
        self.made = Plan()
        self.mark = findings.mark
        self.torn = b""

    def plan(self) -> Plan:
        self._starts()
        if not self.findings.segments:
            raise JournalCorrupt(
                f"{self.folder}: no journal segment is left", hint="Restore the data folder from a backup."
            )
        self._end()
        bad = [damage for damage in self.findings.damages if damage.kind not in COSTS_NOTHING]
        bad = [damage for damage in bad if damage.kind not in {DamageKind.MARK, DamageKind.START}]
        bad = [damage for damage in bad if damage.kind != DamageKind.METADATA]
        bad.sort(key=lambda damage: damage.position)
        if bad and self.mode == Mode.CUT:
            self._cut(bad)
            return self.made
        if bad and self.mode == Mode.NONE:
            self.made.unmended += bad
        elif bad:
            self._skip(bad)
        self._copies(bad)
        self._indexes()
        return self.made

    def step(self, text: str, do: Callable[[], None]) -> None:
        self.made.steps.append(Step(text, do))

    # -- what costs nothing -------------------------------------------------------------------------------------------

    def _starts(self) -> None:
        """A damaged start is made again from the segment before it, or from nothing where the journal begins."""
        before: Segment | None = None
        for segment in self.findings.segments:
            if not segment.is_start_intact:
                start = rebuilt_start(before, segment)
                segment.state, segment.is_start_intact = decode_state(start.state), True
                self.step(f"{segment.path}: make its start again", self._start_writer(segment, start))
            before = segment

    def _start_writer(self, segment: Segment, start: SegmentStart) -> Callable[[], None]:
        def write() -> None:
            data, size = segment.file.read_at(0, segment.file.size()), segment.start_size or 0
            self.disk.write_whole(self._kept(f"{segment.path.name}.start"), data[:size])
            self.disk.write_whole(segment.path, start.encode() + data[size:])
            segment.start_size = start.size
            segment.file.close()
            segment.file = self.disk.open(segment.path, readonly=True)

        return write

    def _end(self) -> None:
        """The journal ends at the mark, and behind intact frames above it; without a mark behind the last intact frame."""
        last = self.findings.segments[-1]
        above = last.file.read_at(last.offset_of(last.end), last.file.size())
        if self.mark is None or self.mark.end < last.first_position:
            end = end_of_intact(last)
            holes = [
                damage
                for damage in self.findings.damages
                if damage.position == end and damage.end == last.end
            ]
            self.findings.damages = [damage for damage in self.findings.damages if damage not in holes]
            last.end = end
        elif not any(damage.kind == DamageKind.END for damage in self.findings.damages):
            last.end += intact_above(above, last.end)
        if any(damage.kind == DamageKind.MARK for damage in self.findings.damages):
            self.step(
                f"{self.folder / 'mark'}: write the mark again, at {last.end:#x}", self._set_mark_to_end
            )

    def _set_mark_to_end(self) -> None:
        last = self.findings.segments[-1]
        state = rebuilt(last, last.end).replay.state
        counter = self.mark.counter + 1 if self.mark is not None else 1
        self.mark = Mark(
            counter, last.end, max(state.global_ts, self.mark.global_ts if self.mark is not None else 0)
        )
        MarkFile.create(self.disk, self.folder / "mark", self.mark)

    def _copies(self, bad: Sequence[Damage]) -> None:
        """Write damaged copies of headers again; not where the whole frame is damaged."""
        for damage in self.findings.damages:
            whole = not any(other.position <= damage.position < other.end for other in bad)
            if damage.kind == DamageKind.HEADER and damage.header is not None and whole:
                header, position = damage.header, damage.position
                self.step(
                    f"{damage.file}: write the damaged header at position {position:#x} again from its other copy",
                    self._writer(damage.file, position, header.encode()),
                )

    def _writer(self, path: Path, position: int, data: bytes) -> Callable[[], None]:
        def write() -> None:
            segment = next(segment for segment in self.findings.segments if segment.path == path)
            with self.disk.open(path) as file:
                file.write_at(segment.offset_of(position), data)
                file.sync()

        return write

    def _indexes(self) -> None:
        """After everything else: the index of each sealed segment that was damaged or changed."""
        hurt = {damage.file for damage in self.findings.damages if damage.kind != DamageKind.MARK}
        for segment in self.findings.segments[:-1]:
            if segment.path in hurt and not any(damage.file == segment.path for damage in self.made.unmended):
                self.step(f"{segment.path}: make its index again", self._index_writer(segment))

    def _index_writer(self, segment: Segment) -> Callable[[], None]:
        def write() -> None:
            places = [
                place_of(found[0])
                for found in scan(segment.read, segment.first_position, segment.end)
                if not isinstance(found, Hole) and found[0].kind == FrameKind.ENTRIES
            ]
            with self.disk.open(segment.path) as file:
                at = segment.offset_of(segment.end)
                index = encode_index(places, segment.first_position, segment.end)
                file.write_at(at, index)
                file.truncate(at + len(index))
                file.sync()

        return write

    # -- skip ---------------------------------------------------------------------------------------------------------

    def _skip(self, bad: Sequence[Damage]) -> None:
        missing = next((damage for damage in bad if damage.kind in {DamageKind.GAP, DamageKind.END}), None)
        if missing is not None:
            raise Usage(
                f"{missing.detail}; what is missing can't be skipped",
                hint="Put the missing file back, or cut the journal there with --cut.",
            )
        last = self.findings.segments[-1]
        final = rebuilt(last, last.end)
        lost = lost_ranges(self.findings)
        tails: list[FeedTail] = []
        for tail in final.replay.state.feeds.values():
            gone = [gap for gap in lost.get(tail.region_id, []) if gap not in tail.lost]
            changed = final.uncertain or tail.region_id in final.unsure
            if gone or changed or tail.region_id in final.adopted:
                self.made.lost[tail.name] = gone
                self.made.recreated.append(tail.name)
                known = sorted({*tail.lost, *gone}, key=lambda gap: gap.first_sequence_id)
                claimed = final.fenced(tail) if changed else tail
                begin = min(
                    known[0].first_sequence_id if known else tail.next_sequence_id, tail.first_sequence_id
                )
                tails.append(
                    msgspec.structs.replace(
                        claimed, incarnation=str(uuid.uuid4()), lost=tuple(known), first_sequence_id=begin
                    )
                )
        self._append(tails, final)
        for damage in bad:
            before = damage.position
            header = damage.header if damage.kind != DamageKind.HOLE else None
            ts = self._clock_before(damage.end) if header is None else header.global_ts
            self.step(
                f"{damage.file}: skip positions {before:#x} to {damage.end:#x}, kept in {self._kept(f'{before:016x}.bin')}",
                self._filler(damage, before, damage.end, header, ts),
            )

    def _filler(
        self, damage: Damage, position: int, end: int, header: FrameHeader | None, global_ts: int
    ) -> Callable[[], None]:
        def write() -> None:
            segment = next(segment for segment in self.findings.segments if segment.path == damage.file)
            kept = self._kept(f"{position:016x}.bin")
            if not self.disk.exists(kept):
                self.disk.write_whole(kept, segment.read(position, end - position))
            with self.disk.open(damage.file) as file:
                for at, data in fillers(position, end, header, global_ts):
                    file.write_at(segment.offset_of(at), data)
                file.sync()

        return write

    def _clock_before(self, position: int) -> int:
        """A timestamp that is below all that stands from ``position`` on, and as late as that allows."""
        for segment, later in zip(self.findings.segments, [*self.findings.segments[1:], None], strict=True):
            if segment.first_position <= position < segment.end:
                for found in scan(segment.read, position, segment.end):
                    if not isinstance(found, Hole):
                        return found[0].global_ts - 1
            if position <= segment.end and later is not None:
                return later.state.global_ts
        return self.mark.global_ts if self.mark is not None else 0

    # -- cut ----------------------------------------------------------------------------------------------------------

    def _cut(self, bad: Sequence[Damage]) -> None:
        position = bad[0].position
        segments = self.findings.segments
        segment = next(one for one in reversed(segments) if one.first_position <= position)
        last = segments[-1]
        final, at = rebuilt(last, last.end), rebuilt(segment, position)
        hidden = final.uncertain or any(damage.kind in {DamageKind.GAP, DamageKind.END} for damage in bad)
        tails: list[FeedTail] = []
        for tail in final.replay.state.feeds.values():
            then = at.replay.state.feeds.get(tail.name)
            left = left_of(tail, then)
            if hidden or left.next_sequence_id != tail.next_sequence_id or left.newest_lsn != tail.newest_lsn:
                self.made.recreated.append(tail.name)
                if left.next_sequence_id < tail.next_sequence_id:
                    self.made.lost[tail.name] = [LostRange(left.next_sequence_id, tail.head)]
                left = msgspec.structs.replace(left, incarnation=str(uuid.uuid4()))
            if hidden or tail.region_id in final.unsure:
                left = final.fenced(left)
            if left != then:
                tails.append(left)
        frames, global_ts = self._controls(tails, position, final)
        self.step(
            f"{segment.path}: cut the journal at position {position:#x}; what is removed is kept in "
            f"{self._kept(f'{position:016x}')}",
            lambda: pending.cut(
                self.disk,
                self.folder,
                segment,
                position,
                frames,
                Mark(self._counter(), position + len(frames), global_ts),
            ),
        )

    def _counter(self) -> int:
        return self.mark.counter + 1 if self.mark is not None else 1

    # -- what feeds must know -----------------------------------------------------------------------------------------

    def _append(self, tails: Sequence[FeedTail], final: Rebuilt) -> None:
        """Frames at the journal's end; intact ones above the mark are written again with them, a torn end is kept."""
        last = self.findings.segments[-1]
        for tail in tails:
            self.step(f"feed {tail.name}: gets the incarnation {tail.incarnation}", lambda: None)

        def write() -> None:
            old = self.mark.end if self.mark is not None else last.end
            above = last.read(old, last.file.size())
            intact = above[: last.end - old]
            torn = above[last.end - old :]
            if torn.strip(b"\x00"):
                self.disk.write_whole(self.folder / f"torn-{last.end:016x}.bin", torn)
            frames, global_ts = self._controls(tails, last.end, final)
            with self.disk.open(last.path) as file:
                file.write_at(last.offset_of(old), intact + frames)
                file.truncate(last.offset_of(last.end) + len(frames))
                file.sync()
            last.end += len(frames)
            self.mark = Mark(self._counter(), last.end, global_ts)
            MarkFile.create(self.disk, self.folder / "mark", self.mark)

        self.step(f"{last.path}: write {len(tails)} control frames at the journal's end", write)

    def _controls(self, tails: Sequence[FeedTail], position: int, final: Rebuilt) -> tuple[bytes, int]:
        """The control frames that bring ``tails``, from ``position`` on, and the clock after them."""
        marked = self.mark.global_ts if self.mark is not None else 0
        clock = HybridClock(max(final.replay.state.global_ts, marked))
        frames: list[bytes] = []
        for tail in tails:
            header = FrameHeader(
                FrameKind.CONTROL, position, tail.next_sequence_id, clock.tick(self.clock.wall_ms()), tail.epoch,
                NO_DIGEST, tail.region_id, 0, 0, 0, 0,
            )  # fmt: skip
            frame = encode_frame(header, b"", Control(ControlKind.REPAIRED, tail).encode(), b"")
            position += len(frame)
            frames.append(frame)
        return b"".join(frames), clock.last

    def _kept(self, name: str) -> Path:
        return self.folder / f"removed-{name}"
