"""The one module that touches files: whole writes, folders, locks, and files that close when nobody holds them."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from headrace.runtime.disk import Disk
from headrace.testing.disk import Fault, FaultyDisk, PowerLossDisk, Step


def test_read_write_at_offsets(tmp_path: Path) -> None:
    with Disk().open(tmp_path / "f", create=True) as file:
        file.write_at(3, b"abc")
        file.write_at(0, memoryview(b"xyz"))
        file.write_at(1, b"")
        assert file.read_at(0, 100) == b"xyzabc"
        assert file.read_at(4, 1) == b"b"
        assert file.read_at(6, 5) == b""
        assert file.read_at(0, -1) == b""
        file.truncate(4)
        assert file.size() == 4
        file.sync()


def test_mapping_is_shared(tmp_path: Path) -> None:
    with Disk().open(tmp_path / "f", create=True) as file:
        file.truncate(4096)
        mapped = file.map_shared(4096, writable=True)
        mapped[10:13] = b"abc"
        assert file.read_at(10, 3) == b"abc"
        readonly = file.map_shared(4096, writable=False)
        assert readonly[10:13] == b"abc"
        with pytest.raises(TypeError):
            readonly[0] = 1
        mapped.close()
        readonly.close()


def test_missing_file_is_not_made_unasked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Disk().open(tmp_path / "f")
    with (
        pytest.raises(OSError, match="Bad file"),
        Disk().open(tmp_path / "g", create=True, readonly=True) as file,
    ):
        file.write_at(0, b"x")


def test_lock_is_exclusive_and_ends_with_the_file(tmp_path: Path) -> None:
    disk = Disk()
    first, second = (disk.open(tmp_path / "lock", create=True) for _ in range(2))
    assert first.lock()
    assert first.lock()
    assert not second.lock()
    first.close()
    first.close()
    assert second.lock()
    second.close()


def test_who_looks_at_a_lock_does_not_take_it(tmp_path: Path) -> None:
    disk = Disk()
    disk.open(tmp_path / "lock", create=True).close()
    with disk.open(tmp_path / "lock") as owner, disk.open(tmp_path / "lock", readonly=True) as looking:
        assert not looking.is_locked()
        assert owner.lock(), "it was let go at once"
        assert looking.is_locked()
        assert looking.is_locked()
    with disk.open(tmp_path / "lock") as looking:
        assert not looking.is_locked()


def test_file_that_nobody_holds_is_closed(tmp_path: Path) -> None:
    file = Disk().open(tmp_path / "f", create=True)
    descriptor = file._fd
    del file
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_closed_file_refuses(tmp_path: Path) -> None:
    file = Disk().open(tmp_path / "f", create=True)
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(0, 1)


@pytest.mark.parametrize("step", [Step.OPEN, Step.WRITE, Step.SYNC, Step.RENAME])
def test_whole_write_leaves_the_old_or_the_new(tmp_path: Path, step: Step) -> None:
    path = tmp_path / "f"
    Disk().write_whole(path, b"old")
    with pytest.raises(OSError, match="Input/output error"):
        FaultyDisk(Fault(step, errno.EIO, written=2)).write_whole(path, b"a longer new one")
    assert path.read_bytes() == b"old"
    Disk().write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


def test_folders_are_made_durably(tmp_path: Path) -> None:
    disk = FaultyDisk()
    disk.make_folder(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()
    assert disk.steps == [(Step.SYNC_FOLDER, tmp_path.name), (Step.SYNC_FOLDER, "a"), (Step.SYNC_FOLDER, "b")]
    disk.make_folder(tmp_path / "a")
    assert len(disk.steps) == 3


def test_list_and_remove(tmp_path: Path) -> None:
    for name in ("2.seg", "1.seg", "1.seg.tmp", "x"):
        (tmp_path / name).write_bytes(b"")
    disk = Disk()
    assert [path.name for path in disk.list(tmp_path, ".seg")] == ["1.seg", "2.seg"]
    disk.remove(tmp_path / "1.seg")
    disk.remove(tmp_path / "1.seg")
    assert [path.name for path in disk.list(tmp_path, ".seg")] == ["2.seg"]
    assert disk.free_bytes(tmp_path) > 0


def test_power_loss_leaves_what_was_synced(tmp_path: Path) -> None:
    disk, live = PowerLossDisk(), tmp_path / "live"
    live.mkdir()
    disk.sync_folder(live)
    disk.write_whole(live / "whole", b"1")
    with disk.open(live / "part", create=True) as file:
        file.write_at(0, b"ab")
        file.sync()
        file.write_at(2, b"cd")
        disk.lose_power(live, tmp_path / "without a name")
        disk.sync_folder(live)
        disk.lose_power(live, tmp_path / "synced")
        disk.lose_power(live, tmp_path / "written back", written_back={"part"})
    left = {
        folder: {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}
        for folder in ("without a name", "synced", "written back")
    }
    assert left == {
        "without a name": {"whole": b"1"},
        "synced": {"whole": b"1", "part": b"ab"},
        "written back": {"whole": b"1", "part": b"abcd"},
    }
