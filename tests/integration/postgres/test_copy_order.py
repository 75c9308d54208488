"""Rows copied while the application writes: in the feed's order each copy says what the row was just then."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState
from headrace.publisher.postgres.attachment import write_control
from headrace.publisher.postgres.connection import transaction
from headrace.publisher.postgres.copies import read_copies, request_copy
from headrace.publisher.postgres.copying import begin_copy, copy_chunk
from tests.integration.postgres.captured import Captured, Row, captured
from tests.postgres import Database
from tests.scale import SEED, scaled, sized
from tests.waiting import wait_until

App = psycopg.Connection[TupleRow]

KEYS = 120
TABLE = "CREATE TABLE item (a int, b text, v int NOT NULL, PRIMARY KEY (a, b))"


@pytest.fixture
def source(database: Database) -> Iterator[Captured]:
    database.sql(TABLE)
    with captured(database) as found:
        yield found


class Writer(threading.Thread):
    """A client of the application. It locks rows in the order of falling keys, so writers never deadlock one another."""

    def __init__(self, database: Database, seed: int) -> None:
        super().__init__()
        self.database = database
        self.rng = random.Random(seed)
        self.ending = threading.Event()
        self.commits = 0
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            with self.database.connect(autocommit=False) as app:
                while not self.ending.is_set():
                    self.transact(app)
        except psycopg.Error as error:
            self.error = error

    def transact(self, app: App) -> None:
        keys = sorted({self.rng.randrange(KEYS) for _ in range(self.rng.randrange(1, 8))}, reverse=True)
        for key in keys:
            where = (key // 10, f"k{key % 10}")
            match self.rng.randrange(5):
                case 0:
                    app.execute("DELETE FROM item WHERE (a, b) = (%s, %s)", where)
                case 1:
                    app.execute("DELETE FROM item WHERE (a, b) = (%s, %s)", where)
                    app.execute("INSERT INTO item VALUES (%s, %s, 0) ON CONFLICT DO NOTHING", where)
                case 2:
                    app.execute("SELECT FROM item WHERE (a, b) = (%s, %s) FOR KEY SHARE", where)
                case _:
                    app.execute(
                        "INSERT INTO item VALUES (%s, %s, 0) ON CONFLICT (a, b) DO UPDATE SET v = item.v + 1",
                        where,
                    )
        if self.rng.random() < 0.1:
            app.rollback()
        else:
            app.commit()
            self.commits += 1


@contextmanager
def writing(database: Database, count: int, seed: int) -> Iterator[list[Writer]]:
    """Run writers, and end them; an error of any fails."""
    writers = [Writer(database, seed + number) for number in range(count)]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.ending.set()
        for writer in writers:
            writer.join()
    assert [writer.error for writer in writers] == [None] * count


def check_copies(rows: list[Row], first: int = 0) -> int:
    """Fail unless every copied row is what the entries before it made of that row; returns how many were copied.

    ``first``: how many entries tell of rows for the first time.
    """
    state: dict[str, bytes] = {}
    copied = 0
    for place, row in enumerate(rows):
        if row.control is None and row.copy:
            known = state.setdefault(row.key, row.changes) if place < first else state.get(row.key)
            assert known == row.changes, f"row {place} copies {row.changes!r}, which was {known!r}"
            copied += 1
        elif row.control is None and row.op == "delete":
            state.pop(row.key, None)
        elif row.control is None:
            state[row.key] = row.changes
    return copied


def drive(source: Captured, number: int, rows_max: int = 1_000) -> CopyStanding:
    """Take a copy to its end."""
    wait_until(lambda: copy_chunk(source.connection, number, rows_max) is None, 120, what="the copy to end")
    return standing_of(source, number)


def standing_of(source: Captured, number: int) -> CopyStanding:
    return next(one for one in read_copies(source.connection) if one.number == number)


@pytest.mark.parametrize("seed", range(sized(1, soak=10)))
def test_each_copy_stands_in_its_place_among_concurrent_changes(
    database: Database, source: Captured, seed: int
) -> None:
    source.attach("item")
    database.sql(f"INSERT INTO item SELECT g / 10, 'k' || g % 10, 0 FROM generate_series(0, {KEYS - 1}) AS g")
    copies = 0
    with writing(database, 6, SEED + 100 * seed) as writers:
        while min(writer.commits for writer in writers) < scaled(sized(8, soak=50)) or copies < 3:
            assert all(writer.error is None for writer in writers), [writer.error for writer in writers]
            number = request_copy(source.connection, CopyRequest("item"))
            assert drive(source, number, rows_max=7).state is CopyState.DONE
            copies += 1
    rows = source.rows()
    assert check_copies(rows) > 50 * copies
    source.assert_equal("item")
    assert "deadlock" not in [line for line in database.cluster.log().splitlines() if database.name in line]


def test_existing_rows_attached_under_load(database: Database, source: Captured) -> None:
    database.sql("INSERT INTO item SELECT g / 10, 'k' || g % 10, 0 FROM generate_series(0, 2000) AS g")
    with writing(database, 4, SEED) as writers:
        source.attach("item")
        before = [writer.commits for writer in writers]
        wait_until(
            lambda: all(w.commits > n for w, n in zip(writers, before, strict=True)), what="more commits"
        )
    source.assert_equal("item")
    assert source.controls() == ["schema", "copy-begin", "copy-end"]


def test_rows_locked_in_the_other_order_make_no_deadlock(database: Database, source: Captured) -> None:
    database.sql("INSERT INTO item SELECT 1, 'k' || g, 0 FROM generate_series(1, 5) AS g")
    source.attach("item")
    with database.connect(autocommit=False) as app:
        app.execute("SET deadlock_timeout = '10ms'; SET lock_timeout = '10s'")
        app.execute("UPDATE item SET v = 1 WHERE b = 'k5'")
        number = request_copy(source.connection, CopyRequest("item"))
        wait_until(lambda: standing_of(source, number).rows_left or not copy_chunk(source.connection, number))
        assert (standing_of(source, number).rows, standing_of(source, number).rows_left) == (4, 1)
        for row in (4, 3, 2, 1):
            copy_chunk(source.connection, number)
            app.execute(f"UPDATE item SET v = 1 WHERE b = 'k{row}'")
        app.commit()
    assert drive(source, number).rows == 5
    assert check_copies(source.rows(), first=8) == 10
    source.assert_equal("item")


def test_row_locked_for_the_whole_copy_comes_last_and_holds_up_no_other_table(
    database: Database, source: Captured
) -> None:
    database.sql("INSERT INTO item SELECT 1, 'k' || g, 0 FROM generate_series(1, 9) AS g")
    database.sql("CREATE TABLE other (id int PRIMARY KEY)")
    database.sql("INSERT INTO other SELECT generate_series(1, 9)")
    with database.connect(autocommit=False, application_name="nightly-job") as app:
        source.attach("item", "other", copy=False)
        app.execute("UPDATE item SET v = 5 WHERE b = 'k2'")
        number = request_copy(source.connection, CopyRequest("item"))
        beside = request_copy(source.connection, CopyRequest("other"))
        assert wait_until(
            lambda: copy_chunk(source.connection, number) and standing_of(source, number).detail
        )
        held = standing_of(source, number)
        assert (held.state, held.rows, held.rows_left) == (CopyState.RUNNING, 8, 1)
        assert '["1", "k2"]' in held.detail
        assert f"Session {app.info.backend_pid} (nightly-job) has it" in held.detail
        assert drive(source, beside).state is CopyState.DONE
        app.commit()
    assert drive(source, number).rows == 9
    assert standing_of(source, number).detail == ""
    copied = [row for row in source.rows() if row.copy and row.table == ("public", "item")]
    assert (copied[-1].short, copied[-1].values["v"]) == (("put", [1, "k2"]), 5)
    source.assert_equal("item", "other")


def test_row_left_that_goes_or_changes_its_key_is_not_copied(database: Database, source: Captured) -> None:
    database.sql("INSERT INTO item SELECT 1, 'k' || g, 0 FROM generate_series(1, 4) AS g")
    source.attach("item")
    with database.connect(autocommit=False) as app:
        app.execute("DELETE FROM item WHERE b = 'k2'")
        app.execute("UPDATE item SET b = 'new' WHERE b = 'k3'")
        number = request_copy(source.connection, CopyRequest("item"))
        wait_until(
            lambda: copy_chunk(source.connection, number) and standing_of(source, number).rows_left == 2
        )
        app.commit()
    assert drive(source, number).rows == 2
    source.assert_equal("item")


def test_repeatable_read_transaction_updates_a_row_that_was_copied_meanwhile(
    database: Database, source: Captured
) -> None:
    database.sql("INSERT INTO item VALUES (1, 'a', 0)")
    source.attach("item")
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        with database.connect(autocommit=False) as app:
            app.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
            app.execute("SELECT * FROM item")
            drive(source, request_copy(source.connection, CopyRequest("item")))
            app.execute("UPDATE item SET v = v + 1")
            app.commit()
    assert check_copies(source.rows(), first=4) == 3
    source.assert_equal("item")


def test_rows_inserted_before_a_truncate_entry_and_committed_after_it_are_copied(
    database: Database, source: Captured
) -> None:
    """The agent writes such an entry when an operator accepts another history; it takes no lock on the table."""
    database.sql("INSERT INTO item VALUES (1, 'a', 0)")
    source.attach("item")
    with database.connect(autocommit=False) as app:
        app.execute("INSERT INTO item VALUES (9, 'late', 0)")
        with transaction(source.connection):
            write_control(source.connection, source.live("item"), "truncate")
            number = begin_copy(source.connection, source.live("item"), after_running=True)
        assert wait_until(
            lambda: copy_chunk(source.connection, number) and standing_of(source, number).detail
        )
        assert str(app.info.backend_pid) in standing_of(source, number).detail
        app.commit()
    assert drive(source, number).rows == 2
    source.assert_equal("item")
