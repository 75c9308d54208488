"""Whatever is raised while a group is put, of whatever kind: the writer stops, and the next opening is clean."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, WriterStopped
from headrace.log.files.examine import examine
from headrace.log.files.mark import MarkFile
from headrace.log.files.plan import Mode
from headrace.log.files.repair import Repair
from headrace.log.files.store import FileStore
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, FaultyDisk, Step
from headrace.testing.memory import Crash, MemoryDisk
from headrace.wire.frame import HEADER_SIZE
from tests.bench import Bench
from tests.fault.memory_journals import FOLDER
from tests.fault.test_repair_again import durable, hurt, journal

STEPS = (Step.OPEN, Step.WRITE, Step.TRUNCATE, Step.SYNC, Step.RENAME)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("after", range(4))
@pytest.mark.parametrize("rolls", [False, True], ids=["by a full segment", "by roll"])
def test_unexpected_error_while_a_segment_is_begun(
    tmp_path: Path, step: Step, after: int, rolls: bool
) -> None:
    disk = FaultyDisk()
    store = FileStore(tmp_path, disk=disk, segment_bytes=1000)
    bench = Bench(store)
    bench.register("a")
    bench.append("a", "x" * 600)
    fault = Fault(step, 0, after=after)
    disk.faults.append(fault)
    acknowledged = {1: b"x" * 600}
    try:
        if rolls:
            store.roll()
        bench.append("a", "y" * 600)
        acknowledged[2] = b"y" * 600
    except WriterStopped:
        assert fault.times == 0
        assert store.not_writable() is not None
        for _ in range(2):
            with pytest.raises(WriterStopped):
                bench.append("a", "z")
        assert bench.values("a") == {1: b"x" * 600}, "readers go on"
    store.close()
    with closing(FileStore(tmp_path, segment_bytes=1000)) as again:
        bench = Bench(again)
        assert again.alarms == []
        assert again.not_writable() is None
        found = bench.values("a")
        assert acknowledged.items() <= found.items()
        bench.append("a", "goes on")
    with closing(examine(tmp_path)) as findings:
        assert findings.damages == []


def test_error_after_the_frames_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group that is on the disk and not shown must not be written over by the next one."""
    store = FileStore(tmp_path)
    bench = Bench(store)
    bench.register("a")

    def fails(mark: MarkFile, end: int, global_ts: int) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(MarkFile, "store", fails)
        with pytest.raises(HeadraceError):
            bench.append("a", "one")
    with pytest.raises(WriterStopped):
        bench.append("a", "other")
    store.close()
    with closing(FileStore(tmp_path)) as again:
        assert Bench(again).values("a") == {1: b"one"}


def test_a_stop_that_fails_lets_go_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no code expects in the middle of a clean stop costs nothing: the next opening finds all that was there."""
    store = FileStore(tmp_path)
    bench = Bench(store)
    bench.register("a")
    bench.append("a", "one")

    def fails(mark: MarkFile, end: int, global_ts: int) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(MarkFile, "settle", fails)
        with pytest.raises(MemoryError):
            store.close()
    with closing(FileStore(tmp_path)) as again:
        assert Bench(again).values("a") == {1: b"one"}


def test_what_a_failed_sync_left_of_a_repair_is_written_again() -> None:
    """A second sync of the same pages proves nothing: they may be called clean and be on no disk."""
    for seed in range(60):
        disk = MemoryDisk(random.Random(seed))
        frames, bench = journal(disk)
        bench.store.close()
        durable(disk)
        hurt(disk, frames[2], HEADER_SIZE + 30)
        disk.faults.append(Fault(Step.SYNC, after=seed % 6, suffix=".seg"))
        for _ in range(2):
            try:
                with (
                    closing(Repair(FOLDER, disk=disk, clock=ManualClock())) as mender,
                    closing(mender.examine()) as findings,
                ):
                    mender.apply(mender.plan(findings, Mode.SKIP))
            except OSError:
                continue
        disk.faults.clear()
        disk = disk.crash(Crash.POWER)
        with closing(examine(FOLDER, disk=disk)) as findings:
            assert findings.damages == [], f"seed {seed}"
