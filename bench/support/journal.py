"""A journal for benches: written once through the real rules and the file store, entries with values of 256 bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from headrace.log.files.store import FileStore
from headrace.log.requests import Append
from headrace.runtime.clock import SystemClock
from headrace.testing.clock import ManualClock
from headrace.wire.entry import digest
from tests.bench import AGENT, half
from tests.bench import Bench as Judging

VALUE_BYTES: Final = 256
FEED: Final = "bench"
GROUP_FRAMES: Final = 256
"""Frames judged and synced together while a journal is written."""


def halves_of(count: int) -> list[bytes]:
    """Return the producer's halves of ``count`` entries with different random values."""
    return [half(os.urandom(VALUE_BYTES)) for _ in range(count)]


def write_journal(folder: Path, entries: int, per_frame: int) -> None:
    """Write ``entries`` entries in frames of ``per_frame`` to a new journal in ``folder``."""
    store = FileStore(folder)
    judging = Judging(store, ManualClock(SystemClock().wall_ms()))  # retention must find it young
    judging.register(FEED)
    halves = halves_of(per_frame)
    append = Append(FEED, AGENT, halves, digest(halves))
    frames = entries // per_frame
    for begun in range(0, frames, GROUP_FRAMES):
        judging.ask(*[append] * min(GROUP_FRAMES, frames - begun))
    store.close()
