"""Servers whose ids prove nothing are refused by name: clusters in which several write, binary logs of statements."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import pytest

from headrace.errors import AttachUnsafe
from headrace.publisher.databases import open_source
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.outbox.mysql import find_cluster
from headrace.runtime.dsn import parse_dsn
from tests.integration.mariadb.outboxes import AGENT, FEED, add, claim, keys_of, post
from tests.mariadb import Database, Server

BINLOG = ("--log-bin=binlog", "--server-id=1")


def test_galera_is_refused_by_name() -> None:
    provider = "--wsrep-provider=/usr/lib/galera/libgalera_smm.so"
    words = ("--wsrep-on=ON", "--wsrep-cluster-address=gcomm://", "--wsrep-sst-method=rsync")
    with Server(provider, *words, "--binlog-format=ROW", "--innodb-autoinc-lock-mode=2") as server:
        database = server.create_database("test")
        with database.connect() as app, pytest.raises(AttachUnsafe, match="Galera"):
            Outbox.create(app)
        with pytest.raises(AttachUnsafe, match="Galera"):
            open_source(parse_dsn(database.dsn))


GROUP = {"group_replication_group_name": "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"}


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, None),
        ({"wsrep_on": "OFF", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, None),
        ({"wsrep_on": "ON", "wsrep_provider": "none"}, None),
        ({"wsrep_on": "ON", "wsrep_provider": "/usr/lib/galera/libgalera_smm.so"}, "Galera"),
        ({"group_replication_group_name": ""}, None),
        ({**GROUP, "group_replication_single_primary_mode": "ON"}, None),
        (
            {**GROUP, "group_replication_single_primary_mode": "OFF"},
            "group replication in multi-primary mode",
        ),
        (GROUP, "group replication in multi-primary mode"),
    ],
)
def test_one_writing_server_is_told_from_several(variables: Mapping[str, object], name: str | None) -> None:
    assert find_cluster(variables) == name


def test_a_binary_log_of_statements_is_refused_wherever_it_is_set() -> None:
    with Server(*BINLOG, "--binlog-format=STATEMENT") as server:
        database = server.create_database("test")
        with (
            database.connect() as app,
            pytest.raises(AttachUnsafe, match="binlog_format is STATEMENT") as caught,
        ):
            Outbox.create(app)
        assert "ROW or MIXED" in caught.value.advice
        with pytest.raises(AttachUnsafe, match="binlog_format is STATEMENT"):
            open_source(parse_dsn(database.dsn))
        set_format(database, "MIXED")
        with database.connect() as app:
            Outbox.create(app)
        grant_binlog_admin(database)
        with closing(MysqlSource(parse_dsn(database.dsn))) as source:
            claim(source, 1)
            add(database, "a")
            with source._connection.cursor() as cursor:
                cursor.execute("SET SESSION binlog_format = STATEMENT")
            with pytest.raises(AttachUnsafe, match="STATEMENT"):
                source.advance(FEED, AGENT, 1, None, 1_000)
            assert database.sql("SELECT sequence_id FROM headrace_outbox") == [(None,)]


def test_a_session_that_logs_statements_can_add_no_row() -> None:
    with Server(*BINLOG, "--binlog-format=ROW") as server:
        database = server.create_database("test")
        with database.connect() as app:
            Outbox.create(app)
        grant_binlog_admin(database)
        with database.connect(init_command="SET SESSION binlog_format = STATEMENT") as app:
            with pytest.raises(AttachUnsafe, match="STATEMENT"):
                Outbox.add(app, FEED, {}, key="a")
            app.rollback()
        assert database.sql("SELECT * FROM headrace_outbox") == []


@pytest.mark.parametrize("logged", ["ROW", "MIXED"])
def test_a_replica_has_the_same_ids_and_an_agent_goes_on_there(logged: str) -> None:
    with Server(*BINLOG, f"--binlog-format={logged}") as primary, Server("--server-id=2") as replica:
        with primary.connect_as_root() as root, root.cursor() as cursor:
            cursor.execute("GRANT REPLICATION SLAVE ON *.* TO copier@'%' IDENTIFIED BY 'c'")
        with replica.connect_as_root() as root, root.cursor() as cursor:
            cursor.execute(
                f"CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {primary.port}, MASTER_USER = 'copier', "
                "MASTER_PASSWORD = 'c', MASTER_USE_GTID = slave_pos"
            )
            cursor.execute("START SLAVE")
        database = primary.create_database("test")
        with database.connect() as app:
            Outbox.create(app)
        with closing(MysqlSource(parse_dsn(database.dsn))) as source:
            claim(source, 1)
            with database.connect() as first, database.connect() as second:
                Outbox.add(first, FEED, {}, key="a")
                Outbox.add(second, FEED, {}, key="b")
                Outbox.add(first, FEED, {}, key="c")
                second.commit()
                assert keys_of(post(source)) == ["b"]
                first.commit()
            source.advance(FEED, AGENT, 1, None, 1_000)
        with primary.connect_as_root() as root, replica.connect_as_root() as copy:
            with root.cursor() as cursor:
                cursor.execute("SELECT @@gtid_binlog_pos")
                ((place,),) = cursor.fetchall()
            with copy.cursor() as cursor:
                cursor.execute("SELECT MASTER_GTID_WAIT(%s, 60)", (place,))
                assert cursor.fetchall() == ((0,),)
        rows = "SELECT id, `key`, sequence_id, tx, tx_index, processed FROM headrace_outbox ORDER BY id"
        followed = Database(replica, "test")
        assert followed.sql(rows) == database.sql(rows)
        primary.kill()
        with closing(MysqlSource(parse_dsn(followed.dsn))) as source:
            claim(source, 2, 2)
            assert keys_of(post(source, 2)) == ["a", "c"]
            add(followed, "d")
            assert keys_of(post(source, 2)) == ["d"]


def set_format(database: Database, name: str) -> None:
    with database.server.connect_as_root() as root, root.cursor() as cursor:
        cursor.execute(f"SET GLOBAL binlog_format = {name}")


def grant_binlog_admin(database: Database) -> None:
    with database.server.connect_as_root() as root, root.cursor() as cursor:
        cursor.execute("GRANT BINLOG ADMIN ON *.* TO app@'%'")
