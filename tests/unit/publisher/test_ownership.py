"""Where the outbox is, where the feed is, and what that means: a table of cases, then the same on a real outbox."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.errors import (
    AgentFenced,
    FeedBehindOutbox,
    FeedRecreated,
    HeadraceError,
    OutboxBehindFeed,
    SourceUnavailable,
    Usage,
)
from headrace.publisher.marked import RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import Alarm, FeedPlace, Owner, Resume, check_unmoved, compare
from headrace.publisher.sqlite.source import SqliteSource
from tests.unit.publisher.outboxes import (
    AGENT,
    FEED,
    application,
    attach,
    check_order,
    claim,
    drain,
    fold,
    opened,
)

OWNER = Owner(
    feed=FEED, agent_id=AGENT, epoch=3, incarnation="A", next_sequence_id=20, processed_next=15, kept_from=10,
    alarm=None, accepted=None,
)  # fmt: skip
FRESH = Owner(
    feed=FEED, agent_id="", epoch=0, incarnation=None, next_sequence_id=0, processed_next=0, kept_from=0,
    alarm=None, accepted=None,
)  # fmt: skip


@pytest.mark.parametrize("moved", [{"incarnation": "B"}, {"next_sequence_id": 19}, {"processed_next": 14}])
def test_an_outbox_that_is_not_where_its_agent_left_it_is_compared_anew(moved: dict[str, Any]) -> None:
    assert check_unmoved(OWNER, FEED, AGENT, 3, OWNER) == OWNER
    with pytest.raises(SourceUnavailable, match="not where this agent left it"):
        check_unmoved(replace(OWNER, **moved), FEED, AGENT, 3, OWNER)


@pytest.mark.parametrize(
    ("owner", "place", "expected"),
    [
        (FRESH, FeedPlace("A", 1, 1), Resume(first_time=True)),
        (FRESH, FeedPlace("A", 2, 1), OutboxBehindFeed),
        (OWNER, FeedPlace("A", 20, 3), Resume(confirm_below=20)),
        (OWNER, FeedPlace("A", 17, 4), Resume(confirm_below=17)),
        (OWNER, FeedPlace("A", 15, 4), Resume(confirm_below=15)),
        (OWNER, FeedPlace("A", 14, 4), Resume(repost_from=14)),
        (OWNER, FeedPlace("A", 10, 4), Resume(repost_from=10)),
        (OWNER, FeedPlace("A", 9, 4), FeedBehindOutbox),
        (OWNER, FeedPlace("A", 21, 4), OutboxBehindFeed),
        (OWNER, FeedPlace("B", 20, 4), FeedRecreated),
        (OWNER, FeedPlace("B", 20, 1), FeedRecreated),
        (OWNER, FeedPlace("A", 20, 2), AgentFenced),
    ],
    ids=[
        "first-time",
        "fresh-outbox-old-feed",
        "all-there",
        "some-there",
        "none-there",
        "one-lost",
        "all-kept-lost",
        "more-lost-than-kept",
        "feed-ahead",
        "recreated",
        "recreated-at-lower-epoch",
        "fenced",
    ],
)
def test_compare(owner: Owner, place: FeedPlace, expected: Resume | type[HeadraceError]) -> None:
    if isinstance(expected, Resume):
        assert compare(owner, place) == expected
        return
    with pytest.raises(expected) as caught:
        compare(owner, place)
    if expected is not AgentFenced:
        assert f"headrace publisher accept DSN --feed {FEED}" in caught.value.advice


@pytest.mark.parametrize(("found", "lacks"), [(1, "1 to 14"), (12, "12 to 14"), (15, ""), (20, "")])
def test_recreated_feed_that_ends_earlier_is_said_to_lack_entries(found: int, lacks: str) -> None:
    """A server that was rebuilt from its backup: whoever accepts the feed as it is must know."""
    with pytest.raises(FeedRecreated) as stop:
        compare(OWNER, FeedPlace("B", found, 4))
    assert (f"lacks the entries {lacks};" in stop.value.detail) == bool(lacks)
    assert ("Outbox.add" in stop.value.detail) == bool(lacks)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        Outbox.create(connection)
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    with opened(tmp_path / "app.db") as found:
        yield found


def add(app: sqlite3.Connection, count: int) -> None:
    app.execute("BEGIN")
    for number in range(count):
        Outbox.add(app, FEED, {"n": number})
    app.execute("COMMIT")


def states(app: sqlite3.Connection) -> list[tuple[str, int | None, int]]:
    return app.execute("SELECT agent_id, sequence_id, processed FROM headrace_outbox ORDER BY id").fetchall()


def test_rows_found_in_the_feed_are_not_posted_again(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    add(app, 5)
    source.advance(FEED, AGENT, 1, None, 1)
    claim(source, FeedPlace("incarnation-1", 4, 2))
    assert [row.sequence_id for row in source.batch(FEED, AGENT)] == [4, 5]
    claim(source, FeedPlace("incarnation-1", 6, 3))
    assert source.batch(FEED, AGENT) == []
    assert [state[2] for state in states(app)] == [1] * 5


def test_new_owner_takes_marked_rows_over_in_their_places(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    claim(source)
    add(app, 3)
    source.advance(FEED, AGENT, 1, None, 1)
    claim(source, FeedPlace("incarnation-1", 2, 2), agent="agent-2")
    assert states(app) == [(AGENT, 1, 1), ("agent-2", 2, 0), ("agent-2", 3, 0)]
    with pytest.raises(AgentFenced):
        source.advance(FEED, AGENT, 1, RowPlace(3, 3), 1)
    with pytest.raises(AgentFenced):
        claim(source, FeedPlace("incarnation-1", 2, 1))


def test_entries_that_the_feed_lost_are_posted_again(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    add(app, 6)
    rows = drain(source)
    add(app, 2)
    source.advance(FEED, AGENT, 1, None, 1)
    claim(source, FeedPlace("incarnation-1", 4, 2))
    again = drain(source, epoch=2)
    assert [row.sequence_id for row in again] == [4, 5, 6, 7, 8]
    assert again[:3] == rows[3:]
    source.sweep(FEED, 10**15)
    with pytest.raises(FeedBehindOutbox, match="from 9 on"):
        claim(source, FeedPlace("incarnation-1", 4, 3))


def stop(source: SqliteSource, place: FeedPlace) -> HeadraceError:
    """Let the agent meet the feed at ``place`` and stop as it does."""
    with pytest.raises(HeadraceError) as caught:
        claim(source, place)
    error = caught.value
    source.set_alarm(
        FEED,
        Alarm(
            code=error.code, detail=error.detail, hint=error.advice, raised_at_ms=1,
            incarnation=place.incarnation, next_sequence_id=place.next_sequence_id,
        ),
    )  # fmt: skip
    return error


@pytest.mark.parametrize(
    "place",
    [
        FeedPlace("B", 1, 1),
        FeedPlace("B", 50, 1),
        FeedPlace("incarnation-1", 50, 2),
        FeedPlace("incarnation-1", 1, 2),
    ],
    ids=["recreated-empty", "recreated", "outbox-behind", "feed-behind"],
)
def test_accepted_feed_is_filled_anew(
    app: sqlite3.Connection, source: SqliteSource, place: FeedPlace
) -> None:
    app.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v)")
    app.execute("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    attach(source, "t")
    claim(source)
    drain(source)
    source.mend(FEED)
    source.sweep(FEED, 10**15)
    app.execute("DELETE FROM t WHERE id = 1")
    source.advance(FEED, AGENT, 1, None, 1)
    app.execute("INSERT INTO t VALUES (3, 'c')")
    stop(source, place)
    with pytest.raises(HeadraceError):
        claim(source, place)
    assert source.accept(FEED, "we know").reason == "we know"
    claim(source, place)
    while source.copy_pending(FEED):
        pass
    rows = drain(source, epoch=place.epoch)
    check_order(rows, place.next_sequence_id)
    assert list(fold(rows)) == ['["main","t",2]', '["main","t",3]']
    assert [row.control for row in rows if row.control] == ["schema", "truncate", "copy-begin", "copy-end"]
    assert source.alarm_of(FEED) is None
    claim(source, FeedPlace(place.incarnation, rows[-1].sequence_id + 1, place.epoch + 1))


def test_acceptance_holds_for_what_was_seen_only(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    add(app, 1)
    drain(source)
    stop(source, FeedPlace("B", 5, 1))
    source.accept(FEED, "once")
    for other in (FeedPlace("C", 5, 1), FeedPlace("B", 4, 1)):
        with pytest.raises(FeedRecreated):
            claim(source, other)
    # The feed that was meant comes back: then nothing was to be accepted, and the acceptance is void.
    claim(source, FeedPlace("incarnation-1", 2, 2))
    with pytest.raises(FeedRecreated):
        claim(source, FeedPlace("B", 5, 1))


def test_nothing_to_accept(app: sqlite3.Connection, source: SqliteSource) -> None:
    with pytest.raises(Usage, match="no agent has stopped"):
        source.accept(FEED, "why")
    source.set_alarm(FEED, Alarm(code="too-large", detail="", hint="", raised_at_ms=1))
    with pytest.raises(Usage, match="too-large"):
        source.accept(FEED, "why")
