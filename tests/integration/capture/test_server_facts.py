"""What capture asks a real server: its settings, its places, and whether it is still the one that the feed holds."""

from __future__ import annotations

from contextlib import closing

import msgspec
import pytest

from headrace.capture.binlog.event import Gtid, GtidPosition, Place
from headrace.capture.mariadb.connection import Source, connect, execute, fetch, source_errors
from headrace.capture.mariadb.server import (
    Collation,
    check_history,
    current_gtid,
    current_place,
    gtid_of,
    read_collations,
    read_server,
)
from headrace.errors import (
    DsnInvalid,
    SourceForbidden,
    SourceReplaced,
    SourceUnavailable,
    SourceUnfit,
    TableNotFound,
)
from headrace.runtime.dsn import Dsn, parse_dsn
from tests.mariadb import Database, Server


def test_a_servers_facts_need_no_right(mariadb: Server) -> None:
    mariadb.sql("CREATE USER nobody IDENTIFIED BY 'n'")
    with closing(connect(parse_dsn(f"mariadb://nobody:n@127.0.0.1:{mariadb.port}"))) as session:
        server = read_server(session)
        assert (server.server_id, server.port) == (1, mariadb.port)
        assert server.variables["binlog_row_metadata"] == "FULL"
        assert server.version.startswith(".".join(map(str, server.release)))
        assert current_gtid(session) == GtidPosition.parse(
            mariadb.sql("SELECT @@GLOBAL.gtid_binlog_pos")[0][0]
        )
        place = current_place(session)
        check_history(session, server, current_gtid(session), place, 1)
    assert mariadb.sql("SHOW MASTER STATUS")[0][:2] == place
    mariadb.sql("DROP USER nobody")


def test_collations_have_the_ids_that_the_binlog_uses(source: Source) -> None:
    server = read_server(source)
    found = read_collations(source, server)
    assert found[8] == Collation("latin1", "latin1_swedish_ci")
    assert found[63] == Collation("binary", "binary")
    assert found[45] == Collation("utf8mb4", "utf8mb4_general_ci")
    assert "utf8mb4_uca1400_ai_ci" in {one.name for one in found.values()}
    before = read_collations(source, msgspec.structs.replace(server, version="10.6.2-MariaDB"))
    assert before
    assert before.items() <= found.items()


def test_a_session_never_writes_and_sees_text_and_time_as_they_are(
    database: Database, source: Source
) -> None:
    database.sql("CREATE TABLE t (a CHAR(5), at TIMESTAMP)")
    database.sql("INSERT INTO t VALUES ('x', FROM_UNIXTIME(86400))")
    assert fetch(source, "SELECT a, CAST(at AS CHAR) FROM t") == (("x", "1970-01-02 00:00:00"),)
    with pytest.raises(SourceUnavailable, match="READ ONLY"), source_errors():
        execute(source, "DELETE FROM t")
    with pytest.raises(TableNotFound), source_errors():
        execute(source, "SELECT * FROM gone")


def test_the_place_of_a_consistent_snapshot_is_told_within_it(database: Database, source: Source) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    before = current_place(source)
    execute(source, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    database.sql("INSERT INTO t VALUES (1)")
    assert current_place(source) == before
    assert fetch(source, "SELECT * FROM t") == ()
    execute(source, "COMMIT")
    assert current_place(source) > before


def test_a_place_has_a_gtid_where_an_event_ends_and_nowhere_else(database: Database, source: Source) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    place, position = current_place(source), current_gtid(source)
    assert gtid_of(source, place) == position
    database.sql("INSERT INTO t VALUES (1)")
    assert gtid_of(source, place) == position
    assert gtid_of(source, Place(place.file, place.offset + 1)) is None
    assert gtid_of(source, Place("binlog.000999", 4)) is None


def test_a_history_goes_on_over_rotation_and_restart(unsteady: Server) -> None:
    database = unsteady.create_captured("goes_on")
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    with closing(connect(parse_dsn(database.dsn))) as session:
        position, place = current_gtid(session), current_place(session)
    unsteady.rotate()
    database.sql("INSERT INTO t VALUES (1)")
    unsteady.restart()
    with closing(connect(parse_dsn(database.dsn))) as session:
        server = read_server(session)
        check_history(session, server, position, place, 1)
        check_history(session, server, GtidPosition(), None, 1)
        # A file that is gone proves nothing; the server says itself whether it can go on from there.
        unsteady.purge()
        check_history(session, server, position, place, 1)
        other_name = Place("elsewhere.999999", 1)
        check_history(session, server, position, other_name, 1)


def test_another_server_is_noticed(source: Source, database: Database) -> None:
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    server, position, place = read_server(source), current_gtid(source), current_place(source)
    last = position.gtids[0]

    def refused(given: GtidPosition, where: Place | None, server_id: int = 1) -> str:
        with pytest.raises(SourceReplaced) as caught:
            check_history(source, server, given, where, server_id)
        return caught.value.detail

    assert "server_id 7; this one has 1" in refused(position, place, 7)
    ahead = Gtid(last.domain, last.server, last.sequence + 1)
    assert f"holds {ahead}, which this server never had" in refused(GtidPosition((ahead,)), None)
    assert "0-2-1" in refused(GtidPosition((Gtid(0, 2, 1),)), None)
    assert "5-1-1" in refused(position.advanced(Gtid(5, 1, 1)), None)
    assert "binlog only to" in refused(position, Place("binlog.000999", 4))
    assert "no event ends there" in refused(position, Place(place.file, place.offset - 1))
    earlier = GtidPosition((Gtid(last.domain, last.server, last.sequence - 1),))
    assert f"it has {position}" in refused(earlier, place)


def test_a_server_that_was_restored_from_a_copy_is_noticed(unsteady: Server) -> None:
    database = unsteady.create_captured("restored")
    database.sql("CREATE TABLE t (a INT PRIMARY KEY AUTO_INCREMENT, b TEXT)")
    unsteady.stop()
    copy = unsteady.copy_data()
    unsteady.start()
    database.sql("INSERT INTO t (b) VALUES ('what only the first life had')")
    with closing(connect(parse_dsn(database.dsn))) as session:
        position, place = current_gtid(session), current_place(session)
    unsteady.kill()
    unsteady.put_back(copy)
    unsteady.start()
    with closing(connect(parse_dsn(database.dsn))) as session:
        with pytest.raises(SourceReplaced, match="never had"):
            check_history(session, read_server(session), position, place, 1)
        database.sql("INSERT INTO t (b) VALUES ('the second')")
        database.sql("INSERT INTO t (b) VALUES ('the second')")
        with pytest.raises(SourceReplaced, match="at this server"):
            check_history(session, read_server(session), position, place, 1)
        unsteady.sql("RESET MASTER")
        with pytest.raises(SourceReplaced, match="it has none"):
            check_history(session, read_server(session), position, place, 1)


def test_a_server_that_is_no_mariadb_is_refused_by_its_version() -> None:
    with Server("--version=8.0.36") as server:
        database = server.create_database("test")
        with pytest.raises(SourceUnfit, match=r"no MariaDB but 8\.0\.36"):
            connect(parse_dsn(database.dsn))


def test_a_server_without_a_binlog_has_no_place() -> None:
    with Server() as server:
        database = server.create_database("test")
        with (
            closing(connect(parse_dsn(database.dsn))) as session,
            pytest.raises(SourceUnfit, match="log_bin"),
        ):
            current_place(session)


DSNS = {
    "{dsn}_gone": (SourceForbidden, "Access denied"),
    "{wrong}": (SourceForbidden, "Access denied"),
    "{dsn}?charset=utf8": (DsnInvalid, "not known"),
    "{dsn}/x": (DsnInvalid, "database"),
    "{dsn}?ssl-ca=/nowhere/ca.pem": (DsnInvalid, "ssl-ca"),
    "mariadb://app@127.0.0.1:1/db": (SourceUnavailable, "127.0.0.1"),
    "mariadb://app@" + "a" * 300: (DsnInvalid, "no host name"),
    "mariadb://root@h?socket={folder}/socket": (None, ""),
    "mariadb://root@h/nowhere?socket={folder}/socket": (DsnInvalid, "Unknown database"),
}


@pytest.mark.parametrize("text", DSNS)
def test_a_dsn_leads_to_a_server_or_says_why_not(database: Database, text: str) -> None:
    kind, words = DSNS[text]
    dsn = _dsn(database, text)
    if kind is None:
        connect(dsn).close()
        return
    with pytest.raises(kind, match=words) as caught:
        connect(dsn)
    assert not any(secret in str(caught.value) + caught.value.advice for secret in ("geheim", "wrong@"))


def _dsn(database: Database, text: str) -> Dsn:
    wrong = database.dsn.replace("geheim", "wrong")
    return parse_dsn(text.format(dsn=database.dsn, wrong=wrong, folder=database.server.folder))
