"""The tests' own PostgreSQL: killed, restored, followed by a standby, put behind a pooler, left over by a killed run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from tests.pgbench import Load
from tests.pgbouncer import Pooler
from tests.postgres import Cluster, Database
from tests.postgres_folders import end_orphans
from tests.proxy import Proxy
from tests.waiting import wait_until

ENDS: list[Callable[[Cluster], None]] = [
    Cluster.kill,
    Cluster.stop,
    lambda cluster: cluster.stop("immediate"),
]
ROOT = Path(__file__).parents[3]


def test_databases_are_fresh(database: Database) -> None:
    assert database.sql("SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace") == [(0,)]
    database.sql(f"CREATE ROLE {database.name}_app LOGIN")
    assert database.sql("SELECT current_user", f"{database.name}_app") == [(f"{database.name}_app",)]
    database.sql(f"DROP ROLE {database.name}_app")


def test_commits_survive_each_kind_of_end() -> None:
    with Cluster() as cluster:
        cluster.sql("CREATE TABLE t (id int)")
        for number, end in enumerate(ENDS):
            idle = cluster.connect()
            cluster.sql(f"INSERT INTO t VALUES ({number})")
            end(cluster)
            with pytest.raises(psycopg.OperationalError):
                idle.execute("SELECT 1")
            idle.close()
            with pytest.raises(psycopg.OperationalError):
                cluster.connect()
            cluster.start()
        assert cluster.sql("SELECT * FROM t") == [(0,), (1,), (2,)]
        cluster.configure(work_mem="7MB", application_name="it's ours")
        assert cluster.sql("SHOW work_mem") == [("7MB",)]
        assert cluster.sql("SHOW application_name") == [("it's ours",)]
        assert "database system was not properly shut down" in cluster.log()


def test_dump_is_restored_elsewhere(database: Database, tmp_path: Path) -> None:
    cluster = database.cluster
    cluster.pgbench(database.name, "-i", "-q", "-s", "1")
    cluster.pg_dump(database.name, tmp_path / "dump")
    other = f"{database.name}_restored"
    cluster.create_database(other)
    cluster.pg_restore(other, tmp_path / "dump")
    assert cluster.sql("SELECT count(*) FROM pgbench_accounts", other) == [(100_000,)]
    cluster.drop_database(other)


def test_load_runs_beside_a_test(database: Database) -> None:
    database.cluster.pgbench(database.name, "-i", "-q", "-s", "1")
    with Load(database.cluster, database.name, "-c", "2", "-T", "1") as load:
        assert load.running()
        report = load.report(1)
    assert not load.running()
    assert (report.failed, report.transactions > 0, report.tps > 0) == (0, True, True)
    assert database.sql("SELECT count(*) FROM pgbench_history") == [(report.transactions,)]
    with (
        Load(database.cluster, database.name, "-f", "/dev/null", "-T", "1") as load,
        pytest.raises(AssertionError),
    ):
        load.report(1)


def test_standby_takes_over() -> None:
    with Cluster() as primary:
        primary.sql("CREATE TABLE t (id int)")
        with primary.replica() as standby:
            primary.sql("INSERT INTO t VALUES (1)")
            primary.catch_up(standby)
            standby.kill()
            primary.sql("INSERT INTO t VALUES (2)")
            primary.kill()
            standby.start()
            standby.promote()
            standby.sql("INSERT INTO t VALUES (3)")
            assert standby.sql("SELECT * FROM t") == [(1,), (3,)]


def test_listen_does_not_hold_through_the_pooler(database: Database) -> None:
    with Pooler(database.cluster) as pooler:
        with (
            psycopg.connect(pooler.dsn(database.name), autocommit=True) as one,
            psycopg.connect(pooler.dsn(database.name), autocommit=True) as two,
        ):
            two.execute("BEGIN")
            first = two.execute("SELECT pg_backend_pid()").fetchone()
            one.execute("LISTEN x")
            two.execute("COMMIT")
            two.execute("NOTIFY x")
            assert list(one.notifies(timeout=0.5)) == []
            assert one.execute("SELECT pg_backend_pid()").fetchone() is not None
            assert first is not None
        assert "closing because" in pooler.log()


def test_commit_with_an_unclear_outcome(database: Database) -> None:
    database.sql("CREATE TABLE t (id int)")
    for delivered in (False, True):
        with Proxy("127.0.0.1", database.cluster.port) as proxy:
            app = psycopg.connect(f"postgresql://postgres@127.0.0.1:{proxy.port}/{database.name}")
            app.execute("INSERT INTO t VALUES (%s)", (int(delivered),))
            proxy.cut_at(b"COMMIT", delivered=delivered)
            with pytest.raises(psycopg.OperationalError):
                app.commit()
            app.close()
    assert database.sql("SELECT * FROM t") == [(1,)]


def test_killed_run_leaves_nothing_for_long() -> None:
    code = "from tests.postgres import Cluster; c = Cluster(); c.start(); print(c.pid, c.folder, flush=True); input()"
    run = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    pid, folder = run.stdout.readline().split()
    run.send_signal(signal.SIGKILL)
    run.communicate()
    assert Path(folder).exists()
    end_orphans()
    assert not Path(folder).parent.exists()
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or not _runs(int(pid)), what="the postmaster to end")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
