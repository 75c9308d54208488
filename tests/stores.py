"""The stores that keep the store contract: one more is one more line in ``STORES``.

The fixture ``opener`` (for every test, see ``tests/conftest.py``) runs a test on each of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headrace.log.contract import Store
from headrace.log.files.store import FileStore
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from tests.bench import Bench
from tests.postgres import Cluster

Opener = Callable[[Path, int], Store]
"""``open(folder, segment_bytes)`` opens the journal that belongs to ``folder``, made if it isn't there."""

_databases: dict[Path, str] = {}


def open_files(folder: Path, segment_bytes: int) -> Store:
    """Open a file store."""
    return FileStore(folder, segment_bytes=segment_bytes)


def database_of(cluster: Cluster, folder: Path) -> str:
    """Return the address of the database that stands for ``folder``, made empty at the first call."""
    if folder not in _databases:
        _databases[folder] = cluster.create_database(f"store_{len(_databases)}")
    return _databases[folder]


def open_postgres(cluster: Cluster, folder: Path, segment_bytes: int) -> Store:
    """Open a PostgreSQL store in the database that stands for ``folder``."""
    return PostgresStore(parse_address(database_of(cluster, folder)), segment_bytes=segment_bytes)


STORES: dict[str, Callable[[pytest.FixtureRequest], Opener]] = {
    "files": lambda request: open_files,
    "postgres": lambda request: partial(open_postgres, request.getfixturevalue("cluster")),
}


@pytest.fixture(params=list(STORES))
def opener(request: pytest.FixtureRequest) -> Opener:
    """Give what opens a store, each kind in turn."""
    return STORES[request.param](request)


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
