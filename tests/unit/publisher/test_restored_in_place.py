"""A backup written into the open database: same file, same epoch, but an outbox that has gone back. Nothing is marked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import AgentFenced, OutboxBehindFeed, SourceUnavailable
from headrace.publisher.marked import RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import Alarm, FeedPlace
from headrace.publisher.sqlite.source import SqliteSource
from tests.unit.publisher.outboxes import AGENT, FEED, application, attach, claim, drain, opened


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    with opened(tmp_path / "app.db") as found:
        attach(found, "t", copy=False)
        yield found


def insert(app: sqlite3.Connection, value: str, *numbers: int) -> None:
    app.execute("BEGIN")
    app.executemany("INSERT OR REPLACE INTO t VALUES (?, ?)", [(number, value) for number in numbers])
    app.execute("COMMIT")


def restore(app: sqlite3.Connection, backup: Path) -> None:
    """What ``.restore`` of the sqlite3 shell does: the file and its inode stay."""
    with closing(sqlite3.connect(backup)) as old:
        old.backup(app)


def back_up(app: sqlite3.Connection, backup: Path) -> None:
    with closing(sqlite3.connect(backup)) as copy:
        app.backup(copy)


def outbox(app: sqlite3.Connection) -> list[tuple[int, int | None, int]]:
    return app.execute("SELECT id, sequence_id, processed FROM headrace_outbox ORDER BY id").fetchall()


def test_nothing_is_marked_before_the_feed_was_compared(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path
) -> None:
    claim(source)
    drain(source)
    back_up(app, tmp_path / "backup.db")
    insert(app, "lost", 1, 2, 3)
    feed_next = drain(source)[-1].sequence_id + 1
    restore(app, tmp_path / "backup.db")
    insert(app, "new", 1, 2, 3, 4, 5)
    before = outbox(app)
    with pytest.raises(SourceUnavailable, match="restored"):
        source.advance(FEED, AGENT, 1, None, 1)
    with pytest.raises(SourceUnavailable, match="restored"):
        source.batch(FEED, AGENT)
    with pytest.raises(OutboxBehindFeed):
        claim(source, FeedPlace("incarnation-1", feed_next, 2))
    with pytest.raises(SourceUnavailable):  # it never joined
        source.advance(FEED, AGENT, 2, None, 1)
    assert outbox(app) == before


def test_what_was_posted_is_not_noted_in_a_restored_outbox(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path
) -> None:
    claim(source)
    back_up(app, tmp_path / "backup.db")
    insert(app, "lost", 1, 2)
    source.advance(FEED, AGENT, 1, None, 1)
    last = source.batch(FEED, AGENT)[-1]
    restore(app, tmp_path / "backup.db")
    insert(app, "new", 1, 2, 3)
    with pytest.raises(SourceUnavailable):
        source.advance(FEED, AGENT, 1, RowPlace(last.id, last.sequence_id), 1)
    assert all(not processed for _, _, processed in outbox(app))


def test_a_restore_that_takes_back_only_what_was_processed_is_noticed(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path
) -> None:
    claim(source)
    insert(app, "a", 1)
    source.advance(FEED, AGENT, 1, None, 1)
    row = source.batch(FEED, AGENT)[-1]
    back_up(app, tmp_path / "backup.db")
    source.advance(FEED, AGENT, 1, RowPlace(row.id, row.sequence_id), 1)
    restore(app, tmp_path / "backup.db")
    with pytest.raises(SourceUnavailable, match="restored"):
        source.batch(FEED, AGENT)


def test_backup_of_the_very_same_state_goes_on(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path
) -> None:
    claim(source)
    insert(app, "a", 1)
    drain(source)
    back_up(app, tmp_path / "backup.db")
    insert(app, "never seen", 2)
    restore(app, tmp_path / "backup.db")
    insert(app, "b", 2, 3)
    assert [row.changes for row in drain(source)] == [b'{"id":2,"v":"b"}', b'{"id":3,"v":"b"}']


def test_source_opened_anew_is_claimed_first(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path
) -> None:
    claim(source)
    insert(app, "a", 1)
    source.advance(FEED, AGENT, 1, None, 1)
    row = source.batch(FEED, AGENT)[-1]
    with opened(tmp_path / "app.db") as anew, pytest.raises(SourceUnavailable, match="opened anew"):
        anew.advance(FEED, AGENT, 1, RowPlace(row.id, row.sequence_id), 1)


def test_what_others_may_change_does_not_matter(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path
) -> None:
    claim(source)
    insert(app, "a", 1, 2, 3)
    drain(source)
    source.mend(FEED)
    alarm = Alarm(code=OutboxBehindFeed.code, detail="", hint="", raised_at_ms=1)
    with opened(tmp_path / "app.db") as other:
        assert other.sweep(FEED, 10**15) > 0
        other.set_alarm(FEED, alarm)
        other.accept(FEED, "why")
        app.execute("CREATE TABLE u (id INTEGER PRIMARY KEY)")
        attach(other, "u")
        app.execute("BEGIN")
        Outbox.add(app, FEED, {"a": 1})
        app.execute("COMMIT")
        assert len(drain(source)) > 1
        other.detach(["u"])
        insert(app, "b", 4)
        assert [row.control for row in drain(source)] == ["truncate", None]


def test_fenced_agent_does_not_take_the_newer_one_for_a_restore(
    app: sqlite3.Connection, source: SqliteSource, tmp_path: Path
) -> None:
    claim(source)
    insert(app, "a", 1)
    source.advance(FEED, AGENT, 1, None, 1)
    with opened(tmp_path / "app.db") as newer:
        claim(newer, FeedPlace("incarnation-1", 1, 2))
        for call in (
            lambda: source.batch(FEED, AGENT),
            lambda: source.advance(FEED, AGENT, 1, RowPlace(1, 1), 1),
        ):
            with pytest.raises(AgentFenced):
                call()
