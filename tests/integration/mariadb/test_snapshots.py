"""A snapshot by the application's own query on MariaDB is the feed's fold at its place, whatever writers and DDL do."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pymysql
import pytest
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from headrace.errors import SnapshotUnavailable, SourceUnavailable
from headrace.publisher.databases import state_reader
from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.state import StateReader
from headrace.runtime.dsn import parse_dsn
from tests.integration.mariadb.outboxes import AGENT, FEED, claim, post
from tests.mariadb import Database
from tests.scale import SEED, scaled, sized
from tests.states import read_lines, take
from tests.waiting import wait_until

QUERY = "SELECT k, v FROM object;  "
REPLACE = (
    "CREATE TABLE new LIKE object; INSERT INTO new SELECT * FROM object; "
    "RENAME TABLE object TO old, new TO object; DROP TABLE old"
)
"""What tools that change a schema online do."""


def reader_of(database: Database, query: str = QUERY) -> StateReader:
    return state_reader(parse_dsn(database.dsn), FEED, query)


@pytest.fixture
def app(database: Database) -> Iterator[Connection[Cursor]]:
    with database.connect() as app, app.cursor() as cursor:
        cursor.execute("CREATE TABLE object (k VARCHAR(9) PRIMARY KEY, v LONGTEXT) ENGINE = InnoDB")
        cursor.execute("INSERT INTO object VALUES ('a', '{}'), ('b', '{}')")
        app.commit()
        yield app


class Writers:
    """Sessions that change objects and say so with Outbox.add, in transactions of which some are taken back."""

    def __init__(self, database: Database, seed: int, count: int) -> None:
        self.commits = 0
        self._database = database
        self._ends = threading.Event()
        self._allowed = threading.Semaphore(0)
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._write, args=(random.Random(f"{seed} {number}"),))
            for number in range(count)
        ]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._allowed.release(len(self._threads))
        for thread in self._threads:
            thread.join(60)
        assert not self._errors

    def give(self, transactions: int) -> None:
        """Let them make so many more."""
        self._allowed.release(transactions)

    def _write(self, rng: random.Random) -> None:
        try:
            with self._database.connect() as app:
                while not self._ends.is_set():
                    self._allowed.acquire()
                    with suppress(
                        pymysql.err.OperationalError, pymysql.err.IntegrityError
                    ):  # they meet each other
                        self._transaction(app, rng)
                    app.rollback()
                    self.commits += 1
        except BaseException as error:
            self._errors.append(error)
            raise

    def _transaction(self, app: Connection[Cursor], rng: random.Random) -> None:
        with app.cursor() as cursor:
            for _ in range(rng.randrange(1, 6)):
                key, text = f"k{rng.randrange(12)}", json.dumps({"v": rng.randrange(10**6)})
                gone = cursor.execute("DELETE FROM object WHERE k = %s", (key,))
                if rng.random() < 0.25:
                    if gone:
                        Outbox.add(app, FEED, "{}", key=key, op="delete")
                else:
                    cursor.execute("INSERT INTO object VALUES (%s, %s)", (key, text))
                    Outbox.add(app, FEED, text, key=key)
                if rng.random() < 0.1:
                    cursor.execute("SELECT SLEEP(%s)", (rng.random() / 50,))
        if rng.random() > 0.1:
            app.commit()


def run(app: Connection[Cursor], statements: str) -> None:
    """Run each, and give up soon where a table is locked."""
    with app.cursor() as cursor:
        cursor.execute("SET SESSION lock_wait_timeout = 1")
        for statement in statements.split("; "):
            cursor.execute(statement)
            cursor.fetchall()
    app.commit()


def drain(source: MysqlSource, batches_max: int = 1 << 30) -> list[MarkedRow]:
    posted: list[MarkedRow] = []
    batch = source.batch(FEED, AGENT)
    for _ in range(batches_max):
        posted += batch
        done = RowPlace(batch[-1].id, batch[-1].sequence_id) if batch else None
        source.advance(FEED, AGENT, 1, done, 0)
        batch = source.batch(FEED, AGENT)
        if not batch:
            break
    return posted


@pytest.mark.parametrize("seed", range(scaled(1)), ids=lambda seed: f"seed-{seed}")
def test_state_at_its_place_is_what_the_feed_folds_to(
    database: Database, source: MysqlSource, app: Connection[Cursor], seed: int
) -> None:
    run(app, "DELETE FROM object")
    seed += SEED
    rng = random.Random(seed)
    claim(source, 1)
    posted: list[MarkedRow] = []
    states = []
    with Writers(database, seed, 4) as writers:
        for turn in range(sized(30, soak=40)):
            before = writers.commits
            writers.give(rng.randrange(4, 20))
            if turn % 3:
                wait_until(lambda: writers.commits > before, what="a commit")  # noqa: B023  # asked at once
            if rng.random() < 0.6:
                posted += drain(source, rng.randrange(1, 4))
            if turn % 5 == 4:
                with suppress(pymysql.err.OperationalError):  # they don't let go of it
                    run(
                        app,
                        rng.choice(
                            [
                                "ALTER TABLE object ENGINE = InnoDB",
                                "ALTER TABLE object FORCE, ALGORITHM = COPY",
                            ]
                        ),
                    )
            with suppress(SourceUnavailable):  # DDL waits for a writer, and we behind it
                states.append(take(source, reader_of(database), FEED, AGENT))
    states.append(take(source, reader_of(database), FEED, AGENT))
    posted += drain(source)
    assert [row.sequence_id for row in posted] == list(range(1, len(posted) + 1))
    for place, lines in states:
        rows, _ = read_lines(line.rstrip(b"\n") for line in lines)
        assert rows == folded(posted[: place.sequence_id]), f"seed {seed}, at {place}"
    assert states[-1][0].sequence_id == len(posted)
    assert len({place.sequence_id for place, _ in states}) > 15, "the states were hardly different"


def folded(rows: list[MarkedRow]) -> dict[str, bytes]:
    state: dict[str, bytes] = {}
    for row in rows:
        if row.op == "delete":
            state.pop(str(row.key), None)
        else:
            state[str(row.key)] = row.changes
    return state


@pytest.mark.parametrize(
    "statements",
    [
        "TRUNCATE object",
        "ALTER TABLE object ADD COLUMN x INT DEFAULT 7",
        "ALTER TABLE object ADD COLUMN x INT DEFAULT 7, ALGORITHM = COPY",
        "DROP TABLE object",
        REPLACE,
    ],
)
def test_what_the_query_reads_stays_as_it_is_until_it_is_read(
    database: Database, source: MysqlSource, app: Connection[Cursor], statements: str
) -> None:
    claim(source, 1)
    reader = reader_of(database)
    reader.open()
    try:
        source.begin_snapshot(FEED, AGENT, 1, reader, lambda *_: None)
        with pytest.raises(pymysql.err.OperationalError, match="Lock wait"):
            run(app, statements)
        assert len(list(reader.lines())) == 2
    finally:
        reader.close()


def test_table_that_took_the_place_of_another_is_read_whole(
    database: Database, source: MysqlSource, app: Connection[Cursor]
) -> None:
    claim(source, 1)
    reader = reader_of(database)
    reader.open()
    try:
        run(app, REPLACE)
        source.begin_snapshot(FEED, AGENT, 1, reader, lambda *_: None)
        assert len(list(reader.lines())) == 2
    finally:
        reader.close()


def test_table_that_is_being_changed_makes_no_snapshot_and_holds_marking_up_but_shortly(
    database: Database, source: MysqlSource, app: Connection[Cursor]
) -> None:
    claim(source, 1)
    with app.cursor() as cursor:
        cursor.execute("LOCK TABLES object WRITE")
        with pytest.raises(SourceUnavailable, match="Lock wait"):
            take(source, reader_of(database), FEED, AGENT)
        cursor.execute("UNLOCK TABLES")
    assert len(take(source, reader_of(database), FEED, AGENT)[1]) == 2
    assert post(source) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            "CAST('12345678901234567890.123456789012345' AS DECIMAL(50, 15))",
            "12345678901234567890.123456789012345",
        ),
        ("CAST(18446744073709551615 AS UNSIGNED)", "18446744073709551615"),
        ("CAST('2026-01-02 03:04:05.678901' AS DATETIME(6))", '"2026-01-02 03:04:05.678901"'),
        ("CAST('0000-00-00' AS DATE)", '"0000-00-00"'),
        ("b'101' + 0", "5"),
        ("JSON_EXTRACT('[1.10000000000000000001]', '$[0]')", "1.10000000000000000001"),
    ],
)
def test_json_keeps_its_digits(
    database: Database, source: MysqlSource, app: Connection[Cursor], value: str, text: str
) -> None:
    claim(source, 1)
    query = f"SELECT k, JSON_OBJECT('v', {value}) FROM object WHERE k = 'a'"
    _, (line,) = take(source, reader_of(database, query), FEED, AGENT)
    assert line == b'{"key":"a","changes":{"v": ' + text.encode() + b"}}\n"


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ("1, v", "a key must be text"),
        ("CAST(k AS BINARY), v", "a key must be text"),
        ("NOW(), v", "a key must be text"),
        ("k, 1.5", "must be JSON as text, not Decimal"),
        ("k, NOW()", "must be JSON as text, not datetime"),
        ("k, NULL", "must be JSON as text"),
        ("k, '[]'", "no JSON object"),
        ("k, v, 1", "two columns"),
        ("k, k", "Duplicate column"),
        ("k, nothing", "Unknown column"),
    ],
)
def test_what_is_no_state_is_refused(
    database: Database, source: MysqlSource, app: Connection[Cursor], columns: str, named: str
) -> None:
    claim(source, 1)
    with pytest.raises(SnapshotUnavailable, match="snapshot-sql of shop") as caught:
        take(source, reader_of(database, f"SELECT {columns} FROM object"), FEED, AGENT)
    assert named in caught.value.detail


def test_query_may_be_written_as_people_write_them(
    database: Database, source: MysqlSource, app: Connection[Cursor]
) -> None:
    claim(source, 1)
    queries: list[Any] = [
        "WITH o AS (SELECT * FROM object) SELECT k, v FROM o ORDER BY k LIMIT 1",
        "SELECT k, v FROM object WHERE k = 'a' -- 100% of it",
        "(SELECT k, v FROM object WHERE k = 'a') UNION ALL (SELECT 'x', '{}' FROM object WHERE k = '{}');\n",
    ]
    for query in queries:
        assert len(take(source, reader_of(database, query), FEED, AGENT)[1]) == 1
