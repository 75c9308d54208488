"""Ids are handed out before commits: what commits late, is prepared, taken back, or has an id that was there before."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import FeedBehindOutbox, OutboxBehindFeed, SourceUnavailable, TableNotFound, Usage
from headrace.publisher.marked import RowPlace
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.runtime.dsn import parse_dsn
from tests.agents import AgentProcess, headrace
from tests.integration.mariadb.outboxes import (
    AGENT,
    FAR_FUTURE_MS,
    FEED,
    add,
    claim,
    keys_of,
    post,
    read_feed,
    refuse,
)
from tests.mariadb import Database, Server
from tests.servers import serving
from tests.waiting import wait_until

LEVELS = ("READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")


def run(app: Any, statement: str) -> None:
    with app.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize("level", LEVELS)
def test_writers_that_end_in_any_order_lose_no_row_and_show_none_early(
    database: Database, source: MysqlSource, level: str
) -> None:
    claim(source, 1)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                database.connect(init_command=f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            )
            for _ in range(5)
        ]
        for turn in (1, 2):
            for number, writer in enumerate(writers):
                Outbox.add(writer, FEED, {}, key=f"{number}-{turn}")
        seen = [keys_of(post(source))]
        for number in (3, 0, 4):
            writers[number].commit()
            seen.append(keys_of(post(source)))
        writers[1].rollback()
        seen.append(keys_of(post(source)))
        writers[2].commit()
        seen.append(keys_of(post(source)))
    assert seen == [[], ["3-1", "3-2"], ["0-1", "0-2"], ["4-1", "4-2"], [], ["2-1", "2-2"]]
    assert post(source) == []


def test_what_a_savepoint_takes_back_is_never_seen_and_its_ids_are_no_holes(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    with database.connect() as late:
        Outbox.add(late, FEED, {}, key="kept")
        run(late, "SAVEPOINT s")
        Outbox.add(late, FEED, {}, key="taken back")
        add(database, "early")
        assert keys_of(post(source)) == ["early"]
        run(late, "ROLLBACK TO SAVEPOINT s")
        Outbox.add(late, FEED, {}, key="after")
        late.commit()
    rows = post(source)
    assert [(row.key, row.sequence_id) for row in rows] == [("kept", 2), ("after", 3)]


def test_a_prepared_transaction_survives_a_restart_and_is_delivered_when_it_commits() -> None:
    with Server() as server:
        database = server.create_database("test")
        with database.connect() as app:
            Outbox.create(app)
        for name, end in (("kept", "COMMIT"), ("dropped", "ROLLBACK")):
            with database.connect() as app:
                run(app, f"XA START '{name}'")
                Outbox.add(app, FEED, {}, key=name)
                run(app, f"XA END '{name}'")
                run(app, f"XA PREPARE '{name}'")
            add(database, f"after {name} {end}")
        source = MysqlSource(parse_dsn(database.dsn))
        claim(source, 1)
        assert keys_of(post(source)) == ["after kept COMMIT", "after dropped ROLLBACK"]
        assert source.sweep(FEED, FAR_FUTURE_MS) == 2
        source.close()
        server.restart()
        source = MysqlSource(parse_dsn(database.dsn))
        claim(source, 3, 2)
        add(database, "after the restart")
        assert keys_of(post(source, 2)) == ["after the restart"]
        database.sql("XA COMMIT 'kept'")
        database.sql("XA ROLLBACK 'dropped'")
        assert keys_of(post(source, 2)) == ["kept"]
        assert post(source, 2) == []
        source.close()


def test_the_order_holds_whatever_steps_the_ids_take(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    with ExitStack() as stack:
        apps = [
            stack.enter_context(
                database.connect(
                    init_command=f"SET SESSION auto_increment_increment = {step}, auto_increment_offset = {offset}"
                )
            )
            for step, offset in ((10, 3), (1, 1), (7, 7), (100, 50))
        ]
        for number in range(20):
            app = apps[number % len(apps)]
            Outbox.add(app, FEED, {}, key=str(number))
            app.commit()
    assert keys_of(post(source)) == [str(number) for number in range(20)]


def test_a_look_reads_only_what_waits_while_an_old_transaction_stays_open(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    with database.connect() as old, database.connect() as late:
        run(old, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        Outbox.add(late, FEED, {}, key="late")
        for _ in range(5):
            add(database, *map(str, range(200)))
            assert len(post(source)) == 200
        connection = source._connection
        with connection.cursor() as cursor:
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            before = {name: int(count) for name, count in cursor.fetchall()}
            assert source.advance(FEED, AGENT, 1, None, 1_000) == 0
            cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
            read = {name: int(count) - before[name] for name, count in cursor.fetchall()}
        assert sum(count for name, count in read.items() if "rnd" not in name) < 20
        late.commit()
    assert keys_of(post(source)) == ["late"]


def test_ids_that_come_again_are_other_rows(database: Database, source: MysqlSource) -> None:
    """As on servers that keep the counter in memory only, after a restart with all rows swept."""
    claim(source, 1)
    add(database, "too large")
    source.advance(FEED, AGENT, 1, None, 1_000)
    (row,) = source.batch(FEED, AGENT)
    refuse(source, row)
    source.skip(FEED, row.id, "why")
    claim(source, 1, 2)
    assert [one.control for one in post(source, 2)] == ["parked"]
    assert source.sweep(FEED, FAR_FUTURE_MS) == 1
    database.sql("ALTER TABLE headrace_outbox AUTO_INCREMENT = 1")
    add(database, "new")
    claim(source, 2, 3)
    source.advance(FEED, AGENT, 3, None, 1_000)
    (new,) = source.batch(FEED, AGENT)
    assert (new.id, new.key, new.control, new.sequence_id) == (row.id, "new", None, 2)
    refuse(source, new)
    with pytest.raises(Usage, match="another row with the id 1 is parked"):
        source.skip(FEED, new.id, "why")
    source.drop_parked(row.id)
    assert source.skip(FEED, new.id, "why").key == "new"


def test_an_outbox_emptied_before_its_rows_were_posted_stops_the_feed(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    add(database, "a", "b", "c")
    source.advance(FEED, AGENT, 1, None, 1_000)
    database.sql("DELETE FROM headrace_outbox WHERE `key` = 'b'")
    with pytest.raises(SourceUnavailable, match="from the place 1 on"):
        source.batch(FEED, AGENT)
    assert claim(source, 3, 2).confirm_below == 3  # what is gone was in the feed
    assert keys_of(source.batch(FEED, AGENT)) == ["c"]
    database.sql("TRUNCATE headrace_outbox")
    with pytest.raises(SourceUnavailable, match="marked rows are gone"):
        source.batch(FEED, AGENT)
    with pytest.raises(FeedBehindOutbox, match="the places 3 to 3 of shop, but 1 of those rows are gone"):
        claim(source, 3, 3)


def test_an_outbox_that_was_all_posted_may_be_emptied(database: Database, source: MysqlSource) -> None:
    claim(source, 1)
    add(database, "a", "b")
    post(source)
    database.sql("TRUNCATE headrace_outbox")
    add(database, "c")
    (row,) = post(source)
    assert (row.id, row.key, row.sequence_id) == (1, "c", 3)
    with pytest.raises(FeedBehindOutbox, match="rows are gone"):
        claim(source, 2, 2)


def test_an_outbox_that_was_dropped_and_made_anew_is_not_taken_for_the_old(
    database: Database, source: MysqlSource
) -> None:
    claim(source, 1)
    add(database, "a")
    post(source)
    database.sql("DROP TABLE headrace_outbox, headrace_owner, headrace_parked, headrace_format")
    with pytest.raises(TableNotFound):
        source.advance(FEED, AGENT, 1, None, 1_000)
    with database.connect() as app:
        Outbox.create(app)
    add(database, "b")
    with pytest.raises((SourceUnavailable, TableNotFound)):
        source.advance(FEED, AGENT, 1, RowPlace(1, 1), 1_000)
    with pytest.raises(OutboxBehindFeed):
        source.claim(FEED, AGENT, FeedPlace("A", 2, 2), 1_000)


def test_an_agent_whose_outbox_is_emptied_says_so_and_goes_on_once_accepted(
    database: Database, tmp_path: Path
) -> None:
    def counted(condition: str) -> int:
        return int(database.sql(f"SELECT COUNT(*) FROM headrace_outbox WHERE {condition}")[0][0])

    with (
        serving(tmp_path / "server") as server,
        AgentProcess(tmp_path / "agent", server.url, database.dsn, FEED, agent_id=AGENT) as agent,
    ):
        add(database, "a")
        wait_until(lambda: counted("processed") == 1, within=60, what="the first row to be posted")
        server.kill()
        add(database, "b")
        wait_until(lambda: counted("sequence_id = 2") == 1, within=60, what="the second row to be marked")
        database.sql("TRUNCATE headrace_outbox")
        server.start()
        wait_until(lambda: agent.ended() is not None, within=60, what="the agent to end")
        assert agent.stop() == 3
        assert "feed-behind-outbox" in agent.errors()
        assert "rows are gone" in agent.errors()
        headrace(["publisher", "accept", database.dsn, "--feed", FEED, "--reason", "emptied by mistake"])
        agent.start()
        add(database, "c")
        wait_until(lambda: counted("processed") == 1, within=60, what="the feed to go on")
        assert [(one["key"], one["sequence-id"]) for one in read_feed(server)] == [("a", 1), ("c", 2)]
