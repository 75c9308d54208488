"""Dropping on a real PostgreSQL: forgotten at once, removed bit by bit, and appends never wait for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.errors import SequenceNotAvailable, StoreUnavailable
from headrace.log.postgres import retention
from tests.bench import Bench
from tests.integration.store_postgres.shared import opened
from tests.postgres import Database
from tests.stores import SMALL_SEGMENT, fill
from tests.waiting import wait_until


@pytest.fixture
def bench(database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A journal of several segments, whose rows are removed one by one."""
    monkeypatch.setattr(retention, "REMOVED_BYTES_MAX", 200)
    with opened(database.dsn, segment_bytes=SMALL_SEGMENT) as running:
        fill(running, ["f"], 80)
        yield running


def rows_below(database: Database, position: int) -> int:
    ((found,),) = database.sql(f"SELECT count(*) FROM headrace_log.frame WHERE position < {position}")
    return int(found)


def place_of_tenth(database: Database) -> int:
    ((position,),) = database.sql("SELECT position FROM headrace_log.frame ORDER BY 1 OFFSET 9 LIMIT 1")
    return int(position)


def test_appends_and_readers_go_on_between_the_bits(bench: Bench, database: Database) -> None:
    """One row is kept busy, so the removal stands in its middle: what happens meanwhile waits for nothing."""
    oldest, head = bench.store.segments()[-1].first_position, bench.tail("f").head
    tenth = place_of_tenth(database)
    with database.connect(autocommit=False) as busy, ThreadPoolExecutor(1) as thread:
        busy.execute(f"SELECT 1 FROM headrace_log.frame WHERE position = {tenth} FOR UPDATE")
        dropping = thread.submit(bench.store.drop_before, bench.store.end())
        wait_until(
            lambda: rows_below(database, tenth) == 0, what="the rows before the busy one to be removed"
        )
        assert rows_below(database, oldest) > 20, "and those after it are still there"
        with opened(database.dsn, segment_bytes=SMALL_SEGMENT) as other:
            for at, one in enumerate((bench, other, bench, other), head + 1):
                one.clock.ms += 1
                assert one.append("f", "meanwhile").first_sequence_id == at
                assert one.store.oldest_position() == oldest, "it is forgotten as a whole"
                assert one.values("f", head)[at] == b"meanwhile"
                tail = one.tail("f")
                assert one.store.places(tail.region_id, 1, tail.oldest - 1, frames_max=9) == []
                with pytest.raises(SequenceNotAvailable):
                    one.store.walk(tenth, bytes_max=1)
            assert other.store.drop_before(other.store.end()) >= oldest, "another server need not wait for it"
        assert not dropping.done()
        busy.rollback()
        assert dropping.result(30) >= oldest
    assert rows_below(database, oldest) == 0


def test_appends_go_on_while_who_holds_is_looked_up(bench: Bench) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def look() -> int:
        looking.set()
        assert go_on.wait(30)
        return bench.store.end()

    head = bench.tail("f").head
    with ThreadPoolExecutor(1) as thread:
        dropping = thread.submit(bench.store.drop_before, bench.store.end(), look=look)
        assert looking.wait(30)
        for at in range(head + 1, head + 6):
            assert bench.append("f", "meanwhile").first_sequence_id == at
        assert bench.tail("f").oldest == 1
        assert not dropping.done()
        go_on.set()
        assert dropping.result(30) > 0
    assert 1 < bench.tail("f").oldest <= head + 6


def test_a_removal_that_was_cut_off_is_ended_by_the_next_drop(bench: Bench, database: Database) -> None:
    oldest = bench.store.segments()[-1].first_position
    tenth = place_of_tenth(database)
    with database.connect(autocommit=False) as busy, ThreadPoolExecutor(1) as thread:
        busy.execute(f"SELECT 1 FROM headrace_log.frame WHERE position = {tenth} FOR UPDATE")
        dropping = thread.submit(bench.store.drop_before, bench.store.end())
        wait_until(lambda: rows_below(database, tenth) == 0)
        waiting = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{database.name}' AND wait_event_type = 'Lock'"
        )
        wait_until(lambda: database.sql(waiting), what="the removal to be cut off")
        with pytest.raises(StoreUnavailable):
            dropping.result(30)
    assert rows_below(database, oldest) > 0
    assert bench.store.oldest_position() == oldest
    with opened(database.dsn) as again:
        assert again.store.oldest_position() == oldest
        assert again.values("f") == bench.values("f")
        assert again.store.segments() == bench.store.segments()
        assert again.store.drop_before(0) == oldest, "nothing more is dropped"
    assert rows_below(database, oldest) == 0
    assert bench.append("f", "next").first_sequence_id == bench.tail("f").head
