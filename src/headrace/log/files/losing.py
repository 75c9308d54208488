"""What a repair does about frames that can't be read: ``skip`` puts others over them, ``cut`` ends the journal before them.

Either way each feed that loses entries is told, by a control frame with a new incarnation.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence

import msgspec

from headrace.entries.hlc import HybridClock, to_ms
from headrace.errors import Usage
from headrace.log.control import Control, ControlKind, control_header
from headrace.log.damage import Damage, DamageKind
from headrace.log.files import pending
from headrace.log.files.mark import MarkFile
from headrace.log.files.plan import Repairing
from headrace.log.files.rebuild import Rebuilt, fillers, left_of, lost_ranges, rebuilt
from headrace.log.files.scan import Hole, scan
from headrace.log.tail import FeedTail, LostRange
from headrace.wire.frame import FrameHeader, encode_frame
from headrace.wire.mark import Mark


def skip(work: Repairing, bad: Sequence[Damage]) -> None:
    """Put a frame over each of ``bad``, and tell their feeds; Usage where something is not there at all."""
    missing = next((damage for damage in bad if damage.kind in {DamageKind.GAP, DamageKind.END}), None)
    if missing is not None:
        raise Usage(
            f"{missing.detail}; what is missing can't be skipped",
            hint="Put the missing file back, or cut the journal there with --cut.",
        )
    last = work.findings.segments[-1]
    final = rebuilt(last, last.end)
    lost, now_ms = lost_ranges(work.findings), to_ms(_clock(work, final).last)
    tails: list[FeedTail] = []
    for tail in final.replay.state.feeds.values():
        gone = [gap for gap in lost.get(tail.region_id, []) if gap not in tail.lost]
        changed = final.uncertain or tail.region_id in final.unsure
        if gone or changed or tail.region_id in final.adopted:
            work.made.lost[tail.name] = gone
            work.made.recreated.append(tail.name)
            known = sorted({*tail.lost, *gone}, key=lambda gap: gap.first_sequence_id)
            claimed = final.fenced(tail, now_ms) if changed else tail
            begin = min(
                known[0].first_sequence_id if known else tail.next_sequence_id, tail.first_sequence_id
            )
            tails.append(
                msgspec.structs.replace(
                    claimed, incarnation=str(uuid.uuid4()), lost=tuple(known), first_sequence_id=begin
                )
            )
    _append(work, tails, final)
    for damage in bad:
        before = damage.position
        header = damage.header if damage.kind != DamageKind.HOLE else None
        ts = _clock_before(work, damage.end, final) if header is None else header.global_ts
        work.step(
            f"{damage.file}: skip positions {before:#x} to {damage.end:#x}, kept in {work.kept(f'{before:016x}.bin')}",
            _filler(work, damage, header, ts),
            file=damage.file,
        )


def _filler(
    work: Repairing, damage: Damage, header: FrameHeader | None, global_ts: int
) -> Callable[[], None]:
    position, end = damage.position, damage.end

    def write() -> None:
        segment = next(segment for segment in work.findings.segments if segment.path == damage.file)
        kept = work.kept(f"{position:016x}.bin")
        if not work.disk.exists(kept):
            work.disk.write_whole(kept, segment.read(position, end - position))
        with work.disk.open(damage.file) as file:
            for at, data in fillers(position, end, header, global_ts):
                file.write_at(segment.offset_of(at), data)
            file.sync()

    return write


def _clock_before(work: Repairing, position: int, final: Rebuilt) -> int:
    """A timestamp that is below all that stands from ``position`` on, and as late as that allows."""
    for segment, later in zip(work.findings.segments, [*work.findings.segments[1:], None], strict=True):
        if segment.first_position <= position < segment.end:
            for found in scan(segment.read, position, segment.end):
                if not isinstance(found, Hole):
                    return max(0, found[0].global_ts - 1)
        if position <= segment.end and later is not None:
            return later.state.global_ts
    return max(final.replay.state.global_ts, work.mark.global_ts if work.mark is not None else 0)


def cut(work: Repairing, bad: Sequence[Damage]) -> None:
    """End the journal before the first of ``bad``, and tell the feeds that lose something."""
    position = bad[0].position
    segments = work.findings.segments
    segment = next(one for one in reversed(segments) if one.first_position <= position)
    last = segments[-1]
    final, at = rebuilt(last, last.end), rebuilt(segment, position)
    hidden = final.uncertain or any(damage.kind in {DamageKind.GAP, DamageKind.END} for damage in bad)
    lost, now_ms = lost_ranges(work.findings), to_ms(_clock(work, final).last)
    tails: list[FeedTail] = []
    for tail in final.replay.state.feeds.values():
        then = at.replay.state.feeds.get(tail.name)
        left = left_of(tail, then)
        unsure = hidden or tail.region_id in final.unsure
        if unsure or left.next_sequence_id != tail.next_sequence_id or left.newest_lsn != tail.newest_lsn:
            work.made.recreated.append(tail.name)
            if left.next_sequence_id < tail.next_sequence_id:
                work.made.lost[tail.name] = [LostRange(left.next_sequence_id, tail.head)]
            left = msgspec.structs.replace(left, incarnation=str(uuid.uuid4()))
        if unsure:  # the frame that can't be read may be the one that told what an earlier repair skipped
            left = final.fenced(_knowing(left, lost.get(tail.region_id, ())), now_ms)
        if left != then:
            tails.append(left)
    frames, global_ts = _controls(work, tails, position, final)
    work.step(
        f"{segment.path}: cut the journal at position {position:#x}; what is removed is kept in "
        f"{work.kept(f'{position:016x}')}",
        lambda: pending.cut(
            work.disk,
            work.folder,
            segment,
            position,
            frames,
            Mark(work.counter(), position + len(frames), global_ts),
        ),
    )


def _knowing(tail: FeedTail, lost: Sequence[LostRange]) -> FeedTail:
    """The tail with those of the ranges that lie below its end."""
    below = {gap for gap in lost if gap.last_sequence_id < tail.next_sequence_id}
    known = sorted({*tail.lost, *below}, key=lambda gap: gap.first_sequence_id)
    return msgspec.structs.replace(tail, lost=tuple(known))


def _append(work: Repairing, tails: Sequence[FeedTail], final: Rebuilt) -> None:
    """Frames at the journal's end; intact ones above the mark are written again with them, a torn end is kept."""
    last = work.findings.segments[-1]
    for tail in tails:
        work.step(f"feed {tail.name}: gets the incarnation {tail.incarnation}", lambda: None)

    def write() -> None:
        old = work.mark.end if work.mark is not None else last.end
        above = last.read(old, last.file.size())
        intact = above[: last.end - old].ljust(last.end - old, b"\x00")
        torn = above[last.end - old :]
        if torn.strip(b"\x00"):
            work.disk.write_beside(work.folder / f"torn-{last.end:016x}.bin", torn)
        frames, global_ts = _controls(work, tails, last.end, final)
        with work.disk.open(last.path) as file:
            file.write_at(last.offset_of(old), intact + frames)
            file.truncate(last.offset_of(last.end) + len(frames))
            file.sync()
        last.end += len(frames)
        work.mark = Mark(work.counter(), last.end, global_ts)
        MarkFile.create(work.disk, work.folder / "mark", work.mark)

    work.step(f"{last.path}: write {len(tails)} control frames at the journal's end", write, file=last.path)


def _controls(work: Repairing, tails: Sequence[FeedTail], position: int, final: Rebuilt) -> tuple[bytes, int]:
    """The control frames that bring ``tails``, from ``position`` on, and the clock after them."""
    clock = _clock(work, final)
    frames: list[bytes] = []
    for tail in tails:
        body = Control(ControlKind.REPAIRED, tail).encode()
        header = control_header(position, clock.tick(work.clock.wall_ms()), tail, len(body))
        frame = encode_frame(header, b"", body, b"")
        position += len(frame)
        frames.append(frame)
    return b"".join(frames), clock.last


def _clock(work: Repairing, final: Rebuilt) -> HybridClock:
    """The journal's clock, at the wall's time or later."""
    marked = work.mark.global_ts if work.mark is not None else 0
    clock = HybridClock(max(final.replay.state.global_ts, marked))
    clock.tick(work.clock.wall_ms())
    return clock
