"""What every metadata database promises (``log/metadata/contract.py``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.log.metadata.contract import ALARMS_MAX, Metadata
from headrace.log.metadata.postgres import PostgresMetadata
from headrace.log.metadata.sqlite import SqliteMetadata
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from tests.postgres import Database


def sqlite(request: pytest.FixtureRequest) -> Iterator[Metadata]:
    """The database beside a file store's journal."""
    folder: Path = request.getfixturevalue("tmp_path")
    with closing(SqliteMetadata(folder / "metadata.sqlite3")) as opened:
        yield opened


def postgres(request: pytest.FixtureRequest) -> Iterator[Metadata]:
    """The tables beside a PostgreSQL store's journal."""
    database: Database = request.getfixturevalue("database")
    with closing(PostgresStore(parse_address(database.dsn), segment_bytes=4096)) as store:
        yield PostgresMetadata(store.pool)


Kind = Callable[[pytest.FixtureRequest], Iterator[Metadata]]


@pytest.fixture(params=[sqlite, postgres], ids=lambda kind: str(kind.__name__))
def metadata(request: pytest.FixtureRequest) -> Iterator[Metadata]:
    """Each kind in turn, empty."""
    kind: Kind = request.param
    yield from kind(request)


def test_listeners_keep_their_bookmarks_over_registrations(metadata: Metadata) -> None:
    metadata.register_listener("l", "f", False, 1)
    assert metadata.listener("l", "f") == ("l", "f", False, None, None, None, 1)
    metadata.put_position("l", "f", "i", 7, "1.1.7", 2)
    metadata.register_listener("l", "f", True, 3)
    assert metadata.listeners("f") == [("l", "f", True, "i", 7, "1.1.7", 3)]
    metadata.seen([("l", "f")], 9)
    assert metadata.listeners("f")[0].seen_at_ms == 9
    assert metadata.listener("l", "g") is None


def test_listeners_are_sorted_by_name_and_keep_to_their_feed(metadata: Metadata) -> None:
    for name in ("b", "B", "a-1", "a", "é"):
        metadata.register_listener(name, "f", True, 1)
    metadata.register_listener("a", "g", False, 2)
    assert [row.listener_id for row in metadata.listeners("f")] == ["B", "a", "a-1", "b", "é"]
    metadata.seen([("a", "g"), ("b", "f"), ("nobody", "f"), ("a", "nowhere")], 5)
    assert {(row.listener_id, row.seen_at_ms) for row in metadata.listeners("f")} >= {("a", 1), ("b", 5)}
    assert metadata.listeners("g") == [("a", "g", False, None, None, None, 5)]
    metadata.put_position("a", "g", "i", 1 << 62, None, 6)
    assert metadata.listener("a", "g") == ("a", "g", False, "i", 1 << 62, None, 6)


@pytest.mark.parametrize("name", ["", "\0", "a\0b", "'; DROP TABLE listener; --", "%s", "ü" * 300])
def test_any_text_can_be_asked_for(metadata: Metadata, name: str) -> None:
    assert metadata.listener(name, "f") is None
    metadata.register_listener("l", "f", False, 1)
    assert metadata.listener(name, "f") is None


def test_an_alarm_stands_once_and_comes_again_after_it_was_cleared(metadata: Metadata) -> None:
    first = metadata.raise_alarm("c", "one", 1, feed="f", agent_id="a")
    assert metadata.raise_alarm("c", "two", 2, feed="f", agent_id="a") == first
    metadata.clear_alarms("c", agent_id="a", now_ms=3)
    assert metadata.raise_alarm("c", "three", 4, feed="f", agent_id="a") != first
    found = metadata.alarms()
    assert [(alarm.detail, alarm.cleared_at_ms) for alarm in found] == [("three", None), ("two", 3)]


def test_alarms_that_stand_come_first_then_the_newest_cleared(metadata: Metadata) -> None:
    for number in range(ALARMS_MAX + 3):
        metadata.raise_alarm("c", f"{number}", number, feed=f"f{number}")
    metadata.clear_alarms("c", agent_id="somebody", now_ms=9_000)
    assert all(alarm.cleared_at_ms is None for alarm in metadata.alarms())
    metadata.clear_alarms("c", agent_id="", now_ms=9_001)
    metadata.raise_alarm("d", "stands", 1)
    found = metadata.alarms()
    assert len(found) == ALARMS_MAX
    assert [alarm.detail for alarm in found[:3]] == ["stands", f"{ALARMS_MAX + 2}", f"{ALARMS_MAX + 1}"]


def test_a_subscriber_keeps_its_place_and_moves_forward_only(metadata: Metadata) -> None:
    low, high = str(Lsn(1, 1, 1)), str(Lsn(2, 1, 5))
    assert metadata.begin_subscriber("anonymous", "", low, 10) == ("anonymous", "", low, 10)
    assert metadata.begin_subscriber("anonymous", "", high, 11) == ("anonymous", "", low, 11)
    metadata.begin_subscriber("admin", "backup", low, 12)
    metadata.move_subscribers([("anonymous", "", high), ("admin", "backup", low), ("nobody", "", high)], 13)
    metadata.move_subscribers([("anonymous", "", low)], 14)
    assert metadata.subscribers() == [("admin", "backup", low, 13), ("anonymous", "", high, 14)]


def test_alarms_of_one_feed_are_cleared_alone(metadata: Metadata) -> None:
    for feed in ("f", "g", ""):
        metadata.raise_alarm("c", f"of {feed}", 1, feed=feed)
    metadata.clear_alarms("c", agent_id="", now_ms=2, feed="f")
    assert {alarm.feed for alarm in metadata.alarms() if alarm.cleared_at_ms is None} == {"g", ""}
    metadata.clear_alarms("c", agent_id="", now_ms=3, feed="")
    assert {alarm.feed for alarm in metadata.alarms() if alarm.cleared_at_ms is None} == {"g"}
