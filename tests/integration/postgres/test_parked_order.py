"""What a retry puts at the end of the feed comes after every older change of that row, also one that commits later."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from headrace.errors import HeadraceError, Usage
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import Alarm, FeedPlace, RefusedRow
from headrace.publisher.postgres.source import PostgresSource
from headrace.runtime.dsn import parse_dsn
from tests.postgres import Database
from tests.waiting import wait_until

FEED, AGENT = "shop", "shop-1"


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    with database.connect() as app:
        app.execute("CREATE TABLE item (id int PRIMARY KEY, name text)")
        app.execute("INSERT INTO item VALUES (1, 'a'), (2, 'b')")
    with closing(PostgresSource(parse_dsn(database.dsn))) as source:
        source.attach(AttachRequest(feed=FEED, tables=("item",), copy=False))
        yield source


def drain(source: PostgresSource) -> list[MarkedRow]:
    """Claim, then mark and process all that waits; returns it."""
    source.claim(FEED, AGENT, FeedPlace("inc", next_of(source), 1), 0)
    posted: list[MarkedRow] = []
    batch = source.batch(FEED, AGENT)
    while True:
        posted += batch
        done = RowPlace(batch[-1].id, batch[-1].sequence_id) if batch else None
        source.advance(FEED, AGENT, 1, done, 0)
        batch = source.batch(FEED, AGENT)
        if not batch:
            return posted


def next_of(source: PostgresSource) -> int:
    found = source.standing([FEED])[0].processed_next
    return found or 1


def park_the_last(source: PostgresSource) -> int:
    """Refuse the row that waits last, park it, and deliver all; returns its id."""
    source.claim(FEED, AGENT, FeedPlace("inc", next_of(source), 1), 0)
    source.advance(FEED, AGENT, 1, None, 0)
    row = source.batch(FEED, AGENT)[-1]
    refused = RefusedRow(row.id, row.sequence_id, row.op, row.key, row.table, row.control)
    source.set_alarm(FEED, Alarm("too-large", "", "", 0, row=refused))
    source.skip(FEED, row.id, "a test")
    assert [one.control for one in drain(source)][-1] == "parked"
    return row.id


def retry_beside(
    database: Database, source: PostgresSource, row: int, commit: Callable[[], Any]
) -> list[HeadraceError]:
    """Retry the row in a thread that has to wait for somebody; then ``commit``, and wait for it."""
    errors: list[HeadraceError] = []

    def retry() -> None:
        try:
            source.retry_parked(row)
        except HeadraceError as error:
            errors.append(error)

    thread = threading.Thread(target=retry)
    thread.start()
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'LOCK TABLE headrace%'"
    wait_until(lambda: database.sql(waits)[0][0] > 0, what="the retry to wait")
    commit()
    thread.join(60)
    return errors


def test_older_change_that_commits_later_comes_before_the_copy(
    database: Database, source: PostgresSource
) -> None:
    database.sql("UPDATE item SET name = 'refused' WHERE id = 1")
    row = park_the_last(source)
    with database.connect(autocommit=False) as early:
        early.execute("UPDATE item SET name = 'committed later' WHERE id = 1")
        assert retry_beside(database, source, row, early.commit) == []
    assert [(one.copy, one.changes) for one in drain(source)] == [
        (False, b'{"id":1,"name":"committed later"}'),
        (True, b'{"id":1,"name":"committed later"}'),
    ]


def test_row_that_is_inserted_meanwhile_is_not_deleted(database: Database, source: PostgresSource) -> None:
    database.sql("UPDATE item SET name = 'refused' WHERE id = 1")
    row = park_the_last(source)
    database.sql("DELETE FROM item WHERE id = 1")
    with database.connect(autocommit=False) as early:
        early.execute("INSERT INTO item VALUES (1, 'anew')")
        assert retry_beside(database, source, row, early.commit) == []
    assert [(one.op, one.copy) for one in drain(source)] == [("delete", False), ("put", False), ("put", True)]


def test_later_row_of_the_key_that_is_not_committed_yet_is_found(
    database: Database, source: PostgresSource
) -> None:
    with database.connect() as app, app.transaction():
        Outbox.add(app, FEED, {"n": 1}, key="a")
    row = park_the_last(source)
    with database.connect(autocommit=False) as early:
        Outbox.add(early, FEED, {"n": 2}, key="a")
        (error,) = retry_beside(database, source, row, early.commit)
    assert isinstance(error, Usage)
    assert "of the same key came later" in error.detail
    assert [one.changes for one in drain(source)] == [b'{"n":2}']
