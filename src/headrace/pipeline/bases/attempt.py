"""One attempt at a base: how its files become one by the manifest that names them, or go again. Called by who makes bases.

A file that a manifest names must never go. Once the manifest's put has begun, only a look can tell whether it is there; and
an object store may carry out later what it has not answered yet. In doubt the files stay: without a manifest nobody takes
them for a base, and a prune removes them once they are old.
"""

from __future__ import annotations

from headrace.archive.files.bases import StoredBase, files_of, read_base
from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import put_new, remove
from headrace.entries.lsn import Lsn
from headrace.errors import ArchiveConflict, HeadraceError
from headrace.pipeline.bases.writing import Place
from headrace.runtime.logs import get_logger
from headrace.wire.base_manifest import MANIFEST, BaseManifest, encode_base

logger = get_logger("pipeline")


class Attempt:
    """The files that one job writes at ``place`` in the archive ``folder``."""

    def __init__(self, folder: Folder, place: Place) -> None:
        self._folder, self.place = folder, place
        self._manifest = f"{place.path}/{MANIFEST}"
        self._named = False
        """A manifest that names these files was, or may have been, put there."""

    def finish(self, manifest: BaseManifest) -> StoredBase:
        """Put the manifest there, which makes the files a base, and return that; another job's, if that was quicker.

        ArchiveFull; ArchiveUnavailable, after which it may stand nevertheless.
        """
        self._named = True
        try:
            put_new(self._folder, self._manifest, [encode_base(manifest)])
        except ArchiveConflict:
            # Another job was quicker; its base is as good.
            self._named = False
            self.take_away()
            return read_base(self._folder, self.place.path)
        return StoredBase(Lsn.parse(manifest.lsn), self.place.path, manifest)

    def take_away(self) -> None:
        """Remove this attempt's files, as far as that goes, unless their manifest stands there, or may do so yet."""
        path = self.place.path
        try:
            if self._named and (self._folder.local is None or self._folder.exists(self._manifest)):
                logger.warning("the manifest of a base is there, or may be: its files stay", folder=path)
                return
            there = [name for name in files_of(self._folder, path) if f"part-{self.place.attempt}-" in name]
            remove(self._folder, [f"{path}/{name}" for name in there])
        except HeadraceError as error:
            logger.warning("files of a base that failed are left", folder=path, problem=error.detail)
