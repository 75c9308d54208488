"""The trap of every outbox: ids are handed out before commits. Concurrent transactions, some long, some rolled back.

Per row the feed's order equals the commit order; a transaction that saw another's commit and then wrote comes after it; none
is torn, nothing is lost, nothing comes twice. The rows are written by ``Outbox.add``; triggers write the same rows.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.publisher.postgres.source import PostgresSource
from headrace.runtime.dsn import parse_dsn
from tests.postgres import Cluster, Database
from tests.scale import SEED, scaled, sized

FEED, AGENT, EPOCH = "shop", "shop-1", 1
ACCOUNTS = 12
WRITERS = 8


@dataclass
class Committed:
    """What the writers know of their own transactions."""

    rows: dict[str, int] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Drain:
    """The relay's steps, with no server: what is marked is taken as posted."""

    def __init__(self, database: Database) -> None:
        self._source = PostgresSource(parse_dsn(database.dsn))
        self.next_id = 1
        self.rows: list[MarkedRow] = []
        self.batches: list[int] = []
        self.claim()

    def claim(self) -> None:
        self._source.claim(FEED, AGENT, FeedPlace("A", self.next_id, EPOCH), 0)

    def restart(self, database: Database) -> None:
        """A new process: all that it remembers is in the database. What was marked but not posted comes again."""
        self._source.close()
        self._source = PostgresSource(parse_dsn(database.dsn))
        self.claim()

    def step(self, rows_max: int) -> int:
        self._source.advance(FEED, AGENT, EPOCH, None, 0, rows_max=rows_max)
        batch = self._source.batch(FEED, AGENT)
        for row in batch:
            assert row.sequence_id == self.next_id
            self.next_id += 1
        self.rows += batch
        if batch:
            self.batches.append(len(batch))
            done = RowPlace(batch[-1].id, batch[-1].sequence_id)
            self._source.advance(FEED, AGENT, EPOCH, done, 0, rows_max=0)
        return len(batch)

    def flush_statistics(self) -> None:
        self._source.connection.execute("SELECT pg_stat_force_next_flush()")
        self._source.connection.execute("SELECT 1")

    def close(self) -> None:
        self._source.close()


@pytest.fixture
def drain(database: Database) -> Iterator[Drain]:
    with draining(database) as opened:
        yield opened


@contextmanager
def draining(database: Database) -> Iterator[Drain]:
    """Make the outbox and the accounts, and give what drains it."""
    with database.connect(autocommit=False) as app:
        Outbox.create(app)
        app.execute(
            "CREATE TABLE account (id integer PRIMARY KEY, version integer NOT NULL, writer text NOT NULL)"
        )
        app.execute("INSERT INTO account SELECT g, 0, '' FROM generate_series(1, %s) AS g", (ACCOUNTS,))
    opened = Drain(database)
    yield opened
    opened.close()


def write(app: psycopg.Connection[tuple[object, ...]], name: str, chance: random.Random) -> int:
    """Change some accounts in one transaction, in a fixed order so that nobody deadlocks; returns how many rows it wrote."""
    chosen = sorted(chance.sample(range(1, ACCOUNTS + 1), chance.randint(1, 4)))
    for account in chosen:
        row = app.execute(
            "UPDATE account SET version = version + 1, writer = %s WHERE id = %s RETURNING version",
            (name, account),
        ).fetchone()
        assert row is not None
        # Whoever is named here was committed before this row was written.
        saw = [
            found[0]
            for found in app.execute(
                "SELECT DISTINCT writer FROM account WHERE writer NOT IN (%s, '')", (name,)
            )
        ]
        Outbox.add(
            app, FEED, {"account": account, "version": row[0], "writer": name, "saw": saw}, key=str(account)
        )
        if chance.random() < 0.3:
            app.execute("SELECT pg_sleep(%s)", (chance.random() * 0.05,))
    return len(chosen)


def run_writer(database: Database, number: int, count: int, committed: Committed) -> None:
    chance = random.Random(f"{SEED} {number}")
    with database.connect(autocommit=False) as app:
        for turn in range(count):
            name = f"{number}-{turn}"
            rows = write(app, name, chance)
            if chance.random() < 0.2:
                app.rollback()
                with committed.lock:
                    committed.rolled_back.add(name)
            else:
                app.commit()
                with committed.lock:
                    committed.rows[name] = rows


def check(rows: list[MarkedRow], committed: Committed) -> None:
    """The four promises of this module's docstring."""
    entries = [json.loads(row.changes) for row in rows]
    writers = [entry["writer"] for entry in entries]
    found = {name: writers.count(name) for name in set(writers)}
    assert found == committed.rows  # nothing lost, nothing twice, nothing of what was rolled back
    ends: dict[str, int] = {}
    versions: dict[int, int] = {}
    for place, (row, entry) in enumerate(zip(rows, entries, strict=True)):
        assert entry["version"] == versions.get(entry["account"], 0) + 1
        versions[entry["account"]] = entry["version"]
        name = entry["writer"]
        assert name not in ends  # not torn: nothing of it after its last
        assert row.tx_index == place - writers.index(name)
        if row.tx_last:
            assert row.tx_index + 1 == committed.rows[name]
            ends[name] = place
        for seen in entry["saw"]:
            assert seen in ends, f"{name} saw {seen}, which comes later"
    assert set(ends) == set(committed.rows)


def test_transactions_that_commit_late_overtake_or_roll_back(database: Database, drain: Drain) -> None:
    committed = Committed()
    writers = [
        threading.Thread(target=run_writer, args=(database, number, scaled(sized(20, soak=40)), committed))
        for number in range(WRITERS)
    ]
    for writer in writers:
        writer.start()
    chance = random.Random(SEED)
    while any(writer.is_alive() for writer in writers):
        drain.step(chance.choice([1, 3, 10, 5_000]))
        if chance.random() < 0.02:
            drain.restart(database)
    while drain.step(5_000):
        pass
    check(drain.rows, committed)
    assert committed.rolled_back
    assert len(drain.batches) > 10


def test_an_open_transaction_holds_nobody_up_and_comes_when_it_commits(
    database: Database, drain: Drain
) -> None:
    with database.connect(autocommit=False) as slow, database.connect(autocommit=False) as quick:
        Outbox.add(slow, FEED, {"who": "slow"}, key="1")
        Outbox.add(quick, FEED, {"who": "quick"}, key="2")
        quick.commit()
        drain.step(5_000)
        assert [row.key for row in drain.rows] == ["2"]
        drain.restart(database)  # a new process knows of it too
        drain.step(5_000)
        Outbox.add(slow, FEED, {"who": "slow"}, key="3")
        slow.commit()
    drain.step(5_000)
    assert [row.key for row in drain.rows] == ["2", "1", "3"]
    assert [row.tx_last for row in drain.rows] == [True, False, True]


def test_a_prepared_transaction_comes_when_it_is_committed() -> None:
    with Cluster(settings={"max_prepared_transactions": "5"}) as cluster:
        database = Database(cluster, "postgres")
        with draining(database) as drain:
            with database.connect(autocommit=False) as app:
                Outbox.add(app, FEED, {}, key="1")
                app.execute("PREPARE TRANSACTION 'late'")
                app.commit()
            drain.step(5_000)
            assert drain.rows == []
            database.sql("COMMIT PREPARED 'late'")
            drain.step(5_000)
            assert [row.key for row in drain.rows] == ["1"]


def test_one_larger_than_an_append_takes_several_and_goes_on_after_a_restart(
    database: Database, drain: Drain
) -> None:
    rows = 12_345
    with database.connect(autocommit=False) as large, database.connect(autocommit=False) as small:
        with large.pipeline():
            for number in range(rows):
                Outbox.add(large, FEED, {"n": number}, key=str(number))
        Outbox.add(small, FEED, {"n": -1}, key="small")
        small.commit()
        Outbox.add(large, FEED, {"n": rows}, key=str(rows))
        large.commit()
    drain.step(5_000)
    drain.step(5_000)
    drain.restart(database)
    while drain.step(5_000):
        pass
    assert drain.batches == [1, 5_000, 5_000, rows + 1 - 10_000]
    assert [row.key for row in drain.rows] == ["small", *map(str, range(rows + 1))]
    assert [row.tx_index for row in drain.rows[1:]] == list(range(rows + 1))
    assert [row.tx_last for row in drain.rows] == [True, *[False] * rows, True]


def test_a_transaction_has_its_xid_before_it_takes_an_id(database: Database, drain: Drain) -> None:
    columns = database.sql(
        "SELECT attname, attnum FROM pg_attribute WHERE attrelid = 'headrace.headrace_outbox'::regclass"
    )
    numbers: dict[str, int] = dict(columns)
    assert numbers["tx"] < numbers["id"]  # defaults are evaluated in this order
    database.sql(
        """
        CREATE FUNCTION headrace.xid_taken() RETURNS bigint LANGUAGE sql AS
        $$ SELECT CASE WHEN pg_current_xact_id_if_assigned() IS NULL THEN -1
            ELSE nextval('headrace.headrace_outbox_id') END $$"""
    )
    database.sql("ALTER TABLE headrace.headrace_outbox ALTER COLUMN id SET DEFAULT headrace.xid_taken()")
    with database.connect(autocommit=False) as app:
        assert Outbox.add(app, FEED, {}, key="1") > 0
    assert database.sql(
        "SELECT seqcache FROM pg_sequence WHERE seqrelid = 'headrace.headrace_outbox_id'::regclass"
    ) == [(1,)]


def test_a_long_transaction_elsewhere_does_not_make_the_relay_crawl(database: Database, drain: Drain) -> None:
    """An idle writer holds the oldest xid, a reader the horizon: a pass still reads only what is new. Blocks, not time."""
    with database.connect(autocommit=False) as writer, database.connect(autocommit=False) as reader:
        writer.execute("SELECT pg_current_xact_id()")
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM account")
        with database.connect(autocommit=True) as app:
            costs = [_cost_of_a_pass(drain, app) for _ in range(scaled(100))]
    early, late = sum(costs[5:25]), sum(costs[-20:])
    assert late < 2 * early, f"a pass read {early / 20:.0f} blocks at first, {late / 20:.0f} at the end"


def _cost_of_a_pass(drain: Drain, app: psycopg.Connection[tuple[object, ...]]) -> int:
    """Return the blocks that one pass over ten new transactions reads from the outbox's tables."""
    for number in range(10):
        with app.transaction():
            Outbox.add(app, FEED, {"n": number}, key=str(number))
    before = _blocks(app, drain)
    assert drain.step(5_000) == 10
    return _blocks(app, drain) - before


def _blocks(app: psycopg.Connection[tuple[object, ...]], drain: Drain) -> int:
    drain.flush_statistics()
    app.execute("SELECT pg_stat_force_next_flush()")
    row: Any = app.execute(
        """
        SELECT sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0))::bigint
        FROM pg_statio_user_tables WHERE schemaname = 'headrace' AND relname IN
            ('headrace_outbox', 'headrace_mark', 'headrace_pass', 'headrace_owner')"""
    ).fetchone()
    return int(row[0])
