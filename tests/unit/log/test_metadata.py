"""The metadata database: listeners, alarms, its format, and that it may be deleted."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import JournalCorrupt
from headrace.log.metadata import ALARMS_MAX, AlarmRow, ListenerRow, Metadata, check_format
from headrace.wire.versions import METADATA


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite3"


@pytest.fixture
def metadata(path: Path) -> Iterator[Metadata]:
    with closing(Metadata(path)) as opened:
        yield opened


def test_listener_keeps_its_bookmark(metadata: Metadata) -> None:
    assert metadata.listener("l", "f") is None
    metadata.register_listener("l", "f", hold=False, now_ms=5)
    assert metadata.listener("l", "f") == ListenerRow("l", "f", False, None, None, None, 5)
    metadata.put_position("l", "f", "inc", 7, "1.2.3", 6)
    metadata.register_listener("l", "f", hold=True, now_ms=8)
    assert metadata.listener("l", "f") == ListenerRow("l", "f", True, "inc", 7, "1.2.3", 8)
    metadata.put_position("l", "f", "inc", 3, None, 9)
    assert metadata.listener("l", "f") == ListenerRow("l", "f", True, "inc", 3, None, 9)


def test_listeners_of_a_feed_by_name(metadata: Metadata) -> None:
    for listener, feed in (("b", "f"), ("a", "f"), ("c", "g")):
        metadata.register_listener(listener, feed, hold=False, now_ms=1)
    assert [row.listener_id for row in metadata.listeners("f")] == ["a", "b"]
    metadata.seen([("a", "f"), ("nobody", "f")], 9)
    assert [row.seen_at_ms for row in metadata.listeners("f")] == [9, 1]


def test_position_of_an_unregistered_listener_goes_nowhere(metadata: Metadata) -> None:
    metadata.put_position("l", "f", "inc", 7, None, 6)
    assert metadata.listeners("f") == []


def test_standing_alarm_is_brought_up_to_date(metadata: Metadata) -> None:
    first = metadata.raise_alarm("c", "one", 1, feed="f", agent_id="a")
    assert metadata.raise_alarm("c", "two", 2, feed="f", agent_id="a") == first
    other = metadata.raise_alarm("c", "three", 3, feed="g", agent_id="a")
    assert metadata.alarms() == [
        AlarmRow(other, "c", "g", "a", "three", 3, None),
        AlarmRow(first, "c", "f", "a", "two", 1, None),
    ]
    metadata.clear_alarms("c", agent_id="a", now_ms=4)
    assert [row.cleared_at_ms for row in metadata.alarms()] == [4, 4]
    assert metadata.raise_alarm("c", "again", 5, feed="f", agent_id="a") not in {first, other}
    assert [row.detail for row in metadata.alarms()] == ["again", "three", "two"]


def test_alarms_shown_are_bounded(metadata: Metadata) -> None:
    for number in range(ALARMS_MAX + 5):
        metadata.raise_alarm("c", str(number), number, feed=str(number))
    shown = metadata.alarms()
    assert len(shown) == ALARMS_MAX
    assert shown[0].detail == str(ALARMS_MAX + 4)


def test_everything_is_there_after_a_crash(path: Path, metadata: Metadata) -> None:
    """What was written is committed at once: another connection sees it while the first one still stands."""
    metadata.register_listener("l", "f", hold=False, now_ms=5)
    metadata.raise_alarm("c", "one", 1)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM listener").fetchone() == (1,)
        assert other.execute("SELECT count(*) FROM alarm").fetchone() == (1,)


def test_format_is_written_once_even_if_a_crash_came_between(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE format (written_as INTEGER NOT NULL, readable_from INTEGER NOT NULL)")
    for _ in range(2):
        Metadata(path).close()
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM format").fetchall() == [tuple(METADATA)]


def test_format_check_makes_nothing(path: Path) -> None:
    check_format(path)
    assert not path.exists()
    Metadata(path).close()
    check_format(path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_format_check_beside_a_running_server(path: Path, metadata: Metadata) -> None:
    metadata.register_listener("l", "f", hold=False, now_ms=5)
    check_format(path)


@pytest.mark.parametrize(
    "content", [b"x" * 5000, b"SQLite format 3\x00" + b"\xff" * 4080], ids=["text", "damaged"]
)
def test_damaged_database_is_refused_and_left_alone(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    check_format(path)
    with pytest.raises(JournalCorrupt, match="not a usable metadata database") as refusal:
        Metadata(path)
    assert "journal is not touched" in refusal.value.advice
    assert path.read_bytes() == content
