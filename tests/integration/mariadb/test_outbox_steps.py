"""The outbox in MariaDB step by step: added to by the application, claimed, marked, posted again, swept, refused."""

from __future__ import annotations

import threading

import pymysql.connections
import pytest
from pymysql.cursors import DictCursor

from headrace.errors import (
    AgentFenced,
    FeedBehindOutbox,
    FormatTooNew,
    InvalidRequest,
    OutboxBehindFeed,
    SourceUnavailable,
    TableNotFound,
    Usage,
)
from headrace.publisher.marked import RowPlace
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import Alarm, FeedPlace
from headrace.runtime.dsn import parse_dsn
from tests.integration.mariadb.outboxes import AGENT, FAR_FUTURE_MS, FEED, add, claim, keys_of, post
from tests.mariadb import USER, Database


def test_a_row_commits_or_vanishes_with_the_data(database: Database, source: MysqlSource) -> None:
    database.sql("CREATE TABLE vm (id INT)")
    with database.connect() as app, app.cursor() as cursor:
        cursor.execute("INSERT INTO vm VALUES (1)")
        first = Outbox.add(app, FEED, {"n": 1}, key="kept")
        app.commit()
        cursor.execute("INSERT INTO vm VALUES (2)")
        Outbox.add(app, FEED, {"n": 2}, key="rolled back")
        app.rollback()
        Outbox.add(app, FEED, {"n": 2}, key="before")
        cursor.execute("SAVEPOINT s")
        Outbox.add(app, FEED, {"n": 3}, key="taken back")
        cursor.execute("ROLLBACK TO s")
        app.commit()
    with database.connect(autocommit=True) as app:
        app.begin()
        Outbox.add(app, FEED, '{"n": 3.10}', key="in a block", op="patch", changed=["n"])
        app.commit()
    assert first == 1
    claim(source, 1)
    rows = post(source)
    assert [(row.key, row.op, row.changes, row.changed) for row in rows] == [
        ("kept", "put", b'{"n":1}', None),
        ("before", "put", b'{"n":2}', None),
        ("in a block", "patch", b'{"n": 3.10}', ("n",)),
    ]
    assert [row.tx_last for row in rows] == [False, False, True]


@pytest.mark.parametrize("charset", ["latin1", "utf8", "utf8mb4"])
def test_a_row_arrives_byte_for_byte_whatever_the_connection_is_set_to(
    database: Database, source: MysqlSource, charset: str
) -> None:
    text = '{"a": "ö😀\\\\ \\" \'", "b": "%s"}'
    modes = "SET SESSION sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'"
    with database.connect(charset=charset, init_command=modes, cursorclass=DictCursor) as app:
        Outbox.add(app, FEED, text, key="'\\😀\0", changed=["ö"])
        app.commit()
    claim(source, 1)
    (row,) = post(source)
    assert (row.key, row.changes, row.changed) == ("'\\😀\0", text.encode(), ("ö",))


def test_what_can_not_be_added_is_refused_before_anything_is_written(empty: Database) -> None:
    with empty.connect(autocommit=True) as app:
        with pytest.raises(InvalidRequest, match="autocommit"):
            Outbox.add(app, FEED, {})
        app.begin()
        with pytest.raises(TableNotFound, match="no outbox"):
            Outbox.add(app, FEED, {})
        empty.sql("CREATE TABLE vm (id INT)")
        with app.cursor() as cursor:
            cursor.execute("INSERT INTO vm VALUES (1)")
        with pytest.raises(InvalidRequest, match="would commit it"):
            Outbox.create(app)
        app.rollback()
        assert empty.sql("SELECT * FROM vm") == []
    with pytest.raises(TableNotFound, match="no outbox"):
        MysqlSource(parse_dsn(empty.dsn)).check_outbox()


def test_a_subclass_of_the_drivers_connection_is_taken(database: Database) -> None:
    class Connection(pymysql.connections.Connection):
        pass

    port, name = database.server.port, database.name
    with Connection(host="127.0.0.1", port=port, user=USER, password="geheim@/%", database=name) as app:
        Outbox.add(app, FEED, {})
        app.commit()
    assert len(database.sql("SELECT id FROM headrace_outbox")) == 1


def test_those_that_create_the_outbox_at_once_make_one(empty: Database) -> None:
    failures: list[BaseException] = []

    def create() -> None:
        try:
            with empty.connect() as app:
                Outbox.create(app)
        except BaseException as error:  # noqa: BLE001  # shown below
            failures.append(error)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert empty.sql("SELECT part, readable_from FROM headrace_format") == [("outbox", 1)]


def test_a_newer_format_is_refused_untouched(database: Database, source: MysqlSource) -> None:
    database.sql("UPDATE headrace_format SET written_as = 9, readable_from = 9")
    with pytest.raises(FormatTooNew, match="headrace_format"):
        source.check_outbox()
    with database.connect() as app:
        with pytest.raises(FormatTooNew):
            Outbox.create(app)
        with pytest.raises(FormatTooNew):
            Outbox.add(app, FEED, {})
        app.commit()
    assert database.sql("SELECT id FROM headrace_outbox") == []


def test_a_row_that_commits_late_is_in_a_later_unit(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    with database.connect() as late:
        Outbox.add(late, FEED, {}, key="late")
        add(database, "early")
        assert keys_of(post(source)) == ["early"]
        assert post(source) == []
        late.commit()
    (row,) = post(source)
    assert (row.key, row.id, row.sequence_id) == ("late", 1, 2)


def test_marking_and_sweeping_wait_for_no_writer_and_no_writer_for_them(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    with database.connect() as before, database.connect() as after:
        Outbox.add(before, FEED, {}, key="before")
        add(database, "a", "b")
        Outbox.add(after, FEED, {}, key="after")
        assert len(post(source)) == 2
        assert source.sweep(FEED, FAR_FUTURE_MS) == 2
        before.commit()
        after.commit()
    assert keys_of(post(source)) == ["before", "after"]


def test_a_unit_larger_than_an_append_goes_in_several(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    add(database, *map(str, range(5_200)))
    assert source.advance(FEED, AGENT, 1, None, 1_000) == 5_200
    first = source.batch(FEED, AGENT)
    add(database, "next")
    done = RowPlace(first[-1].id, first[-1].sequence_id)
    assert source.advance(FEED, AGENT, 1, done, 2_000) == 0
    second = source.batch(FEED, AGENT)
    assert (len(first), len(second)) == (5_000, 200)
    rows = first + second
    assert [row.sequence_id for row in rows] == list(range(1, 5_201))
    assert [row.tx_index for row in rows] == list(range(5_200))
    assert {row.tx for row in rows} == {rows[-1].id}
    assert [row.sequence_id for row in rows if row.tx_last] == [5_200]
    assert source.advance(FEED, AGENT, 1, RowPlace(rows[-1].id, 5_200), 2_000) == 1


def test_a_batch_is_bounded_in_bytes_but_never_empty(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    with database.connect() as app:
        for _ in range(12):
            Outbox.add(app, FEED, {"a": "x" * 1_000_000}, key="k")
        app.commit()
    source.advance(FEED, AGENT, 1, None, 1_000)
    assert 0 < len(source.batch(FEED, AGENT)) < 12


def test_a_crash_between_posting_and_noting_it_is_settled_by_asking_the_feed(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    add(database, "a", "b")
    source.advance(FEED, AGENT, 1, None, 1_000)
    assert claim(source, 2, 2).confirm_below == 2
    assert keys_of(source.batch(FEED, AGENT)) == ["b"]
    assert database.sql("SELECT `key`, processed FROM headrace_outbox ORDER BY id") == [("a", 1), ("b", 0)]


def test_entries_that_the_feed_lost_are_posted_again_in_their_places(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    add(database, "a", "b", "c")
    post(source)
    assert claim(source, 2, 2).repost_from == 2
    rows = source.batch(FEED, AGENT)
    assert [(row.key, row.sequence_id) for row in rows] == [("b", 2), ("c", 3)]
    source.advance(FEED, AGENT, 2, RowPlace(rows[-1].id, 3), 2_000)
    assert source.sweep(FEED, FAR_FUTURE_MS) == 3
    with pytest.raises(FeedBehindOutbox):
        claim(source, 2, 3)


def test_processed_rows_are_swept_when_they_are_old_and_never_others(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    add(database, "a", "b")
    post(source)
    add(database, "marked")
    add(database, "elsewhere", feed="other")
    source.advance(FEED, AGENT, 1, None, 1_000)
    add(database, "waiting")
    assert source.sweep(FEED, 2_000) == 0
    assert source.sweep(FEED, 2_001) == 2
    assert source.sweep(FEED, FAR_FUTURE_MS) == 0
    left = database.sql("SELECT `key` FROM headrace_outbox ORDER BY id")
    assert left == [("marked",), ("elsewhere",), ("waiting",)]


def test_a_newer_agent_fences_and_keeps_the_places(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    add(database, "a")
    source.advance(FEED, AGENT, 1, None, 1_000)
    other = MysqlSource(parse_dsn(database.dsn))
    other.claim(FEED, "shop-2", FeedPlace("A", 1, 2), 1_000)
    with pytest.raises(AgentFenced):
        source.batch(FEED, AGENT)
    add(database, "b")
    with pytest.raises(AgentFenced):
        source.advance(FEED, AGENT, 1, None, 1_000)
    with pytest.raises(AgentFenced):
        claim(source, 1, 1)
    assert [(row.key, row.sequence_id) for row in other.batch(FEED, "shop-2")] == [("a", 1)]
    assert database.sql("SELECT agent_id, sequence_id FROM headrace_outbox ORDER BY id") == [
        ("shop-2", 1),
        ("", None),
    ]
    other.close()


def test_an_outbox_that_was_put_back_is_compared_anew(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    add(database, "a", "b")
    post(source)
    database.sql("UPDATE headrace_owner SET next_sequence_id = 2, processed_next = 2")
    add(database, "c")
    with pytest.raises(SourceUnavailable, match="not where this agent left it"):
        source.advance(FEED, AGENT, 1, None, 1_000)
    with pytest.raises(OutboxBehindFeed):
        claim(source, 3, 2)


def test_an_operator_accepts_the_feed_as_it_is(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    add(database, "old")
    post(source)
    add(database, "marked")
    source.advance(FEED, AGENT, 1, None, 1_000)
    with pytest.raises(Usage, match="nothing to accept"):
        source.accept(FEED, "why")
    place = FeedPlace("B", 1, 1)
    source.set_alarm(FEED, Alarm("feed-recreated", "d", "h", 1, "B", 1))
    assert source.accept(FEED, "why").reason == "why"
    assert source.claim(FEED, AGENT, place, 1_000).adopt
    add(database, "new")
    rows = post(source)
    # What was marked and never posted gets a new place; what was processed stays away, though it has the same place.
    assert [(row.key, row.sequence_id) for row in rows] == [("marked", 1), ("new", 2)]
    assert source.claim(FEED, AGENT, FeedPlace("B", 1, 2), 1_000).repost_from == 1
    assert keys_of(source.batch(FEED, AGENT)) == ["marked", "new"]
    source.advance(FEED, AGENT, 2, RowPlace(rows[-1].id, 2), 2_000)
    assert source.sweep(FEED, FAR_FUTURE_MS) == 2
    assert source.sweep(FEED, FAR_FUTURE_MS) == 1
    assert database.sql("SELECT id FROM headrace_outbox") == []


def test_marking_goes_on_ahead_of_posting_only_if_it_is_asked_to(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    counts = []
    for key, ahead in (("a", False), ("b", False), ("c", True)):
        with database.connect() as app:
            Outbox.add(app, FEED, {}, key=key)
            app.commit()
        counts.append(source.advance(FEED, AGENT, 1, None, 0, ahead=ahead))
    assert counts == [1, 0, 2]
    assert [(row.key, row.sequence_id) for row in source.batch(FEED, AGENT)] == [("a", 1), ("b", 2), ("c", 3)]
