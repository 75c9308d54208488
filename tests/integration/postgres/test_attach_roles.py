"""Who may attach, and which rights each party needs: no more, no less, as ``headrace publisher grants`` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from headrace.cli.app import main
from headrace.errors import (
    FeedRecreated,
    HeadraceError,
    SnapshotUnavailable,
    SourceForbidden,
    SourceUnavailable,
)
from headrace.publisher.attach.finding import FindingKind
from headrace.publisher.copies import CopyRequest, CopyState
from headrace.publisher.grants import Party
from headrace.publisher.marked import RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import Alarm, FeedPlace, RefusedRow
from headrace.publisher.postgres.grants import make_grants, read_tables
from headrace.publisher.postgres.source import PostgresSource, state_reader
from headrace.runtime.dsn import find_dsn
from tests.integration.postgres.captured import FEED, captured
from tests.postgres import Database
from tests.scale import chosen
from tests.states import take

RIGHTS = 8
"""So many of the agent's rights, as the seed has it, are taken away in a short run, one after the other."""
TABLES = """
CREATE SCHEMA shop; ALTER SCHEMA shop OWNER TO {owner};
SET ROLE {owner};
CREATE TABLE shop.item (id int PRIMARY KEY, name text, doc json);
INSERT INTO shop.item VALUES (1, 'a', 'null'), (2, 'b', NULL)
"""


class Roles:
    """Three roles of one database, named after it; dropped at the end with all that they own."""

    def __init__(self, database: Database) -> None:
        self.owner, self.agent, self.writer = (
            f"{database.name}_{name}" for name in ("owner", "agent", "writer")
        )
        self.all = (self.owner, self.agent, self.writer)


@pytest.fixture
def roles(database: Database) -> Iterator[Roles]:
    found = Roles(database)
    for role in found.all:
        database.sql(f"CREATE ROLE {role} LOGIN")
    with database.connect() as connection:
        connection.execute(TABLES.format(owner=found.owner).encode())
    yield found
    for role in found.all:
        database.sql(f"DROP OWNED BY {role} CASCADE")
    for role in found.all:
        database.sql(f"DROP ROLE {role}")


@pytest.fixture
def attached(database: Database, roles: Roles) -> Database:
    database.sql(f"GRANT CREATE ON DATABASE {database.name} TO {roles.owner}")
    with captured(database, roles.owner) as source:
        source.attach("shop.item")
    return database


def test_owner_attaches_and_a_lesser_role_is_told_what_is_missing(database: Database, roles: Roles) -> None:
    with captured(database, roles.owner) as source, pytest.raises(SourceForbidden, match="create a schema"):
        source.attach("shop.item")
    database.sql(f"GRANT CREATE ON DATABASE {database.name} TO {roles.owner}, {roles.writer}")
    database.sql(f"GRANT USAGE ON SCHEMA shop TO {roles.writer}")
    with captured(database, roles.writer) as source, pytest.raises(SourceForbidden, match=roles.owner):
        source.attach("shop.item")
    with captured(database, roles.owner) as source:
        source.attach("shop.item")
    database.sql("CREATE TABLE mine (id int PRIMARY KEY)")
    database.sql(f"ALTER TABLE mine OWNER TO {roles.writer}")
    with captured(database, roles.writer) as source, pytest.raises(SourceForbidden) as caught:
        source.attach("mine")
    assert "owns the schema headrace" in caught.value.detail


def test_role_that_owns_nothing_writes_and_needs_nothing(attached: Database, roles: Roles) -> None:
    attached.sql(f"GRANT USAGE ON SCHEMA shop TO {roles.writer}")
    attached.sql(f"GRANT ALL ON shop.item TO {roles.writer}")
    with attached.connect(roles.writer) as app:
        app.execute("INSERT INTO shop.item VALUES (3, 'c', 'null')")
        app.execute("UPDATE shop.item SET id = id + 10")
        app.execute("DELETE FROM shop.item WHERE id = 11")
        for statement in (
            "SELECT * FROM headrace.headrace_outbox",
            "SELECT headrace.headrace_wake()",
            "SELECT headrace.headrace_add('f', 'put', 'k', '{}', NULL)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                app.execute(statement.encode())
        with captured(attached) as source:
            source.assert_equal("shop.item")
            app.execute("TRUNCATE shop.item")
            source.assert_equal("shop.item")


def test_function_owner_that_can_not_see_all_rows_is_refused(attached: Database, roles: Roles) -> None:
    attached.sql("CREATE TABLE other (id int PRIMARY KEY)")
    attached.sql(f"GRANT {roles.owner} TO {roles.writer}")
    attached.sql(f"ALTER TABLE other OWNER TO {roles.writer}")
    with captured(attached, roles.writer) as source:
        with pytest.raises(SourceForbidden, match="may not read other"):
            source.attach("other")
        attached.sql(f"GRANT SELECT ON other TO {roles.owner}", roles.writer)
        attached.sql("ALTER TABLE other ENABLE ROW LEVEL SECURITY", roles.writer)
        with pytest.raises(SourceForbidden, match="row-level security"):
            source.attach("other")
        attached.sql("ALTER TABLE other DISABLE ROW LEVEL SECURITY", roles.writer)
        source.attach("other")


def test_agent_that_does_not_own_the_table_says_so(attached: Database, roles: Roles) -> None:
    grant(attached, roles)
    attached.sql("ALTER TABLE shop.item ADD COLUMN size int")
    with captured(attached, roles.agent) as source:
        assert source.mend() == [FindingKind.COLUMN_ADDED]
        alarm = source.live("shop.item").alarm
    assert alarm is not None
    assert "attach again as its owner" in alarm
    with captured(attached, roles.owner) as source:
        source.attach("shop.item")
    with captured(attached, roles.agent) as source:
        assert source.mend() == []
        source.assert_equal("shop.item")


def grant(database: Database, roles: Roles, tables: tuple[str, ...] = ()) -> list[tuple[Party, str, str]]:
    """Grant what is needed; returns each privilege's party, GRANT and REVOKE."""
    with captured(database) as source:
        found = make_grants(
            source.connection, read_tables(source.connection, tables), roles.agent, roles.writer
        )
    for one in found:
        database.sql(one.statement.rstrip(";"))
    return [(one.party, one.statement.rstrip(";"), one.revoked.rstrip(";")) for one in found]


def test_printed_sql_is_what_is_granted(
    attached: Database, roles: Roles, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["publisher", "grants", attached.dsn, "--role", roles.agent, "--application-role", roles.writer]
    assert main(words) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("--")]
    for line in printed:
        attached.sql(line.rstrip(";"))
    assert any('UPDATE ("id")' in line and "item" in line for line in printed)
    with captured(attached, roles.agent) as source:
        assert source.mend() == []
        source.copy()
    assert main([*words, "--json"]) == 0
    capsys.readouterr()
    assert main(["publisher", "grants", "sqlite:///x.db", "--role", "r"]) == 2


def test_application_role_adds_rows(attached: Database, roles: Roles) -> None:
    rights = [one for one in grant(attached, roles) if one[0] is Party.APPLICATION]
    with attached.connect(roles.writer) as app:
        with app.transaction():
            Outbox.add(app, "other", {"a": 1}, key="k")
        for _, given, revoked in rights:
            attached.sql(revoked)
            with pytest.raises(psycopg.errors.InsufficientPrivilege), app.transaction():
                Outbox.add(app, "other", {"a": 1}, key="k")
            attached.sql(given)


def test_agent_needs_each_right(attached: Database, roles: Roles) -> None:
    rights = [one for one in grant(attached, roles) if one[0] is Party.AGENT]
    work = AgentWork(attached, roles.agent)
    work.run()
    needless = []
    for _, given, revoked in chosen(rights, RIGHTS):
        attached.sql(revoked)
        try:
            work.run()
        except (HeadraceError, psycopg.Error, AssertionError) as error:
            told = str(error)
        else:
            told = "denied"
            needless.append(given.partition(" TO ")[0])
        assert re.search("denied|refuses|may not|must be", told), told
        attached.sql(given)
    assert needless == [], needless
    work.run()


@pytest.mark.parametrize("is_attached", [True, False], ids=["attached", "added alone"])
def test_agent_of_an_older_outbox_keeps_what_it_may_not_note(
    attached: Database, roles: Roles, is_attached: bool
) -> None:
    """Where it may not make headrace_added_feed, rows of a feed with tables stay: a snapshot would lack their objects."""
    for _, given, _ in grant(attached, roles):
        attached.sql(given)
    attached.sql("DROP TABLE headrace.headrace_added_feed")
    feed = FEED if is_attached else "added-alone"
    with closing(PostgresSource(find_dsn(attached.dsn_as(roles.agent), None, {}))) as source:
        source.claim(feed, "agent", FeedPlace("incarnation", 1, 1), 0)
        with attached.connect() as app, app.transaction():
            Outbox.add(app, feed, {}, key="k")
        source.advance(feed, "agent", 1, None, 0)
        row = source.batch(feed, "agent")[-1]
        source.advance(feed, "agent", 1, RowPlace(row.id, row.sequence_id), 0)
        source.mend(feed)  # what came since the last check is not swept
        if not is_attached:
            assert source.sweep(feed, 1 << 42) == 1
            return
        with pytest.raises(SourceUnavailable, match="not swept"):
            source.sweep(feed, 1 << 42)
        with attached.connect() as owner:
            Outbox.create(owner)
        assert source.sweep(feed, 1 << 42) > 0
        with pytest.raises(SnapshotUnavailable, match="or had, rows of Outbox"):
            take(
                source,
                state_reader(find_dsn(attached.dsn_as(roles.agent), None, {}), feed, None),
                feed,
                "agent",
            )


class AgentWork:
    """All that an agent asks of the database; each time there is something of everything to do."""

    def __init__(self, database: Database, role: str) -> None:
        self._database = database
        self._role = role
        self._turn = 0

    def run(self) -> None:
        self._turn += 1
        self._prepare()
        source = PostgresSource(find_dsn(self._database.dsn_as(self._role), None, {}))
        try:
            self._work(source)
        finally:
            source.close()

    def _prepare(self) -> None:
        """As if the dump of another cluster had been restored, with an attachment that nobody needs any more."""
        self._database.sql("UPDATE shop.item SET name = name || '!'")
        self._database.sql("UPDATE headrace.headrace_origin SET tx = '3'")
        self._database.sql("DELETE FROM headrace.headrace_added_feed")
        self._database.sql("DELETE FROM headrace.headrace_outbox WHERE key = 'added'")
        self._database.sql(
            "INSERT INTO headrace.headrace_attached "
            "(table_schema, table_name, table_oid, feed, version, spec, state, ended_id) "
            "SELECT 'old', 'old', 0, feed, 1, spec, 'detached', 0 FROM headrace.headrace_attached WHERE state = 'live'"
        )

    def _work(self, source: PostgresSource) -> None:
        source.check_outbox()
        source.schema_version()
        source.mend(FEED)
        source.check([FEED])
        epoch = self._claim(source)
        source.begin_copy(CopyRequest("shop.item"))
        step = source.copy_pending(FEED)
        while step is not None:
            step = source.copy_pending(FEED)
        assert source.copies()[-1].state is CopyState.DONE, source.copies()[-1].detail
        done = None
        while True:
            source.advance(FEED, "agent", epoch, done, 0)
            batch = source.batch(FEED, "agent")
            if not batch:
                break
            done = RowPlace(batch[-1].id, batch[-1].sequence_id)
        self._park(source, epoch)
        source.standing()
        source.holders()
        self._sweep(source, epoch)
        source.has_changed(busy=False)
        source.has_changed(busy=False)

    def _sweep(self, source: PostgresSource, epoch: int) -> None:
        """Post a row of Outbox.add, and sweep all."""
        with self._database.connect() as app, app.transaction():
            Outbox.add(app, FEED, {}, key="added")
        source.advance(FEED, "agent", epoch, None, 0)
        row = source.batch(FEED, "agent")[-1]
        source.advance(FEED, "agent", epoch, RowPlace(row.id, row.sequence_id), 0)
        source.mend(FEED)  # what came since the last check is not swept
        while source.sweep(FEED, 1 << 42):
            pass

    def _park(self, source: PostgresSource, epoch: int) -> None:
        """Park two rows and see to them; take a snapshot."""
        dsn = find_dsn(self._database.dsn_as(self._role), None, {})
        with self._database.connect() as app, app.transaction():
            for _ in range(2):
                app.execute("UPDATE shop.item SET name = name || '?' WHERE id = 1")
        source.advance(FEED, "agent", epoch, None, 0)
        batch = source.batch(FEED, "agent")
        for row in batch[-2:]:
            refused = RefusedRow(row.id, row.sequence_id, row.op, row.key, row.table)
            source.set_alarm(FEED, Alarm("too-large", "", "", 0, row=refused))
            source.skip(FEED, row.id, "a test")
        source.advance(FEED, "agent", epoch, RowPlace(batch[-1].id, batch[-1].sequence_id), 0)
        source.retry_parked(batch[-1].id)
        source.drop_parked(batch[-2].id)
        place, lines = take(source, state_reader(dsn, FEED, None), FEED, "agent", epoch)
        assert len(lines) == 3, place

    def _claim(self, source: PostgresSource) -> int:
        """Find another feed than the last time, have it accepted, and own it."""
        place = FeedPlace(f"incarnation-{self._turn}", 1, self._turn)
        try:
            source.claim(FEED, "agent", place, 0)
        except FeedRecreated as error:
            source.set_alarm(FEED, Alarm(error.code, "", "", 0, place.incarnation, place.next_sequence_id))
            source.accept(FEED, "a test")
            source.claim(FEED, "agent", place, 0)
        return self._turn
