"""The least rights at MariaDB: what ``headrace publisher grants`` prints is enough, and each one of it is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from pymysql.err import MySQLError

from headrace.cli.app import main
from headrace.errors import HeadraceError, SourceForbidden
from headrace.publisher.databases import read_rights, state_reader
from headrace.publisher.grants import Grant, Party
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.runtime.dsn import parse_dsn
from tests import forks
from tests.agents import AgentProcess
from tests.integration.mariadb.outboxes import (
    AGENT,
    FAR_FUTURE_MS,
    FEED,
    add,
    claim,
    keys_of,
    post,
    read_feed,
    refuse,
)
from tests.mariadb import PASSWORD, Database, Server
from tests.scale import chosen
from tests.servers import serving
from tests.waiting import wait_until

AGENT_USER, WRITER = "relay's", "writer"


@pytest.fixture
def users(mariadb: Server, database: Database) -> Iterator[dict[Party, str]]:
    """Users without any right, and what SQL calls them."""
    accounts = {Party.AGENT: "'relay''s'@'%'", Party.APPLICATION: "'writer'@'127.0.0.1'"}
    with mariadb.connect_as_root() as root, root.cursor() as cursor:
        for account in accounts.values():
            cursor.execute(f"CREATE USER {account} IDENTIFIED BY '{PASSWORD}'")
        yield accounts
        for account in accounts.values():
            cursor.execute(f"DROP USER {account}")


def needed(database: Database) -> list[Grant]:
    found = read_rights(parse_dsn(database.dsn), [], AGENT_USER, f"{WRITER}@127.0.0.1")
    return [one for one in found.grants if one.party is not Party.OWNER]


def run_as_root(database: Database, *statements: str) -> None:
    with database.server.connect_as_root() as root, root.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement.rstrip(";"))


def dsn_of(database: Database) -> str:
    return database.dsn.replace("//app:", "//relay's:")


def add_as_writer(database: Database, key: str) -> None:
    with Connection(
        host="127.0.0.1",
        port=database.server.port,
        user=WRITER,
        password=PASSWORD,
        database=database.name,
        cursorclass=Cursor,
    ) as app:
        Outbox.add(app, FEED, {"key": key}, key=key)
        app.commit()


def do_everything(database: Database) -> None:
    """All that the agent, its commands, and the application do."""
    add_as_writer(database, "a")
    with closing(MysqlSource(parse_dsn(dsn_of(database)))) as source:
        source.check_outbox()
        source.advice()
        place = database.sql("SELECT COALESCE(MAX(next_sequence_id), 1) FROM headrace_owner")[0][0]
        epoch = database.sql("SELECT COALESCE(MAX(epoch), 0) + 1 FROM headrace_owner")[0][0]
        claim(source, place, epoch)
        source.has_changed(busy=True)
        source.advance(FEED, AGENT, epoch, None, 1_000)
        rows = source.batch(FEED, AGENT)
        refuse(source, rows[0])
        source.skip(FEED, rows[0].id, "why")
        claim(source, place, epoch + 1)
        assert post(source, epoch + 1)[0].control == "parked"
        source.retry_parked(rows[0].id)
        (again,) = post(source, epoch + 1)
        refuse(source, again)
        add_as_writer(database, "b")
        source.advance(FEED, AGENT, epoch + 1, None, 1_000)
        (last,) = source.batch(FEED, AGENT)
        refuse(source, last)
        source.skip(FEED, last.id, "why")
        claim(source, last.sequence_id, epoch + 2)
        add_as_writer(database, "b")
        while post(source, epoch + 2):
            pass
        source.sweep(FEED, FAR_FUTURE_MS)  # notes at the parked row that a later one of its key was there
        source.drop_parked(last.id)
        source.standing()
        source.alarm_of(FEED)
        reader = state_reader(parse_dsn(dsn_of(database)), FEED, "SELECT 'k', '{}'")
        reader.open()
        source.begin_snapshot(FEED, AGENT, epoch + 2, reader, lambda place, lines: None)
        assert list(reader.lines()) != []
        reader.close()


def test_every_right_is_enough_and_needed(database: Database, users: dict[Party, str]) -> None:
    grants = needed(database)
    run_as_root(database, *(one.statement for one in grants))
    do_everything(database)
    for one in chosen(grants, len(grants) // 2):
        run_as_root(database, one.revoked)
        with pytest.raises((HeadraceError, MySQLError)):
            do_everything(database)
        run_as_root(database, one.statement)
        database.sql("DELETE FROM headrace_parked")
        database.sql("DELETE FROM headrace_owner")
        database.sql("TRUNCATE headrace_outbox")
        do_everything(database)
        database.sql("DELETE FROM headrace_owner")
        database.sql("TRUNCATE headrace_outbox")


def test_an_agent_runs_with_just_what_is_printed(
    database: Database, users: dict[Party, str], tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["publisher", "grants", database.dsn, "--role", AGENT_USER]
    assert main([*words, "--application-role", f"{WRITER}@127.0.0.1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "-- for the agent, after Outbox.create" in printed
    parties = "\n".join(printed).split("-- for ")
    run_as_root(
        database,
        *(
            line
            for part in parties
            if not part.startswith("who attaches")
            for line in part.splitlines()
            if line.startswith("GRANT")
        ),
    )
    with (
        serving(tmp_path / "server") as server,
        AgentProcess(tmp_path / "agent", server.url, dsn_of(database), FEED, agent_id=AGENT) as agent,
    ):
        add_as_writer(database, "a")
        wait_until(
            lambda: database.sql("SELECT COUNT(*) FROM headrace_outbox WHERE processed") == [(1,)],
            60,
            what="the row to be posted",
        )
        assert [entry["key"] for entry in read_feed(server)] == ["a"]
        assert agent.stop() == 0
    assert main([*words, "--json"]) == 0
    parts = json.loads(capsys.readouterr().out)["grants"]
    assert {one["party"] for one in parts} == {"owner", "agent"}
    assert main([*words, "--table", "vm"]) == 2


def test_who_makes_the_outbox_needs_what_is_printed(empty: Database, users: dict[Party, str]) -> None:
    found = read_rights(parse_dsn(empty.dsn), [], AGENT_USER, None)
    for one in found.grants:
        if one.party is Party.OWNER:
            run_as_root(empty, f"GRANT {one.privilege} ON {one.target} TO {users[Party.AGENT]}")
    options: dict[str, Any] = {"host": "127.0.0.1", "port": empty.server.port, "database": empty.name}
    with Connection(user=AGENT_USER, password=PASSWORD, **options) as setup:
        Outbox.create(setup)
        Outbox.create(setup)
    add(empty, "a")


def test_a_database_whose_name_has_a_wildcard_gives_no_right_elsewhere(
    mariadb: Server, users: dict[Party, str]
) -> None:
    one, other = mariadb.create_database("a_b%"), mariadb.create_database("aXbYY")
    for database in (one, other):
        with database.connect() as app:
            Outbox.create(app)
    found = read_rights(parse_dsn(dsn_named(one)), [], AGENT_USER, None).grants
    run_as_root(one, *(grant.statement for grant in found if grant.party is Party.AGENT))
    with closing(MysqlSource(parse_dsn(dsn_named(one).replace("//app:", "//relay's:")))) as source:
        claim(source, 1)
        add(one, "a")
        assert keys_of(post(source)) == ["a"]
    with pytest.raises(SourceForbidden):
        MysqlSource(parse_dsn(dsn_named(other).replace("//app:", "//relay's:")))


def dsn_named(database: Database) -> str:
    return database.dsn.replace(database.name, database.name.replace("%", "%25"))


DSNS = {
    "postgress://app@h/db": (2, "dsn-invalid", "mariadb://"),
    "mariadb//app@h/db": (2, "dsn-invalid", "SCHEME://"),
    "mariadb://app@127.0.0.1": (2, "dsn-invalid", "names no database"),
    "mariadb://app:p@ss@127.0.0.1:x/db": (2, "dsn-invalid", "@ is %40"),
    "{dsn}?charset=utf8": (2, "dsn-invalid", "answer-timeout, socket, ssl-ca"),
    "{dsn}?socket=/a&socket=/b": (2, "dsn-invalid", "one twice"),
    "{dsn}?answer-timeout=soon": (2, "dsn-invalid", "can't be read"),
    "{dsn}?answer-timeout=0": (2, "dsn-invalid", "from 1 to"),
    "{dsn}?socket=/nowhere/socket": (1, "source-unavailable", "/nowhere/socket"),
    "{dsn}?ssl-ca=/nowhere/ca.pem": (2, "dsn-invalid", "ssl-ca"),
    "{dsn}_gone": (3, "source-forbidden", "Access denied"),
    "{wrong}": (3, "source-forbidden", "Access denied"),
    "mariadb://app@127.0.0.1:1/db": (1, "source-unavailable", "127.0.0.1"),
    "mariadb://app@no-such-host.invalid/db": (1, "source-unavailable", "no-such-host.invalid"),
    "mariadb://app@" + "a" * 300 + "/db": (2, "dsn-invalid", "no host name"),
    "mariadb://app@[::1/db": (2, "dsn-invalid", "can't be read"),
}


@pytest.fixture(scope="module")
def target(mariadb: Server) -> str:
    """The DSN of an empty database."""
    return mariadb.create_database("leads_somewhere").dsn


@pytest.mark.parametrize("dsn", DSNS)
def test_a_dsn_that_leads_nowhere_says_why_and_what_to_do(target: str, dsn: str) -> None:
    given = dsn.format(dsn=target, wrong=target.replace("geheim", "wrong"))
    done = forks.run(
        [*forks.HEADRACE, "publisher", "check", given, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    status, code, words = DSNS[dsn]
    assert "Traceback" not in done.stderr
    assert (done.returncode, json.loads(done.stdout or done.stderr)["code"]) == (status, code), done.stderr
    assert words in done.stdout + done.stderr
    assert not any(secret in done.stdout + done.stderr for secret in ("geheim", "wrong@", "p@ss"))
