"""A small real volume that can be filled: a tmpfs where this user may mount one, else a limit on the server's files."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers import ServerProcess

VOLUME_BYTES = 4 << 20


@contextmanager
def small_volume(folder: Path) -> Iterator[bool]:
    """Mount a volume of :data:`VOLUME_BYTES` at ``folder`` for the length of a ``with``; False if that is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={VOLUME_BYTES}", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def limit_files(server: ServerProcess, size: int) -> None:
    """Let no file of the running server grow beyond ``size`` bytes: its writes then fail as on a full disk (EFBIG)."""
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
