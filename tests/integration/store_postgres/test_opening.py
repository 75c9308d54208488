"""What keeps a server from starting on a database: said in three lines, with the exit code, and nothing touched."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from headrace.errors import StoreUnavailable, WriterStopped
from headrace.wire.versions import LOG_TABLES
from tests import forks
from tests.integration.server.test_start import SECONDS_MAX, refused
from tests.integration.store_postgres.shared import opened, started
from tests.ports import free_port
from tests.postgres import Cluster, Database
from tests.servers import Feed, changes, serving
from tests.waiting import wait_until

RIGHTS = "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA headrace_log TO"

NEWER = LOG_TABLES.written_as + 1


def serve(address: str) -> subprocess.CompletedProcess[str]:
    """Try to start a server on ``address``."""
    words = ["serve", "--http", "127.0.0.1:0", "--grpc", "off", "--store", address]
    return forks.run(
        [*forks.HEADRACE, *words], capture_output=True, check=False, text=True, timeout=SECONDS_MAX
    )


@pytest.mark.parametrize(
    ("address", "code", "exit_code"),
    [
        ("mysql://root@localhost/test", "dsn-invalid", 2),
        ("postgresql://u:p@ss@word@host/db", "dsn-invalid", 2),
        ("postgresql://nobody@127.0.0.1:1/db?bad=1", "dsn-invalid", 2),
    ],
)
def test_address_that_is_none_is_refused_without_its_text(address: str, code: str, exit_code: int) -> None:
    said = refused(serve(address), code, exit_code)
    assert "p@ss" not in said
    assert "word" not in said


def test_unreachable_database_is_named_without_the_password() -> None:
    done = serve(f"postgresql://u:secret@127.0.0.1:{free_port()}/log")
    said = refused(done, "store-unavailable", 1)
    assert "/log" in said
    assert "secret" not in done.stderr + done.stdout


def test_unknown_database_and_unknown_role(database: Database) -> None:
    for address in (database.cluster.dsn("no_such_database"), database.dsn_as("no_such_role")):
        assert "does not exist" in refused(serve(address), "dsn-invalid", 2)


def test_role_that_may_not_make_the_tables(database: Database) -> None:
    database.sql(f"CREATE ROLE {database.name}_weak LOGIN")
    said = refused(serve(database.dsn_as(f"{database.name}_weak")), "store-forbidden", 3)
    assert "permission denied for database" in said
    assert database.sql("SELECT to_regnamespace('headrace_log')") == [(None,)]


def test_role_that_lacks_a_right_is_told_which_and_with_it_needs_no_more(
    database: Database, tmp_path: Path
) -> None:
    role = f"{database.name}_clerk"
    with opened(database.dsn) as bench:
        bench.register("f")
    database.sql(f"CREATE ROLE {role} LOGIN")
    assert "schema headrace_log" in refused(serve(database.dsn_as(role)), "store-forbidden", 3)
    database.sql(f"GRANT USAGE ON SCHEMA headrace_log TO {role}")
    assert "permission denied" in refused(serve(database.dsn_as(role)), "store-forbidden", 3)
    database.sql(f"{RIGHTS} {role}")
    database.sql(f"REVOKE DELETE ON headrace_log.frame FROM {role}")
    assert "DELETE on frame" in refused(serve(database.dsn_as(role)), "store-forbidden", 3)
    database.sql(f"{RIGHTS} {role}")
    with serving(tmp_path, args=["--store", database.dsn_as(role)]) as server:
        assert Feed(server, "f").post({"changes": changes(1)}).status_code == 200


def test_tables_can_be_made_in_a_schema_that_was_given_to_the_role(database: Database) -> None:
    role = f"{database.name}_owner"
    database.sql(f"CREATE ROLE {role} LOGIN")
    database.sql(f"CREATE SCHEMA headrace_log AUTHORIZATION {role}")
    with opened(database.dsn_as(role)) as bench:
        bench.register("f")
        assert bench.append("f", "x").first_sequence_id == 1


def test_commits_that_a_crash_could_take_back_are_refused(database: Database) -> None:
    database.sql(f"ALTER DATABASE {database.name} SET synchronous_commit = off")
    said = refused(serve(database.dsn), "store-unsafe", 3)
    assert "synchronous_commit is off" in said
    assert database.sql("SELECT to_regnamespace('headrace_log')") == [(None,)]


def test_running_server_does_not_turn_asynchronous(database: Database) -> None:
    with opened(database.dsn) as bench:
        bench.register("f")
        database.sql(f"ALTER DATABASE {database.name} SET synchronous_commit = off")
        bench.append("f", "by the session that is held to its setting")
        database.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE datname = '{database.name}' AND pid <> pg_backend_pid()"
        )
        with pytest.raises(StoreUnavailable, match="synchronous_commit is off"):
            bench.append("f", "by a new session")
        assert bench.store.unreachable() is not None or bench.store.not_writable() is None
        database.sql(f"ALTER DATABASE {database.name} RESET synchronous_commit")
        wait_until(lambda: bench.store.unreachable() is None)
        assert bench.append("f", "again").first_sequence_id == 2


def test_fsync_off_is_said_loudly_on_every_start(database: Database, tmp_path: Path) -> None:
    with serving(tmp_path, args=["--store", database.dsn]) as server:
        assert "fsync is off in PostgreSQL" in server.errors()


def test_newer_format_is_refused_untouched(database: Database, tmp_path: Path) -> None:
    with opened(database.dsn) as bench:
        bench.register("f")
        bench.append("f", "x")
    database.sql(f"UPDATE headrace_log.format SET written_as = {NEWER}, readable_from = {NEWER}")
    before = database.cluster.run("pg_dump", database=database.name).stdout
    said = refused(serve(database.dsn), "format-too-new", 3)
    assert "headrace_log" in said
    assert f"version {NEWER}" in said
    after = database.cluster.run("pg_dump", database=database.name).stdout
    assert _rows(after) == _rows(before)


def _rows(dump: str) -> list[str]:
    """Lines for psql alone, which hold a number drawn at random, left out."""
    return [line for line in dump.splitlines() if not line.startswith("\\")]


def test_server_that_runs_while_the_tables_are_changed_by_a_newer_one_stops_writing(
    database: Database,
) -> None:
    with opened(database.dsn) as bench:
        bench.register("f")
        bench.append("f", "x")
        database.sql(f"UPDATE headrace_log.format SET written_as = {NEWER}, readable_from = {NEWER}")
        with pytest.raises(WriterStopped):
            bench.append("f", "y")
        assert "newer Headrace" in str(bench.store.not_writable())
        assert bench.values("f") == {1: b"x"}


def test_tables_that_are_not_of_one_moment_are_refused(database: Database) -> None:
    with opened(database.dsn) as bench:
        bench.register("f")
        bench.append("f", "x")
        bench.append("f", "y")
    database.sql("CREATE TABLE kept AS SELECT * FROM headrace_log.frame")
    database.sql(
        "DELETE FROM headrace_log.frame WHERE position = (SELECT max(position) FROM headrace_log.frame)"
    )
    assert "was acknowledged" in refused(serve(database.dsn), "journal-loss", 3)
    database.sql("INSERT INTO headrace_log.frame SELECT * FROM kept ON CONFLICT DO NOTHING")
    database.sql("UPDATE headrace_log.journal SET end_position = end_position - 1")
    assert "one moment" in refused(serve(database.dsn), "journal-corrupt", 3)
    database.sql("UPDATE headrace_log.journal SET end_position = end_position + 1")
    with opened(database.dsn) as bench:
        assert bench.values("f") == {1: b"x", 2: b"y"}


def test_standby_is_no_store(tmp_path: Path) -> None:
    with Cluster() as primary, primary.replica() as standby:
        done = serve(standby.dsn())
        refused(done, "store-unavailable", 1)


async def test_opening_clears_the_alarm_of_a_writer_that_had_stopped(database: Database) -> None:
    """What stopped it is found out anew: a server that opens and may write is no reason for an alarm."""
    async with started(database.dsn) as log:
        log.troubles.tell(WriterStopped, "its tables were changed")
        assert [row.code for row in log.troubles.standing(WriterStopped)] == ["writer-stopped"]
        async with started(database.dsn) as other:
            assert other.troubles.standing(WriterStopped) == []
        assert [row.code for row in log.troubles.standing(WriterStopped)] == ["writer-stopped"], (
            "the one that has stopped goes on saying so"
        )
