"""A workload that nobody here wrote: pgbench, and a table of awkward types, with agent and server killed meanwhile.

Ten times in a row, with the 100,000 accounts and the 20 seconds that a release is held to:

    for n in $(seq 10); do HEADRACE_SOAK=1 scripts/test tests/integration/pipeline/test_pgbench.py || break; done
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from tests.agents import AgentProcess, headrace, run_here
from tests.integration.postgres import awkward
from tests.integration.postgres.canonical import delta_rows, difference, source_rows
from tests.integration.postgres.delta_rows import keep_delta
from tests.integration.postgres.history import BALANCES, History, entries_of
from tests.pgbench import Load, Report, make_bank
from tests.postgres import Cluster, Database
from tests.scale import SEED, sized
from tests.servers import ServerProcess, serving
from tests.waiting import wait_until

LOG = logging.getLogger(__name__)

SECONDS = sized(2, soak=20)
ACCOUNTS = sized(1_000, soak=100_000)
RATE = sized(("-R", "200"), soak=())
"""Transactions of pgbench in a second; as many as it can in a soak."""
KILLS = ("agent", "server") * sized(1, soak=2)
DRAIN_S_MAX = 300.0
FEED = "bank"
TABLES = (*BALANCES, awkward.TABLE)


class Bank(NamedTuple):
    """A database with pgbench's tables and the awkward one, and the words of pgbench's own transaction."""

    database: Database
    transaction: list[str]


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    """In a cluster of its own: the load would disturb what other tests measure."""
    with Cluster() as cluster:
        cluster.create_database("bank")
        transaction = make_bank(cluster, "bank", ACCOUNTS, tmp_path)
        database = Database(cluster, "bank")
        awkward.create(database)
        yield Bank(database, transaction)


def attach_words(database: Database) -> list[str]:
    """Attach all tables, with the rows as they were before each change; their rows are copied meanwhile."""
    tables = ",".join(TABLES)
    return ["publisher", "attach", database.dsn, "--table", tables, "--feed", FEED, "--before"]


def watched(database: Database) -> bool:
    """Tell whether every table has its triggers."""
    found = database.sql(
        "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE tgname LIKE '%headrace%'"
    )
    return {name for (name,) in found} == set(TABLES)


def head(server: ServerProcess) -> int:
    """The feed's newest sequence id; 0 before the agent has made the feed."""
    answer = server.http.get(f"/feeds/{FEED}")
    return int(answer.json()["head-sequence-id"]) if answer.status_code == 200 else 0


def keep_busy(bank: Bank, enough: Event) -> list[Report]:
    """Run pgbench, and again if it is over before ``enough`` is set: on a slow machine the kills take longer."""
    words = ("-n", "-c", "4", "-j", "2", "-T", str(SECONDS), *RATE, *bank.transaction)
    reports: list[Report] = []
    while not reports or not enough.is_set():
        with Load(bank.database.cluster, bank.database.name, *words) as load:
            reports.append(load.report(SECONDS))
    return reports


def kill_each(server: ServerProcess, agent: AgentProcess) -> None:
    """SIGKILL each in turn, spread over the load, when the agent got further since the last kill; and start it again."""
    begun = time.monotonic()
    for number, victim in enumerate(KILLS, 1):
        due, before = begun + number * SECONDS / (len(KILLS) + 2), head(server)
        wait_until(partial(_later_and_further, server, due, before), 120, what="the agent to relay something")
        if victim == "agent":
            assert agent.ended() is None, agent.errors()
            agent.kill()
            agent.start()
        else:
            server.restart()


def _later_and_further(server: ServerProcess, due: float, before: int) -> bool:
    return time.monotonic() >= due and head(server) > before


def drained(database: Database, agent: AgentProcess) -> bool:
    """Tell whether every row is copied and every change delivered."""
    assert agent.ended() is None, agent.errors()
    code, out, errors = run_here(["publisher", "check", database.dsn, "--json"])
    assert code == 0, out + errors
    return all(one["waiting-rows"] == 0 and one["copy"] == "done" for one in json.loads(out)["attached"])


def check_feed(server: ServerProcess, database: Database) -> History:
    """Hold the whole feed against the rules, and its end against the bank's tables."""
    history = History()
    for entry in entries_of(server.url, FEED):
        history.take(entry)
    history.finish()
    assert history.copied == set(TABLES)
    for table, (key, balance) in BALANCES.items():
        rows = {row[key]: row[balance] for row in history.rows_of(table)}
        assert rows == dict(database.sql(f"SELECT {key}, {balance} FROM {table}")), table
    ((made,),) = database.sql("SELECT count(*) FROM pgbench_history")
    assert 0 < history.bank_transactions <= made
    return history


def check_tables(spark: SparkSession, database: Database, server: ServerProcess, folder: Path) -> None:
    """Make Spark tables of the feed, and compare each with its PostgreSQL table."""
    published = keep_delta(spark, folder, FEED, server.url)
    assert set(published) == set(TABLES)
    for table in TABLES:
        types, wanted = source_rows(database, table)
        assert wanted, f"{table} is empty, so nothing is compared"
        assert difference(wanted, delta_rows(published[table], types)) == "", table


@pytest.mark.timeout(1200)
def test_bank_arrives_whole_whoever_is_killed(bank: Bank, spark: SparkSession, tmp_path: Path) -> None:
    database, enough = bank.database, Event()
    application = awkward.Application(database, seed=SEED)
    with ExitStack() as stack:
        server = stack.enter_context(serving(tmp_path / "server"))
        workers = stack.enter_context(ThreadPoolExecutor())
        stack.callback(enough.set)
        stack.callback(application.end)
        loading = workers.submit(keep_busy, bank, enough)
        application.start()
        attaching = workers.submit(headrace, attach_words(database))
        wait_until(lambda: attaching.done() or watched(database), 120, what="the triggers")
        agent = stack.enter_context(AgentProcess(tmp_path / "agent", server.url, database.dsn, FEED))
        kill_each(server, agent)
        assert not loading.done()
        enough.set()
        reports = loading.result()
        assert len(attaching.result()["attached"]) == len(TABLES)
        application.end()
        assert application.error is None
        assert application.commits > 20
        assert sum(report.failed for report in reports) == 0
        wait_until(lambda: drained(database, agent), DRAIN_S_MAX, what="every change to be delivered")
        history = check_feed(server, database)
        LOG.info(
            "%d transactions of pgbench, %d of them in the feed of %d entries; %d of the awkward table, emptied %d times",
            *(sum(report.transactions for report in reports), history.bank_transactions, history.last),
            *(application.commits, application.truncated),
        )
        check_tables(spark, database, server, tmp_path / "tables")
