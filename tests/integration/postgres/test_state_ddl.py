"""States of PostgreSQL while its tables are rewritten and emptied beside writers; and after one of them was detached."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing, suppress

import psycopg
import pytest

from headrace.errors import SourceUnavailable
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.marked import MarkedRow
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.publisher.postgres.source import PostgresSource
from headrace.runtime.dsn import parse_dsn
from tests.integration.postgres.test_state import AGENT, FEED, Writers, drain, reader_of
from tests.postgres import Database
from tests.scale import SEED, scaled
from tests.states import read_lines, take
from tests.unit.publisher.outboxes import fold
from tests.waiting import wait_until

QUERY = "SELECT k, v FROM object"
REWRITES = [
    "TRUNCATE item",
    "TRUNCATE part",
    "ALTER TABLE item SET UNLOGGED; ALTER TABLE item SET LOGGED",
    "VACUUM FULL part_low",
    "ALTER TABLE object SET UNLOGGED; ALTER TABLE object SET LOGGED",
    "BEGIN; ALTER TABLE object RENAME TO old; CREATE TABLE object (LIKE old INCLUDING ALL); "
    "INSERT INTO object SELECT * FROM old; DROP TABLE old; COMMIT",
]


@pytest.fixture
def source(database: Database) -> Iterator[PostgresSource]:
    with database.connect() as app:
        Outbox.create(app)
        app.execute(
            "CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(12, 2), doc json, docb jsonb)"
        )
        app.execute(
            "CREATE TABLE part (a text, b int, at timestamptz, PRIMARY KEY (a, b)) PARTITION BY RANGE (b)"
        )
        app.execute("CREATE TABLE part_low PARTITION OF part FOR VALUES FROM (0) TO (10)")
        app.execute("CREATE TABLE part_high PARTITION OF part DEFAULT")
        app.execute("CREATE TABLE object (k text PRIMARY KEY, v text)")
    with closing(PostgresSource(parse_dsn(database.dsn))) as source:
        for attached in source.attach(AttachRequest(feed=FEED, tables=("item", "part"))):
            while source.copy_chunk(attached.number):
                pass
        source.claim(FEED, AGENT, FeedPlace("incarnation-1", 1, 1), 0)
        yield source


class AllWriters(Writers):
    """Write the attached tables, and objects that only Outbox.add tells of."""

    def _transaction(self, app: psycopg.Connection[tuple[object, ...]], rng: random.Random) -> None:
        if rng.random() < 0.5:
            super()._transaction(app, rng)
            return
        with app.transaction(force_rollback=rng.random() < 0.1):
            for _ in range(rng.randrange(1, 4)):
                key, text = f"k{rng.randrange(12)}", f'{{"v":{rng.randrange(10**6)}}}'
                gone = app.execute("DELETE FROM object WHERE k = %s RETURNING 1", (key,)).fetchone()
                if rng.random() < 0.25:
                    if gone:
                        Outbox.add(app, FEED, "{}", key=key, op="delete")
                else:
                    app.execute("INSERT INTO object VALUES (%s, %s)", (key, text))
                    Outbox.add(app, FEED, text, key=key)
                app.execute("SELECT pg_sleep(%s)", (rng.random() / 200,))


@pytest.mark.parametrize("seed", range(scaled(1)), ids=lambda seed: f"seed-{seed}")
def test_state_is_the_feeds_fold_while_tables_are_rewritten(
    database: Database, source: PostgresSource, seed: int
) -> None:
    seed += SEED
    rng = random.Random(seed)
    posted: list[MarkedRow] = []
    states = []
    rewritten = 0
    with AllWriters(database, seed, 4) as writers, database.connect() as ddl:
        ddl.execute("SET lock_timeout = '100ms'")
        for turn in range(40):
            before = writers.commits
            writers.give(rng.randrange(4, 20))
            if turn % 3:
                wait_until(lambda: writers.commits > before, what="a commit")  # noqa: B023  # asked at once
            if rng.random() < 0.6:
                posted += drain(source, rng.randrange(1, 4))
            with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                for statement in rng.choice(REWRITES).split("; "):
                    ddl.execute(statement.encode())
                rewritten += 1
            if ddl.info.transaction_status:
                ddl.execute("ROLLBACK")
            with suppress(SourceUnavailable):  # one of them held its table for longer than we wait
                states.append(take(source, reader_of(database, QUERY), FEED, AGENT))
    states.append(take(source, reader_of(database, QUERY), FEED, AGENT))
    posted += drain(source)
    assert [row.sequence_id for row in posted] == list(range(1, len(posted) + 1))
    for place, lines in states:
        rows, _ = read_lines(line.rstrip(b"\n") for line in lines)
        assert rows == folded(posted[: place.sequence_id]), f"seed {seed}, at {place}"
    assert states[-1][0].sequence_id == len(posted)
    assert len({place.sequence_id for place, _ in states}) > 15, "the states were hardly different"
    assert rewritten > 5, "the tables were hardly touched"


def folded(posted: list[MarkedRow]) -> dict[str, bytes]:
    """What a line of a snapshot has of each object, by key: of attached tables, and of Outbox.add."""
    attached = fold(row for row in posted if row.table)
    added = fold(row for row in posted if not row.table)
    return {key: changes.replace(b"\n", b" ") for key, changes in (attached | added).items()}


@pytest.mark.parametrize("discard", [False, True], ids=["keep", "discard"])
def test_who_follows_has_what_a_snapshot_has_after_a_detach(
    database: Database, source: PostgresSource, discard: bool
) -> None:
    with database.connect() as app:
        app.execute("INSERT INTO item VALUES (1, 'a')")
        app.execute("INSERT INTO part VALUES ('x', 1, '2026-01-01Z')")
        posted = drain(source)
        app.execute("UPDATE item SET name = 'b'")
        source.detach(["item"], discard=discard)
        app.execute("INSERT INTO part VALUES ('y', 2, '2026-01-01Z')")
        place, lines = take(source, reader_of(database), FEED, AGENT)
        posted += drain(source)
        assert place.sequence_id == len(posted)
        rows, _ = read_lines(line.rstrip(b"\n") for line in lines)
        assert rows == fold(posted)
        assert [key for key in rows if "item" in key] == []
        while source.sweep(FEED, 1 << 42):
            pass
        app.execute("DELETE FROM item")
        (again,) = source.attach(AttachRequest(feed=FEED, tables=("item",)))
        while source.copy_chunk(again.number):
            pass
        place, lines = take(source, reader_of(database), FEED, AGENT)
        posted += drain(source)
        assert read_lines(line.rstrip(b"\n") for line in lines)[0] == fold(posted)
