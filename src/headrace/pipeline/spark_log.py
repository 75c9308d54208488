"""Keeps the file small that Spark's Java and its Python workers print into, for as long as they run.

They hold it open, and append to it: so it is copied and emptied in its place. What is printed between the two is lost.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.runtime.logs import get_logger

logger = get_logger("pipeline")

LOG_BYTES_MAX: Final = 32 << 20
"""A log that is larger gives way."""
LOOK_EVERY_S: Final = 60.0
OLD: Final = ".1"
"""What is put behind the name of the log before this one; one is kept."""


def keep_small(log: Path, bytes_max: int = LOG_BYTES_MAX) -> bool:
    """Begin the log anew, and keep what it had beside it, if it is larger than ``bytes_max``; True if it was.

    Raises OSError. Whoever has it open must have it open to append.
    """
    if not log.exists() or log.stat().st_size <= bytes_max:
        return False
    old = log.with_name(log.name + OLD)
    draft = log.with_name(log.name + OLD + ".draft")
    try:
        shutil.copyfile(log, draft)
        draft.replace(old)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    with log.open("rb+") as file:
        file.truncate(0)
    return True


def watch(
    log: Path, ended: Callable[[], bool], *, bytes_max: int = LOG_BYTES_MAX, every_s: float = LOOK_EVERY_S
) -> threading.Thread:
    """Keep a log small now and from time to time, on a thread of its own, until ``ended``; return the thread.

    A failure ends nothing: it is logged once, and tried again the next time.
    """
    pause = threading.Event()

    def run() -> None:
        told = False
        while not ended():
            try:
                keep_small(log, bytes_max)
                told = False
            except OSError as error:
                if not told:
                    logger.warning("Spark's log can't be kept small", file=str(log), reason=str(error))
                told = True
            pause.wait(every_s)

    thread = threading.Thread(target=run, name="spark-log", daemon=True)
    thread.start()
    return thread
