"""Who may write to an archive: one process at a time. Backup agents take it before they look at what is there.

In a folder of this machine it is a lock on ``owner.lock``, which ends with the process. In an object store it is a
:class:`headrace.archive.rights.lease.Lease`: numbered objects ``owner-….json``.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import sweep
from headrace.archive.rights.lease import LEASE_S, Lease, living
from headrace.archive.rights.locks import locked_soon
from headrace.errors import ArchiveOwned, ArchiveUnavailable
from headrace.runtime.disk import Disk, DiskFile

LOCK: Final = "owner.lock"
"""The file of a local folder that its owner has locked."""


class _Claim(Protocol):
    def check(self) -> None: ...

    def release(self) -> None: ...


class Owner:
    """The right to write to an archive, until :meth:`release`, the end of a ``with``, or the end of the process."""

    def __init__(self, claim: _Claim) -> None:
        self._claim = claim

    def check(self) -> None:
        """Return if the archive is still this process's: asked before each file that is put there.

        ArchiveOwned if another took it meanwhile, or somebody removed the lock; ArchiveUnavailable if nobody can tell.
        """
        self._claim.check()

    def release(self) -> None:
        """Give the archive up; does nothing the second time."""
        self._claim.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def take(folder: Folder, what: str = "backup", *, lease_s: float = LEASE_S) -> Owner:
    """Make this process the owner of the archive, and remove what dead writers have left. A local folder is made if need be.

    ``what`` says in messages to others who it is. ``lease_s``: in an object store it says three times in so many seconds
    that it is alive. ArchiveOwned, naming who has it, if that one is alive; a killed one of another machine is waited for
    there, one and a half of its leases. ArchiveUnavailable; SetupMissing if the store can't be owned.
    """
    if folder.local is not None:
        with folder.reaching(LOCK):
            owner = Owner(_LockedFile(folder.local, what))
            sweep(folder)
            return owner
    return Owner(Lease(folder, "owner", what, lease_s=lease_s))


def owner_of(folder: Folder) -> str:
    """Say who owns the archive now; empty if nobody does.

    In an object store it takes up to one and a half leases to find out that an owner is dead. ArchiveUnavailable.
    """
    if folder.local is None:
        try:
            return ", ".join(map(str, living(folder, "owner-")))
        except ArchiveOwned as unreadable:
            return unreadable.detail
    if not (path := folder.local / LOCK).exists():
        return ""
    with folder.reaching(LOCK), Disk().open(path, readonly=True) as lock:
        return _said(lock) if lock.is_locked() else ""


def _said(lock: DiskFile) -> str:
    return lock.read_at(0, 4096).decode(errors="replace").strip() or "it does not say which"


class _Holder(msgspec.Struct, frozen=True):
    """What stands in the lock file, for people alone."""

    what: str
    host: str
    pid: int
    since: str


class _LockedFile:
    def __init__(self, folder: Path, what: str) -> None:
        disk = Disk()
        disk.make_folder(folder)
        self._path = folder / LOCK
        self._file: DiskFile | None = disk.open(self._path, create=True)
        self._shown = str(folder)
        if not locked_soon(self._file):  # a rebuild looks who writes here
            found = _said(self._file)
            self.release()
            raise ArchiveOwned(f"{folder} belongs to another process: {found}")
        holder = _Holder(
            what, socket.gethostname(), os.getpid(), datetime.now(UTC).isoformat(timespec="seconds")
        )
        with suppress(OSError):  # a full disk is for the first segment to tell
            self._file.truncate(0)
            self._file.write_at(0, msgspec.json.encode(holder) + b"\n")

    def check(self) -> None:
        if self._file is None:
            raise ArchiveOwned(f"{self._shown} was given up by this process")
        try:
            same = self._file.is_at(self._path)
        except OSError as error:
            raise ArchiveUnavailable(f"{self._shown} can't be reached: {error}") from None
        if not same:
            raise ArchiveOwned(f"{self._path} was removed: another process may own {self._shown}")

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
