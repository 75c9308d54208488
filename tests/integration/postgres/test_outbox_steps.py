"""The outbox in PostgreSQL step by step: added to by the application, claimed, marked, posted again, swept, refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headrace.errors import (
    AgentFenced,
    AttachUnsafe,
    FeedBehindOutbox,
    FormatTooNew,
    InvalidRequest,
    OutboxBehindFeed,
    SourceUnavailable,
    TableNotFound,
    Usage,
)
from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import Alarm, FeedPlace, Resume
from headrace.publisher.postgres.source import PostgresSource
from headrace.runtime.dsn import parse_dsn
from tests.postgres import Database

FEED, AGENT = "shop", "shop-1"
FAR_FUTURE_MS = 4_102_444_800_000


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    with database.connect(autocommit=False) as app:
        Outbox.create(app)
    opened = PostgresSource(parse_dsn(database.dsn))
    yield opened
    opened.close()


def add(database: Database, *keys: str, feed: str = FEED) -> None:
    """Add rows in one transaction."""
    with database.connect(autocommit=False) as app:
        for key in keys:
            Outbox.add(app, feed, {"key": key}, key=key)


def claim(
    source: PostgresSource, next_id: int, epoch: int = 1, *, agent: str = AGENT, incarnation: str = "A"
) -> Resume:
    return source.claim(FEED, agent, FeedPlace(incarnation, next_id, epoch), 0)


def post(source: PostgresSource, epoch: int = 1) -> list[MarkedRow]:
    """Mark, take a batch, and mark it processed."""
    source.advance(FEED, AGENT, epoch, None, 0)
    rows = source.batch(FEED, AGENT)
    if rows:
        source.advance(FEED, AGENT, epoch, RowPlace(rows[-1].id, rows[-1].sequence_id), 0, rows_max=0)
    return rows


def keys_of(rows: list[MarkedRow]) -> list[str | None]:
    return [row.key for row in rows]


def test_a_row_commits_or_vanishes_with_the_data(database: Database, source: PostgresSource) -> None:
    database.sql("CREATE TABLE vm (id integer)")
    with database.connect(autocommit=False) as app:
        app.execute("INSERT INTO vm VALUES (1)")
        Outbox.add(app, FEED, {"n": 1}, key="kept")
        app.commit()
        app.execute("INSERT INTO vm VALUES (2)")
        Outbox.add(app, FEED, {"n": 2}, key="rolled back")
        app.rollback()
        with app.transaction():
            Outbox.add(app, FEED, '{"n": 3.10}', key="in a block", op="patch", changed=["n"])
    claim(source, 1)
    rows = post(source)
    assert [(row.key, row.op, row.changes, row.changed) for row in rows] == [
        ("kept", "put", b'{"n":1}', None),
        ("in a block", "patch", b'{"n": 3.10}', ("n",)),
    ]


def test_what_can_not_be_added_is_refused_before_anything_is_written(database: Database) -> None:
    with database.connect(autocommit=True) as app:
        with pytest.raises(InvalidRequest, match="autocommit"):
            Outbox.add(app, FEED, {})
        with pytest.raises(TableNotFound, match="no outbox"), app.transaction():
            Outbox.add(app, FEED, {})
        Outbox.create(app)
        with pytest.raises(InvalidRequest, match="NUL"), app.transaction():
            Outbox.add(app, FEED, {}, key="a\0b")
        assert database.sql("SELECT count(*) FROM headrace.headrace_outbox") == [(0,)]


def test_two_that_create_the_outbox_at_once_make_one(database: Database) -> None:
    failures: list[BaseException] = []

    def create() -> None:
        try:
            with database.connect(autocommit=False) as app:
                Outbox.create(app)
        except BaseException as error:  # noqa: BLE001  # shown below
            failures.append(error)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert database.sql("SELECT count(*) FROM headrace.headrace_format") == [(1,)]


def test_a_newer_format_is_refused_untouched(database: Database, source: PostgresSource) -> None:
    database.sql("UPDATE headrace.headrace_format SET written_as = 9, readable_from = 9")
    with pytest.raises(FormatTooNew, match="headrace_format"):
        source.check_outbox()
    with database.connect(autocommit=False) as app, pytest.raises(FormatTooNew):
        Outbox.create(app)


def test_a_crash_between_posting_and_noting_it_is_settled_by_asking_the_feed(
    database: Database, source: PostgresSource
) -> None:
    add(database, "a", "b")
    add(database, "c")
    claim(source, 1)
    source.advance(FEED, AGENT, 1, None, 0)
    assert keys_of(source.batch(FEED, AGENT)) == ["a", "b", "c"]
    # The agent died here. The feed has the first transaction; its next is 3.
    again = PostgresSource(parse_dsn(database.dsn))
    assert claim(again, 3, 2) == Resume(confirm_below=3)
    assert keys_of(again.batch(FEED, AGENT)) == ["c"]
    again.close()


def test_marking_goes_on_ahead_of_posting_only_if_it_is_asked_to(
    database: Database, source: PostgresSource
) -> None:
    claim(source, 1)
    for key in "abcde":
        add(database, key)
    assert source.advance(FEED, AGENT, 1, None, 0, rows_max=2) == 2
    assert source.advance(FEED, AGENT, 1, None, 0, rows_max=2) == 0
    assert source.advance(FEED, AGENT, 1, None, 0, rows_max=2, ahead=True) == 2
    assert source.advance(FEED, AGENT, 1, None, 0, rows_max=2, ahead=True) == 1
    assert source.advance(FEED, AGENT, 1, None, 0, rows_max=2, ahead=True) == 0
    assert [(row.key, row.sequence_id) for row in source.batch(FEED, AGENT)] == [
        (key, place) for place, key in enumerate("abcde", 1)
    ]


def test_entries_that_the_feed_lost_are_posted_again_in_their_places(
    database: Database, source: PostgresSource
) -> None:
    claim(source, 1)
    for key in "abc":
        add(database, key, f"{key}2")
        post(source)
    assert claim(source, 4, 2) == Resume(repost_from=4)
    rows = source.batch(FEED, AGENT)
    assert [(row.key, row.sequence_id, row.tx_index, row.tx_last) for row in rows] == [("b2", 4, 1, True)]
    source.advance(FEED, AGENT, 2, RowPlace(rows[-1].id, rows[-1].sequence_id), 0)
    assert [(row.key, row.sequence_id) for row in source.batch(FEED, AGENT)] == [("c", 5), ("c2", 6)]


def test_processed_rows_are_swept_when_they_are_old_and_never_others(
    database: Database, source: PostgresSource
) -> None:
    claim(source, 1)
    add(database, "a", "b")
    post(source)
    add(database, "c")
    source.advance(FEED, AGENT, 1, None, 0)  # marked, not processed
    add(database, "d")
    assert source.sweep(FEED, 1) == 0  # nothing was processed in 1970
    assert source.sweep(FEED, FAR_FUTURE_MS) == 2
    assert source.sweep(FEED, FAR_FUTURE_MS) == 0
    assert database.sql("SELECT key FROM headrace.headrace_outbox ORDER BY id") == [("c",), ("d",)]
    assert keys_of(source.batch(FEED, AGENT)) == ["c"]
    with pytest.raises(FeedBehindOutbox):
        claim(source, 2, 2)
    assert claim(source, 3, 2) == Resume(confirm_below=3)


def test_a_large_transaction_is_swept_in_chunks(database: Database, source: PostgresSource) -> None:
    rows = 12_000
    database.sql(
        f"SELECT headrace.headrace_add('{FEED}', 'put', g::text, '{{}}', NULL) FROM generate_series(1, {rows}) AS g"
    )
    claim(source, 1)
    while post(source):
        pass
    swept = []
    while count := source.sweep(FEED, FAR_FUTURE_MS):
        swept.append(count)
    assert sum(swept[:3]) == rows
    assert max(swept) <= 5_000
    tables = ("headrace_outbox", "headrace_mark")
    assert [database.sql(f"SELECT count(*) FROM headrace.{table}") for table in tables] == [[(0,)], [(0,)]]
    assert database.sql("SELECT count(*) <= 2 FROM headrace.headrace_pass") == [(True,)]


def test_a_newer_agent_fences_and_keeps_the_places(database: Database, source: PostgresSource) -> None:
    add(database, "a")
    claim(source, 1)
    source.advance(FEED, AGENT, 1, None, 0)
    other = PostgresSource(parse_dsn(database.dsn))
    claim(other, 1, 2, agent="shop-2")
    with pytest.raises(AgentFenced):
        source.batch(FEED, AGENT)
    with pytest.raises(AgentFenced):
        source.advance(FEED, AGENT, 1, RowPlace(1, 1), 0)
    assert [(row.key, row.sequence_id) for row in other.batch(FEED, "shop-2")] == [("a", 1)]
    assert database.sql("SELECT agent_id FROM headrace.headrace_mark") == [("shop-2",)]
    other.close()


def test_an_outbox_that_was_put_back_is_compared_anew(database: Database, source: PostgresSource) -> None:
    claim(source, 1)
    add(database, "a")
    post(source)
    database.sql("DELETE FROM headrace.headrace_pass WHERE number > 1")
    add(database, "b")
    with pytest.raises(SourceUnavailable, match="not where this agent left it"):
        source.advance(FEED, AGENT, 1, None, 0)
    with pytest.raises(OutboxBehindFeed):
        claim(source, 2, 2)


def test_an_operator_accepts_the_feed_as_it_is(database: Database, source: PostgresSource) -> None:
    claim(source, 1)
    add(database, "a", "b")
    source.advance(FEED, AGENT, 1, None, 0)  # marked for a history that ends here
    with database.connect(autocommit=False) as open_one:
        Outbox.add(open_one, FEED, {}, key="open")
        source.advance(FEED, AGENT, 1, None, 0)
        with pytest.raises(Usage, match="nothing to accept"):
            source.accept(FEED, "too early")
        source.set_alarm(FEED, Alarm("feed-recreated", "", "", 0, incarnation="B", next_sequence_id=7))
        source.accept(FEED, "the server was made anew")
        assert claim(source, 7, 1, incarnation="B") == Resume(adopt=True)
    add(database, "c")
    rows = post(source)
    assert [(row.key, row.sequence_id) for row in rows] == [("a", 7), ("b", 8), ("open", 9), ("c", 10)]
    assert source.alarm_of(FEED) is None


@pytest.mark.parametrize(
    "damage", ["DELETE FROM headrace.headrace_outbox WHERE key = 'b'", "DELETE FROM headrace.headrace_mark"]
)
def test_what_was_changed_by_hand_is_named(database: Database, source: PostgresSource, damage: str) -> None:
    claim(source, 1)
    add(database, "a")
    add(database, "b", "c")
    source.advance(FEED, AGENT, 1, None, 0)
    database.sql(damage)
    with pytest.raises(AttachUnsafe, match="changed by hand"):
        source.batch(FEED, AGENT)


def test_two_feeds_of_one_database_do_not_see_each_other(database: Database, source: PostgresSource) -> None:
    claim(source, 1)
    source.claim("other", AGENT, FeedPlace("O", 1, 1), 0)
    with database.connect(autocommit=False) as app:
        Outbox.add(app, FEED, {}, key="1")
        Outbox.add(app, "other", {}, key="2")
        Outbox.add(app, FEED, {}, key="3")
    assert keys_of(post(source)) == ["1", "3"]
    source.advance("other", AGENT, 1, None, 0)
    assert keys_of(source.batch("other", AGENT)) == ["2"]


def test_the_standing_tells_what_waits(database: Database, source: PostgresSource) -> None:
    claim(source, 1)
    add(database, "a")
    post(source)
    add(database, "b", "c")
    source.advance(FEED, AGENT, 1, None, 0)
    add(database, "d")
    (found,) = source.standing()
    assert (found.feed, found.agent_id, found.epoch, found.incarnation) == (FEED, AGENT, 1, "A")
    assert (found.next_sequence_id, found.processed_next, found.waiting_rows) == (4, 2, 3)
    assert found.oldest_waiting_ms is not None


def test_whoever_holds_the_horizon_is_named(database: Database, source: PostgresSource) -> None:
    with database.connect(autocommit=False, application_name="report") as old:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT 1")
        database.sql("SELECT pg_sleep(1.2)")
        names = [(one.what, "report" in one.detail) for one in source.holders()]
        assert (f"session {old.info.backend_pid}", True) in names


def test_a_subclass_of_the_drivers_connection_is_taken(database: Database, source: PostgresSource) -> None:
    class Traced(psycopg.Connection[Any]):
        """An ORM's connection."""

    with Traced.connect(database.dsn) as app:
        assert Outbox.add(app, FEED, {}, key="1") > 0
    with pytest.raises(Usage, match="no form for"):
        Outbox.add(object(), FEED, {})  # type: ignore[arg-type]  # that is the point


def test_dump_whose_restore_happens_to_have_the_origins_number_is_still_a_dump(
    source: PostgresSource, database: Database
) -> None:
    """Young databases have the same small numbers. What waits names a transaction that is yet to come here, whose rows must
    not be joined to it."""
    add(database, "a")
    claim(source, 1)
    assert [row.key for row in post(source)] == ["a"]
    add(database, "b", "c")
    with database.connect(autocommit=False) as restored:
        restored.execute("UPDATE headrace.headrace_origin SET tx = pg_current_xact_id()")
        restored.execute(
            "UPDATE headrace.headrace_outbox SET tx = (pg_current_xact_id()::text::bigint + 10)::text::xid8 WHERE key <> 'a'"
        )
    claim(source, 2, 2)
    later = [f"later {number}" for number in range(20)]
    for key in later:
        add(database, key)
    assert [row.key for row in post(source, 2)] == ["b", "c", *later]


def test_dump_with_a_marked_transaction_of_the_claims_own_number_posts_nothing_twice(
    source: PostgresSource, database: Database
) -> None:
    """What was marked in the dump may name the very transaction that claims the feed here: what waits must not be joined."""
    add(database, "a")
    claim(source, 1)
    source.advance(FEED, AGENT, 1, None, 0)  # marked, and posted, but not noted as processed
    add(database, "b", "c")
    with database.connect(autocommit=False) as restored:
        restored.execute("UPDATE headrace.headrace_origin SET tx = '7'")
        for table in ("headrace_outbox WHERE key = 'a'", "headrace_mark"):
            name, _, where = table.partition(" ")
            restored.execute(
                f"UPDATE headrace.{name} SET tx = (pg_current_xact_id()::text::bigint + 1)::text::xid8 {where}".encode()
            )
    claim(source, 2, 2)
    with database.connect() as app:
        numbers = app.execute("SELECT count(DISTINCT tx), count(*) FROM headrace.headrace_outbox").fetchone()
        assert numbers == (2, 3)
    assert keys_of(post(source, 2)) == ["b", "c"]
