"""The folder of a rebuild is there whole, with a durable name, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.backup.rebuilding.rebuild import Means, rebuild
from headrace.errors import DataFolderLocked, OutNotEmpty, SegmentCorrupt, StoreUnavailable
from headrace.runtime.disk import Disk
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, FaultyDisk, Step
from tests.bench import Bench
from tests.rebuilding import Backup, archive, means, opened, plan_of, rebuilt


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "server") as journal:
        journal.register("f")
        yield journal


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    return Backup(tmp_path / "archive")


def test_nothing_is_left_of_a_rebuild_that_fails(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.append("f", *"abc")
    bench.append("f", *"def")
    backup.take(bench, sizes=(3,))
    damaged = sorted(backup.folder.glob("*.bin"))[1]
    data = bytearray(damaged.read_bytes())
    data[-20] ^= 1
    damaged.write_bytes(data)
    before = set(tmp_path.iterdir())
    with pytest.raises(SegmentCorrupt, match=damaged.name):
        rebuilt(backup.folder, tmp_path / "new")
    assert set(tmp_path.iterdir()) == before


def test_folder_must_be_empty(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.append("f", "x")
    backup.take(bench)
    (tmp_path / "empty").mkdir()
    rebuilt(backup.folder, tmp_path / "empty")
    with pytest.raises(OutNotEmpty):
        rebuilt(backup.folder, tmp_path / "empty")
    (tmp_path / "file").write_text("x")
    with pytest.raises(OutNotEmpty):
        rebuilt(backup.folder, tmp_path / "file")


def test_what_a_killed_rebuild_left_is_taken_away(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.append("f", "x")
    backup.take(bench)
    left = tmp_path / ".new.rebuilding" / "journal"
    left.mkdir(parents=True)
    (left / "0000000000000200.seg").write_bytes(b"half")
    lock = Disk().open(tmp_path / ".new.rebuilding.lock", create=True)
    assert lock.lock()
    with pytest.raises(DataFolderLocked):
        rebuilt(backup.folder, tmp_path / "new")
    lock.close()
    rebuilt(backup.folder, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["archive", "new", "server"]


class FullDisk(Disk):
    """A volume with room for some files, and then none."""

    def free_bytes(self, folder: Path) -> int:
        return 1000


def test_no_room_is_said_before_anything_is_written(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.append("f", "x")
    backup.take(bench)
    found = archive(backup.folder)
    full = Means(clock=ManualClock(), disk=FullDisk())
    with pytest.raises(StoreUnavailable, match="bytes are free"):
        rebuild(plan_of(found), found, tmp_path / "new", means=full)
    assert not (tmp_path / "new").exists()


def test_no_name_stands_that_was_not_synced(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    """Each sync of a folder fails once, that of the folder's own name among them; nothing is in the next rebuild's way."""
    bench.append("f", "x")
    backup.take(bench)
    found, before = archive(backup.folder), set(tmp_path.iterdir())
    for after in range(100):
        fault = Fault(Step.SYNC_FOLDER, after=after)
        try:
            rebuild(plan_of(found), found, tmp_path / "new", means=replace(means(), disk=FaultyDisk(fault)))
        except StoreUnavailable:
            assert set(tmp_path.iterdir()) == before, after
        if fault.times:  # no sync was left to fail
            break
    with opened(tmp_path / "new") as again:
        assert again.values("f") == bench.values("f")


class UnsureDisk(FaultyDisk):
    """A disk that syncs no folder any more once the data folder has its name."""

    def _rename(self, old: Path, new: Path) -> None:
        super()._rename(old, new)
        if new.name == "new":
            self.faults.append(Fault(Step.SYNC_FOLDER, times=None))


def test_name_that_can_neither_be_synced_nor_taken_away_is_told(
    bench: Bench, backup: Backup, tmp_path: Path
) -> None:
    bench.append("f", "x")
    backup.take(bench)
    found, before = archive(backup.folder), set(tmp_path.iterdir())
    with pytest.raises(StoreUnavailable, match=r"can't be written: .*Input/output error"):
        rebuild(plan_of(found), found, tmp_path / "new", means=replace(means(), disk=UnsureDisk()))
    assert set(tmp_path.iterdir()) == before
    stuck = UnsureDisk(Fault(Step.RENAME, suffix=".new.rebuilding"))
    with pytest.raises(StoreUnavailable, match=r"new stands there, whole, .* was not synced"):
        rebuild(plan_of(found), found, tmp_path / "new", means=replace(means(), disk=stuck))
    with opened(tmp_path / "new") as again:
        assert again.values("f") == bench.values("f")


def test_folder_that_cannot_be_made_is_named(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.append("f", "x")
    backup.take(bench)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable, match="can't be written"):
        rebuilt(backup.folder, tmp_path / "file" / "new")
