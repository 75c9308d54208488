"""The metadata database: listeners and alarms; a full database is "not now", and readers go on without it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
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


def test_listeners_keep_their_bookmarks_over_registrations(metadata: SqliteMetadata) -> None:
    metadata.register_listener("l", "f", False, 1)
    assert metadata.listener("l", "f") == ("l", "f", False, None, None, None, 1)
    metadata.put_position("l", "f", "i", 7, "1.1.7", 2)
    metadata.register_listener("l", "f", True, 3)
    assert metadata.listeners("f") == [("l", "f", True, "i", 7, "1.1.7", 3)]
    metadata.seen([("l", "f")], 9)
    assert metadata.listeners("f")[0].seen_at_ms == 9
    assert metadata.listener("l", "g") is None


def test_an_alarm_stands_once_and_comes_again_after_it_was_cleared(metadata: SqliteMetadata) -> None:
    first = metadata.raise_alarm("c", "one", 1, feed="f", agent_id="a")
    assert metadata.raise_alarm("c", "two", 2, feed="f", agent_id="a") == first
    metadata.clear_alarms("c", agent_id="a", now_ms=3)
    assert metadata.raise_alarm("c", "three", 4, feed="f", agent_id="a") != first
    found = metadata.alarms()
    assert [(alarm.detail, alarm.cleared_at_ms) for alarm in found] == [("three", None), ("two", 3)]


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
        piece = await service.poll("f", "l", 0, timeout_ms=0, limit=10, known=Known(None, None))
        assert piece is not None
    finally:
        await log.close()


def test_another_program_is_not_locked_out_of_reading(metadata: SqliteMetadata, tmp_path: Path) -> None:
    metadata.register_listener("l", "f", False, 1)
    with closing(sqlite3.connect(tmp_path / "metadata.sqlite3")) as other:
        assert other.execute("SELECT count(*) FROM listener").fetchone() == (1,)


def test_a_subscriber_keeps_its_place_and_moves_forward_only(metadata: SqliteMetadata) -> None:
    low, high = str(Lsn(1, 1, 1)), str(Lsn(2, 1, 5))
    assert metadata.begin_subscriber("anonymous", "", low, 10) == ("anonymous", "", low, 10)
    assert metadata.begin_subscriber("anonymous", "", high, 11) == ("anonymous", "", low, 11)
    metadata.begin_subscriber("admin", "backup", low, 12)
    metadata.move_subscribers([("anonymous", "", high), ("admin", "backup", low), ("nobody", "", high)], 13)
    metadata.move_subscribers([("anonymous", "", low)], 14)
    assert metadata.subscribers() == [("admin", "backup", low, 13), ("anonymous", "", high, 14)]
