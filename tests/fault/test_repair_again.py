"""A repair after a repair that was killed, or after damage that hides what a repair must tell. Found by the simulator."""

from __future__ import annotations

import random
from contextlib import closing

import pytest

from headrace.errors import SequenceLost
from headrace.log.files.examine import examine
from headrace.log.files.plan import Mode
from headrace.log.files.repair import Repair
from headrace.log.files.store import FileStore
from headrace.log.requests import Configure
from headrace.testing.clock import ManualClock
from headrace.testing.memory import Crash, MemoryDisk, PowerCut
from headrace.wire.frame import HEADER_SIZE, FrameHeader, FrameKind
from tests.bench import Bench
from tests.fault.memory_journals import FOLDER

VALUE = b"v" * 900


def journal(disk: MemoryDisk, appends: int = 8) -> tuple[list[FrameHeader], Bench]:
    """Feed ``a`` of some one-entry frames, two to a segment; all of it durable. Returns its frames and the open bench."""
    bench = Bench(FileStore(FOLDER, disk=disk, segment_bytes=2500))
    bench.register("a")
    for number in range(appends):
        bench.append("a", VALUE + str(number).encode())
    frames: list[FrameHeader] = []
    while (position := frames[-1].end if frames else bench.store.oldest_position()) < bench.store.end():
        frames += [frame.header for frame in bench.store.walk(position, bytes_max=1 << 20)]
    return frames, bench


def hurt(disk: MemoryDisk, frame: FrameHeader, *places: int) -> None:
    """Flip a bit at these offsets in a frame."""
    paths = [path for path in disk.list(FOLDER / "journal", ".seg") if int(path.stem, 16) <= frame.position]
    start = 32 + int.from_bytes(disk.bytes_of(paths[-1])[16:20], "little")
    for place in places:
        disk.flip(paths[-1], start + frame.position + place - int(paths[-1].stem, 16))


def durable(disk: MemoryDisk) -> None:
    """As after a while at rest: everything is written back."""
    for path in disk.contents():
        with disk.open(path) as file:
            file.sync()


def repair(disk: MemoryDisk, mode: Mode = Mode.SKIP) -> None:
    """Repair what is damaged."""
    with (
        closing(Repair(FOLDER, disk=disk, clock=ManualClock())) as mender,
        closing(mender.examine()) as findings,
    ):
        mender.apply(mender.plan(findings, mode))


def read(disk: MemoryDisk, first: int, last: int) -> dict[int, bytes]:
    """What a reader of ``a`` gets."""
    with closing(FileStore(FOLDER, disk=disk)) as store:
        assert store.not_writable() is None
        return Bench(store).values("a", first, last)


@pytest.mark.parametrize("kill_at", range(2, 40, 2))
def test_what_a_killed_repair_wrote_is_made_durable_by_the_next(kill_at: int) -> None:
    for seed in range(6):
        disk = MemoryDisk(random.Random(seed))
        frames, bench = journal(disk)
        bench.store.close()
        durable(disk)
        hurt(disk, frames[2], HEADER_SIZE + 30)
        disk.crash_at = disk.steps + kill_at
        try:
            repair(disk)
            disk.crash_at = None
        except PowerCut:
            disk = disk.crash(Crash.KILL)
            repair(disk)
        disk = disk.crash(Crash.POWER)
        with closing(examine(FOLDER, disk=disk)) as findings:
            assert findings.damages == [], f"seed {seed}"
        lost = frames[2].first_sequence_id
        with pytest.raises(SequenceLost):
            read(disk, lost, lost)
        assert len(read(disk, lost + 1, 8)) == 8 - lost, f"seed {seed}"


def test_entries_in_a_hole_that_only_a_control_frame_follows_are_told_as_lost() -> None:
    disk = MemoryDisk()
    frames, bench = journal(disk)
    bench.one(Configure("a", expected_offset="required"))
    bench.store.close()
    hurt(disk, frames[-1], 20, frames[-1].size - HEADER_SIZE + 20)
    repair(disk)
    with pytest.raises(SequenceLost) as lost:
        read(disk, 8, 8)
    assert (lost.value.members["lost-first"], lost.value.members["lost-last"]) == (8, 8)
    assert len(read(disk, 1, 7)) == 7


def test_a_cut_that_takes_away_what_a_skip_told_tells_it_again() -> None:
    disk = MemoryDisk()
    frames, bench = journal(disk, appends=1)
    for number in range(2):
        bench.append("a", str(number))
    end = bench.store.end()
    first = bench.tail("a").incarnation
    bench.store.close()
    hurt(disk, frames[1], HEADER_SIZE + 30)
    repair(disk)
    hurt(disk, FrameHeader(FrameKind.CONTROL, end, 0, 0, 0, bytes(16), 0, 0, 0, 0, 0), HEADER_SIZE + 30)
    repair(disk, Mode.CUT)
    with pytest.raises(SequenceLost):
        read(disk, 1, 1)
    assert len(read(disk, 2, 3)) == 2
    with closing(FileStore(FOLDER, disk=disk)) as store:
        assert Bench(store).tail("a").incarnation != first


def test_damage_behind_a_skipped_making_of_a_feed_can_be_repaired() -> None:
    disk = MemoryDisk()
    frames, bench = journal(disk, appends=1)
    bench.store.close()
    assert frames[0].kind == FrameKind.CONTROL
    for frame in frames:
        hurt(disk, frame, HEADER_SIZE + 30)
        repair(disk)
    with closing(examine(FOLDER, disk=disk)) as findings:
        assert findings.damages == []
    with closing(FileStore(FOLDER, disk=disk)) as store:
        assert store.not_writable() is None
        assert Bench(store).register("b").epoch == 1
