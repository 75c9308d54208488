"""The folder of a streaming query's checkpoint: how Spark is to write it, and its files as Python reaches them.

Called by whoever starts a query, and by ``checkpoint``, which knows what the files say.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final

from fsspec.core import url_to_fs

from headrace.errors import CheckpointNotFound, CheckpointUnfit, ConfigInvalid
from headrace.runtime.disk import Disk

MANAGER: Final = "spark.sql.streaming.checkpointFileManagerClass"
"""Spark's setting for the class that writes checkpoints."""
LOCAL_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Four times as quick on a local disk as Spark's default; only there is its rename atomic."""

METADATA: Final = "metadata"
"""Spark's file that makes a folder a checkpoint."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def manager_of(checkpoint: str) -> str | None:
    """Return the class by which Spark is to write this checkpoint; None for Spark's own choice.

    A path and a ``file:`` URL are local. On object stores and HDFS Spark's own choice is the one that is safe.
    """
    scheme = _SCHEME.match(checkpoint)
    return LOCAL_MANAGER if scheme is None or scheme[1].lower() == "file" else None


def url_of(checkpoint: str) -> str:
    """Return the place as a URL: a path is one of this machine, whatever file system Hadoop's settings take for granted."""
    # Not Path.as_uri: Hadoop takes percent signs as they are.
    return checkpoint if _SCHEME.match(checkpoint) else f"file://{Path(checkpoint).absolute()}"


class Folder:
    """A folder on this machine's disk, or in a store that fsspec has a driver for.

    ConfigInvalid if it has none that works here. What is asked raises CheckpointUnfit where the disk or the store gives no
    answer: that nothing is there is said only where it was seen.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self._local = manager_of(location) is not None
        try:
            self._files, self._root = url_to_fs(location)
        except Exception as error:  # noqa: BLE001  # each driver raises what its own library does
            raise ConfigInvalid(
                f"{location!r} can't be opened from Python: {_said(error)}",
                hint="Install what the fsspec driver lacks, or run this where the folder is on a disk.",
            ) from None

    def names(self) -> list[str]:
        """Return the names of all files below, hidden ones left out (Spark's checksums are such)."""
        return [
            name for name in self.all_names() if not any(part.startswith(".") for part in name.split("/"))
        ]

    def all_names(self) -> list[str]:
        """Return the names of all files below, hidden ones too, sorted."""
        # A driver may remember what it listed.
        self._try(self._files.invalidate_cache)
        root = PurePosixPath(self._root)
        found: list[str] = []
        folders = [root]
        # Not the driver's own find: it takes a folder that can't be listed for an empty one.
        while folders:
            folder = folders.pop()
            for entry in self._listed(folder):
                path = PurePosixPath(entry["name"])
                if entry["type"] != "directory":
                    found.append(str(path.relative_to(root)))
                elif path != folder:
                    folders.append(path)
        return sorted(found)

    def has(self, name: str) -> bool:
        """Tell whether there is a file of this name."""
        try:
            self._try(self._files.info, f"{self._root}/{name}")
        except CheckpointNotFound:
            return False
        return True

    def read(self, name: str) -> str:
        """Return a file's text."""
        data: bytes = self._try(self._files.cat_file, f"{self._root}/{name}")
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise CheckpointUnfit(f"{self.location}/{name} is no text") from None

    def write(self, name: str, text: str) -> None:
        """Write a file whole and durably."""
        path = f"{self._root}/{name}"
        if self._local:
            disk = Disk()
            self._try(disk.make_folder, Path(path).parent)
            self._try(disk.write_whole, Path(path), text.encode())
        else:
            self._try(self._files.pipe_file, path, text.encode())

    def _listed(self, folder: PurePosixPath) -> list[dict[str, Any]]:
        try:
            return list(self._try(partial(self._files.ls, detail=True), str(folder)))
        except CheckpointNotFound:
            return []

    def _try(self, call: Callable[..., Any], *given: Any) -> Any:
        try:
            return call(*given)
        except FileNotFoundError:
            raise CheckpointNotFound(f"{given[0]} is not there (any more)") from None
        except Exception as error:  # noqa: BLE001  # each driver raises what its own library does
            where = f"{given[0]}" if self._local else f"{self.location}, {given[0] if given else ''}"
            raise CheckpointUnfit(
                f"{where}: {_said(error)}", hint="Check the folder, and whether this user may use it."
            ) from None


def _said(error: Exception) -> str:
    """Return an error in one line; some list all places where a library is not."""
    return str(error).partition("\n")[0] or type(error).__name__
