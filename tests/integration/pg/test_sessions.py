"""Sessions at a real server: what ``psql`` can ask, what commands say, and how each refusal is called."""

from __future__ import annotations

import struct
import subprocess

import psycopg2
import psycopg2.errors
import psycopg2.extras
import pytest

from tests.pg import (
    Bare,
    connect,
    create_slot,
    dsn_of,
    numbers,
    port_of,
    query,
    replicating,
    slot_row,
    ssl_request,
    states_of,
)
from tests.servers import Feed, ServerProcess
from tests.waiting import wait_until


def psql(server: ServerProcess, *statements: str, database: str = "headrace") -> str:
    command = [
        "psql",
        "-X",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        f"{dsn_of(server, database)} replication=database",
    ]
    for statement in statements:
        command += ["-c", statement]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def test_psql_looks_around(server: ServerProcess, feed: Feed, slot: str) -> None:
    create_slot(server, slot)
    said = psql(
        server,
        "IDENTIFY_SYSTEM",
        "SHOW wal_level",
        "SELECT version(), current_setting('server_version_num') AS number",
        f"SELECT slot_name, plugin, active FROM pg_replication_slots WHERE slot_name = '{slot}'",
        f"READ_REPLICATION_SLOT {slot}",
        database=feed.name,
    ).splitlines()
    assert said[0].split("|")[1] == "1"
    assert said[0].endswith(f"|{feed.name}")
    assert said[1] == "logical"
    assert said[2].startswith("PostgreSQL 15.0 (Headrace ")
    assert said[2].endswith("|150000")
    assert said[3] == f"{slot}|headrace|f"
    assert said[4].startswith("logical|0/")


def test_a_slot_is_made_and_dropped_by_sql(server: ServerProcess, slot: str) -> None:
    ((name, position),) = query(
        server, f"SELECT * FROM pg_create_logical_replication_slot('{slot}', 'headrace')"
    )
    assert name == slot
    assert slot_row(server, slot)["confirmed_flush_lsn"] == position
    assert query(server, "SELECT pg_current_wal_lsn()")
    query(server, f"SELECT pg_drop_replication_slot('{slot}')")
    assert not query(server, f"SELECT slot_name FROM pg_replication_slots WHERE slot_name = '{slot}'")


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("START_REPLICATION 0/0", "0A000"),
        ("START_REPLICATION SLOT nobody PHYSICAL 0/0", "0A000"),
        ("CREATE_REPLICATION_SLOT s PHYSICAL", "0A000"),
        ("BASE_BACKUP", "0A000"),
        ("TIMELINE_HISTORY 1", "0A000"),
        ("START_REPLICATION SLOT nobody LOGICAL 0/0", "42704"),
        ("DROP_REPLICATION_SLOT nobody", "42704"),
        ("CREATE_REPLICATION_SLOT s LOGICAL nothing", "42704"),
        ('CREATE_REPLICATION_SLOT "S!" LOGICAL headrace', "42602"),
        ("CREATE_REPLICATION_SLOT s LOGICAL headrace (TWO_PHASE)", "0A000"),
        ("START_REPLICATION SLOT s LOGICAL nonsense", "42601"),
        ("SELECT * FROM pg_class", "42P01"),
        ("SELECT nothing()", "42883"),
        ("SELECT nothing FROM pg_replication_slots", "42703"),
        ("SHOW nothing", "42704"),
        ("DELETE FROM t", "0A000"),
        ("SELECT 'open", "42601"),
        ("SELECT", "42601"),
    ],
)
def test_a_refusal_has_its_sqlstate_and_the_session_goes_on(
    server: ServerProcess, statement: str, state: str
) -> None:
    bare = Bare(port_of(server))
    bare.login()
    bare.query(statement)
    assert states_of(bare.until(b"Z")) == [state]
    bare.query("SHOW wal_level")
    assert [kind for kind, _ in bare.until(b"Z")] == [b"T", b"D", b"C", b"Z"]
    bare.close()


def test_two_sessions_do_not_share_a_slot(server: ServerProcess, slot: str) -> None:
    create_slot(server, slot)
    first, second = replicating(server), replicating(server)
    with first.cursor() as one, second.cursor() as other:
        one.start_replication(slot_name=slot, decode=False)
        with pytest.raises(psycopg2.errors.ObjectInUse, match=f'"{slot}" is active for PID'):
            other.start_replication(slot_name=slot, decode=False)
        with pytest.raises(psycopg2.errors.ObjectInUse):
            query(server, f"SELECT pg_drop_replication_slot('{slot}')")
    first.close()
    wait_until(lambda: slot_row(server, slot)["active"] == "f", what="the slot to be free")
    second.close()


def test_a_name_is_given_once(server: ServerProcess, slot: str) -> None:
    create_slot(server, slot)
    with pytest.raises(psycopg2.errors.DuplicateObject):
        query(server, f"SELECT pg_create_logical_replication_slot('{slot}', 'headrace')")


def test_a_temporary_slot_ends_with_its_session(server: ServerProcess, slot: str) -> None:
    bare = Bare(port_of(server))
    bare.login()
    bare.query(f"CREATE_REPLICATION_SLOT {slot} TEMPORARY LOGICAL headrace")
    assert not states_of(bare.until(b"Z"))
    assert slot_row(server, slot)["temporary"] == "t"
    bare.close()
    wait_until(
        lambda: not query(server, f"SELECT slot_name FROM pg_replication_slots WHERE slot_name = '{slot}'"),
        what="the slot to be gone",
    )


def test_drop_waits_for_the_end_of_a_stream(server: ServerProcess, slot: str) -> None:
    create_slot(server, slot)
    stream, dropping = Bare(port_of(server)), Bare(port_of(server))
    stream.login()
    dropping.login()
    stream.query(f"START_REPLICATION SLOT {slot} LOGICAL 0/0")
    stream.until(b"W")
    dropping.query(f"DROP_REPLICATION_SLOT {slot} WAIT")
    stream.say(b"c")
    assert [kind for kind, _ in stream.until(b"Z") if kind != b"d"] == [b"c", b"C", b"C", b"Z"]
    assert dropping.until(b"Z")[0] == (b"C", b"DROP_REPLICATION_SLOT\0")
    stream.close()
    dropping.close()


def test_a_cancel_request_ends_a_stream_and_not_the_session(server: ServerProcess, slot: str) -> None:
    create_slot(server, slot)
    bare = Bare(port_of(server))
    key = next(body for kind, body in bare.login() if kind == b"K")
    bare.query(f"START_REPLICATION SLOT {slot} LOGICAL 0/0")
    bare.until(b"W")
    wrong = Bare(port_of(server))
    wrong.send(struct.pack(">II", 16, 80877102) + key[:4] + bytes(4))
    assert wrong.all() == []
    right = Bare(port_of(server))
    right.send(struct.pack(">II", 16, 80877102) + key)
    assert right.all() == []
    assert states_of(bare.until(b"Z")) == ["57014"]
    bare.query("SHOW wal_level")
    assert not states_of(bare.until(b"Z"))
    for one in (bare, wrong, right):
        one.close()


def test_the_extended_protocol_is_refused_up_to_sync(server: ServerProcess) -> None:
    bare = Bare(port_of(server))
    bare.login()
    bare.say(b"P", b"\0SELECT 1\0\0\0")
    bare.say(b"B", b"\0\0\0\0\0\0\0\0")
    bare.say(b"E", b"\0\0\0\0\0")
    bare.say(b"S")
    assert states_of(bare.until(b"Z")) == ["0A000"]
    bare.query("SELECT 1")
    assert not states_of(bare.until(b"Z"))
    bare.close()


def test_tls_that_is_not_there_is_answered_with_n(server: ServerProcess) -> None:
    bare = Bare(port_of(server))
    bare.send(ssl_request())
    assert bare.read(1) == b"N"
    assert bare.login()[-1][0] == b"Z"
    bare.close()


def test_a_database_that_is_no_feed_does_not_exist(server: ServerProcess) -> None:
    with pytest.raises(psycopg2.OperationalError, match='database "nobody" does not exist'):
        connect(server, "nobody")


def test_replication_commands_need_a_replication_session(server: ServerProcess) -> None:
    with pytest.raises(psycopg2.errors.SyntaxError):
        query(server, "IDENTIFY_SYSTEM")
    bare = Bare(port_of(server))
    bare.login(replication="true")
    bare.query("CREATE_REPLICATION_SLOT s LOGICAL headrace")
    assert states_of(bare.until(b"Z")) == ["55000"]
    bare.close()


def test_options_choose_feeds_and_keys(server: ServerProcess, feed: Feed, slot: str) -> None:
    create_slot(server, slot)
    connection = replicating(server)
    with connection.cursor() as cursor:
        options = {"feeds": feed.name, "key-prefix": f"local:default:{feed.name}:2"}
        cursor.start_replication(slot_name=slot, options=options, decode=True)
        numbers(feed, 1, 3)
        message = wait_until(cursor.read_message, what="a record")
        assert '"sequence-id":2' in message.payload.replace(" ", "")
    connection.close()


@pytest.mark.parametrize("options", [{"nothing": "1"}, {"feeds": "b/d"}, {"key-prefix": "x" * 5000}])
def test_an_option_that_is_not_known_is_refused(
    server: ServerProcess, slot: str, options: dict[str, str]
) -> None:
    create_slot(server, slot)
    connection = replicating(server)
    with connection.cursor() as cursor, pytest.raises(psycopg2.errors.InvalidParameterValue):
        cursor.start_replication(slot_name=slot, options=options, decode=True)
    connection.close()
    assert slot_row(server, slot)["active"] == "f"


def test_a_start_beyond_the_journal_is_refused(server: ServerProcess, slot: str) -> None:
    create_slot(server, slot)
    connection = replicating(server)
    with (
        connection.cursor() as cursor,
        pytest.raises(psycopg2.errors.InvalidParameterValue, match="beyond the end"),
    ):
        cursor.start_replication(slot_name=slot, start_lsn="FFFF/0", decode=True)
    connection.close()


def test_a_confirmation_beyond_what_was_sent_counts_as_that(
    server: ServerProcess, feed: Feed, slot: str
) -> None:
    create_slot(server, slot)
    connection = replicating(server)
    with connection.cursor() as cursor:
        cursor.start_replication(slot_name=slot, options={"feeds": feed.name}, decode=False)
        numbers(feed, 1, 2)
        messages = [wait_until(cursor.read_message, what="a record") for _ in range(2)]
        cursor.send_feedback(flush_lsn=1 << 60, force=True)
        confirmed = wait_until(
            lambda: (
                int(str(slot_row(server, slot)["confirmed_flush_lsn"]).partition("/")[2], 16)
                >= messages[-1].data_start
            ),
            what="the position to be confirmed",
        )
        assert confirmed
    connection.close()
    wait_until(lambda: slot_row(server, slot)["active"] == "f", what="the slot to be free")
    numbers(feed, 3, 3)
    again = replicating(server)
    with again.cursor() as cursor:
        cursor.start_replication(slot_name=slot, options={"feeds": feed.name}, decode=True)
        assert '"sequence-id":3' in wait_until(cursor.read_message, what="a record").payload
    again.close()
