"""What ``headrace capture check`` finds at real servers, and that what it advises mends it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from headrace.capture.binlog.event import GtidPosition
from headrace.capture.mariadb.connection import Source, connect
from headrace.capture.mariadb.dump import BinlogDump
from headrace.capture.mariadb.facts import Wishes
from headrace.capture.mariadb.fitness import Finding, Severity, check
from headrace.capture.mariadb.foreign_keys import read_foreign_keys
from headrace.errors import SourceForbidden
from headrace.runtime.dsn import parse_dsn
from tests.mariadb import CAPTURE_OPTIONS, PASSWORD, Database, Server
from tests.waiting import wait_until

DAY_S = 86_400.0
REPLICA_ID = 3_000_000_000


def wishes_of(database: Database, *, outage_s: float = DAY_S, accept_cascades: bool = False) -> Wishes:
    return Wishes(lambda name, table: name == database.name, outage_s, accept_cascades)


def checked(database: Database, wishes: Wishes | None = None, dsn: str | None = None) -> list[Finding]:
    with closing(connect(parse_dsn(dsn or database.dsn))) as session:
        return check(session, wishes or wishes_of(database), REPLICA_ID)


@contextmanager
def global_set(server: Server, name: str, value: str) -> Iterator[None]:
    ((before,),) = server.sql(f"SELECT @@GLOBAL.{name}")
    server.sql(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        server.sql(f"SET GLOBAL {name} = {before if isinstance(before, int) else repr(str(before))}")


def follow(server: Server, finding: Finding) -> None:
    """Do what a finding advises."""
    statements = re.findall(r"((?:SET GLOBAL|GRANT|ALTER TABLE) [^;]+);", finding.remedy)
    assert statements, finding
    server.sql(statements[0])


def test_a_fit_server_and_its_tables_have_no_finding(database: Database) -> None:
    database.sql("CREATE TABLE a (id INT PRIMARY KEY, j JSON, u UUID, i INET6, k VARBINARY(3), e ENUM('x'))")
    database.sql("CREATE TABLE b (id INT NOT NULL UNIQUE, a INT, FOREIGN KEY (a) REFERENCES a (id))")
    database.sql("CREATE VIEW v AS SELECT * FROM a")
    database.sql("CREATE SEQUENCE s")
    assert checked(database) == []


VARIABLES = {
    "binlog_format": ("MIXED", Severity.ERROR),
    "binlog_row_image": ("MINIMAL", Severity.ERROR),
    "binlog_row_metadata": ("MINIMAL", Severity.ERROR),
    "binlog_expire_logs_seconds": ("3600", Severity.ERROR),
    "gtid_strict_mode": ("OFF", Severity.WARNING),
    "sync_binlog": ("0", Severity.WARNING),
    "innodb_flush_log_at_trx_commit": ("2", Severity.WARNING),
    "binlog_checksum": ("NONE", Severity.WARNING),
}


@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_is_named_with_the_value_that_it_must_have(database: Database, name: str) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    value, severity = VARIABLES[name]
    with global_set(database.server, name, value):
        (found,) = checked(database)
        assert (found.subject, found.severity, found.table) == (name, severity, None)
        assert value in found.detail
        assert f"{name} = " in found.remedy
        assert "[mariadbd]" in found.remedy
        follow(database.server, found)
        assert checked(database) == []


def test_how_long_the_binlog_is_kept_is_held_against_the_longest_outage(database: Database) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    with global_set(database.server, "binlog_expire_logs_seconds", "172800"):
        assert checked(database, wishes_of(database, outage_s=2 * DAY_S)) == []
        (found,) = checked(database, wishes_of(database, outage_s=2.5 * DAY_S))
        assert "172800 (2 days)" in found.detail
        assert "longest-outage" in found.detail
        assert "binlog_expire_logs_seconds = 259200" in found.remedy


def test_a_server_without_a_binlog_and_one_that_keeps_what_it_is_sent_to_itself() -> None:
    with Server("--binlog-row-metadata=FULL", "--binlog-format=ROW") as server:
        database = server.create_captured("test")
        subjects = {one.subject: one for one in checked(database)}
        assert subjects["log_bin"].severity is Severity.ERROR
        assert "log_bin = binlog under [mariadbd]" in subjects["log_bin"].remedy


def test_a_replica_that_does_not_log_what_it_applies_is_refused() -> None:
    with Server(*CAPTURE_OPTIONS) as server:
        database = server.create_captured("test")
        database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
        ((position,),) = server.sql("SELECT @@GLOBAL.gtid_binlog_pos")
        server.sql(f"SET GLOBAL gtid_slave_pos = '{position},5-9-1'")
        (found,) = checked(database)
        assert (found.subject, found.severity) == ("log_slave_updates", Severity.WARNING)
        server.sql("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'nobody'")
        server.sql("START SLAVE SQL_THREAD")
        running = "SHOW GLOBAL STATUS LIKE 'slaves_running'"
        wait_until(lambda: server.sql(running)[0][1] == "1", what="the replica to run")
        (found,) = checked(database)
        assert (found.subject, found.severity) == ("log_slave_updates", Severity.ERROR)
        assert "log_slave_updates = ON under [mariadbd]" in found.remedy


def test_databases_that_are_kept_out_of_the_binlog_are_named() -> None:
    with Server(*CAPTURE_OPTIONS, "--binlog-ignore-db=shop", "--binlog-ignore-db=other") as server:
        shop, kept = server.create_captured("shop"), server.create_captured("kept")
        for database in (shop, kept):
            server.sql(f"CREATE TABLE {database.name}.t (a INT PRIMARY KEY)")
        (error,), (warning,) = checked(shop), checked(kept)
        assert (error.severity, error.subject) == (Severity.ERROR, "binlog-ignore-db")
        assert "changes of shop" in error.detail
        assert (warning.severity, warning.subject) == (Severity.WARNING, "binlog-ignore-db")


USER = "it's"


def test_each_right_is_named_and_enough_and_needed(database: Database) -> None:
    server = database.server
    database.sql("CREATE TABLE p (a INT PRIMARY KEY)")
    database.sql(
        "CREATE TABLE c (a INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES p (a) ON DELETE CASCADE)"
    )
    server.sql(f"""CREATE USER "{USER}"@'%' IDENTIFIED BY '{PASSWORD}'""")
    dsn = database.dsn.replace("//app:", f"//{USER}:").rpartition("/")[0]
    child = Wishes(lambda name, table: (name, table) == (database.name, "c"), DAY_S)
    found = {one.detail.split(" is missing")[0]: one for one in checked(database, child, dsn)}
    assert set(found) == {
        "REPLICATION SLAVE",
        "BINLOG MONITOR",
        "no table that this account may see is captured",
    }
    with pytest.raises(SourceForbidden):
        BinlogDump.open(parse_dsn(dsn), GtidPosition(), REPLICA_ID, server_id=1)
    follow(server, found["REPLICATION SLAVE"])
    BinlogDump.open(parse_dsn(dsn), GtidPosition(), REPLICA_ID, server_id=1).release()
    follow(server, found["BINLOG MONITOR"])
    # With a part of the columns, neither whole rows nor foreign keys can be seen.
    server.sql(f"""GRANT SELECT (a) ON {database.name}.c TO "{USER}"@'%'""")
    (unread,) = checked(database, child, dsn)
    assert (unread.severity, unread.table) == (Severity.ERROR, (database.name, "c"))
    with closing(connect(parse_dsn(dsn))) as session, pytest.raises(SourceForbidden):
        read_foreign_keys(session, database.name, "c")
    follow(server, unread)
    (cascade,) = checked(database, child, dsn)
    assert "ON DELETE CASCADE" in cascade.detail
    server.sql(f"""DROP USER "{USER}"@'%'""")


TABLES = {
    "CREATE TABLE t (a INT PRIMARY KEY) ENGINE = MyISAM": ("MyISAM", Severity.ERROR),
    "CREATE TABLE t (a INT PRIMARY KEY) ENGINE = MEMORY": ("MEMORY", Severity.ERROR),
    "CREATE TABLE t (a INT PRIMARY KEY) WITH SYSTEM VERSIONING": ("system-versioned", Severity.ERROR),
    "CREATE TABLE t (a INT)": ("neither a primary key nor", Severity.ERROR),
    "CREATE TABLE t (a INT UNIQUE, b INT, KEY (b))": ("neither a primary key nor", Severity.ERROR),
    "CREATE TABLE t (a TEXT, PRIMARY KEY (a(10)))": ("beginning of a column", Severity.WARNING),
    "CREATE TABLE t (a INT PRIMARY KEY, g POINT)": ("column g has the type point", Severity.ERROR),
    "CREATE TABLE t (a INT PRIMARY KEY, c TEXT CHARSET geostd8)": ("character set geostd8", Severity.ERROR),
}


@pytest.mark.parametrize("statement", TABLES)
def test_a_table_that_cannot_be_captured_is_named(database: Database, statement: str) -> None:
    words, severity = TABLES[statement]
    database.sql(statement)
    database.sql("CREATE TABLE fine (a INT PRIMARY KEY)")
    (found,) = checked(database)
    assert words in found.detail
    assert (found.severity, found.subject) == (severity, f"{database.name}.t")
    assert found.table == (database.name, "t")
    if (
        found.remedy.startswith("Run: ALTER")
        and "PRIMARY KEY" not in found.remedy
        and severity is Severity.ERROR
    ):
        follow(database.server, found)
        assert checked(database) == []


def test_a_column_that_does_not_go_out_may_have_any_type(database: Database) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY, g GEOMETRY)")
    (found,) = checked(database)
    assert f'exclude-columns = ["{database.name}.t.g"]' in found.remedy
    hidden = wishes_of(database)._replace(hides=lambda name, table, column: (table, column) == ("t", "g"))
    assert checked(database, hidden) == []


def test_a_cascade_leaves_no_line_in_the_binlog_so_its_child_is_refused(
    database: Database, source: Source
) -> None:
    database.sql("CREATE TABLE `odd ``p` (a INT PRIMARY KEY, u INT UNIQUE)")
    database.sql(
        "CREATE TABLE c (a INT PRIMARY KEY COMMENT ' CONSTRAINT `x` FOREIGN KEY', b INT, d INT, "
        "CONSTRAINT `to, (p)` FOREIGN KEY (b) REFERENCES `odd ``p` (a) ON DELETE CASCADE ON UPDATE SET NULL, "
        "CONSTRAINT plain FOREIGN KEY (d) REFERENCES `odd ``p` (u) ON DELETE RESTRICT)"
    )
    database.sql("INSERT INTO `odd ``p` VALUES (1, 1)")
    database.sql("INSERT INTO c VALUES (1, 1, NULL)")
    file, start = database.server.sql("SHOW MASTER STATUS")[0][:2]
    database.sql("DELETE FROM `odd ``p`")
    assert database.sql("SELECT * FROM c") == []
    events = database.server.sql(f"SHOW BINLOG EVENTS IN '{file}' FROM {start}")
    maps = {row[5].split()[1]: row[5] for row in events if row[2] == "Table_map"}
    (rows,) = [row[5].split()[1] for row in events if "_rows" in row[2] and row[2] != "Annotate_rows"]
    assert "odd" in maps[rows]  # and no row of c

    found = read_foreign_keys(source, database.name, "c")
    assert {one.name: (one.parent[1], one.unlogged) for one in found} == {
        "to, (p)": ("odd `p", ("ON DELETE CASCADE", "ON UPDATE SET NULL")),
        "plain": ("odd `p", ()),
    }
    (error,) = checked(database)
    assert (error.severity, error.subject) == (Severity.ERROR, f"{database.name}.c")
    assert "to, (p)" in error.detail
    assert 'cascades = "accept"' in error.remedy
    (warning,) = checked(database, wishes_of(database, accept_cascades=True))
    assert warning.severity is Severity.WARNING


def test_a_server_with_nothing_to_capture_says_so(database: Database) -> None:
    (found,) = checked(database)
    assert (found.subject, found.severity) == ("tables", Severity.WARNING)
    assert "GRANT SELECT" in found.remedy
