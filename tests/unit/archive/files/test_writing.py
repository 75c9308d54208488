"""Files of an archive in a local folder: whole under their names or not there, never over another one, durable."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import TEMPORARY, put_new, remove, sweep
from headrace.errors import ArchiveConflict, ArchiveFull, ArchiveUnavailable, HeadraceError, SetupMissing
from headrace.runtime.disk import Disk
from headrace.testing.disk import Fault, FaultyDisk, PowerLossDisk, Step

PIECES = [b"head", b"x" * 3_000_000, b"", b"y" * 10, b"foot"]
WHOLE = b"".join(PIECES)


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_is_written_whole_in_a_folder_made_for_it(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "a" / "b"))
    assert not folder.exists("below/file.bin")
    put_new(folder, "below/file.bin", PIECES)
    assert folder.read("below/file.bin") == WHOLE
    assert folder.exists("below/file.bin")
    assert names(tmp_path) == ["a/b/below/file.bin"]
    remove(folder, ["below/file.bin", "below/none", "nowhere/none"])
    assert not names(tmp_path)


def test_small_pieces_are_written_together(tmp_path: Path) -> None:
    disk = FaultyDisk()
    pieces = [b"%07d" % number for number in range(400_000)]
    put_new(Folder(str(tmp_path)), "file", pieces, disk=disk)
    assert (tmp_path / "file").read_bytes() == b"".join(pieces)
    assert sum(step is Step.WRITE for step, _ in disk.steps) == 3


def test_the_same_bytes_again_are_fine_and_others_are_refused(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    put_new(folder, "file", PIECES)
    disk = FaultyDisk()
    put_new(folder, "file", [WHOLE[:5], WHOLE[5:]], disk=disk)
    # Who wrote it may have died before it was durable.
    assert [step for step, _ in disk.steps] == [Step.OPEN, Step.OPEN, Step.SYNC, Step.SYNC_FOLDER]
    for other in ([b"shorter"], [*PIECES, b"more"], [b"Head", *PIECES[1:]]):
        with pytest.raises(ArchiveConflict, match=r"file is there already, with other bytes"):
            put_new(folder, "file", other)
    assert folder.read("file") == WHOLE
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize("step", [Step.WRITE, Step.SYNC, Step.SYNC_FOLDER])
def test_what_fails_leaves_nothing_and_is_done_anew(tmp_path: Path, step: Step, number: int) -> None:
    folder = Folder(str(tmp_path))
    disk = FaultyDisk(Fault(step, number, written=100))
    with pytest.raises(ArchiveUnavailable if number == errno.EIO else ArchiveFull):
        put_new(folder, "file", PIECES, disk=disk)
    assert not names(tmp_path), "a file whose sync failed would be taken for durable by the next try"
    put_new(folder, "file", PIECES, disk=disk)
    assert folder.read("file") == WHOLE


@pytest.mark.parametrize("step", [Step.SYNC, Step.SYNC_FOLDER])
def test_a_found_file_that_can_not_be_synced_is_written_anew(tmp_path: Path, step: Step) -> None:
    folder = Folder(str(tmp_path))
    put_new(folder, "file", PIECES)
    disk = FaultyDisk(Fault(step))
    with pytest.raises(ArchiveUnavailable):
        put_new(folder, "file", PIECES, disk=disk)
    assert names(tmp_path) == ["file"], "it may have been there for long, and is all there is"
    assert not any(step is Step.WRITE for step, _ in disk.steps)
    put_new(folder, "file", PIECES, disk=disk)
    assert any(step is Step.WRITE for step, _ in disk.steps)
    assert (Step.RENAME, "file") in disk.steps
    disk.steps.clear()
    put_new(folder, "file", PIECES, disk=disk)
    assert not any(step is Step.WRITE for step, _ in disk.steps)
    assert names(tmp_path) == ["file"]


def test_power_lost_after_any_step_leaves_the_file_whole_or_not_there(tmp_path: Path) -> None:
    whole, done, after = 0, False, -1
    while not done:
        after += 1
        place, left = tmp_path / f"seen-{after}", tmp_path / f"left-{after}"
        disk = _Cut(after)
        done = True
        try:
            put_new(Folder(str(place)), "file", PIECES, disk=disk)
        except (HeadraceError, _PowerLost):
            done = False
        disk.lose_power(place, left)
        found = (left / "file").read_bytes() if (left / "file").exists() else None
        assert found in {WHOLE, None}
        assert found == WHOLE or not done, "what was confirmed is gone"
        whole += found == WHOLE
    assert after > 3, "every step was cut"
    assert whole


class _PowerLost(BaseException):
    pass


class _Cut(PowerLossDisk):
    """A disk whose power goes after so many syncs and new names."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.left = after

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _PowerLost

    def synced(self, file: object) -> None:
        self._count()
        super().synced(file)  # type: ignore[arg-type]  # a file of this disk
        self._count()

    def sync_folder(self, path: Path) -> None:
        self._count()
        super().sync_folder(path)
        self._count()

    def _link(self, old: Path, new: Path) -> None:
        self._count()
        super()._link(old, new)
        self._count()


class _NoLinks(Disk):
    def _link(self, old: Path, new: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupMissing, match="second name"):
        put_new(Folder(str(tmp_path)), "file", PIECES, disk=_NoLinks())
    assert not names(tmp_path)


def test_what_dead_writers_left_is_swept_and_nothing_else(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    assert sweep(Folder(str(tmp_path / "none"))) == []
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / f"{TEMPORARY}1-dead").write_bytes(b"x")
    with Disk().open(tmp_path / f"{TEMPORARY}2-alive", create=True) as file:
        assert file.lock()
        assert sweep(folder) == [f"{TEMPORARY}1-dead"]
        assert names(tmp_path) == [f"{TEMPORARY}2-alive", "file"]
    assert sweep(folder) == [f"{TEMPORARY}2-alive"]


class _Sweeping(Disk):
    """A disk on which an owner sweeps right before a file gets its name, and between making and locking one."""

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.swept: list[str] = []

    def _opened(self, path: Path, fd: int) -> object:  # type: ignore[override]  # what the disk gives
        if path.name.startswith(TEMPORARY) and not self.swept:
            self.swept += sweep(self.folder)
        return super()._opened(path, fd)

    def _link(self, old: Path, new: Path) -> None:
        assert sweep(self.folder) == []
        super()._link(old, new)


def test_a_file_that_is_being_written_survives_an_owner_that_sweeps(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    disk = _Sweeping(folder)
    put_new(folder, "file", PIECES, disk=disk)
    assert len(disk.swept) == 1
    assert folder.read("file") == WHOLE
    assert names(tmp_path) == ["file"]


def test_a_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArchiveUnavailable, match=str(tmp_path)):
        put_new(Folder(str(tmp_path / "file" / "folder")), "segment", PIECES)
    with pytest.raises(ArchiveUnavailable, match=r"wal/none is not there"):
        Folder(f"{tmp_path}/wal").read("none")
