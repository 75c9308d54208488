"""Light on the source: commits notify only while the agent sleeps, a pooler is noticed, old snapshots slow nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integration.postgres.shop import FEED, Shop, attach, make_table, running_shop, write
from tests.pgbench import Load
from tests.pgbouncer import Pooler
from tests.postgres import Cluster
from tests.scale import sized
from tests.waiting import wait_until

COMMITS_PER_S = sized(300, soak=1_000)
SECONDS = sized(3, soak=60)
STEP_S_MAX = 300.0
READ_OF_EACH_MAX = 20
"""Reads of each row that is relayed. Some six, on a quiet machine; hundreds where what was relayed is read again."""
AWAKE = "SELECT last_value < extract(epoch FROM now()) FROM headrace.headrace_asleep_until"


@pytest.fixture
def shared(cluster: Cluster) -> Iterator[Cluster]:
    """The run's cluster, with the shop's table attached. It prepares no transactions, as is PostgreSQL's default."""
    make_table(cluster)
    attach(cluster.dsn("shop"))
    yield cluster
    cluster.drop_database("shop")


def script(folder: Path) -> str:
    """Write pgbench's script: one small change."""
    file = folder / "change.sql"
    file.write_text(
        "\\set id random(0, 9)\nUPDATE orders SET note = 'load' WHERE id = :id;\n", encoding="ascii"
    )
    return str(file)


def notifies(app: psycopg.Connection[Any]) -> int:
    """Return how many notifications arrived since the last call."""
    app.execute("SELECT 1")
    return sum(1 for _ in app.notifies(timeout=0.2))


def is_awake(cluster: Cluster) -> bool:
    return bool(cluster.sql(AWAKE, "shop")[0][0])


def test_commits_notify_only_while_the_agent_sleeps(shared: Cluster, tmp_path: Path) -> None:
    with running_shop(tmp_path, shared.dsn("shop")) as shop, shared.connect("shop") as ear:
        ear.execute("LISTEN headrace")
        shop.wait_until_equal(shared)
        wait_until(lambda: not is_awake(shared), 60, what="the agent to fall asleep")
        notifies(ear)
        write(shared, range(1), "the first commit wakes it")
        wait_until(lambda: notifies(ear) > 0, 30, what="the first commit to notify")
        shop.wait_until_equal(shared)
        with Load(shared, "shop", "-n", "-c", "2", "-T", "2", "-R", "200", "-f", script(tmp_path)) as load:
            wait_until(lambda: is_awake(shared), 30, what="the agent to be awake")
            heard = 0
            while load.running():
                heard += notifies(ear)
            report = load.report(2)
        assert heard < 50, f"{heard} notifications while the agent was awake: {report}"
        wait_until(lambda: not is_awake(shared), 60, what="the agent to fall asleep again")
        shop.wait_until_equal(shared)


def test_a_commit_of_a_transaction_from_before_the_sleep_is_found(shared: Cluster, tmp_path: Path) -> None:
    """It wrote its rows while nobody slept, so it does not notify."""
    with running_shop(tmp_path, shared.dsn("shop")) as shop, shared.connect("shop", autocommit=False) as app:
        shop.wait_until_equal(shared)
        write(shared, range(1), "awake")
        wait_until(lambda: is_awake(shared), 60, what="the agent to be awake")
        app.execute("UPDATE orders SET note = 'late' WHERE id = 5")
        wait_until(lambda: not is_awake(shared), 60, what="the agent to fall asleep")
        app.commit()
        shop.wait_until_equal(shared)


def test_an_agent_behind_a_pooler_polls_and_says_so(shared: Cluster, tmp_path: Path) -> None:
    with ExitStack() as stack:
        pooler = stack.enter_context(Pooler(shared))
        shop = stack.enter_context(running_shop(tmp_path, pooler.dsn("shop")))
        shop.wait_until_equal(shared)
        shop.wait_until_told("LISTEN does not hold", "the agent polls")
        write(shared, range(5, 15), "through the pooler")
        shop.wait_until_equal(shared)
        assert is_awake(shared)  # it never says that it sleeps: nobody would wake it
        with psycopg.connect(pooler.dsn("shop"), autocommit=True, prepare_threshold=None) as app:
            # Its sessions are the application's too: no setting of ours is left in them.
            ours = {
                "lock_timeout",
                "statement_timeout",
                "enable_seqscan",
                "enable_hashjoin",
                "synchronous_commit",
                "intervalstyle",
            }
            for _ in range(20):
                left = app.execute(
                    "SELECT name, setting FROM pg_settings WHERE source = 'session'"
                ).fetchall()
                assert not ours & {name for name, _ in left}, left
        assert any("pooler" in line for line in shop.agent.status()["advice"])


def test_two_phase_commit_goes_on_beside_an_idle_agent(tmp_path: Path) -> None:
    """A transaction that notified can't be prepared, so where that is allowed nobody sleeps."""
    with Cluster(settings={"max_prepared_transactions": "5"}) as own:
        make_table(own)
        attach(own.dsn("shop"))
        with running_shop(tmp_path, own.dsn("shop")) as shop:
            shop.wait_until_equal(own)
            shop.wait_until_told("the agent polls", "two-phase commit")
            for number in range(3):
                with own.connect("shop", autocommit=False) as app:
                    app.execute("UPDATE orders SET note = 'prepared' WHERE id = %s", (number,))
                    app.execute(f"PREPARE TRANSACTION 'number {number}'")
                    app.commit()
            for number in (2, 0, 1):
                own.sql(f"COMMIT PREPARED 'number {number}'", "shop")
            shop.wait_until_equal(own)


def test_an_old_snapshot_does_not_slow_the_relay_and_is_named(shared: Cluster, tmp_path: Path) -> None:
    """What was relayed stays in the outbox's pages for as long as the snapshot; the relay reads none of it again."""
    words = ("-n", "-c", "4", "-j", "2", "-T", str(SECONDS), "-R", str(COMMITS_PER_S), "-f", script(tmp_path))
    with ExitStack() as stack:
        shop = stack.enter_context(running_shop(tmp_path, shared.dsn("shop")))
        old = stack.enter_context(shared.connect("shop", autocommit=False, application_name="report"))
        shop.wait_until_equal(shared)
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM orders")
        before = (head(shop), rows_read(shared))
        with Load(shared, "shop", *words) as load:
            done = load.report(SECONDS).transactions
        wait_until(lambda: head(shop) >= before[0] + done, STEP_S_MAX, what="the load to be relayed")
        wait_until(lambda: rows_read(shared) - before[1] >= done, STEP_S_MAX, what="the counts to be there")
        assert rows_read(shared) - before[1] <= READ_OF_EACH_MAX * done
        holder = shop.agent.status()["holders"][0]
        assert holder["what"] == f"session {old.info.backend_pid}"
        assert "application report" in holder["detail"]
        assert holder["age-s"] >= SECONDS - 1
        old.rollback()


def rows_read(cluster: Cluster) -> int:
    """How many rows of the outbox and its marks, dead ones too, indexes have led to so far, as PostgreSQL counts them."""
    counts = cluster.sql(
        "SELECT sum(idx_tup_read) FROM pg_stat_all_indexes WHERE relname IN ('headrace_outbox', 'headrace_mark')",
        "shop",
    )
    return int(counts[0][0])


def head(shop: Shop) -> int:
    """The feed's newest sequence id."""
    return int(shop.server.http.get(f"/feeds/{FEED}").json()["head-sequence-id"])
