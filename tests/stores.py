"""The stores that keep the store contract: one more is one more line in ``STORES``."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from headrace.log.contract import Store
from headrace.log.files.store import FileStore
from tests.bench import Bench

Opener = Callable[[Path, int], Store]
"""``open(folder, segment_bytes)`` opens the journal that lives in ``folder``, made if it isn't there."""


def open_files(folder: Path, segment_bytes: int) -> Store:
    """Open a file store."""
    return FileStore(folder, segment_bytes=segment_bytes)


STORES: dict[str, Opener] = {"files": open_files}

SMALL_SEGMENT = 4096
"""Segment bytes so that some twenty frames fill several segments."""


def fill(bench: Bench, feeds: list[str], appends: int, *, seed: int = 5) -> dict[str, dict[int, bytes]]:
    """Append to the feeds in random turns and groups; returns what stands in each: sequence id -> value."""
    rng = random.Random(seed)
    wanted: dict[str, dict[int, bytes]] = {feed: {} for feed in feeds}
    for feed in feeds:
        bench.register(feed)
    for number in range(appends):
        feed = rng.choice(feeds)
        values = [
            f"{feed}-{number}-{at}".encode() + b"." * rng.choice((0, 1, 90))
            for at in range(rng.randint(1, 4))
        ]
        appended = bench.append(feed, *values, source=str(number).encode())
        wanted[feed] |= dict(enumerate(values, appended.first_sequence_id))
    return wanted
