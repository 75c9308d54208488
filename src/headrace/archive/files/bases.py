"""The base snapshots of an archive: which there are, and whether they can be used.

A base is a folder ``kdb-base-{LSN}/``; its manifest is put there last, so a folder without one is what a job left that died,
or one that is still being written. Readers pass over such a folder; prune takes it away.
"""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from headrace.archive.files.folder import Folder
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt, FormatTooNew, InvalidRequest
from headrace.wire.base_manifest import (
    MANIFEST,
    BaseFile,
    BaseManifest,
    base_folder,
    decode_base,
    parse_base_folder,
)

_READERS: Final = 16
"""Manifests read at once."""
_FILE_READERS: Final = 4
"""Files of a base read at once."""
_CHUNK_BYTES: Final = 8 << 20


class StoredBase(NamedTuple):
    """A base in an archive: its LSN, its folder's name below the archive's, and what its manifest says."""

    lsn: Lsn
    path: str
    manifest: BaseManifest


class UnsoundBase(NamedTuple):
    """A base that can't be used: its folder's name, and why. ``finished``: it has a manifest, if a damaged one."""

    path: str
    problem: str
    finished: bool


class Bases(NamedTuple):
    """All bases of an archive, in LSN order; and the folders that should be one and are not."""

    sound: list[StoredBase]
    unsound: list[UnsoundBase]


def read_bases(folder: Folder) -> Bases:
    """Return the archive's bases, as their manifests tell them; their other files are not looked at.

    A folder that is not there has none. ArchiveUnavailable; FormatTooNew.
    """
    names = _names(folder)
    with ThreadPoolExecutor(_READERS) as readers:
        found = list(readers.map(lambda name: _read(folder, name), names))
    sound = sorted((one for one in found if isinstance(one, StoredBase)), key=lambda one: one.lsn)
    return Bases(sound, [one for one in found if isinstance(one, UnsoundBase)])


def usable_bases(folder: Folder) -> Bases:
    """Return the archive's bases as :func:`read_bases` does; one that lacks a file, or has one of another size, is unsound.

    Nothing but manifests is read, and each base's folder listed once. ArchiveUnavailable; FormatTooNew.
    """
    found = read_bases(folder)
    with ThreadPoolExecutor(_READERS) as readers:
        checked = list(readers.map(lambda base: _checked(folder, base), found.sound))
    unsound = [*found.unsound, *(one for one in checked if isinstance(one, UnsoundBase))]
    return Bases(
        [one for one in checked if isinstance(one, StoredBase)], sorted(unsound, key=lambda one: one.path)
    )


def read_base(folder: Folder, path: str) -> StoredBase:
    """Return the base in the folder ``path`` below the archive's. BaseCorrupt if it is none; ArchiveUnavailable."""
    found = _read(folder, path)
    if isinstance(found, UnsoundBase):
        raise BaseCorrupt(found.problem)
    return found


def place_of(address: str) -> tuple[str, str]:
    """Return the address of the folder that a base stands in, and its name there. Of ``/kdb-base-…`` that is the root, of a
    name alone the present folder.
    """
    parent, slash, name = address.rstrip("/").rpartition("/")
    return parent or slash or ".", name


def files_of(folder: Folder, path: str) -> dict[str, int]:
    """Return every file below the base's folder, by its path there, with its size in bytes. ArchiveUnavailable."""
    root = folder.path(path).rstrip("/")
    with folder.reaching(path):
        folder.store.invalidate_cache()
        listed = folder.store.find(root, detail=True)
    return {str(name).removeprefix(f"{root}/"): int(one["size"] or 0) for name, one in listed.items()}


def check_files(folder: Folder, base: StoredBase) -> None:
    """Raise BaseCorrupt, naming the file, if one that the manifest names is gone or has another size. Nothing is read."""
    there = files_of(folder, base.path)
    for one in base.manifest.files:
        size = there.get(one.path)
        if size != one.size:
            what = "is not there" if size is None else f"has {size} bytes, not {one.size}"
            raise BaseCorrupt(f"{folder.where(base.path)}/{one.path} {what}")


def check_contents(folder: Folder, base: StoredBase) -> None:
    """Read all that the manifest names; BaseCorrupt, naming the file, if one is not what was written. ArchiveUnavailable."""

    def check(told: BaseFile) -> None:
        file = f"{base.path}/{told.path}"
        with folder.reaching(file), folder.store.open(folder.path(file), "rb") as opened:
            check_bytes(opened, folder.where(file), told)

    check_files(folder, base)
    with ThreadPoolExecutor(_FILE_READERS) as readers:
        for _ in readers.map(check, base.manifest.files):
            pass


def check_bytes(opened: Any, where: str, told: BaseFile) -> None:
    """Read an open file to its end, in parts; BaseCorrupt, naming ``where``, if it is not what its manifest tells."""
    size = crc = 0
    while part := opened.read(_CHUNK_BYTES):
        size, crc = size + len(part), zlib.crc32(part, crc)
    if size != told.size:
        raise BaseCorrupt(
            f"{where} has {size} bytes; by its manifest it was written with {told.size}", byte=size
        )
    if crc != told.crc:
        raise BaseCorrupt(f"{where} is not what was written: its CRC-32 is {crc}, by its manifest {told.crc}")


def _names(folder: Folder) -> list[str]:
    with folder.reaching():
        folder.store.invalidate_cache()
        try:
            listed = folder.store.ls(folder.path(""), detail=False)
        except FileNotFoundError:
            return []
    names = {str(one).rstrip("/").rpartition("/")[2] for one in listed}
    return sorted(name for name in names if _is_base(name))


def _is_base(name: str) -> bool:
    try:
        return base_folder(parse_base_folder(name)) == name
    except InvalidRequest:
        return False


def _checked(folder: Folder, base: StoredBase) -> StoredBase | UnsoundBase:
    try:
        check_files(folder, base)
    except BaseCorrupt as error:
        # Of a base that goes meanwhile the manifest went first: without it, it is none.
        found = _read(folder, base.path)
        return found if isinstance(found, UnsoundBase) else UnsoundBase(base.path, error.detail, True)
    return base


def _read(folder: Folder, path: str) -> StoredBase | UnsoundBase:
    file = f"{path}/{MANIFEST}"
    with folder.reaching(file):
        try:
            data = folder.store.cat_file(folder.path(file))
        except (FileNotFoundError, NotADirectoryError):
            return UnsoundBase(path, f"{folder.where(path)} has no manifest: it was never finished", False)
    where = folder.where(file)
    try:
        manifest = decode_base(data, where)
    except FormatTooNew:
        raise
    except BaseCorrupt as error:
        return UnsoundBase(path, error.detail, True)
    lsn = Lsn.parse(manifest.lsn)
    if path.rstrip("/").rpartition("/")[2] != base_folder(lsn):
        return UnsoundBase(path, f"{where} is the manifest of the base at lsn={lsn}", True)
    return StoredBase(lsn, path, manifest)
