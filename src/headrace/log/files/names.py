"""Names of files and folders that an earlier process made, and may have been killed before it could make durable."""

from __future__ import annotations

import contextlib
from pathlib import Path

from headrace.runtime.disk import Disk


def keep_names(disk: Disk, folder: Path, journal: Path) -> None:
    """Make the names in ``folder``, in ``journal`` and above them durable.

    Else a power failure could take away the name of a segment that this process has appended to.
    """
    for above in reversed(folder.absolute().parents):
        with contextlib.suppress(PermissionError):  # then somebody else made what is in it
            disk.sync_folder(above)
    disk.sync_folder(folder)
    disk.sync_folder(journal)
