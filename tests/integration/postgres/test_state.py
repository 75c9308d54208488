"""A state read from PostgreSQL is the feed's fold at its place, under concurrent writers; and it holds nobody up."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest

from headrace.errors import SnapshotUnavailable, SourceUnavailable
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.publisher.postgres.source import PostgresSource, state_reader
from headrace.publisher.postgres.state import PostgresStateReader
from headrace.runtime.dsn import parse_dsn
from tests.postgres import Database
from tests.scale import SEED, scaled, sized
from tests.states import read_lines, take
from tests.unit.publisher.outboxes import fold
from tests.waiting import wait_until

FEED, AGENT = "shop", "shop-1"
TABLES = ("item", "part")
TURNS = sized(16, soak=30)


def reader_of(database: Database, query: str | None = None) -> PostgresStateReader:
    return state_reader(parse_dsn(database.dsn), FEED, query)


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    with database.connect() as app:
        app.execute(
            "CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(12, 2), doc json, docb jsonb)"
        )
        app.execute(
            "CREATE TABLE part (a text, b int, at timestamptz, PRIMARY KEY (a, b)) PARTITION BY RANGE (b)"
        )
        app.execute("CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (10)")
        app.execute("CREATE TABLE part_high PARTITION OF part DEFAULT")
        app.execute("INSERT INTO item (id, name) SELECT n, 'there before' FROM generate_series(1, 7) AS n")
    with closing(PostgresSource(parse_dsn(database.dsn))) as source:
        for attached in source.attach(AttachRequest(feed=FEED, tables=TABLES)):
            while source.copy_chunk(attached.number):
                pass
        source.claim(FEED, AGENT, FeedPlace("incarnation-1", 1, 1), 0)
        yield source


def drain(source: PostgresSource, batches_max: int = 1 << 30) -> list[MarkedRow]:
    """Mark and process what waits, as an agent whose posts all succeed; returns what it would have posted."""
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


class Writers:
    """Sessions that change rows in transactions of several statements, some taken back, some slow to commit."""

    def __init__(self, database: Database, seed: int, count: int) -> None:
        self.commits = 0
        self._database = database
        self._ends = threading.Event()
        self._allowed = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._write, args=(random.Random(f"{seed} {number}"),))
            for number in range(count)
        ]
        self._errors: list[BaseException] = []

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
                        psycopg.OperationalError, psycopg.errors.UniqueViolation
                    ):  # they meet each other
                        self._transaction(app, rng)
                    self.commits += 1
        except BaseException as error:
            self._errors.append(error)
            raise

    def _transaction(self, app: psycopg.Connection[tuple[object, ...]], rng: random.Random) -> None:
        with app.transaction(force_rollback=rng.random() < 0.1):
            for _ in range(rng.randrange(1, 6)):
                key, text = rng.randrange(20), rng.choice(["", "ß", 'quo"ted', "two\nlines"])
                statement, given = rng.choice([
                    ("INSERT INTO item VALUES (%s, %s, 1.5, '{ \"a\":\n1 }', 'null') ON CONFLICT (id) DO UPDATE SET "
                     "name = excluded.name, price = item.price + 1", (key, text)),
                    ("UPDATE item SET price = coalesce(price, 0) + 1 WHERE id <= %s", (key,)),
                    ("UPDATE item SET id = id + 20 WHERE id = %s", (key,)),
                    ("DELETE FROM item WHERE id %% 7 = %s", (key % 7,)),
                    ("INSERT INTO part VALUES (%s, %s, now()) ON CONFLICT DO NOTHING", (text, key)),
                    ("UPDATE part SET b = (b + 7) %% 20 WHERE b = %s", (key,)),
                    ("DELETE FROM part WHERE b = %s", (key,)),
                    ("SELECT pg_sleep(%s)", (rng.random() / 100,)),
                ])  # fmt: skip
                app.execute(statement, given)


@pytest.mark.parametrize("seed", range(scaled(1)), ids=lambda seed: f"seed-{seed}")
def test_state_at_its_place_is_what_the_feed_folds_to(
    database: Database, source: PostgresSource, seed: int
) -> None:
    seed += SEED
    rng = random.Random(seed)
    posted: list[MarkedRow] = []
    states = []
    with Writers(database, seed, 4) as writers:
        for turn in range(TURNS):
            before = writers.commits
            writers.give(rng.randrange(4, 20))
            if turn % 3:  # else it meets all of them at work
                wait_until(lambda: writers.commits > before, what="a commit")  # noqa: B023  # asked at once
            if rng.random() < 0.6:  # else it has marked rows that are not posted
                posted += drain(source, rng.randrange(1, 4))
            states.append(take(source, reader_of(database), FEED, AGENT))
    states.append(take(source, reader_of(database), FEED, AGENT))
    posted += drain(source)
    assert [row.sequence_id for row in posted] == list(range(1, len(posted) + 1))
    for place, lines in states:
        rows, controls = read_lines(line.rstrip(b"\n") for line in lines)
        until = {key: as_line(row) for key, row in fold(posted[: place.sequence_id]).items()}
        assert rows == until, f"seed {seed}, at {place}"
        assert [one["key"] for one in controls] == [row.key for row in posted if row.control == "schema"]
    assert states[-1][0].sequence_id == len(posted)
    assert len({place.sequence_id for place, _ in states}) > TURNS // 2, "the states were hardly different"


def as_line(changes: bytes) -> bytes:
    """What a line can hold of ``changes``: a stored json keeps its line breaks."""
    return changes.replace(b"\n", b" ")


def test_transaction_open_meanwhile_comes_after_the_state(database: Database, source: PostgresSource) -> None:
    with database.connect(autocommit=False) as early, database.connect() as app:
        early.execute("UPDATE item SET name = 'early' WHERE id = 1")  # has its outbox id
        app.execute("UPDATE item SET name = 'late' WHERE id = 2")
        place, lines = take(source, reader_of(database), FEED, AGENT)
        early.commit()
    rows, _ = read_lines(line.rstrip(b"\n") for line in lines)
    texts = b"".join(rows.values())
    assert b"late" in texts
    assert b"early" not in texts
    posted = drain(source)
    assert [b"early" in row.changes for row in posted[place.sequence_id :]] == [True]


def test_large_backlog_is_marked_whole(database: Database, source: PostgresSource) -> None:
    with database.connect() as app:
        app.execute(
            "INSERT INTO item (id) SELECT n FROM generate_series(100, 30099) AS n"
        )  # more than is marked at once
        for number in range(300):
            app.execute("UPDATE item SET name = 'again' WHERE id = %s", (number + 100,))
        place, lines = take(source, reader_of(database), FEED, AGENT)
        app.execute("UPDATE item SET name = 'later' WHERE id = 5")
    rows, _ = read_lines(line.rstrip(b"\n") for line in lines)
    posted = drain(source)
    assert len(posted) == place.sequence_id + 1
    assert rows == fold(posted[:-1])


def test_reading_lets_others_write_and_mark(database: Database, source: PostgresSource) -> None:
    reader = reader_of(database)
    reader.open()
    try:
        place = source.begin_snapshot(FEED, AGENT, 1, reader, lambda *_: None)
        lines = reader.lines()
        first = [next(lines), next(lines)]
        with database.connect() as app:
            app.execute("SET lock_timeout = '5s'")
            app.execute("UPDATE item SET name = 'later'")
            app.execute("DELETE FROM item WHERE id = 3")
        later = drain(source)
        assert later[-1].sequence_id > place.sequence_id
        rest = list(lines)
    finally:
        reader.close()
    assert b"later" not in b"".join(first + rest)
    wait_until(lambda: open_readers(database) == 0, what="the reader's session to end")


def open_readers(database: Database) -> int:
    query = "SELECT count(*)::int FROM pg_stat_activity WHERE datname = '{}' AND application_name = 'headrace snapshot'"
    return int(database.sql(query.format(database.name))[0][0])


@pytest.mark.parametrize(
    "statement",
    ["TRUNCATE item", "ALTER TABLE item ALTER COLUMN id TYPE bigint"],
)
def test_tables_are_neither_emptied_nor_rewritten_under_a_reader(
    database: Database, source: PostgresSource, statement: str
) -> None:
    reader = reader_of(database)
    reader.open()
    try:
        source.begin_snapshot(FEED, AGENT, 1, reader, lambda *_: None)
        with database.connect() as app:
            app.execute("SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                app.execute(statement)
        rows, _ = read_lines(line.rstrip(b"\n") for line in reader.lines())
        assert len(rows) == 7
    finally:
        reader.close()


def test_locked_table_makes_no_snapshot_and_holds_marking_up_but_shortly(
    database: Database, source: PostgresSource
) -> None:
    drain(source)
    with database.connect(autocommit=False) as other:
        other.execute("LOCK TABLE item IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SourceUnavailable, match="lock"):
            take(source, reader_of(database), FEED, AGENT)
        with database.connect() as app:
            app.execute("INSERT INTO part VALUES ('x', 1, now())")
        assert len(drain(source)) == 1
    place, _ = take(source, reader_of(database), FEED, AGENT)
    assert place.sequence_id > 0


def test_masked_and_chosen_columns_are_read_as_they_are_put(
    database: Database, source: PostgresSource
) -> None:
    with database.connect() as app:
        app.execute(
            'CREATE TABLE person (id int PRIMARY KEY, name text, secret text, doc jsonb, "per%cent" text)'
        )
        app.execute(
            "INSERT INTO person VALUES (1, 'a', 'hush', '{\"json\": 1}', '%s'), (2, NULL, NULL, 'null', NULL)"
        )
    request = AttachRequest(feed=FEED, tables=("person",), mask=("secret",), exclude_columns=("name",))
    for attached in source.attach(request):
        while source.copy_chunk(attached.number):
            pass
    place, lines = take(source, reader_of(database), FEED, AGENT)
    rows, _ = read_lines(line.rstrip(b"\n") for line in lines)
    assert b"hush" not in b"".join(lines)
    assert rows == fold(drain(source)[: place.sequence_id])


def test_feed_of_outbox_add_needs_a_query(database: Database) -> None:
    with database.connect() as app:
        Outbox.create(app)
        app.execute("CREATE TABLE thing (name text PRIMARY KEY, doc jsonb)")
        with app.transaction():
            app.execute("INSERT INTO thing VALUES ('a', '{\"n\": 1}')")
            Outbox.add(app, FEED, {"n": 1}, key="a")
    with closing(PostgresSource(parse_dsn(database.dsn))) as source:
        source.claim(FEED, AGENT, FeedPlace("incarnation-1", 1, 1), 0)
        with pytest.raises(SnapshotUnavailable, match=FEED) as caught:
            take(source, reader_of(database), FEED, AGENT)
        assert "snapshot-sql" in caught.value.advice
        place, lines = take(source, reader_of(database, "SELECT name, doc FROM thing"), FEED, AGENT)
        assert (place.sequence_id, lines) == (1, [b'{"key":"a","changes":{"n":1}}\n'])
        for query in (
            "SELECT 1",
            "SELEC",
            "SELECT name, doc FROM nothing",
            "DELETE FROM thing RETURNING name, doc",
        ):
            with pytest.raises(SnapshotUnavailable, match="snapshot-sql of shop"):
                take(source, reader_of(database, query), FEED, AGENT)
