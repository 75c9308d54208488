"""Trouble in the source: an alarm or an error names it and the command that goes on; nothing is lost or made up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.agents import headrace
from tests.integration.postgres.shop import FEED, attach, make_table, refused, running_shop, write
from tests.postgres import Cluster
from tests.postgres_folders import private_folder
from tests.waiting import wait_until


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A cluster of the test's own, with the shop's table."""
    with Cluster() as cluster:
        make_table(cluster)
        yield cluster


@pytest.fixture
def shared(cluster: Cluster) -> Iterator[Cluster]:
    """The run's cluster, with the shop's table: where the cluster itself is not what is hurt."""
    make_table(cluster)
    yield cluster
    cluster.drop_database("shop")


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 200 MB that can be filled. It takes the right to mount."""
    folder = private_folder("small-disk")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m,mode=1777", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
    folder.rmdir()


def test_a_source_restored_from_an_older_dump(shared: Cluster, tmp_path: Path) -> None:
    dsn = shared.dsn("shop")
    attach(dsn)
    with running_shop(tmp_path, dsn) as shop:
        shop.wait_until_equal(shared)
        shared.pg_dump("shop", tmp_path / "dump")
        write(shared, range(5, 20), "lost by the restore")
        shop.wait_until_equal(shared)
        shared.drop_database("shop")
        shared.create_database("shop")
        shared.pg_restore("shop", tmp_path / "dump")
        write(shared, range(30, 33), "after the restore")

        assert shop.wait_until_ended() == 3
        shop.wait_until_told("outbox-behind-feed", "headrace publisher accept")
        assert shop.state()[5] == "lost by the restore"  # nothing was posted over it
        assert refused("publisher", "check", dsn)["alarms"][0]["code"] == "outbox-behind-feed"

        headrace(["publisher", "accept", dsn, "--feed", FEED, "--reason", "restored after the outage"])
        shop.agent.start()
        shop.wait_until_equal(shared)
        assert sorted(shop.state()) == [*range(10), 30, 31, 32]


def test_an_agent_waits_while_a_dump_is_being_restored(shared: Cluster, tmp_path: Path) -> None:
    """As ``pg_restore`` has it: the tables are there, their rows are yet to come, and their keys after those."""
    attach(shared.dsn("shop"))
    with running_shop(tmp_path, shared.dsn("shop")) as shop:
        shop.wait_until_equal(shared)
        assert shop.agent.stop() == 0
        with shared.connect("shop") as app:
            app.execute("CREATE TABLE dump AS SELECT * FROM headrace.headrace_owner")
            app.execute("ALTER TABLE headrace.headrace_owner DROP CONSTRAINT headrace_owner_pkey")
            app.execute("DELETE FROM headrace.headrace_owner")
            shop.agent.start()
            shop.wait_until_told("trying again", "no unique or exclusion constraint")
            assert app.execute("SELECT count(*) FROM headrace.headrace_owner").fetchone() == (0,)
            app.execute("INSERT INTO headrace.headrace_owner SELECT * FROM dump")
            app.execute("ALTER TABLE headrace.headrace_owner ADD PRIMARY KEY (feed)")
        write(shared, range(5), "after the restore")
        shop.wait_until_equal(shared)


def test_a_dump_restored_into_another_cluster_goes_on(shared: Cluster, tmp_path: Path) -> None:
    """Transaction ids mean nothing there; what was not delivered is, in order."""
    attach(shared.dsn("shop"))
    with Cluster() as other, running_shop(tmp_path, shared.dsn("shop")) as shop:
        shop.wait_until_equal(shared)
        assert shop.agent.stop() == 0
        write(shared, range(5), "not delivered yet")
        shared.pg_dump("shop", tmp_path / "dump")
        other.create_database("shop")
        other.pg_restore("shop", tmp_path / "dump")
        write(other, range(3, 12), "in the new cluster")
        shop.agent.dsn = other.dsn("shop")
        shop.agent.start()
        shop.wait_until_equal(other)
        notes = [entry for entry in shop.entries() if not entry.copy and entry.control is None]
        assert len(notes) == 5 + 9
        # No transaction of the new cluster will ever have an id of the old one's rows.
        old = "SELECT count(*) FILTER (WHERE tx < '4611686018427387904'), count(*) FROM headrace.headrace_{} WHERE {} < 12"
        assert other.sql(old.format("outbox", "id"), "shop")[0][0] == 0
        ((shifted, marks),) = other.sql(
            "SELECT count(*) FILTER (WHERE tx >= '4611686018427387904'), count(*) FROM headrace.headrace_mark",
            "shop",
        )
        assert 0 < shifted < marks


def test_a_failover_that_loses_nothing_is_followed(own: Cluster, tmp_path: Path) -> None:
    attach(own.dsn("shop"))
    with own.replica() as standby:
        hosts = f"127.0.0.1:{own.port},127.0.0.1:{standby.port}"
        with running_shop(tmp_path, f"postgresql://postgres@{hosts}/shop") as shop:
            shop.wait_until_equal(own)
            write(own, range(20, 25), "before the failover")
            own.catch_up(standby)
            own.kill()
            standby.promote()
            write(standby, range(24, 30), "after the failover")
            shop.wait_until_equal(standby)
            assert "alarm" not in shop.agent.errors()


def test_a_failover_that_loses_commits_stops_the_feed(own: Cluster, tmp_path: Path) -> None:
    attach(own.dsn("shop"))
    with own.replica() as standby:
        hosts = f"127.0.0.1:{own.port},127.0.0.1:{standby.port}"
        with running_shop(tmp_path, f"postgresql://postgres@{hosts}/shop") as shop:
            shop.wait_until_equal(own)
            own.catch_up(standby)
            standby.sql("SELECT pg_wal_replay_pause()")
            standby.stop("immediate")
            write(own, range(20, 25), "lost by the failover")
            shop.wait_until_equal(own)
            own.kill()
            standby.start()
            standby.promote()
            assert shop.wait_until_ended() == 3
            shop.wait_until_told("outbox-behind-feed")
            headrace(["publisher", "accept", standby.dsn("shop"), "--feed", FEED, "--reason", "failover"])
            shop.agent.start()
            shop.wait_until_equal(standby)


def test_the_outbox_is_dropped(shared: Cluster, tmp_path: Path) -> None:
    dsn = shared.dsn("shop")
    attach(dsn)
    with running_shop(tmp_path, dsn) as shop:
        shop.wait_until_equal(shared)
        shared.sql("DROP SCHEMA headrace CASCADE", "shop")
        write(
            shared, range(20, 25), "not captured by anybody"
        )  # the triggers went with it: the application goes on
        shop.wait_until_told("alarm", "this database has no outbox", "headrace publisher attach")
        assert refused("publisher", "check", dsn)["code"] == "table-not-found"
        attach(dsn)
        assert shop.wait_until_ended() == 3
        shop.wait_until_told("outbox-behind-feed")
        headrace(["publisher", "accept", dsn, "--feed", FEED, "--reason", "dropped by mistake"])
        shop.agent.start()
        shop.wait_until_equal(shared)


def test_triggers_are_disabled_for_a_while(shared: Cluster, tmp_path: Path) -> None:
    dsn = shared.dsn("shop")
    attach(dsn)
    with running_shop(tmp_path, dsn) as shop:
        shop.wait_until_equal(shared)
        shared.sql("ALTER TABLE orders DISABLE TRIGGER ALL", "shop")
        write(shared, range(5, 15), "not captured")
        shared.sql("DELETE FROM orders WHERE id < 3", "shop")
        shared.sql("ALTER TABLE orders ENABLE TRIGGER ALL", "shop")
        write(shared, range(14, 18), "captured")
        shop.wait_until_equal(shared)
        states = shared.sql(
            "SELECT DISTINCT tgenabled FROM pg_trigger WHERE tgname LIKE '!headrace%'", "shop"
        )
        assert states == [("A",)]


def test_a_table_is_renamed_and_then_its_triggers_are_disabled(shared: Cluster, tmp_path: Path) -> None:
    dsn = shared.dsn("shop")
    attach(dsn)
    with running_shop(tmp_path, dsn) as shop:
        shop.wait_until_equal(shared)
        shared.sql("ALTER TABLE orders RENAME TO sales", "shop")
        shared.sql("UPDATE sales SET note = 'renamed' WHERE id = 1", "shop")
        shop.wait_until_told("alarm", "table-renamed")
        found = refused("agent", "status", "--config", str(tmp_path / "agent.toml"), HEADRACE_DSN=dsn)
        assert [one["kind"] for one in found["findings"]] == ["table-renamed"]
        wait_until(lambda: shop.state()[1] == "renamed", 60, what="the change under the new name")
        shared.sql(
            "ALTER TABLE sales DISABLE TRIGGER ALL; UPDATE sales SET note = 'unseen'; DELETE FROM sales WHERE id = 2",
            "shop",
        )
        shared.sql("ALTER TABLE sales ENABLE TRIGGER ALL", "shop")
        wait_until(
            lambda: shop.state() == dict(shared.sql("SELECT id, note FROM sales", "shop")),
            120,
            what="the feed to be mended",
        )


def test_the_servers_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    """The application's writes fail with the database's own error; agent and feed go on once there is room."""
    wal = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
    with Cluster(data=small_disk / "data", settings=wal) as own:
        make_table(own)
        attach(own.dsn("shop"))
        with running_shop(tmp_path, own.dsn("shop")) as shop:
            shop.wait_until_equal(own)
            filler = small_disk / "filler"
            fill(filler)
            with pytest.raises(psycopg.OperationalError, match=r"No space|closed|terminat"):
                write(own, range(100, 20_000), "x" * 4_000)
            filler.unlink()
            wait_until(lambda: answers(own), 120, what="the database to be back")
            write(own, range(5), "after the disk was full")
            shop.wait_until_equal(own)


def fill(file: Path) -> None:
    """Write until the disk is full, but for what is too small to matter."""
    with file.open("wb", buffering=0) as out:
        for size in (1 << 20, 1 << 12):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                continue


def answers(cluster: Cluster) -> bool:
    """Return whether the database takes a write again; a full WAL disk makes it restart."""
    try:
        cluster.sql("UPDATE orders SET note = note WHERE id = 0", "shop")
    except psycopg.OperationalError:  # it recovers
        return False
    return True
