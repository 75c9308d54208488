"""Attach, mend and detach while the application writes: it gets no error, and never queues longer than our DDL may wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.errors import SourceUnavailable
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.postgres import attach as attach_module
from headrace.publisher.postgres.connection import DDL_LOCK_MS, run_ddl
from tests.integration.postgres.captured import FEED, Captured, captured
from tests.postgres import Database
from tests.waiting import wait_until

App = psycopg.Connection[TupleRow]
WRITERS = 4
SLACK_S = 1.0
"""What a busy machine may add to the longest wait."""


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with database.connect() as connection:
        connection.execute("CREATE TABLE item (id int PRIMARY KEY, n int, note text)")
        connection.execute("CREATE TABLE more (id int PRIMARY KEY, n int)")
        connection.execute("INSERT INTO item SELECT n, 0, 'x' FROM generate_series(1, 500) AS n")
        connection.execute("INSERT INTO more SELECT n, 0 FROM generate_series(1, 500) AS n")
        yield connection


@pytest.fixture
def source(app: App, database: Database) -> Iterator[Captured]:
    with captured(database) as found:
        yield found


class Writers:
    """Threads that write both tables in one transaction after another, and note the longest."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(WRITERS)]
        self.errors: list[Exception] = []
        self.slowest_s = 0.0
        self.done = 0

    def _run(self, number: int) -> None:
        try:
            with self._database.connect() as connection:
                turn = number
                while not self._stop.is_set():
                    turn = (turn + 7) % 500 + 1
                    began = time.monotonic()
                    with connection.transaction():
                        connection.execute("UPDATE item SET n = n + 1 WHERE id = %s", (turn,))
                        connection.execute("UPDATE more SET n = n + 1 WHERE id = %s", (turn,))
                        connection.execute("DELETE FROM more WHERE id = %s", (turn + 1,))
                        connection.execute(
                            "INSERT INTO more VALUES (%s, 0) ON CONFLICT DO NOTHING", (turn + 2,)
                        )
                    self.slowest_s = max(self.slowest_s, time.monotonic() - began)
                    self.done += 1
        except psycopg.errors.DeadlockDetected:
            self._run(number)  # of two writers with each other: they take the rows of more in no order
        except Exception as error:  # noqa: BLE001  # whatever it is, the application saw it
            self.errors.append(error)

    def go_on(self) -> None:
        """Wait until they have done some more."""
        goal = self.done + 40
        wait_until(lambda: self.done >= goal or self.errors, what="the application to go on")

    @contextmanager
    def running(self) -> Iterator[Writers]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()
        assert self.errors == []


def test_columns_come_go_and_change_under_load(app: App, source: Captured, database: Database) -> None:
    statements = [
        "ALTER TABLE item ADD COLUMN size int",
        "ALTER TABLE item RENAME note TO remark",
        "ALTER TABLE item ALTER size TYPE text",
        "ALTER TABLE item DROP COLUMN remark",
        "ALTER TABLE item ADD COLUMN note text DEFAULT 'y'",
        "ALTER TABLE item ALTER n TYPE bigint",
    ]
    source.attach("item", "more")
    with Writers(database).running() as writers:
        for statement in statements:
            writers.go_on()
            app.execute(statement.encode())
            writers.go_on()
            wait_until(lambda: source.mend() == [], what="the triggers to be rebuilt")
    assert source.mend() == []
    source.assert_equal("item", "more")


def test_attach_and_detach_under_load(app: App, source: Captured, database: Database) -> None:
    with Writers(database).running() as writers:
        for before in (False, True):
            source.attach("item", "more", before=before)
            writers.go_on()
        source.detach("item")
        source.attach("item", "more", before=True)
        writers.go_on()
    source.assert_equal("item", "more")
    source.detach(discard=True)
    assert app.execute("SELECT to_regnamespace('headrace')").fetchone() == (None,)


def test_idle_transaction_in_the_way_never_queues_the_application(
    app: App, source: Captured, database: Database
) -> None:
    attached = threading.Event()

    def work() -> None:
        source.attach("more", "item")
        attached.set()

    with Writers(database).running() as writers:
        with database.connect(autocommit=False) as idle:
            idle.execute("UPDATE item SET n = n WHERE id = 499")
            thread = threading.Thread(target=work)
            thread.start()
            for _ in range(5):
                writers.go_on()
            assert not attached.is_set()
            idle.rollback()
        thread.join()
        writers.go_on()
    assert writers.slowest_s < DDL_LOCK_MS / 1000 + SLACK_S
    source.assert_equal("item", "more")


def test_long_reader_does_not_keep_triggers_from_being_rebuilt(
    app: App, source: Captured, database: Database
) -> None:
    source.attach("item")
    with database.connect(autocommit=False) as reader:
        app.execute("ALTER TABLE item ADD COLUMN size int")
        reader.execute("SELECT count(*) FROM item")
        assert source.mend() == []
    source.assert_equal("item")


def test_what_is_in_the_way_is_named_and_nothing_was_changed(
    app: App, source: Captured, database: Database
) -> None:
    source.attach("more")
    with database.connect(autocommit=False, application_name="forgotten") as idle:
        idle.execute("UPDATE more SET n = n WHERE id = 1")
        app.execute("ALTER TABLE item ADD COLUMN size int")
        request = AttachRequest(feed=FEED, tables=("item", "more"), before=True)
        with pytest.raises(SourceUnavailable, match="forgotten"):
            run_ddl(
                source.connection, lambda: attach_module._attach(source.connection, request), patience_s=0.5
            )
    assert app.execute("SELECT count(*) FROM pg_trigger WHERE tgrelid = 'item'::regclass").fetchone() == (0,)
    assert source.kinds() == []


def test_vacuum_in_the_way_is_named_and_not_an_older_reader(
    app: App, source: Captured, database: Database
) -> None:
    """The vacuum sleeps at each page that it cleans, so it lasts until it is cancelled."""
    app.execute(
        "CREATE TABLE aged AS SELECT n AS id, repeat('x', 500) AS note FROM generate_series(1, 20000) AS n"
    )
    app.execute("ALTER TABLE aged ADD PRIMARY KEY (id)")
    app.execute("DELETE FROM aged")
    with database.connect(autocommit=False, application_name="reader") as reader:
        reader.execute("SELECT 1")
        with database.connect(application_name="cleaning") as vacuum:
            vacuum.execute("SET vacuum_cost_delay = 100")
            vacuum.execute("SET vacuum_cost_limit = 1")
            thread = threading.Thread(target=_until_cancelled, args=(vacuum, "VACUUM (TRUNCATE false) aged"))
            thread.start()
            wait_until(
                lambda: app.execute("SELECT count(*) FROM pg_stat_progress_vacuum").fetchone() == (1,),
                what="the vacuum to begin",
            )
            request = AttachRequest(feed=FEED, tables=("aged",))
            with pytest.raises(
                SourceUnavailable, match=r"cleaning.*runs VACUUM.*ShareUpdateExclusiveLock on aged"
            ):
                run_ddl(
                    source.connection,
                    lambda: attach_module._attach(source.connection, request),
                    patience_s=0.5,
                )
            vacuum.cancel_safe()
            thread.join()


def _until_cancelled(connection: App, statement: str) -> None:
    with pytest.raises(psycopg.errors.QueryCanceled):
        connection.execute(statement)


def test_mend_that_can_not_be_done_now_stays_a_finding(
    app: App, source: Captured, database: Database
) -> None:
    source.attach("item")
    app.execute("ALTER TABLE item ADD COLUMN size int")
    with database.connect(autocommit=False) as idle:
        idle.execute("UPDATE item SET n = n WHERE id = 1")
        assert source.mend() == source.kinds() != []
        idle.rollback()
    assert source.mend() == []
