"""Processor time of a process with all that descend from it: Spark's Java, its Python daemons and their workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def cpu_s_of_tree(pid: int) -> float:
    """Return the processor seconds that they have used so far, and their children that have ended."""
    used = 0
    for process in _processes(pid):
        fields = Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()
        used += sum(map(int, fields[11:15]))
    return used / os.sysconf("SC_CLK_TCK")


def _processes(pid: int) -> Iterator[int]:
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text("ascii").split():
            yield from _processes(int(child))
