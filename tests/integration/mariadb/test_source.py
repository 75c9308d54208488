"""MariaDB as a source: parked rows, snapshots, how it stands, what is refused by name, a server that is killed."""

from __future__ import annotations

import json

import pytest

from headrace.errors import (
    AttachUnsafe,
    DsnInvalid,
    SnapshotUnavailable,
    SourceForbidden,
    SourceUnavailable,
    TableNotFound,
    Usage,
)
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.databases import state_reader
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.parked import Retried
from headrace.publisher.state import StateReader
from headrace.runtime.dsn import parse_dsn
from tests.integration.mariadb.outboxes import AGENT, FAR_FUTURE_MS, FEED, add, claim, keys_of, post, refuse
from tests.mariadb import Database, Server
from tests.waiting import wait_until


def test_a_parked_row_comes_back_at_the_end_unless_a_later_one_of_its_key_is_there(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    add(database, "a", "b", "a")
    source.advance(FEED, AGENT, 1, None, 1_000)
    first, second, _ = source.batch(FEED, AGENT)
    refuse(source, first)
    with pytest.raises(Usage, match="stopped over the row"):
        source.skip(FEED, second.id, "why")
    source.skip(FEED, first.id, "why")
    refuse(source, second)
    assert source.skip(FEED, second.id, "because").reason == "because"
    with pytest.raises(Usage, match="not filled yet"):
        source.retry_parked(second.id)
    claim(source, 1, 2)
    rows = post(source, 2)
    assert [row.control for row in rows] == ["parked", "parked", None]
    assert json.loads(rows[1].changes)["key"] == "b"
    assert source.retry_parked(second.id) is Retried.ADDED
    assert source.sweep(FEED, FAR_FUTURE_MS) == 3
    with pytest.raises(Usage, match="out of date: the row 3"):
        source.retry_parked(first.id)
    assert [row.id for row in source.parked([FEED])] == [first.id]
    source.drop_parked(first.id)
    assert source.parked([FEED]) == []
    assert [(row.key, row.sequence_id, row.control) for row in post(source, 2)] == [("b", 4, None)]


@pytest.mark.parametrize("changes", ['{"uuid": "a"}', '{"id": 1, "x": "\\u0061"}', '{"x": "A", "y": "a"}'])
@pytest.mark.parametrize("is_swept", [False, True], ids=["there", "swept"])
def test_a_parked_row_stays_if_a_later_one_may_have_its_key_by_the_feeds_word(
    database: Database, source: MysqlSource, changes: str, is_swept: bool
) -> None:
    claim(source, 1)
    add(database, "a")
    source.advance(FEED, AGENT, 1, None, 1_000)
    (row,) = source.batch(FEED, AGENT)
    refuse(source, row)
    source.skip(FEED, row.id, "why")
    claim(source, 1, 2)
    post(source, 2)
    with database.connect() as app:
        Outbox.add(app, FEED, '{"uuid": "ab", "a": "A"}')
        Outbox.add(app, FEED, changes)
        app.commit()
    post(source, 2)
    if is_swept:
        assert source.sweep(FEED, FAR_FUTURE_MS) == 3
    with pytest.raises(Usage, match="out of date: the row 3 of the same key came later, or may have"):
        source.retry_parked(row.id)


def test_a_retry_waits_for_a_writer_that_has_not_committed(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    add(database, "a")
    source.advance(FEED, AGENT, 1, None, 1_000)
    (row,) = source.batch(FEED, AGENT)
    refuse(source, row)
    source.skip(FEED, row.id, "why")
    claim(source, 1, 2)
    post(source, 2)
    other = MysqlSource(parse_dsn(database.dsn))
    with database.connect() as late:
        Outbox.add(late, FEED, {"n": "newer"}, key="a")
        with pytest.raises(SourceUnavailable, match=r"lock|Lock"):
            other.retry_parked(row.id)
        assert source.parked([FEED]) != []
        late.commit()
    with pytest.raises(Usage, match="out of date"):
        other.retry_parked(row.id)
    add(database, "not locked any more")
    other.close()


def test_the_standing_tells_what_waits(database: Database, source: MysqlSource) -> None:
    add(database, "a", "b")
    claim(source, 1)
    source.advance(FEED, AGENT, 1, None, 1_000)
    add(database, "c")
    add(database, "x", feed="other")
    ours, other = source.standing([FEED, "other"])
    assert (ours.agent_id, ours.next_sequence_id, ours.processed_next, ours.waiting_rows) == (AGENT, 3, 1, 3)
    assert (other.agent_id, other.waiting_rows) == ("", 1)
    assert [one.feed for one in source.standing()] == ["other", FEED]
    ((now,),) = database.sql("SELECT ROUND(UNIX_TIMESTAMP(NOW(3)) * 1000)")
    assert ours.oldest_waiting_ms is not None
    assert 0 <= int(now) - ours.oldest_waiting_ms < 60_000


def test_a_change_is_told_once(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    assert not source.has_changed(busy=True)
    add(database, "a")
    wait_until(lambda: source.has_changed(busy=True), within=30)  # after a slow look the next one is put off
    assert not source.has_changed(busy=True)
    add(database, "b")
    wait_until(lambda: source.has_changed(busy=False), within=30)
    post(source)
    assert not source.has_changed(busy=False)


def test_a_snapshot_stands_for_just_what_is_marked_with_it(database: Database, source: MysqlSource) -> None:
    database.sql("CREATE TABLE vm (id VARCHAR(9) PRIMARY KEY, n INT)")
    claim(source, 1)
    add(database, "before")
    query = "SELECT id, JSON_OBJECT('id', id, 'n', n) FROM vm ORDER BY id"
    reader = state_reader(parse_dsn(database.dsn), FEED, query)
    with database.connect() as late, late.cursor() as cursor:
        cursor.execute("INSERT INTO vm VALUES ('late', 1)")
        Outbox.add(late, FEED, {"id": "late", "n": 1}, key="late")
        with database.connect() as app, app.cursor() as writer:
            writer.execute("INSERT INTO vm VALUES ('a', 1)")
            Outbox.add(app, FEED, {"id": "a", "n": 1}, key="a")
            app.commit()
        reader.open()
        place = source.begin_snapshot(FEED, AGENT, 1, reader, lambda place, lines: None)
        late.commit()
        database.sql("UPDATE vm SET n = 2")
    assert place == ("A", 2)
    assert list(reader.lines()) == [b'{"key":"a","changes":{"id": "a", "n": 1}}\n']
    reader.close()
    assert keys_of(post(source)) == ["before", "a"]
    assert keys_of(post(source)) == ["late"]


def read_snapshot(source: MysqlSource, reader: StateReader) -> list[bytes]:
    reader.open()
    source.begin_snapshot(FEED, AGENT, 1, reader, lambda place, lines: None)
    return list(reader.lines())


@pytest.mark.parametrize("query", [None, "SELECT 1", "SELECT nonsense FROM nowhere", "SELECT 1, 2"])
def test_a_snapshot_without_a_right_query_is_refused_by_name(
    database: Database, source: MysqlSource, query: str | None
) -> None:
    claim(source, 1)
    reader = state_reader(parse_dsn(database.dsn), FEED, query)
    with pytest.raises(SnapshotUnavailable) as caught:
        read_snapshot(source, reader)
    assert "snapshot-sql" in caught.value.advice
    reader.close()


def test_tables_can_not_be_attached(source: MysqlSource) -> None:
    with pytest.raises(AttachUnsafe, match="TRUNCATE") as caught:
        source.attach(AttachRequest(feed=FEED, tables=("vm",)))
    assert "capture" in caught.value.advice
    with pytest.raises(TableNotFound):
        source.detach(["vm"])
    assert (source.check(), source.copies(), source.detach([])) == ([], [], [])


@pytest.mark.parametrize(
    "rest", ["", "@", "app:p@ss@host:x/db", "host", "host/", "host/db?what=1", "host/a/b"]
)
def test_a_bad_dsn_is_refused_without_its_text(rest: str) -> None:
    with pytest.raises(DsnInvalid) as caught:
        MysqlSource(parse_dsn(f"mariadb://{rest}"))
    assert "p@ss" not in caught.value.detail


def test_who_may_not_is_told_so(database: Database) -> None:
    other = database.dsn.replace("geheim", "wrong")
    with pytest.raises(SourceForbidden):
        MysqlSource(parse_dsn(other))
    with pytest.raises((DsnInvalid, SourceForbidden)):
        MysqlSource(parse_dsn(f"{database.dsn}_gone"))
    with pytest.raises(SourceUnavailable):
        MysqlSource(parse_dsn("mariadb://app@127.0.0.1:1/db"))


def test_a_server_that_was_killed_is_opened_anew() -> None:
    with Server("--innodb-flush-log-at-trx-commit=2") as server:
        database = server.create_database("test")
        with database.connect() as app:
            Outbox.create(app)
        source = MysqlSource(parse_dsn(database.dsn))
        assert "innodb_flush_log_at_trx_commit is 2" in source.advice()[0]
        claim(source, 1)
        add(database, "a")
        source.advance(FEED, AGENT, 1, None, 1_000)
        server.restart()
        with pytest.raises(SourceUnavailable):
            source.batch(FEED, AGENT)
        assert source.is_replaced()
        source.close()
        source = MysqlSource(parse_dsn(database.dsn))
        claim(source, 1, 2)
        assert keys_of(source.batch(FEED, AGENT)) == ["a"]
        source.close()
