"""Marking and reading: whole transactions in order, dense places, bounded batches, bounded looks, fencing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import AgentFenced, AttachUnsafe, SourceUnavailable
from headrace.publisher.marked import MarkedRow, RowPlace, to_entry, whole_transactions
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.publisher.sqlite.connection import connect
from headrace.publisher.sqlite.relay import OutboxRelay
from headrace.publisher.sqlite.source import SqliteSource
from tests.unit.publisher.outboxes import (
    AGENT,
    FEED,
    PLACE,
    application,
    attach,
    changes_of,
    check_order,
    claim,
    data_rows,
    drain,
    opened,
)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        Outbox.create(connection)
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    with opened(tmp_path / "app.db") as found:
        yield found


def add(app: sqlite3.Connection, *numbers: int, feed: str = FEED, size: int = 0) -> None:
    """Commit these numbers as one transaction of the application."""
    app.execute("BEGIN")
    for number in numbers:
        Outbox.add(app, feed, {"n": number, "pad": "x" * size}, key=str(number))
    app.execute("COMMIT")


def relay_of(source: SqliteSource) -> OutboxRelay:
    """A relay of its own on the source's connection, that owns the feed."""
    relay = OutboxRelay(source.connection, FEED, AGENT)
    relay.claim(PLACE, 1)
    return relay


def numbers(rows: list[MarkedRow]) -> list[int]:
    return [changes_of(row)["n"] for row in rows]


def test_all_that_one_look_sees_is_one_unit(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    add(app, 1, 2)
    add(app, 3)
    relay = relay_of(source)
    assert relay.advance(1, None, 1) == 3
    add(app, 4)
    first = relay.batch()
    assert [(row.tx, row.tx_index, row.tx_last) for row in first] == [
        (3, 0, False),
        (3, 1, False),
        (3, 2, True),
    ]
    assert relay.advance(1, RowPlace(first[-1].id, first[-1].sequence_id), 2) == 1
    assert numbers(relay.batch()) == [4]


def test_uncommitted_rows_are_not_seen(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    relay = relay_of(source)
    app.execute("BEGIN")
    Outbox.add(app, FEED, {"n": 1})
    assert relay.advance(1, None, 1) == 0
    app.execute("COMMIT")
    assert relay.advance(1, None, 1) == 1


def test_unit_larger_than_an_append_goes_in_several(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    add(app, *range(25))
    relay, posted, sizes = relay_of(source), [], []
    done: RowPlace | None = None
    while relay.advance(1, done, 1, rows_max=10) or relay.batch():
        batch = relay.batch(entries_max=4)
        posted += batch
        sizes.append(len(batch))
        done = RowPlace(batch[-1].id, batch[-1].sequence_id)
        add(app, 100) if len(sizes) == 1 else None
    assert sizes == [4, 4, 4, 4, 4, 4, 2]
    check_order(posted)
    assert [row.sequence_id for row in posted if row.tx_last] == [25, 26]


def test_batch_holds_whole_transactions_where_they_fit(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    relay = relay_of(source)
    for start in (0, 3, 6):
        add(app, start, start + 1, start + 2)
        relay.advance(1, None, 1)
    assert numbers(relay.batch(entries_max=8)) == [0, 1, 2, 3, 4, 5]
    assert numbers(relay.batch(entries_max=2)) == [0, 1]


def test_batch_is_bounded_in_bytes_but_never_empty(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    relay = relay_of(source)
    for number in range(4):
        add(app, number, size=1000)
        relay.advance(1, None, 1)
    assert numbers(relay.batch(bytes_max=3000)) == [0, 1]
    assert numbers(relay.batch(bytes_max=10)) == [0]


def test_marking_takes_whole_units_while_they_fit(app: sqlite3.Connection, source: SqliteSource) -> None:
    add(app, *range(6))
    source.connection.execute("UPDATE headrace_outbox SET tx_end = 1 WHERE id IN (2, 4)")
    claim(source)
    relay = relay_of(source)
    assert relay.advance(1, None, 1, rows_max=5) == 4
    rows = relay.batch()
    assert [(row.tx, row.tx_index) for row in rows] == [(2, 0), (2, 1), (4, 0), (4, 1)]
    assert relay.advance(1, RowPlace(rows[-1].id, rows[-1].sequence_id), 1, rows_max=5) == 2
    assert [(row.tx, row.tx_index, row.tx_last) for row in relay.batch()] == [(6, 0, False), (6, 1, True)]


def test_feeds_do_not_disturb_each_other(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    claim(source, feed="other")
    for number in range(20):
        add(app, number, feed=FEED if number % 2 else "other")
    for feed, expected in ((FEED, 1), ("other", 0)):
        rows = drain(source, feed)
        check_order(rows)
        assert numbers(rows) == list(range(expected, 20, 2))


def test_what_was_looked_through_is_not_looked_at_again(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    claim(source)
    add(app, *range(1000), feed="other")
    relay = relay_of(source)
    assert relay.advance(1, None, 1) == 0
    steps: list[int] = []
    source.connection.set_progress_handler(lambda: steps.append(1), 100)
    assert relay.advance(1, None, 1) == 0
    source.connection.set_progress_handler(None, 0)
    assert len(steps) < 5
    add(app, 1)
    assert relay.advance(1, None, 1) == 1


def test_marks_are_visible_in_the_outbox(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    add(app, 1)
    relay = relay_of(source)
    relay.advance(1, None, 5_000)
    query = "SELECT agent_id, sequence_id, processed, processed_at FROM headrace_outbox"
    assert app.execute(query).fetchone() == (AGENT, 1, 0, None)
    relay.advance(1, RowPlace(1, 1), 6_000)
    assert app.execute(query).fetchone() == (AGENT, 1, 1, 6_000)


def test_older_epoch_marks_nothing(app: sqlite3.Connection, source: SqliteSource) -> None:
    claim(source)
    add(app, 1)
    claim(source, FeedPlace("incarnation-1", 1, 2))
    with pytest.raises(AgentFenced):
        source.advance(FEED, AGENT, 1, None, 1)
    with pytest.raises(AgentFenced):
        OutboxRelay(source.connection, FEED, "agent-2").advance(2, None, 1)
    with pytest.raises(SourceUnavailable, match="restored"):  # compared anew
        source.advance(FEED, AGENT, 3, None, 1)
    assert source.advance(FEED, AGENT, 2, None, 1) == 1


def test_null_key_makes_the_feed_wait_until_it_is_mended(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE t (k TEXT PRIMARY KEY, v)")
    attach(source, "t", copy=False)
    claim(source)
    rows = drain(source)
    app.execute("INSERT INTO t VALUES ('a', 1)")
    app.execute("INSERT INTO t VALUES (NULL, 2), (NULL, 3)")
    app.execute("INSERT INTO t VALUES ('b', 4)")
    with pytest.raises(AttachUnsafe, match="2 row"):
        drain(source)
    app.execute("DELETE FROM t WHERE v = 3")
    with pytest.raises(AttachUnsafe, match="1 row"):
        drain(source)
    app.execute("UPDATE t SET k = 'c' WHERE k IS NULL")
    rows += drain(source)
    check_order(rows)
    assert [row.key for row in data_rows(rows)] == [
        '["main","t","a"]',
        '["main","t","b"]',
        '["main","t","c"]',
    ]


def test_what_was_posted_is_processed_even_if_the_feed_then_waits(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE t (k TEXT PRIMARY KEY)")
    attach(source, "t", copy=False)
    claim(source)
    relay = relay_of(source)
    relay.advance(1, None, 1)
    app.execute("INSERT INTO t VALUES (NULL)")
    with pytest.raises(AttachUnsafe):
        relay.advance(1, RowPlace(1, 1), 1)
    assert relay.batch() == []


def test_locked_database_can_pass(app: sqlite3.Connection, source: SqliteSource, tmp_path: Path) -> None:
    claim(source)
    add(app, 1)
    impatient = connect(tmp_path / "app.db", busy_timeout_ms=10)
    relay = OutboxRelay(impatient, FEED, AGENT)
    relay.claim(PLACE, 1)
    app.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(SourceUnavailable, match="locked"):
            relay.advance(1, None, 1)
        app.execute("ROLLBACK")
        assert relay.advance(1, None, 1) == 1
    finally:
        impatient.close()


def test_rendered_entries_are_equal_at_every_reading(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("CREATE TABLE t (k TEXT PRIMARY KEY NOT NULL, v REAL, b BLOB)")
    attach(source, "t", before=True)
    claim(source)
    app.execute("INSERT INTO t VALUES ('a', 0.1, x'00')")
    app.execute("UPDATE t SET v = 1e300, b = NULL")
    relay = relay_of(source)
    relay.advance(1, None, 1)
    first, second = relay.batch(), relay_of(source).batch()
    assert [to_entry(row, AGENT, FEED) for row in first] == [to_entry(row, AGENT, FEED) for row in second]
    last = to_entry(first[-1], AGENT, FEED)
    assert (last.expected_offset, last.tx_last, last.changed) == (5, True, ["v", "b"])
    assert bytes(last.before) == b'{"k":"a","v":0.1,"b":"AA=="}'  # type: ignore[arg-type]  # it is set


def test_whole_transactions_of_nothing() -> None:
    assert list(whole_transactions([])) == []
