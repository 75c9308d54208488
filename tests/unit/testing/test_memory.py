"""The disk in memory: what a kill and a power failure leave, failed syncs, lost names, short writes, a full volume."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from headrace.runtime.disk import SyncFailed
from headrace.testing.disk import Fault, Step
from headrace.testing.inode import PAGE
from headrace.testing.memory import Crash, MemoryDisk, PowerCut

FOLDER = Path("/data")
FILE = FOLDER / "file"
SEEDS = range(200)


def made(seed: int) -> MemoryDisk:
    disk = MemoryDisk(random.Random(seed))
    disk.make_folder(FOLDER)
    return disk


def test_kill_leaves_all_and_power_failure_what_was_synced() -> None:
    left = set()
    for seed in SEEDS:
        disk = made(seed)
        with disk.open(FILE, create=True) as file:
            file.write_at(0, b"kept")
            file.sync()
            disk.sync_folder(FOLDER)
            file.write_at(4, b" lost")
        killed = disk.crash(Crash.KILL)
        assert killed.bytes_of(FILE) == b"kept lost"
        after = killed.crash(Crash.POWER).bytes_of(FILE)
        assert after.startswith(b"kept")
        left.add(after)
    assert left >= {b"kept", b"kept lost"}, "what was not synced may be lost, or not"


def test_unsynced_pages_survive_in_any_combination() -> None:
    combinations = set()
    for seed in SEEDS:
        disk = made(seed)
        with disk.open(FILE, create=True) as file:
            file.truncate(3 * PAGE)
            file.sync()
            disk.sync_folder(FOLDER)
            for page in range(3):
                file.write_at(page * PAGE, b"x" * PAGE)
        after = disk.crash(Crash.POWER).bytes_of(FILE)
        combinations.add(tuple(after[page * PAGE : (page + 1) * PAGE] == b"x" * PAGE for page in range(3)))
    assert len(combinations) == 8


def test_names_are_lost_until_their_folder_is_synced() -> None:
    found = set()
    for seed in SEEDS:
        disk = made(seed)
        disk.write_whole(FILE, b"old")
        with disk.open(FOLDER / "draft", create=True) as file:
            file.write_at(0, b"new")
            file.sync()
        disk._rename(FOLDER / "draft", FILE)
        found.add(disk.crash(Crash.POWER).bytes_of(FILE))
        disk = made(seed)
        disk.write_whole(FILE, b"old")
        disk.write_whole(FILE, b"new")
        assert disk.crash(Crash.POWER).bytes_of(FILE) == b"new"
    assert found == {b"old", b"new"}


def test_failed_sync_leaves_pages_that_lie() -> None:
    """Kept dirty, called clean (the next sync succeeds and keeps nothing), or dropped."""
    seen, kept = set(), set()
    for seed in SEEDS:
        disk = made(seed)
        with disk.open(FILE, create=True) as file:
            file.truncate(4)
            file.sync()
            disk.sync_folder(FOLDER)
            file.write_at(0, b"data")
            disk.faults.append(Fault(Step.SYNC, errno.EIO))
            with pytest.raises(SyncFailed):
                file.sync()
            seen.add(file.read_at(0, 4))
            file.sync()
        kept.add(disk.crash(Crash.POWER).bytes_of(FILE))
    assert seen == kept == {b"data", bytes(4)}


def test_crash_comes_in_the_middle_of_a_write_and_nothing_works_after_it() -> None:
    lengths = set()
    for seed in SEEDS:
        disk = made(seed)
        with disk.open(FILE, create=True) as file:
            disk.crash_at = disk.steps
            with pytest.raises(PowerCut):
                file.write_at(0, b"0123456789")
            with pytest.raises(PowerCut):
                file.sync()
            with pytest.raises(PowerCut):
                disk.open(FILE)
        lengths.add(len(disk.crash(Crash.KILL).bytes_of(FILE)))
    assert lengths == set(range(11))


def test_short_writes_and_reads_go_on_until_all_is_done() -> None:
    for seed in SEEDS:
        disk = made(seed)
        with disk.open(FILE, create=True) as file:
            file.write_at(3, b"0123456789")
            assert file.read_at(0, 99) == bytes(3) + b"0123456789"


def test_full_volume_takes_what_fits() -> None:
    disk = made(1)
    disk.capacity = 100
    with disk.open(FILE, create=True) as file:
        file.write_at(0, b"x" * 90)
        with pytest.raises(OSError, match="No space"):
            file.write_at(90, b"x" * 20)
        assert file.size() == 100
        assert disk.free_bytes(FOLDER) == 0
        file.truncate(50)
        file.write_at(50, b"y" * 50)
