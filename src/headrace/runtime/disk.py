"""The only module that reads, writes and syncs files by hand: journal, mark, locks, spools.

Everything durable goes through a :class:`Disk`, so that a fault-injecting twin can stand in for it. The way to make
bytes durable is chosen here: ``fdatasync`` where there is one, ``F_FULLFSYNC`` on macOS (whose ``fsync`` only reaches
the drive's cache), else ``fsync``. (SQLite syncs its own files.)
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from pathlib import Path
from types import TracebackType
from typing import Self

if sys.platform != "win32":
    import fcntl


class SyncFailed(OSError):
    """The system did not confirm that bytes are durable: nothing may be assumed of them, whatever its reason says.

    A second try proves nothing either, because the page cache may have dropped them.
    """


class DiskFile:
    """One open file, written at given offsets.

    Closed by :meth:`close`, at the end of a ``with``, or when nobody holds it any more: a reader of a file that was
    dropped meanwhile ends in peace.
    """

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        self._close = weakref.finalize(self, os.close, fd)

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write all of ``data`` at ``offset`` (a short write goes on); OSError if the disk refuses."""
        view = memoryview(data)
        while view:
            written = self._pwrite(view, offset)
            view, offset = view[written:], offset + written

    def read_at(self, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes at ``offset``; fewer only at the end of the file."""
        parts: list[bytes] = []
        while size > 0:
            part = self._pread(size, offset)
            if not part:
                break
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self) -> int:
        """Return the file's length in bytes."""
        return os.fstat(self._fd).st_size

    def is_at(self, path: Path) -> bool:
        """Tell whether this very file has the name ``path`` now: it may have been removed, and another made."""
        try:
            return os.path.samestat(os.fstat(self._fd), path.stat())
        except FileNotFoundError:
            return False

    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size`` bytes; not durable before :meth:`sync`."""
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        """Return only when all that was written is durable, else raise SyncFailed."""
        try:
            self._flush()
        except OSError as error:
            raise SyncFailed(error.errno, f"{self.path} was not synced: {error.strerror}") from error

    def _pwrite(self, view: memoryview, offset: int) -> int:
        """Write some of ``view`` at ``offset``; returns how many bytes."""
        return os.pwrite(self._fd, view, offset)

    def _pread(self, size: int, offset: int) -> bytes:
        """Read some of the ``size`` bytes at ``offset``; none at the end of the file."""
        return os.pread(self._fd, size, offset)

    def _flush(self) -> None:
        if sys.platform == "darwin":
            fcntl.fcntl(self._fd, fcntl.F_FULLFSYNC)
        elif hasattr(os, "fdatasync"):
            os.fdatasync(self._fd)
        else:
            os.fsync(self._fd)

    def map_shared(self, size: int, *, writable: bool) -> mmap.mmap:
        """Map the first ``size`` bytes, shared with every process that maps them."""
        return mmap.mmap(self._fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)

    def lock(self) -> bool:
        """Take this file's exclusive lock, kept until close or the process's end; False if another has it."""
        if sys.platform == "win32":
            return False
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def is_locked(self) -> bool:
        """Tell whether somebody has this file's lock, without taking it: who only look are not in each other's way.

        For the moment of the look :meth:`lock` gives False to others. Who must have it tries again.
        """
        if sys.platform == "win32":
            return True
        try:
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Close the file; does nothing the second time."""
        self._fd = -1
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Disk:
    """The machine's file system, as far as Headrace needs it."""

    def open(self, path: Path, *, create: bool = False, readonly: bool = False) -> DiskFile:
        """Open ``path`` for reading and writing (or reading only); ``create`` makes it if it isn't there."""
        flags = os.O_RDONLY if readonly else os.O_RDWR
        fd = os.open(path, flags | (os.O_CREAT if create else 0) | getattr(os, "O_CLOEXEC", 0), 0o640)
        return self._opened(path, fd)

    def _opened(self, path: Path, fd: int) -> DiskFile:
        """Make the file of an open descriptor: where a faulty disk puts its own kind in."""
        return DiskFile(path, fd)

    def make_folder(self, path: Path) -> None:
        """Make ``path`` and its parents, durably."""
        missing = [folder for folder in (path, *path.parents) if not self.exists(folder)]
        for folder in reversed(missing):
            self._mkdir(folder)
            self.sync_folder(folder.parent)

    def _mkdir(self, path: Path) -> None:
        path.mkdir(mode=0o750, exist_ok=True)

    def exists(self, path: Path) -> bool:
        """Tell whether there is a file or a folder at ``path``."""
        return path.exists()

    def sync_folder(self, path: Path) -> None:
        """Make names made, renamed or removed in the folder ``path`` durable, else raise SyncFailed."""
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        except OSError as error:
            raise SyncFailed(error.errno, f"{path} was not synced: {error.strerror}") from error
        finally:
            os.close(fd)

    def write_whole(self, path: Path, data: bytes) -> None:
        """Put ``data`` at ``path`` durably and whole: a crash leaves the old file or the new one, never a part."""
        draft = path.with_name(path.name + ".tmp")
        with self.open(draft, create=True) as file:
            file.truncate(0)
            file.write_at(0, data)
            file.sync()
        self.rename(draft, path)

    def write_beside(self, path: Path, data: bytes) -> Path:
        """Put ``data`` at ``path``, durably; where something else is there already, at ``-2``, ``-3`` … behind its stem.

        Returns where it is. Nothing is ever written over.
        """
        place, number = path, 1
        while self.exists(place):
            with self.open(place, readonly=True) as file:
                if file.read_at(0, len(data) + 1) == data:
                    return place
            number += 1
            place = path.with_name(f"{path.stem}-{number}{path.suffix}")
        self.write_whole(place, data)
        return place

    def rename(self, old: Path, new: Path) -> None:
        """Give ``old`` the name ``new``, replacing what was there, durably."""
        self._rename(old, new)
        self.sync_folder(new.parent)

    def _rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def link(self, old: Path, new: Path) -> None:
        """Give ``old`` the name ``new`` as well, durably; FileExistsError if something has that name, which stays."""
        self._link(old, new)
        self.sync_folder(new.parent)

    def _link(self, old: Path, new: Path) -> None:
        new.hardlink_to(old)

    def remove(self, path: Path) -> None:
        """Remove ``path``, durably; it may already be gone."""
        self._unlink(path)
        self.sync_folder(path.parent)

    def _unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def list(self, folder: Path, suffix: str) -> list[Path]:
        """Return the files of ``folder`` whose names end in ``suffix``, sorted by name."""
        return sorted(path for path in folder.iterdir() if path.name.endswith(suffix))

    def free_bytes(self, folder: Path) -> int:
        """Return the bytes that this user may still write on the volume of ``folder``."""
        stats = os.statvfs(folder)
        return stats.f_bavail * stats.f_frsize

    def volume_bytes(self, folder: Path) -> int:
        """Return the size of the volume of ``folder`` in bytes."""
        stats = os.statvfs(folder)
        return stats.f_blocks * stats.f_frsize
