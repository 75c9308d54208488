"""Disks that fail on purpose: one that refuses chosen steps, one that forgets what was not synced.

Both are real disks otherwise, so whatever works on them works on files::

    disk = FaultyDisk(Fault(Step.SYNC, after=3, suffix=".seg"))
    log = Log.open(folder, disk=disk)          # the fourth sync of a segment fails
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from headrace.runtime.disk import Disk, DiskFile, SyncFailed


class Step(StrEnum):
    """What a disk is asked to do."""

    OPEN = "open"
    WRITE = "write"
    TRUNCATE = "truncate"
    SYNC = "sync"
    RENAME = "rename"
    REMOVE = "remove"
    SYNC_FOLDER = "sync-folder"


@dataclass(slots=True)
class Fault:
    """One thing that goes wrong: the steps of this kind, on files whose names end in ``suffix``, fail with ``number``.

    ``after``: how many of them still succeed. ``times``: how many fail then (None: all from then on). ``written``: how
    many bytes of a refused write reach the file all the same. ``number`` 0: a MemoryError instead of an OSError, to see what
    becomes of errors that nobody expects there.
    """

    step: Step
    number: int = errno.EIO
    after: int = 0
    times: int | None = 1
    suffix: str = ""
    written: int = 0

    def error(self, path: Path) -> Exception:
        """Return what is raised when it strikes ``path``."""
        return OSError(self.number, os.strerror(self.number), str(path)) if self.number else MemoryError()

    def strikes(self, step: Step, path: Path) -> bool:
        """Count this step; True if it shall fail."""
        if step != self.step or not path.name.endswith(self.suffix) or self.times == 0:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is not None:
            self.times -= 1
        return True


class FaultyDisk(Disk):
    """A disk that fails as its faults say. ``steps`` lists what it was asked to do, with the name of the file."""

    def __init__(self, *faults: Fault) -> None:
        """Begin with these faults; more can be put into ``faults`` at any time."""
        self.faults = list(faults)
        self.steps: list[tuple[Step, str]] = []

    def meet(self, step: Step, path: Path) -> Fault | None:
        """Note the step and return the fault that strikes it, if one does."""
        self.steps.append((step, path.name))
        return next((fault for fault in self.faults if fault.strikes(step, path)), None)

    def check(self, step: Step, path: Path) -> None:
        """Note the step; OSError if a fault strikes it."""
        fault = self.meet(step, path)
        if fault is not None:
            raise fault.error(path)

    def open(self, path: Path, *, create: bool = False, readonly: bool = False) -> DiskFile:
        self.check(Step.OPEN, path)
        return super().open(path, create=create, readonly=readonly)

    def _opened(self, path: Path, fd: int) -> DiskFile:
        return _FaultyFile(path, fd, self)

    def rename(self, old: Path, new: Path) -> None:
        self.check(Step.RENAME, new)
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self.check(Step.REMOVE, path)
        super().remove(path)

    def sync_folder(self, path: Path) -> None:
        fault = self.meet(Step.SYNC_FOLDER, path)
        if fault is not None:
            raise SyncFailed(fault.number, os.strerror(fault.number), str(path))
        super().sync_folder(path)


class _FaultyFile(DiskFile):
    def __init__(self, path: Path, fd: int, disk: FaultyDisk) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        fault = self._disk.meet(Step.WRITE, self.path)
        if fault is not None:
            super().write_at(offset, memoryview(data)[: fault.written])
            raise fault.error(self.path)
        super().write_at(offset, data)

    def truncate(self, size: int) -> None:
        self._disk.check(Step.TRUNCATE, self.path)
        super().truncate(size)

    def _flush(self) -> None:
        self._disk.check(Step.SYNC, self.path)
        super()._flush()


class PowerLossDisk(Disk):
    """A disk that knows what a power failure would leave: bytes as of a file's last sync, names as of their folder's.

    The machine's page cache hides such losses from a process that is merely killed. Nothing is really synced, so it is
    fast.
    """

    def __init__(self) -> None:
        """Begin with nothing durable."""
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}

    def open(self, path: Path, *, create: bool = False, readonly: bool = False) -> DiskFile:
        made = not path.exists()
        file = super().open(path, create=create, readonly=readonly)
        if made:
            self._contents[path.stat().st_ino] = b""
        return file

    def _opened(self, path: Path, fd: int) -> DiskFile:
        return _Unsynced(path, fd, self)

    def synced(self, file: DiskFile) -> None:
        """Take note that the file's bytes are durable."""
        self._contents[file.path.stat().st_ino] = file.read_at(0, file.size())

    def sync_folder(self, path: Path) -> None:
        self._names[path] = {entry.name: entry.stat().st_ino for entry in path.iterdir() if entry.is_file()}

    def adopt(self, folder: Path) -> None:
        """Take all that stands in ``folder`` for durable: the disk of the machine that comes up again."""
        for path in (folder, *folder.rglob("*")):
            if path.is_dir():
                self.sync_folder(path)
            else:
                self._contents[path.stat().st_ino] = path.read_bytes()

    def lose_power(self, folder: Path, target: Path, *, written_back: Collection[str] = ()) -> None:
        """Put what a power failure would leave of ``folder`` into the new folder ``target``.

        ``written_back``: names of files that the system happened to write back before, unasked.
        """
        for place, names in self._names.items():
            if place == folder or folder in place.parents:
                left = target / place.relative_to(folder)
                left.mkdir(parents=True, exist_ok=True)
                for name, inode in names.items():
                    now = (
                        (place / name).read_bytes()
                        if name in written_back
                        else self._contents.get(inode, b"")
                    )
                    (left / name).write_bytes(now)


class _Unsynced(DiskFile):
    def __init__(self, path: Path, fd: int, disk: PowerLossDisk) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def _flush(self) -> None:
        self._disk.synced(self)
