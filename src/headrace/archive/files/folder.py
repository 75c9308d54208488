"""The folder that segments stand in, at any address that fsspec knows: listed and read here, and nowhere else.

How to get at an object store is fsspec's own affair: its environment (``FSSPEC_S3_KEY`` and so on) and configuration files,
which driver and workers must have alike. No address with a secret in it is ever printed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from headrace.archive.files.encryption import check_encrypted, decrypt
from headrace.archive.files.overlaps import Parted, part
from headrace.archive.files.segments import Stored
from headrace.archive.files.sharing import Shared
from headrace.errors import (
    ArchiveFull,
    ArchiveUnavailable,
    HeadraceError,
    InvalidRequest,
    SegmentCorrupt,
    SetupMissing,
)
from headrace.runtime.logs import get_logger
from headrace.wire.kwal import ENCRYPTED, SegmentName
from headrace.wire.kwal_manifest import Manifest, decode_manifest

_PREFIX: Final = "kdb-wal-"
_SUFFIXES: Final = (".bin", f".bin{ENCRYPTED}")
_READERS: Final = 16
"""Manifests read at once."""
_AT_ONCE: Final = 64
"""Manifests in memory that hold all of their own: see :mod:`headrace.archive.files.sharing`."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""How a file system says that it is full, or that this user has no more of it."""

_log = get_logger("archive")


class Folder:
    """The folder at ``url``. InvalidRequest if that is no address, SetupMissing if its kind needs a package,
    ArchiveUnavailable if it is within a file that is not there.

    ``identity``: path of a file with the age identities that encrypted segments are read with; empty for none.
    """

    def __init__(self, url: str, identity: str = "") -> None:
        self._identity = identity
        try:
            store, self._root = url_to_fs(url)
        except ImportError as error:
            raise SetupMissing(
                f"an address {url.partition(':')[0]}:… needs a package that is not installed: {error}",
                hint="Install it here and on all workers.",
            ) from None
        except ValueError as error:
            raise InvalidRequest(f"option path: {error}", member="path") from None
        except OSError as error:  # an address within another file, such as an archive of zip
            raise ArchiveUnavailable(f"what the address names can't be reached: {error}") from None
        self.store: Any = store
        """The file system of fsspec that it is in."""
        self.shown = str(self.store.unstrip_protocol(self._root)).removeprefix("file://")
        """The address as messages name it."""

    def files(self) -> dict[str, int]:
        """Return the files that stand right in the folder now, by name, with their sizes in bytes; ArchiveUnavailable."""
        with self.reaching():
            self.store.invalidate_cache()
            listed = self.store.ls(self._root, detail=True)
        return {
            str(one["name"]).rstrip("/").rpartition("/")[2]: int(one["size"] or 0)
            for one in listed
            if one["type"] != "directory"
        }

    def segments(self, *, needed: bool = True) -> list[Stored]:
        """Return the segments that stand there now, in LSN order.

        Other files are passed over, half-written ones among them, which have other names until they are whole; so are, with
        a warning, segments that are spare (:func:`headrace.archive.files.overlaps.part`). SegmentsOverlap;
        ArchiveUnavailable; InvalidRequest if there is no segment though one is ``needed``, or a name that is none.
        """
        found = self.parted(self.files())
        if needed and not found.own:
            raise InvalidRequest(f"{self.shown} holds no KWAL segment (kdb-wal-….bin)", member="path")
        return found.own

    def parted(self, files: Mapping[str, int]) -> Parted:
        """Return which of the ``files``, names with sizes, are segments: the archive's own, and spare ones.

        SegmentsOverlap; ArchiveUnavailable; InvalidRequest for a name that is none.
        """
        parted = part(segments_in(files), lambda told: self.manifests(told, {}))
        for one in parted.spare:
            _log.warning(
                "a segment is passed over: an agent that had lost the archive put it beside others of the same entries",
                segment=self.where(one.file),
                hint="It does no harm. A prune takes it away once what it overlaps goes.",
            )
        return parted

    def manifests(
        self, segments: Collection[Stored], damaged: dict[str, SegmentCorrupt] | None = None
    ) -> dict[str, Manifest]:
        """Return the manifests of those segments that have one, by the segment's file. SegmentCorrupt; FormatTooNew.

        ``damaged``: takes, by the segment's file, what is wrong with a manifest; then the others are returned.
        """
        told = [one for one in segments if one.told]
        shared = Shared()
        # Many at once: a store takes its time for each, and a folder may hold thousands. Not in one call of fsspec, which
        # would take brackets in the folder's name for a pattern.
        found = {}
        with ThreadPoolExecutor(_READERS) as readers:
            for at in range(0, len(told), _AT_ONCE):
                group = told[at : at + _AT_ONCE]
                for one, manifest in zip(group, readers.map(self._manifest, group), strict=True):
                    if not isinstance(manifest, SegmentCorrupt):
                        found[one.file] = shared.manifest(manifest)
                    elif damaged is None:
                        raise manifest
                    else:
                        damaged[one.file] = manifest
        return found

    def _manifest(self, one: Stored) -> Manifest | SegmentCorrupt:
        where = self.where(one.name.manifest)
        try:
            manifest = decode_manifest(self.read(one.name.manifest), where)
            if manifest.name != one.name:
                raise SegmentCorrupt(f"{where} is the manifest of {manifest.segment}")
        except SegmentCorrupt as error:
            return error
        return manifest

    def read(self, file: str) -> bytes:
        """Return a whole file; ArchiveUnavailable."""
        with self.reaching(file):
            data: bytes = self.store.cat_file(self.path(file))
        return data

    def read_segment(self, file: str, manifest: Manifest | None = None) -> memoryview:
        """Return a whole file as :meth:`read` does; a local one into large pages of memory, as one of 128 MB is worth.

        An encrypted segment is decrypted, after its checksum in the manifest fitted (which is read unless it is given). It
        takes its memory twice. SegmentCorrupt; IdentityNeeded without an identity that opens it.
        """
        data = self._read_large(file)
        if not file.endswith(_SUFFIXES[1]):
            return data
        if manifest is None and self.exists(name := SegmentName.parse(file).manifest):
            manifest = decode_manifest(self.read(name), self.where(name))
        if manifest is not None:
            check_encrypted(data, manifest, self.where(file))
        return decrypt(data, self._identity, self.where(file))

    def _read_large(self, file: str) -> memoryview:
        if self.local is None:
            return memoryview(self.read(file))
        with self.reaching(file), Path(self.path(file)).open("rb", buffering=0) as opened:
            # numpy asks the kernel for them; bytes would cost three times as much time, most of it in page faults.
            data = np.empty(os.fstat(opened.fileno()).st_size, np.uint8).data
            size = 0
            while got := opened.readinto(data[size:]):
                size += got
        return data[:size].toreadonly()

    def exists(self, file: str) -> bool:
        """Tell whether the file is there now; ArchiveUnavailable."""
        with self.reaching(file):
            if self.local is not None:
                return (self.local / file).exists()
            self.store.invalidate_cache()
            return bool(self.store.exists(self.path(file)))

    def where(self, file: str) -> str:
        """Return a file as messages name it."""
        return f"{self.shown.rstrip('/')}/{file}"

    @property
    def local(self) -> Path | None:
        """The folder's path if it is one of this machine, else None."""
        return Path(self._root) if isinstance(self.store, LocalFileSystem) else None

    def path(self, file: str) -> str:
        """Return a file's path as ``store`` takes it; ``file`` may stand in folders below this one."""
        return f"{self._root.rstrip('/')}/{file}" if file else self._root

    @contextmanager
    def reaching(self, file: str = "") -> Iterator[None]:
        """Turn what a file system or a store raises about ``file`` into ArchiveUnavailable, or ArchiveFull."""
        try:
            yield
        except HeadraceError:
            raise
        except FileNotFoundError:
            what = self.where(file) if file else self.shown
            raise ArchiveUnavailable(f"{what} is not there (any more)") from None
        except OSError as error:
            raise self._error(error) from None
        except Exception as error:
            # What an object store's driver raises is its own affair: botocore's and aiohttp's errors are no OSErrors.
            if self.local is not None:
                raise
            raise self._error(error) from error

    def _error(self, error: Exception) -> ArchiveFull | ArchiveUnavailable:
        if getattr(error, "errno", None) in _FULL:
            return ArchiveFull(f"{self.shown} takes no more bytes: {error}")
        return ArchiveUnavailable(f"{self.shown} can't be reached: {error}")


def segments_in(files: Mapping[str, int]) -> list[Stored]:
    """Return which of the ``files``, names with sizes in bytes, are segments; InvalidRequest for a name that is none."""
    found = []
    for file, size in files.items():
        if file.startswith(_PREFIX) and file.endswith(_SUFFIXES):
            name = SegmentName.parse(file)
            found.append(Stored(name, file, size, name.manifest in files))
    return found
