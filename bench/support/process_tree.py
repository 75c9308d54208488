"""A process with all that descend from it: Spark's Java, its Python daemons and their workers."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_LOOK_S: Final = 0.2
"""How often memory is looked at; what is held for a shorter time may be missed."""


def cpu_s_of_tree(pid: int) -> float:
    """Return the processor seconds that they have used so far, and their children that have ended."""
    used = 0
    for process in _processes(pid):
        fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
        used += sum(map(int, fields[11:15]))
    return used / os.sysconf("SC_CLK_TCK")


def memory_of_tree(pid: int) -> int:
    """Return the bytes of memory that they hold now; what several share is counted once (PSS)."""
    return sum(map(_memory_of, _processes(pid)))


class Used:
    """What was seen so far: the most bytes of memory at once, and processor seconds."""

    memory: int = 0
    cpu_s: float = 0.0


@contextmanager
def watched(pid: int) -> Iterator[Used]:
    """Look at the process with all that descend from it, some times a second, for as long as the ``with`` lasts."""
    used, ended = Used(), threading.Event()

    def look() -> None:
        while not ended.wait(_LOOK_S):
            used.memory = max(used.memory, memory_of_tree(pid))
            with suppress(FileNotFoundError, ProcessLookupError):  # a process ended meanwhile
                used.cpu_s = max(used.cpu_s, cpu_s_of_tree(pid))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield used
    finally:
        ended.set()
        thread.join()


def _memory_of(process: int) -> int:
    """Its share of what it holds; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text("ascii").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))


def _processes(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        children = ""
        with suppress(FileNotFoundError, ProcessLookupError):  # Java's threads come and go
            children = task.read_text("ascii")
        for child in children.split():
            yield from _processes(int(child))
