"""A journal for benches: written once through the real rules and the file store, entries with values of 256 bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from headrace.errors import HeadraceError
from headrace.log.files.store import FileStore
from headrace.log.requests import Append
from headrace.log.rules import GROUP_BYTES_MAX
from headrace.runtime.clock import SystemClock
from headrace.testing.clock import ManualClock
from headrace.wire.entry import digest
from tests.bench import AGENT, half
from tests.bench import Bench as Judging

VALUE_BYTES: Final = 256
FEED: Final = "bench"
GROUP_FRAMES_MAX: Final = 256
"""Frames judged and synced together while a journal is written."""
STAMPED_BYTES: Final = 512
"""More than an entry has in a frame."""


def halves_of(count: int) -> list[bytes]:
    """Return the producer's halves of ``count`` entries with different random values."""
    return [half(os.urandom(VALUE_BYTES)) for _ in range(count)]


def write_journal(folder: Path, entries: int, per_frame: int) -> None:
    """Write ``entries`` entries in frames of ``per_frame`` (the last may have fewer) to a new journal in ``folder``."""
    store = FileStore(folder)
    judging = Judging(store, ManualClock(SystemClock().wall_ms()))  # retention must find it young
    judging.register(FEED)
    halves = halves_of(per_frame)
    group = min(GROUP_FRAMES_MAX, max(1, GROUP_BYTES_MAX // (STAMPED_BYTES * per_frame)))
    whole, rest = divmod(entries, per_frame)
    append = Append(FEED, AGENT, halves, digest(halves))
    for begun in range(0, whole, group):
        _write(judging, [append] * min(group, whole - begun))
    if rest:
        _write(judging, [Append(FEED, AGENT, halves[:rest], digest(halves[:rest]))])
    store.close()


def _write(judging: Judging, appends: list[Append]) -> None:
    """Write these as one group; raises the first refusal."""
    for outcome in judging.ask(*appends):
        if isinstance(outcome, HeadraceError):
            raise outcome
