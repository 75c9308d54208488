"""A disk in memory that knows what a crash may leave: the twin of :class:`headrace.runtime.disk.Disk`, without system calls.

It keeps two versions of everything: what processes see (the page cache) and what the platter holds. :meth:`MemoryDisk.crash`
makes the second one out of both, by chance::

    disk = MemoryDisk(random.Random(seed))
    disk.crash_at = 17                       # the 17th step is the last; PowerCut is raised in its middle
    try:
        FileStore(folder, disk=disk)
    except PowerCut:
        disk = disk.crash(Crash.POWER)       # the machine that comes up again
    store = FileStore(folder, disk=disk)

What it can do wrong, all by its random source: a write that stops in the middle (torn), short writes and reads, unsynced
pages that are lost or survive in any combination (torn within a page by sectors, or in the middle of a store through a
mapping), file sizes that survive without their bytes, new names, renames and removals that are lost, EIO and ENOSPC at any
step, a failed sync after which pages are kept, called clean, or dropped, flipped bits.
"""

from __future__ import annotations

import errno
import mmap
import os
import random
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from headrace.runtime.disk import Disk, DiskFile, SyncFailed
from headrace.testing.disk import Fault, Step
from headrace.testing.inode import PAGE, SECTOR, Inode

WRITTEN_BACK: Final = 0.1
"""How often the system writes a page back of its own accord, right after it was written."""
TORN_BACK: Final = 0.2
"""How often the system writes a page back in the middle of a store through a mapping: the platter gets a part of it."""
CAPACITY: Final = 1 << 40
"""Size of the volume that is said unless another is set."""


class PowerCut(BaseException):
    """The machine or the process is gone in the middle of a step. No program can catch it: it is not an Exception."""


class Crash(StrEnum):
    """How a process ends: alone (the page cache lives on), or with its machine."""

    KILL = "kill"
    POWER = "power"


@dataclass(slots=True)
class _Change:
    """A change of names in a folder that is not yet durable: ``inode`` gets the name ``path``, ``gone`` loses its own."""

    path: Path | None
    inode: Inode | None
    gone: Path | None = None


class MemoryDisk(Disk):
    """A file system in memory. ``faults`` strike as those of :class:`FaultyDisk` do; ``steps`` counts what was asked.

    ``crash_at``: the step in whose middle :class:`PowerCut` is raised; afterwards every step raises it. ``watch`` is called
    before each step, and may look at anything. ``capacity``: bytes of the volume; a full one refuses writes with ENOSPC.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        """Begin with an empty root folder. ``rng`` decides what is left to chance; None: nothing goes wrong by itself."""
        self.rng = rng
        self.faults: list[Fault] = []
        self.steps = 0
        self.crash_at: int | None = None
        self.capacity = CAPACITY
        self.dead = False
        self.trace: list[tuple[Step, str]] | None = None
        self._files: dict[Path, Inode] = {}
        self._folders: set[Path] = {Path("/")}
        self._kept_names: dict[Path, Inode] = {}
        self._kept_folders: set[Path] = {Path("/")}
        self._changes: list[_Change] = []
        self._made: list[Path] = []
        self.watch: Any = None

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self, step: Step, path: Path) -> Fault | None:
        """Count a step; PowerCut if the machine is gone. Returns the fault that strikes, if one does."""
        if self.watch is not None and not self.dead:
            self.watch()
        self.steps += 1
        if self.trace is not None:
            self.trace.append((step, path.name))
        if self.dead:
            raise PowerCut
        if self.crash_at is not None and self.steps > self.crash_at:
            self.dead = True
        if self.faults and not self.dead:
            return next((fault for fault in self.faults if fault.strikes(step, path)), None)
        return None

    def check(self, step: Step, path: Path) -> None:
        """Count a step; OSError if a fault strikes it. A crash comes before it or after it, by chance."""
        fault = self.step(step, path)
        if self.dead and self.chance(0.5):
            raise PowerCut
        if fault is not None:
            raise fault.error(path)

    def ended(self) -> None:
        """Raise PowerCut if the machine went during the step."""
        if self.dead:
            raise PowerCut

    def chance(self, share: float) -> bool:
        """Return True in ``share`` of all cases; never without a random source."""
        return self.rng is not None and self.rng.random() < share

    # -- what a Disk does ---------------------------------------------------------------------------------------------

    def open(self, path: Path, *, create: bool = False, readonly: bool = False) -> DiskFile:
        self.check(Step.OPEN, path)
        inode = self._files.get(path)
        if inode is None:
            if not create or readonly or path.parent not in self._folders:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            inode = self._files[path] = Inode()
            self._changes.append(_Change(path, inode))
        self.ended()
        return MemoryFile(path, self, inode, readonly=readonly)

    def exists(self, path: Path) -> bool:
        return path in self._files or path in self._folders

    def _mkdir(self, path: Path) -> None:
        if path in self._files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._folders.add(path)
        self._made.append(path)

    def sync_folder(self, path: Path) -> None:
        fault = self.step(Step.SYNC_FOLDER, path)
        if self.dead and self.chance(0.5):
            raise PowerCut
        if fault is not None:
            raise SyncFailed(fault.number, os.strerror(fault.number), str(path))
        for change in [change for change in self._changes if _folder_of(change) == path]:
            self._keep(change)
            self._changes.remove(change)
        for made in [made for made in self._made if made.parent == path]:
            self._kept_folders.add(made)
            self._made.remove(made)
        self.ended()

    def _rename(self, old: Path, new: Path) -> None:
        self.check(Step.RENAME, new)
        inode = self._files.pop(old)
        self._files[new] = inode
        self._changes.append(_Change(new, inode, old))
        self.ended()

    def _unlink(self, path: Path) -> None:
        self.check(Step.REMOVE, path)
        if self._files.pop(path, None) is not None:
            self._changes.append(_Change(None, None, path))
        self.ended()

    def list(self, folder: Path, suffix: str) -> list[Path]:
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        return sorted(path for path in self._files if path.parent == folder and path.name.endswith(suffix))

    def free_bytes(self, folder: Path) -> int:
        return max(0, self.capacity - sum(len(inode.seen) for inode in set(self._files.values())))

    def volume_bytes(self, folder: Path) -> int:
        return self.capacity

    # -- what can happen to it ----------------------------------------------------------------------------------------

    def crash(self, kind: Crash) -> MemoryDisk:
        """Return the disk as it is found after the process (KILL) or the machine (POWER) is gone; this one is dead."""
        self.dead = True
        after = MemoryDisk(self.rng)
        after.capacity = self.capacity
        if kind == Crash.KILL:
            after._files, after._folders = self._files, self._folders
            after._kept_names, after._kept_folders = self._kept_names, self._kept_folders
            after._changes, after._made = self._changes, self._made
            for inode in self._files.values():
                inode.locked = False
            return after
        for change in self._changes:
            if self.chance(0.5):
                self._keep(change)
        folders = self._kept_folders | {made for made in self._made if self.chance(0.5)}
        after._folders = {folder for folder in folders if all(parent in folders for parent in folder.parents)}
        after._kept_folders = set(after._folders)
        left = {inode: self._left(inode) for inode in dict.fromkeys(self._kept_names.values())}
        after._files = {
            path: left[inode] for path, inode in self._kept_names.items() if path.parent in after._folders
        }
        after._kept_names = dict(after._files)
        return after

    def _left(self, inode: Inode) -> Inode:
        """What a power failure leaves of a file: what was kept, and any of the unsynced pages, whole or in sectors."""
        size = len(inode.kept)
        for page in sorted(inode.dirty):
            if self.chance(0.5):
                if self.chance(0.8):
                    inode.write_back(page)
                else:
                    for begin in range(0, PAGE, SECTOR):
                        if self.chance(0.5):
                            inode.write_back(page, begin, begin + SECTOR)
        if inode.dirty and self.rng is not None:
            if len(inode.seen) < size:
                del inode.kept[self.rng.choice((len(inode.seen), size)) :]
            elif self.chance(0.5):  # the size is kept, the bytes are not
                inode.kept.extend(bytes(max(0, len(inode.seen) - len(inode.kept))))
        return Inode(bytearray(inode.kept), bytearray(inode.kept))

    def _keep(self, change: _Change) -> None:
        if change.gone is not None and (
            change.inode is None or self._kept_names.get(change.gone) is change.inode
        ):
            self._kept_names.pop(change.gone, None)
        if change.path is not None and change.inode is not None:
            self._kept_names[change.path] = change.inode

    def flip(self, path: Path, offset: int, mask: int = 1) -> None:
        """Flip the bits of ``mask`` in one byte of a file, on the platter and in memory."""
        inode = self._files[path]
        inode.seen[offset] ^= mask
        if offset < len(inode.kept):
            inode.kept[offset] ^= mask

    def bytes_of(self, path: Path) -> bytes:
        """Return a file's bytes as processes see them."""
        return bytes(self._files[path].seen)

    def contents(self) -> dict[Path, bytes]:
        """Return every file with its bytes, as processes see them."""
        return {path: bytes(inode.seen) for path, inode in self._files.items()}

    def load(self, contents: dict[Path, bytes]) -> None:
        """Put these files there, with their folders, all durable."""
        for path, data in contents.items():
            self._folders.update(path.parents)
            self._kept_folders.update(path.parents)
            self._files[path] = self._kept_names[path] = Inode(bytearray(data), bytearray(data))


def _folder_of(change: _Change) -> Path:
    path = change.path if change.path is not None else change.gone
    assert path is not None
    return path.parent


class MemoryFile(DiskFile):
    """An open file of a :class:`MemoryDisk`."""

    def __init__(self, path: Path, disk: MemoryDisk, inode: Inode, *, readonly: bool) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._readonly = readonly
        self._locks = False
        self._open = True

    def _use(self) -> Inode:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
        return self._inode

    def _pwrite(self, view: memoryview, offset: int) -> int:
        disk, inode = self._disk, self._use()
        if self._readonly:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
        fault = disk.step(Step.WRITE, self.path)
        taken = len(view)
        if disk.dead:
            taken = disk.rng.randint(0, len(view)) if disk.rng is not None else 0
        elif fault is not None:
            taken = min(fault.written, len(view))
        elif disk.chance(0.1) and disk.rng is not None:  # a short write
            taken = disk.rng.randint(1, len(view))
        room = disk.free_bytes(self.path.parent) + max(0, min(len(inode.seen) - offset, taken))
        full = taken > room
        taken = min(taken, room)
        if taken:
            inode.write(offset, view[:taken])
        if disk.chance(WRITTEN_BACK):
            inode.write_back(offset // PAGE)
        disk.ended()
        if fault is not None:
            raise fault.error(self.path)
        if full and not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        return taken

    def _pread(self, size: int, offset: int) -> bytes:
        if self._disk.dead:
            raise PowerCut
        if size > 1 and self._disk.chance(0.02) and self._disk.rng is not None:  # a short read
            size = self._disk.rng.randint(1, size)
        return bytes(self._use().seen[offset : offset + size])

    def size(self) -> int:
        return len(self._use().seen)

    def truncate(self, size: int) -> None:
        self._disk.check(Step.TRUNCATE, self.path)
        self._use().resize(size)
        self._disk.ended()

    def _flush(self) -> None:
        disk, inode = self._disk, self._use()
        fault = disk.step(Step.SYNC, self.path)
        if disk.dead and disk.chance(0.5):
            raise PowerCut
        if fault is not None:
            self._fail(fault)
        for page in inode.dirty:
            inode.write_back(page)
        if len(inode.kept) > len(inode.seen):
            del inode.kept[len(inode.seen) :]
        inode.dirty.clear()
        disk.ended()

    def _fail(self, fault: Fault) -> None:
        """Some pages reached the platter. The others stay dirty, are called clean all the same, or are dropped."""
        disk, inode = self._disk, self._inode
        fate = disk.rng.choice(("dirty", "clean", "dropped")) if disk.rng is not None else "dirty"
        for page in sorted(inode.dirty):
            if disk.chance(0.3):
                inode.write_back(page)
            elif fate == "dropped":
                begin = page * PAGE
                kept = inode.kept[begin : begin + PAGE]
                size = len(inode.seen[begin : begin + PAGE])
                inode.seen[begin : begin + size] = kept[:size] + bytes(max(0, size - len(kept)))
        if fate != "dirty":
            inode.dirty.clear()
        raise fault.error(self.path)

    def map_shared(self, size: int, *, writable: bool) -> mmap.mmap:
        mapped = _Mapped(-1, size)
        mapped.join(self._disk, self.path, self._use(), size, writable=writable)
        return mapped

    def lock(self) -> bool:
        self._locks = not self.is_locked()
        self._inode.locked = True
        return self._locks

    def is_locked(self) -> bool:
        return self._use().locked and not self._locks

    def close(self) -> None:
        self._inode.locked &= not self._locks
        self._open = self._locks = False


class _Mapped(mmap.mmap):
    """Anonymous memory whose changes reach the file at once, as those of a shared mapping do."""

    def join(self, disk: MemoryDisk, path: Path, inode: Inode, size: int, *, writable: bool) -> None:
        super().__setitem__(slice(0, size), bytes(inode.seen[:size]))
        self._disk, self._path, self._inode, self._writable = disk, path, inode, writable

    def __setitem__(self, key: Any, value: Any) -> None:
        if not self._writable:
            raise TypeError("mmap can't modify a readonly memory map")
        self._disk.step(Step.WRITE, self._path)  # no fault strikes: the pages of the file are all there
        if self._disk.dead and self._disk.chance(0.5):
            raise PowerCut
        rng, parts = self._disk.rng, (value, b"")
        if rng is not None and (self._disk.dead or self._disk.chance(TORN_BACK)):
            cut = rng.randint(0, len(value))
            parts = value[:cut], value[cut:]
        self._put(key.start, parts[0])
        if parts[1]:
            self._inode.write_back(key.start // PAGE)
            self._disk.ended()
            self._put(key.start + len(parts[0]), parts[1])
        if self._disk.chance(WRITTEN_BACK):
            self._inode.write_back(key.start // PAGE)
        self._disk.ended()

    def _put(self, offset: int, data: bytes) -> None:
        super().__setitem__(slice(offset, offset + len(data)), data)
        self._inode.write(offset, data)

    def flush(self, *given: Any) -> None:
        if self._disk.dead:
            raise PowerCut
