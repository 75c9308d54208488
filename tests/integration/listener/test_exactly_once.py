"""The bookmark commits with the consumer's own writes: killed at any step, each entry takes effect exactly once."""

from __future__ import annotations

import itertools
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headrace.errors import BookmarkMoved, Usage
from headrace.listener import Batch, Listener, ListenerSettings, SqliteBookmarks
from headrace.listener.postgres import PostgresBookmarks
from tests.postgres import Database
from tests.scale import SEED, scaled, sized
from tests.servers import Feed, ServerProcess, changes, serving

TOTAL = 60
STEPS_OF_A_BATCH = 5 + 3

LIVES = """
import asyncio, os, signal, sys
import psycopg
from headrace.listener import Listener, ListenerSettings
from headrace.wire.filters import entry_filter
from headrace.listener.postgres import PostgresBookmarks

steps = 0

def step(fatal):
    global steps
    steps += 1
    if steps == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

async def consume(url, feed, dsn, fatal, shard):
    wanted = entry_filter(None, None, shard or None)
    store = PostgresBookmarks(dsn)
    settings = ListenerSettings(entries_max=5, drain=True)
    with psycopg.connect(dsn, autocommit=True) as app:
        async with Listener(url, feed, "consumer", store, wanted=wanted, settings=settings) as listener:
            async for batch in listener.batches():
                step(fatal)
                with app.transaction():
                    for change in batch.changes:
                        app.execute("INSERT INTO applied VALUES (%s)", (change.sequence_id,))
                        app.execute("UPDATE total SET sum = sum + %s", (change.state()["number"],))
                        step(fatal)
                    batch.move_in(app)
                    step(fatal)
                step(fatal)
    store.close()

for line in sys.stdin:
    url, feed, dsn, fatal, shard = line.rstrip("\\n").split("\\t")
    life = os.fork()
    if life == 0:
        asyncio.run(consume(url, feed, dsn, int(fatal), shard))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(life, 0)[1]), flush=True)
"""
"""Forks a consumer for each line of its stdin and prints how that ended: what they import is imported once."""

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    made = Feed(server, f"vmapi::vm-{next(_numbers)}")
    assert made.register().status_code == 200
    assert made.post(*({"changes": changes(number)} for number in range(1, TOTAL + 1))).status_code == 200
    return made


@pytest.fixture
def tables(database: Database) -> Database:
    with database.connect() as app:
        app.execute("CREATE TABLE applied (sequence_id bigint)")
        app.execute("CREATE TABLE total (sum bigint)")
        app.execute("INSERT INTO total VALUES (0)")
    return database


@pytest.fixture
def lives() -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", LIVES]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def consume(lives: subprocess.Popen[str], feed: Feed, tables: Database, fatal: int, shard: str = "") -> int:
    assert lives.stdin is not None
    assert lives.stdout is not None
    lives.stdin.write("\t".join([feed.server.url, feed.name, tables.dsn, str(fatal), shard]) + "\n")
    lives.stdin.flush()
    code = int(lives.stdout.readline())
    assert code in {0, -signal.SIGKILL}
    return code


def test_killed_at_every_step_each_entry_takes_effect_exactly_once(
    lives: subprocess.Popen[str], feed: Feed, tables: Database
) -> None:
    rng = random.Random(SEED)
    killed_at = [
        *range(1, STEPS_OF_A_BATCH + 1),
        *(rng.randrange(1, 30) for _ in range(scaled(sized(2, soak=4)))),
    ]
    for fatal in killed_at:
        consume(lives, feed, tables, fatal)
        applied = [number for (number,) in tables.sql("SELECT sequence_id FROM applied ORDER BY 1")]
        assert applied == list(range(1, len(applied) + 1)), f"seed {SEED}, killed at step {fatal}"
        with closing(PostgresBookmarks(tables.dsn)) as store:
            place = store.load("consumer", feed.name)
            assert (place.sequence_id if place is not None else 0) == len(applied)
    assert consume(lives, feed, tables, 0) == 0
    assert tables.sql("SELECT count(*), count(DISTINCT sequence_id) FROM applied") == [(TOTAL, TOTAL)]
    assert tables.sql("SELECT sum FROM total") == [(sum(range(1, TOTAL + 1)),)]


def test_parts_of_the_keys_killed_at_random_steps_take_effect_exactly_once(
    lives: subprocess.Popen[str], server: ServerProcess, tables: Database
) -> None:
    feed = Feed(server, f"vmapi::vm-{next(_numbers)}")
    assert feed.register().status_code == 200
    entries = [{"key": f"k{n % 11}", "changes": changes(n)} for n in range(1, TOTAL + 1)]
    assert feed.post(*entries).status_code == 200
    rng = random.Random(SEED)
    for _ in range(scaled(sized(3, soak=5))):
        consume(lives, feed, tables, rng.randrange(1, 30), rng.choice(["1/2", "2/2"]))
    for shard in ("1/2", "2/2"):
        assert consume(lives, feed, tables, 0, shard) == 0
    assert tables.sql("SELECT count(*), count(DISTINCT sequence_id) FROM applied") == [(TOTAL, TOTAL)], (
        f"seed {SEED}"
    )
    with closing(PostgresBookmarks(tables.dsn)) as store:
        for part in (1, 2):
            place = store.load(f"consumer.{part}-of-2", feed.name)
            assert place is not None
            assert place.sequence_id == TOTAL, "past what the other one got"


def apply(tables: Database, batch: Batch) -> None:
    with tables.connect() as app, app.transaction():
        app.execute("INSERT INTO applied VALUES (1)")
        batch.move_in(app)


async def test_two_listeners_under_one_id_cannot_both_apply(feed: Feed, tables: Database) -> None:
    settings = ListenerSettings(entries_max=5, drain=True)
    with closing(PostgresBookmarks(tables.dsn)) as old, closing(PostgresBookmarks(tables.dsn)) as new:
        async with (
            Listener(feed.server.url, feed.name, "twin", old, settings=settings) as first,
            Listener(feed.server.url, feed.name, "twin", new, settings=settings) as second,
        ):
            batch = await anext(first.batches())
            newer = await anext(second.batches())
            assert batch.changes[0].sequence_id == newer.changes[0].sequence_id == 1
            with pytest.raises(BookmarkMoved):
                apply(tables, batch)
            async with await psycopg.AsyncConnection.connect(tables.dsn) as app_async:
                await app_async.execute("INSERT INTO applied VALUES (1)")
                await newer.move_in_async(app_async)
    assert tables.sql("SELECT sequence_id FROM applied") == [(1,)]


async def test_rolled_back_is_not_told_to_the_server(feed: Feed, tables: Database) -> None:
    settings = ListenerSettings(entries_max=5, drain=True)
    with closing(PostgresBookmarks(tables.dsn)) as store:
        async with Listener(feed.server.url, feed.name, "rolled", store, settings=settings) as listener:
            batches = listener.batches()
            batch = await anext(batches)
            with tables.connect() as app, app.transaction(force_rollback=True):
                batch.move_in(app)
            await anext(batches)
    (view,) = [v for v in feed.server.http.get(feed.path).json()["listeners"] if v["listener-id"] == "rolled"]
    assert view["sequence-id"] == 0


async def test_other_stores_know_no_transactions(feed: Feed, tables: Database, tmp_path: Path) -> None:
    with closing(SqliteBookmarks(tmp_path / "b.db")) as store:
        async with Listener(feed.server.url, feed.name, "plain", store) as listener:
            batch = await anext(listener.batches())
            with tables.connect() as app, pytest.raises(Usage, match="transactions"):
                batch.move_in(app)
