"""The folder of a spool: taken only where it is empty or bears our mark, and nothing but our own files is ever removed.

``snapshot-dir`` is a setting, so it may name any folder by mistake: a home, a data folder, a volume's root.
"""

from __future__ import annotations

import errno
import re
from pathlib import Path
from typing import Final

from headrace.errors import ConfigInvalid, DataFolderLocked
from headrace.publisher.snapshot.draft import ENCODINGS
from headrace.runtime.disk import Disk, DiskFile
from headrace.runtime.logs import get_logger

logger = get_logger("snapshot")

ABOUT: Final = "about.json"
MAKING: Final = ".making"
OWNER: Final = "owner.lock"
MARK: Final = b"headrace snapshot spool\n"
"""What ``owner.lock`` holds. One without it is taken for ours only if nothing but snapshots stands beside it."""

_OURS: Final = re.compile(
    rf"[0-9a-f]{{8}}(-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}({re.escape(MAKING)})?", re.ASCII
)
_FILES: Final = (ABOUT, f"{ABOUT}.tmp", *ENCODINGS)
_NAMED_MAX: Final = 3


def take_folder(folder: Path, disk: Disk) -> DiskFile:
    """Own ``folder``, made if it isn't there, until the file that is returned is closed.

    Raises ConfigInvalid if something else is in it or it can't be used, DataFolderLocked if another agent has it; nothing
    there was changed then.
    """
    try:
        disk.make_folder(folder)
        _check_ours(folder)
        owner = disk.open(folder / OWNER, create=True)
        if not owner.lock():
            owner.close()
            raise DataFolderLocked(
                f"another agent keeps its snapshots in {folder}",
                hint="Give each agent a snapshot-dir of its own.",
            )
        owner.write_at(0, MARK)
        owner.sync()
        folder.chmod(0o700)  # it holds the source's rows
    except OSError as error:
        raise ConfigInvalid(
            f"snapshot-dir: {folder} can't be used: {error.strerror or error}",
            hint="Name a folder that the agent's user may make or owns.",
        ) from error
    return owner


def snapshot_folders(folder: Path) -> list[Path]:
    """Return the folders of snapshots in ``folder``, whole or not: by their names; links are none."""
    return [
        path for path in folder.iterdir() if is_ours(path.name) and path.is_dir() and not path.is_symlink()
    ]


def is_ours(name: str) -> bool:
    """Is this the name of a snapshot's folder, whole or in the making?"""
    return _OURS.fullmatch(name) is not None


def discard(folder: Path) -> None:
    """Remove a snapshot's folder with the files that a snapshot has. What else somebody put there stays. OSError."""
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        logger.warning(
            "a snapshot's folder stays: something that is no snapshot is in it", folder=str(folder)
        )


def _check_ours(folder: Path) -> None:
    """Raise ConfigInvalid unless the folder is empty or a spool: whoever was wrong about the name loses nothing."""
    mark = folder / OWNER
    is_there = mark.is_file() and not mark.is_symlink()
    if is_there and mark.stat().st_size == len(MARK) and mark.read_bytes() == MARK:
        return
    is_bare = (
        is_there and mark.stat().st_size == 0
    )  # an agent was killed as it took it, or is of an earlier version
    others = sorted(
        path.name for path in folder.iterdir() if not (is_bare and (path.name == OWNER or is_ours(path.name)))
    )
    if others:
        named = ", ".join(others[:_NAMED_MAX]) + (" …" if len(others) > _NAMED_MAX else "")
        raise ConfigInvalid(
            f"snapshot-dir: {folder} is no agent's spool, and it is not empty: it holds {named}",
            hint="Name a folder that is empty or not there yet. Nothing in this one was touched.",
        )
