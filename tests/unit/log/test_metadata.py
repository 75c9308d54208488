"""The metadata database in SQLite: a full one is "not now", and readers go on without it. Its rows: ``tests/contract``."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import StoreUnavailable
from headrace.log.log import Log
from headrace.log.metadata.sqlite import SqliteMetadata
from headrace.server.reading import Known
from headrace.server.service import Service
from headrace.testing.clock import ManualClock
from headrace.wire import documents as doc


@pytest.fixture
def metadata(tmp_path: Path) -> Iterator[SqliteMetadata]:
    with closing(SqliteMetadata(tmp_path / "metadata.sqlite3")) as opened:
        yield opened


def fill(metadata: SqliteMetadata) -> None:
    """Let the database grow no further: what a full disk comes to."""
    with metadata._use() as database:
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")


def test_what_the_database_cannot_do_is_unavailable(metadata: SqliteMetadata) -> None:
    fill(metadata)
    with pytest.raises(StoreUnavailable, match="full"):
        metadata.register_listener("l" * 100_000, "f", False, 1)


async def test_readers_go_on_when_last_seen_cannot_be_written(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path, clock=clock)
    await log.start()
    try:
        service = Service(log, clock=clock)
        await service.register_publisher(doc.RegisterPublisher(agent_id="a", change_feed_id="f"))
        await service.register_listener(doc.RegisterListener(listener_id="l", change_feed_id="f"))
        assert isinstance(log.metadata, SqliteMetadata)
        with log.metadata._use() as database:
            database.execute("PRAGMA query_only = ON")
        with pytest.raises(StoreUnavailable):
            log.metadata.seen([("l", "f")], 1)
        clock.seconds += 3600
        found = await service.poll("f", "l", 0, timeout_ms=0, known=Known(None, None))
        assert found.entries == 0
    finally:
        await log.close()


def test_another_program_is_not_locked_out_of_reading(metadata: SqliteMetadata, tmp_path: Path) -> None:
    metadata.register_listener("l", "f", False, 1)
    with closing(sqlite3.connect(tmp_path / "metadata.sqlite3")) as other:
        assert other.execute("SELECT count(*) FROM listener").fetchone() == (1,)
