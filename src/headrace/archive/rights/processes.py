"""Marks of processes, by which another one of the same machine can tell for certain that they have ended."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import msgspec


class ProcessMark(msgspec.Struct, frozen=True, rename="kebab"):
    """A process. ``machine``: its machine's present run and the namespace of its pid, empty where that can't be told.

    ``began``: when it began, in ticks since the machine did, as pids are used again; 0 where that can't be told.
    """

    host: str
    pid: int
    machine: str = ""
    began: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} of {self.host}"


def this_process() -> ProcessMark:
    """Return the mark of this process."""
    pid = os.getpid()
    found = _began(pid)
    return ProcessMark(socket.gethostname(), pid, _machine(), found[1] if found is not None else 0)


def has_ended(mark: ProcessMark) -> bool:
    """Tell whether that process has ended for certain: False for any of another machine, or another container."""
    if not mark.machine or not mark.began or mark.machine != _machine():
        return False
    try:
        os.kill(mark.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    found = _began(mark.pid)
    return found is not None and (found[0] in "ZX" or found[1] != mark.began)


def _machine() -> str:
    """Return what is the same for processes that see each other's pids, and for no others."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _began(pid: int) -> tuple[str, int] | None:
    """Return a process's state and when it began; None if that can't be told."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        return fields[0], int(fields[19])
    except (OSError, ValueError, IndexError):
        return None
