"""Triggers against catalogue: what is found, what is mended without a person, and what is copied again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.errors import Usage
from headrace.publisher.attach.finding import FindingKind
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.postgres.attach import attach
from headrace.publisher.postgres.check import schema_fingerprint
from tests.integration.postgres.captured import FEED, Captured, captured
from tests.postgres import Database

App = psycopg.Connection[TupleRow]


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with database.connect() as connection:
        connection.execute("CREATE TABLE item (id int PRIMARY KEY, name text, secret text)")
        connection.execute("INSERT INTO item VALUES (1, 'a', 's'), (2, 'b', 's')")
        yield connection


@pytest.fixture
def source(app: App, database: Database) -> Iterator[Captured]:
    with captured(database) as found:
        yield found


def new_controls(source: Captured, before: int) -> list[str]:
    return source.controls()[before:]


def test_all_is_right_after_attach_and_again(app: App, source: Captured) -> None:
    source.attach("item")
    assert source.kinds() == []
    assert source.mend() == []
    (again,) = source.attach("item")
    assert (again.new, again.version) == (False, 1)
    assert source.controls() == ["schema", "copy-begin", "copy-end"]
    with pytest.raises(Usage, match=f"feed {FEED}"):
        attach(source.connection, AttachRequest(feed="elsewhere", tables=("item",)))


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE item ADD COLUMN size int",
        "ALTER TABLE item DROP COLUMN name",
        "ALTER TABLE item RENAME name TO title",
        "ALTER TABLE item ALTER name TYPE varchar(9)",
        "ALTER TABLE item ALTER name SET NOT NULL",
        "ALTER TABLE item RENAME TO thing",
        "ALTER TABLE item DISABLE TRIGGER ALL",
        "ALTER TABLE item ENABLE TRIGGER USER",
        'DROP TRIGGER "!headrace_write" ON item',
        "ALTER TABLE item DROP CONSTRAINT item_pkey",
        "ALTER TABLE item SET UNLOGGED",
        "ALTER TABLE item FORCE ROW LEVEL SECURITY",
        "CREATE TABLE child () INHERITS (item)",
        "DROP TABLE item",
    ],
)
def test_fingerprint_tells_of(app: App, source: Captured, statement: str) -> None:
    source.attach("item")
    before = schema_fingerprint(source.connection)
    app.execute("INSERT INTO item VALUES (3, 'c', 's')")
    app.execute("ANALYZE item")
    assert schema_fingerprint(source.connection) == before
    app.execute(statement.encode())
    assert schema_fingerprint(source.connection) != before


def test_new_column_copies_what_was_written_meanwhile(app: App, source: Captured) -> None:
    source.attach("item")
    source.mend()
    app.execute("ALTER TABLE item ADD COLUMN size int")
    app.execute("UPDATE item SET size = 7 WHERE id = 2")
    app.execute("INSERT INTO item VALUES (3, 'c', 's', 8)")
    assert source.kinds() == [FindingKind.COLUMN_ADDED]
    source.skip()
    assert source.mend() == []
    assert source.controls()[3:] == ["schema", "copy-begin", "copy-end"]
    assert [row.values["size"] for row in source.new_rows()] == [7, 8]
    app.execute("UPDATE item SET size = 9 WHERE id = 1")
    assert source.new_rows()[0].values["size"] == 9


@pytest.mark.parametrize("escape", ["\\u0000", "\\ud83d", "\\\\\\u0000", "\\ude00\\ud83d"])
def test_new_column_copies_rows_whose_json_the_database_can_not_decode(
    app: App, source: Captured, escape: str
) -> None:
    """A ``json`` column keeps any escape as it came; taking a member out of such JSON fails on some."""
    app.execute("CREATE TABLE doc (name text PRIMARY KEY, body json)")
    source.attach("doc")
    source.mend()
    app.execute("ALTER TABLE doc ADD COLUMN size int")
    name = r"c:\u0000\ud83d" + chr(1)
    app.execute("INSERT INTO doc VALUES (%s, %s, 7)", (name, f'{{"a": "{escape}"}}'))
    assert source.mend() == []
    source.skip()
    app.execute("UPDATE doc SET size = 8")
    source.assert_equal("doc")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE item ADD COLUMN size int DEFAULT 5",
        "ALTER TABLE item ADD COLUMN size int DEFAULT 5; ALTER TABLE item ALTER size DROP DEFAULT",
        "ALTER TABLE item ADD COLUMN size float8 DEFAULT random(); ALTER TABLE item ALTER size DROP DEFAULT",
        "ALTER TABLE item ADD COLUMN size int GENERATED ALWAYS AS (id * 2) STORED",
        "ALTER TABLE item ADD COLUMN size int GENERATED ALWAYS AS IDENTITY",
        "CREATE DOMAIN five AS int DEFAULT 5; ALTER TABLE item ADD COLUMN size five",
        "ALTER TABLE item RENAME name TO title",
        "ALTER TABLE item DROP COLUMN name",
        "ALTER TABLE item ALTER name TYPE bytea USING name::bytea",
        "ALTER TABLE item ALTER name TYPE json USING to_json(name)",
        "ALTER TABLE item DROP COLUMN name, ADD COLUMN name int",
        "ALTER TABLE item RENAME name TO x; ALTER TABLE item RENAME secret TO name; ALTER TABLE item RENAME x TO secret",
        "ALTER TABLE item DROP CONSTRAINT item_pkey, ALTER id SET NOT NULL, ADD PRIMARY KEY (id)",
    ],
)
def test_change_of_columns_is_mended(app: App, source: Captured, statement: str) -> None:
    source.attach("item", before=True)
    app.execute(statement.encode())
    app.execute("INSERT INTO item (id) VALUES (3)")
    app.execute("UPDATE item SET id = 4 WHERE id = 2")
    assert source.mend() == []
    assert source.kinds() == []
    app.execute("UPDATE item SET id = 5 WHERE id = 1")
    source.assert_equal("item")


def test_many_rows_written_meanwhile_are_copied_in_chunks(app: App, source: Captured) -> None:
    source.attach("item")
    app.execute("ALTER TABLE item ADD COLUMN size int")
    app.execute("INSERT INTO item SELECT n, 'n', 's', n FROM generate_series(10, 3000) AS n")
    assert source.mend() == []
    source.assert_equal("item")


def test_new_column_that_is_not_delivered_makes_no_entry(app: App, source: Captured) -> None:
    source.attach("item", columns=("name",))
    app.execute("ALTER TABLE item ADD COLUMN size int")
    before = len(source.rows())
    assert source.mend() == []
    assert len(source.rows()) == before
    app.execute("UPDATE item SET name = 'z', size = 1 WHERE id = 1")
    assert source.rows()[-1].values == {"id": 1, "name": "z"}


def test_renamed_column_that_was_masked_needs_a_person(app: App, source: Captured) -> None:
    source.attach("item", mask=("secret",))
    app.execute("ALTER TABLE item RENAME COLUMN secret TO hidden")
    app.execute("UPDATE item SET hidden = 'plain'")
    assert source.mend() == [FindingKind.UNSAFE]
    assert all(b"plain" not in row.changes for row in source.rows())
    source.attach("item", mask=("hidden",))
    source.assert_equal("item")


@pytest.mark.parametrize("statement", ["ALTER id TYPE bigint", "DROP COLUMN id"])
def test_key_column_is_changed_only_after_detach(app: App, source: Captured, statement: str) -> None:
    source.attach("item")
    with (
        pytest.raises(psycopg.errors.Error, match="headrace")
        if "DROP" not in statement
        else pytest.raises(psycopg.errors.DependentObjectsStillExist)
    ):
        app.execute(f"ALTER TABLE item {statement}".encode())


@pytest.mark.parametrize("how", ["ALL", "USER", '"!headrace_update"'])
def test_disabled_triggers_are_an_alarm_and_enabled_ones_are_made_good(
    app: App, source: Captured, how: str
) -> None:
    source.attach("item")
    app.execute(f"ALTER TABLE item DISABLE TRIGGER {how}".encode())
    app.execute("UPDATE item SET name = 'unseen'")
    assert source.mend() == [FindingKind.TRIGGER_DISABLED]
    app.execute(
        f"ALTER TABLE item ENABLE ALWAYS TRIGGER {how}".encode()
        if "!" in how
        else f"ALTER TABLE item ENABLE TRIGGER {how}".encode()
    )
    assert source.mend() == []
    assert source.controls()[-4:] == ["schema", "truncate", "copy-begin", "copy-end"]
    source.assert_equal("item")
    assert source.kinds() == []


def test_lost_trigger_is_an_alarm_until_attached_again(app: App, source: Captured) -> None:
    source.attach("item")
    app.execute('DROP TRIGGER "!headrace_write" ON item')
    app.execute("DELETE FROM item WHERE id = 1")
    assert source.mend() == [FindingKind.TRIGGER_MISSING]
    stored = source.live("item").alarm
    assert stored is not None
    assert "trigger-missing" in stored
    source.attach("item")
    source.assert_equal("item")
    assert source.mend() == []
    assert source.live("item").alarm is None


def test_trigger_put_in_the_place_of_ours(app: App, source: Captured) -> None:
    source.attach("item")
    app.execute("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
    app.execute('CREATE OR REPLACE TRIGGER "!headrace_write" AFTER INSERT ON item EXECUTE FUNCTION no()')
    app.execute("DELETE FROM item WHERE id = 1")
    assert FindingKind.TRIGGER_OUTDATED in source.kinds()
    assert source.mend() == []
    source.assert_equal("item")


def test_table_made_anew_begins_anew(app: App, source: Captured) -> None:
    source.attach("item")
    app.execute("DROP TABLE item")
    assert source.mend() == [FindingKind.TABLE_MISSING]
    app.execute("CREATE TABLE item (id int PRIMARY KEY, name text, secret text)")
    app.execute("INSERT INTO item VALUES (2, 'new', 's')")
    assert source.mend() == [FindingKind.TRIGGER_MISSING]
    source.attach("item")
    assert source.controls()[3:] == ["schema", "truncate", "copy-begin", "copy-end"]
    source.assert_equal("item")


@pytest.mark.parametrize("statement", ["RENAME TO thing", "SET SCHEMA away"])
def test_renamed_table_goes_on_under_its_old_name(app: App, source: Captured, statement: str) -> None:
    source.attach("item")
    app.execute("CREATE SCHEMA away")
    app.execute(f"ALTER TABLE item {statement}".encode())
    name = "thing" if "thing" in statement else "away.item"
    app.execute(f"UPDATE {name} SET name = 'z' WHERE id = 1".encode())
    assert source.mend() == [FindingKind.TABLE_RENAMED]
    assert source.rows()[-1].table == ("public", "item")
    source.attach(name)
    assert source.mend() == []
    source.assert_equal(name)


def test_attach_with_other_options_rebuilds(app: App, source: Captured) -> None:
    source.attach("item")
    for options in ({"before": True}, {"mask": ("secret",)}, {"columns": ("name",)}, {"copy": False}, {}):
        source.attach("item", **options)
        assert source.kinds() == []
        app.execute("UPDATE item SET name = name || '!', secret = 't'")
    source.assert_equal("item")


def test_attach_after_detach_empties_the_table_in_the_feed(app: App, source: Captured) -> None:
    app.execute("CREATE TABLE other (id int PRIMARY KEY)")
    source.attach("item", "other")
    (gone,) = source.detach("item")
    assert gone.waiting > 0
    app.execute("DELETE FROM item WHERE id = 1")
    source.attach("item")
    assert source.controls()[-4:] == ["schema", "truncate", "copy-begin", "copy-end"]
    source.assert_equal("item", "other")


def test_detach_leaves_what_the_application_uses(app: App, source: Captured) -> None:
    source.attach("item")
    app.execute("UPDATE headrace.headrace_format SET used_by_application = true")
    source.detach(discard=True)
    assert app.execute("SELECT count(*) FROM headrace.headrace_outbox").fetchone() == (0,)
    app.execute("UPDATE headrace.headrace_format SET used_by_application = false")
    source.detach()
    assert app.execute("SELECT to_regnamespace('headrace')").fetchone() == (None,)


def test_restored_dump_needs_nothing(app: App, source: Captured, database: Database, tmp_path: Path) -> None:
    app.execute("CREATE TABLE part (id int PRIMARY KEY) PARTITION BY LIST (id)")
    app.execute("CREATE TABLE part_1 PARTITION OF part DEFAULT")
    source.attach("item", mask=("secret",))
    source.attach("part")
    dump = tmp_path / "dump"
    database.cluster.pg_dump(database.name, dump)
    name = f"{database.name}_restored"
    database.cluster.create_database(name)
    try:
        database.cluster.sql("CREATE TABLE shifts_the_oids (id int)", name)
        database.cluster.pg_restore(name, dump)
        with captured(Database(database.cluster, name)) as restored:
            assert restored.kinds() == []
            assert restored.mend() == []
            assert restored.kinds() == []
            database.cluster.sql("UPDATE item SET name = 'r'", name)
            database.cluster.sql("INSERT INTO part VALUES (1)", name)
            database.cluster.sql("TRUNCATE part_1", name)
            restored.copy()
            restored.assert_equal("item", "part")
    finally:
        database.cluster.drop_database(name)


TYPE_CHANGES = {
    "an enum's label": "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'",
    "a label in the key": "ALTER TYPE kind RENAME VALUE 'a' TO 'z'",
    "an attribute's name": "ALTER TYPE pair RENAME ATTRIBUTE x TO u",
    "an attribute more": "ALTER TYPE pair ADD ATTRIBUTE z int",
}


@pytest.mark.parametrize("change", TYPE_CHANGES.values(), ids=TYPE_CHANGES)
def test_a_type_that_is_changed_changes_what_rows_look_like(app: App, source: Captured, change: str) -> None:
    """No row is written, and yet all of them read otherwise from then on."""
    app.execute("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE kind AS ENUM ('a', 'b')")
    app.execute("CREATE TYPE pair AS (x int, y int)")
    app.execute(
        "CREATE TABLE diary (kind kind, id int, mood mood, moods mood[], pair pair, PRIMARY KEY (kind, id))"
    )
    app.execute("INSERT INTO diary VALUES ('a', 1, 'ok', '{ok,sad}', '(1,2)'), ('b', 2, 'sad', NULL, NULL)")
    source.attach("diary")
    source.copy()
    before = schema_fingerprint(source.connection)
    app.execute("ALTER TYPE mood ADD VALUE 'glad'")
    assert source.kinds() == []  # one label more changes nothing that is there
    app.execute(change.encode())
    assert schema_fingerprint(source.connection) != before
    assert source.kinds() == [FindingKind.COLUMN_CHANGED]
    assert source.mend() == []
    source.copy()
    source.assert_equal("diary")
