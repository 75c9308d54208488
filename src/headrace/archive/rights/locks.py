"""Locks on files of this machine that others look at: who looks is in the way for a moment, and is no owner."""

from __future__ import annotations

import time
from typing import Final

from headrace.runtime.disk import DiskFile

_TRIES: Final = 20
_PAUSE_S: Final = 0.02
"""Between two tries. A look takes microseconds, unless the machine takes the processor away in the midst of it."""


def locked_soon(file: DiskFile) -> bool:
    """Lock the file, past those who only look whether it is locked; False if somebody keeps it, after 0.4 s."""
    for _ in range(_TRIES):
        if file.lock():
            return True
        time.sleep(_PAUSE_S)
    return False
