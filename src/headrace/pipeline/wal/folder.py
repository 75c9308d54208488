"""The folder that segments stand in, at any address that fsspec knows: listed and read here, and nowhere else.

How to get at an object store is fsspec's own affair: its environment (``FSSPEC_S3_KEY`` and so on) and configuration files,
which driver and workers must have alike. No address with a secret in it is ever printed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from fsspec.core import url_to_fs

from headrace.errors import ArchiveUnavailable, InvalidRequest, SegmentCorrupt, SetupMissing
from headrace.pipeline.wal.plan import Stored, ordered
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import Manifest, decode_manifest

_PREFIX: Final = "kdb-wal-"
_SUFFIX: Final = ".bin"
_READERS: Final = 16
"""Manifests read at once."""


class Folder:
    """The folder at ``url``. InvalidRequest if that is no address, SetupMissing if its kind needs a package."""

    def __init__(self, url: str) -> None:
        try:
            self._fs, self._root = url_to_fs(url)
        except ImportError as error:
            raise SetupMissing(
                f"an address {url.partition(':')[0]}:… needs a package that is not installed: {error}",
                hint="Install it here and on all workers.",
            ) from None
        except ValueError as error:
            raise InvalidRequest(f"option path: {error}", member="path") from None
        self.shown = str(self._fs.unstrip_protocol(self._root)).removeprefix("file://")
        """The address as messages name it."""

    def segments(self) -> list[Stored]:
        """Return the segments that stand there now, in LSN order.

        Other files are passed over, half-written ones among them, which have other names until they are whole.
        SegmentsOverlap; ArchiveUnavailable; InvalidRequest if there is no segment at all, or a name that is none.
        """
        with self._reading(""):
            self._fs.invalidate_cache(self._root)
            listed = self._fs.ls(self._root, detail=True)
        sizes = {str(one["name"]).rstrip("/").rpartition("/")[2]: one["size"] for one in listed}
        found = []
        for file, size in sizes.items():
            if file.startswith(_PREFIX) and file.endswith(_SUFFIX):
                name = SegmentName.parse(file)
                found.append(Stored(name, file, int(size or 0), name.manifest in sizes))
        if not found:
            raise InvalidRequest(f"{self.shown} holds no KWAL segment (kdb-wal-….bin)", member="path")
        return ordered(found)

    def manifests(self, segments: Collection[Stored]) -> dict[str, Manifest]:
        """Return the manifests of those segments that have one, by the segment's file. SegmentCorrupt; FormatTooNew."""
        told = [one for one in segments if one.told]
        # Many at once: a store takes its time for each, and a folder may hold thousands. Not in one call of fsspec, which
        # would take brackets in the folder's name for a pattern.
        with ThreadPoolExecutor(_READERS) as readers:
            read = list(readers.map(lambda one: self.read(one.name.manifest), told))
        found = {}
        for one, data in zip(told, read, strict=True):
            manifest = decode_manifest(data, self.where(one.name.manifest))
            if manifest.name != one.name:
                raise SegmentCorrupt(f"{self.where(one.name.manifest)} is the manifest of {manifest.segment}")
            found[one.file] = manifest
        return found

    def read(self, file: str) -> bytes:
        """Return a whole file; ArchiveUnavailable."""
        with self._reading(file):
            data: bytes = self._fs.cat_file(self._path(file))
        return data

    def where(self, file: str) -> str:
        """Return a file as messages name it."""
        return f"{self.shown.rstrip('/')}/{file}"

    def _path(self, file: str) -> str:
        return f"{self._root.rstrip('/')}/{file}"

    @contextmanager
    def _reading(self, file: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            what = self.where(file) if file else self.shown
            raise ArchiveUnavailable(f"{what} is not there (any more)") from None
        except OSError as error:
            raise ArchiveUnavailable(f"{self.shown} can't be read: {error}") from None
