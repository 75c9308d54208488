"""Files of an archive, put there whole or not at all, never over another one. For all that write to an archive.

In a folder of this machine a file is written under a name that nobody reads, synced, and then given its own name, which
fails if there is such a file. An object store is asked for one put *if there is none of that name*: it either happens or
not. Where the answer got lost, what is there is read back and compared before anything is said.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from headrace.archive.files.folder import Folder
from headrace.errors import ArchiveConflict, ArchiveFull, ArchiveUnavailable, HeadraceError, SetupMissing
from headrace.runtime.disk import Disk, DiskFile, SyncFailed

TEMPORARY: Final = ".tmp-"
"""How the names of files begin that are being written."""
_BLOCK_BYTES: Final = 1 << 20
"""Pieces smaller than that are written together."""
_COMPARED_BYTES: Final = 16 << 20
"""How much of an object is read at once to compare it."""
_ATOMIC: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "memory"})
"""Kinds of stores whose put is whole or not there. Others show a file while it is being written."""
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
_TRIES: Final = 100
_doubted: Final[set[Path]] = set()
"""Files that were found, with the right bytes, and could not be synced: a second sync would prove nothing."""
_ONE_PUT_MAX: Final = 5 << 30
"""Bytes that S3 takes in one put: so it is one, and leaves no parts behind when it is cut off."""


def put_new(folder: Folder, file: str, pieces: Sequence[bytes], *, disk: Disk | None = None) -> None:
    """Put the file there, durably: its ``pieces`` one behind the other. When it fails, nothing of it has that name.

    A file that is there already with the same bytes is fine, and durable, too. Folders are made as needed; ``file`` may
    stand below the archive's own. Bytes are copied for object stores alone. ArchiveConflict if other bytes are there;
    ArchiveFull; ArchiveUnavailable, after which it may be there nevertheless (call again); SetupMissing if the store can't
    do it safely.
    """
    if (local := folder.local) is not None:
        with folder.reaching(file):
            _put_local(disk or Disk(), local / file, folder.where(file), pieces)
    else:
        _put_object(folder, file, pieces)


def remove(folder: Folder, files: Iterable[str], *, disk: Disk | None = None) -> None:
    """Remove the files in this order, durably; what is not there any more is passed over. ArchiveUnavailable."""
    disk = disk or Disk()
    for file in files:
        with folder.reaching(file):
            if folder.local is not None:
                if (path := folder.local / file).parent.exists():
                    disk.remove(path)
            else:
                try:
                    folder.store.rm_file(folder.path(file))
                except FileNotFoundError:
                    continue


def sweep(folder: Folder, *, disk: Disk | None = None) -> list[str]:
    """Remove what dead writers have left in the folder, and return the names. Others' files are locked, and stay."""
    if folder.local is None or not folder.local.is_dir():
        return []
    disk = disk or Disk()
    swept = []
    with folder.reaching():
        for path in sorted(folder.local.glob(f"{TEMPORARY}*")):
            try:
                with disk.open(path) as file:
                    if file.lock():
                        disk.remove(path)
                        swept.append(path.name)
            except FileNotFoundError:  # its writer has just finished
                continue
    return swept


def _put_local(disk: Disk, path: Path, where: str, pieces: Sequence[bytes]) -> None:
    disk.make_folder(path.parent)
    found = _is_there(disk, path, where, pieces)
    if found and path not in _doubted:
        _sync_found(disk, path)
        return
    draft, file = _draft(disk, path.parent)
    try:
        with file:
            at = 0
            for block in _blocks(pieces):
                file.write_at(at, block)
                at += len(block)
            file.sync()
            if found:
                disk.rename(draft, path)  # over the very same bytes
                _doubted.discard(path)
            else:
                _name(disk, draft, path)
    except FileExistsError:
        if not _is_there(disk, path, where, pieces):
            raise ArchiveUnavailable(f"{where} came and went while it was being written") from None
        _sync_found(disk, path)
    finally:
        draft.unlink(missing_ok=True)


def _draft(disk: Disk, folder: Path) -> tuple[Path, DiskFile]:
    """Make a file that is nobody else's, and locked, so that nobody sweeps it away."""
    for _ in range(_TRIES):
        path = folder / f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(8)}"
        file = disk.open(path, create=True)
        if file.lock() and path.exists():
            return path, file
        file.close()  # swept between the two steps
    raise ArchiveUnavailable(f"no file in {folder} can be locked")


def _name(disk: Disk, draft: Path, path: Path) -> None:
    try:
        disk.link(draft, path)
    except SyncFailed:
        path.unlink(missing_ok=True)  # a second sync would prove nothing: it is written anew
        raise
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise SetupMissing(
                f"{path.parent}: the file system there can't give a file a second name (a hard link): {error.strerror}",
                hint="Use a folder of a file system that can: any of Linux's own, or NFS.",
            ) from None
        raise


def _is_there(disk: Disk, path: Path, where: str, pieces: Sequence[bytes]) -> bool:
    """Tell whether the file is there, with these bytes; ArchiveConflict if it has others."""
    try:
        file = disk.open(path, readonly=True)
    except FileNotFoundError:
        return False
    with file:
        at, same = 0, file.size() == sum(map(len, pieces))
        for block in _blocks(pieces):
            same = same and file.read_at(at, len(block)) == block
            at += len(block)
    if not same:
        raise _conflict(where)
    return True


def _sync_found(disk: Disk, path: Path) -> None:
    """Sync a file that was there already: who put it there may have died before that."""
    try:
        with disk.open(path, readonly=True) as file:
            file.sync()
        disk.sync_folder(path.parent)
    except SyncFailed:
        _doubted.add(path)
        raise


def _blocks(pieces: Iterable[bytes], size_min: int = _BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the pieces, small ones joined to blocks: a segment of single entries has a million of them."""
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        if gathered and size + len(piece) > size_min:
            yield b"".join(gathered)
            gathered, size = [], 0
        if len(piece) >= size_min:
            yield piece
        else:
            gathered.append(piece)
            size += len(piece)
    if gathered:
        yield b"".join(gathered)


def _put_object(folder: Folder, file: str, pieces: Sequence[bytes]) -> None:
    try:
        with folder.reaching(file):
            create(folder, file, b"".join(pieces))
        return
    except SetupMissing:
        raise
    except ArchiveFull as error:
        failed: HeadraceError = error
    except (ArchiveUnavailable, FileExistsError) as error:
        failed = ArchiveUnavailable(f"{folder.where(file)} was not written: {error}")
    # It is there already; or the answer got lost of a put that happened, or of the first one of two.
    same = _same_object(folder, file, pieces)
    if same is None:
        raise failed
    if not same:
        raise _conflict(folder.where(file))


def create(folder: Folder, file: str, data: bytes) -> None:
    """Ask an object store for one put, if there is nothing of that name, and raise whatever its driver raises.

    FileExistsError is how most say no. SetupMissing if a put of this kind of store shows half a file.
    """
    kinds = {folder.store.protocol} if isinstance(folder.store.protocol, str) else set(folder.store.protocol)
    if not kinds & _ATOMIC:
        raise SetupMissing(
            f"{folder.shown}: an archive can't be written to a store of this kind, as a file there can be seen half-written",
            hint="Use a folder of this machine, or s3://, gs://, abfs://.",
        )
    more = {"chunksize": _ONE_PUT_MAX} if "s3" in kinds else {}
    folder.store.pipe_file(folder.path(file), data, mode="create", **more)


def _same_object(folder: Folder, file: str, pieces: Sequence[bytes]) -> bool | None:
    """Tell whether the object has these bytes; None if there is none of that name."""
    path = folder.path(file)
    with folder.reaching(file):
        folder.store.invalidate_cache()
        try:
            if int(folder.store.info(path)["size"]) != sum(map(len, pieces)):
                return False
            at = 0
            for block in _blocks(pieces, _COMPARED_BYTES):
                if folder.store.cat_file(path, start=at, end=at + len(block)) != block:
                    return False
                at += len(block)
        except FileNotFoundError:
            return None
    return True


def _conflict(where: str) -> ArchiveConflict:
    return ArchiveConflict(f"{where} is there already, with other bytes")
