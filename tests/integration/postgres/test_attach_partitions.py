"""Partitioned tables: changes carry the root's name, and what happens to a partition as a whole is not lost."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow

from headrace.errors import AttachUnsafe
from headrace.publisher.attach.finding import FindingKind
from headrace.publisher.postgres.check import schema_fingerprint
from tests.integration.postgres.captured import Captured, captured
from tests.postgres import Database

App = psycopg.Connection[TupleRow]


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    with database.connect() as connection:
        connection.execute(
            """
            CREATE TABLE event_2 (id int NOT NULL, gone int, note text, day int NOT NULL);
            CREATE TABLE event (day int, id int, note text, PRIMARY KEY (day, id)) PARTITION BY RANGE (day);
            CREATE TABLE event_1 PARTITION OF event FOR VALUES FROM (0) TO (10);
            ALTER TABLE event_2 DROP COLUMN gone;
            ALTER TABLE event ATTACH PARTITION event_2 FOR VALUES FROM (10) TO (20);
            CREATE TABLE event_3 PARTITION OF event FOR VALUES FROM (20) TO (30) PARTITION BY LIST (id);
            CREATE TABLE event_3_1 PARTITION OF event_3 FOR VALUES IN (1);
            CREATE TABLE event_3_x PARTITION OF event_3 DEFAULT;
            INSERT INTO event SELECT day, id, 'n' FROM generate_series(0, 29, 5) AS day, generate_series(1, 2) AS id;
            """
        )
        yield connection


@pytest.fixture
def source(app: App, database: Database) -> Iterator[Captured]:
    with captured(database) as found:
        yield found


def test_changes_carry_the_root_name_and_rows_may_move(app: App, source: Captured) -> None:
    source.attach("event", before=True)
    source.skip()
    app.execute("UPDATE event SET note = 'a' WHERE id = 1")
    app.execute("UPDATE event SET day = 12 WHERE day = 0 AND id = 1")
    app.execute("UPDATE event SET id = 7 WHERE day >= 20 AND id = 1 AND day = 20")
    app.execute("DELETE FROM event_2 WHERE id = 2")
    app.execute("INSERT INTO event_1 VALUES (3, 3, 'direct')")
    rows = source.new_rows()
    assert {row.table for row in rows} == {("public", "event")}
    assert rows[-1].changes == b'{"day":3,"id":3,"note":"direct"}'
    source.assert_equal("event")
    app.execute("SET session_replication_role = replica")
    app.execute("UPDATE event SET note = 'replica'")
    source.assert_equal("event")


def test_truncate_of_the_root_of_one_and_of_a_middle_one(app: App, source: Captured) -> None:
    source.attach("event")
    for statement in ("TRUNCATE event_1", "TRUNCATE event_3", "TRUNCATE ONLY event_2", "TRUNCATE event"):
        with app.transaction():
            app.execute(statement.encode())
            app.execute("INSERT INTO event VALUES (1, 1, 'later'), (11, 1, 'later') ON CONFLICT DO NOTHING")
        source.copy()
        assert source.controls()[-1] == "copy-end"
        source.assert_equal("event")
    assert source.kinds() == []


def test_truncate_while_others_write_elsewhere(app: App, source: Captured, database: Database) -> None:
    source.attach("event")
    with database.connect(autocommit=False) as other:
        other.execute("INSERT INTO event VALUES (11, 9, 'open')")
        app.execute("TRUNCATE event_1")
        other.commit()
    source.copy()
    source.assert_equal("event")


def test_new_partition_is_captured_at_once_and_watched_later(app: App, source: Captured) -> None:
    source.attach("event")
    before = schema_fingerprint(source.connection)
    app.execute("CREATE TABLE event_4 PARTITION OF event FOR VALUES FROM (30) TO (40)")
    app.execute("INSERT INTO event VALUES (30, 1, 'new')")
    app.execute("SET session_replication_role = replica")
    app.execute("INSERT INTO event VALUES (30, 2, 'new')")
    assert schema_fingerprint(source.connection) != before
    assert source.kinds() == [FindingKind.PARTITION_ADDED]
    source.assert_equal("event")
    controls = len(source.controls())
    assert source.mend() == []
    assert source.controls()[controls:] == ["copy-begin", "copy-end"]
    assert source.kinds() == []
    app.execute("TRUNCATE event_4")
    source.copy()
    source.assert_equal("event")


def test_attached_partition_brings_its_rows(app: App, source: Captured) -> None:
    source.attach("event")
    app.execute("CREATE TABLE event_4 (LIKE event)")
    app.execute("INSERT INTO event_4 VALUES (30, 1, 'old')")
    app.execute("ALTER TABLE event ATTACH PARTITION event_4 FOR VALUES FROM (30) TO (40)")
    app.execute("UPDATE event SET note = 'b' WHERE id = 2")
    assert source.mend() == []
    assert "truncate" not in source.controls()
    source.assert_equal("event")


def test_partition_truncated_before_it_was_seen(app: App, source: Captured) -> None:
    source.attach("event")
    app.execute("CREATE TABLE event_4 PARTITION OF event FOR VALUES FROM (30) TO (40)")
    app.execute("INSERT INTO event VALUES (30, 1, 'new')")
    app.execute("TRUNCATE event_4")
    assert source.mend() == []
    source.assert_equal("event")


@pytest.mark.parametrize(
    "statement",
    ["DROP TABLE event_2", "ALTER TABLE event DETACH PARTITION event_2", "DROP TABLE event_3"],
    ids=["dropped", "detached", "dropped-with-its-own"],
)
def test_partition_that_goes_takes_its_rows(app: App, source: Captured, statement: str) -> None:
    source.attach("event")
    app.execute(statement.encode())
    assert source.kinds() == [FindingKind.PARTITION_GONE]
    assert source.mend() == []
    source.assert_equal("event")
    if "DETACH" in statement:
        app.execute("INSERT INTO event_2 (day, id) VALUES (11, 11)")
        app.execute("TRUNCATE event_2")
        assert source.connection.execute(
            "SELECT count(*) FROM pg_trigger WHERE tgrelid = 'event_2'::regclass AND tgname LIKE '!%%'"
        ).fetchone() == (0,)
    source.assert_equal("event")


def test_clone_that_is_not_always_enabled_is_mended(app: App, source: Captured) -> None:
    source.attach("event")
    app.execute("ALTER TABLE event_1 DISABLE TRIGGER USER")
    app.execute("DELETE FROM event WHERE day < 5")
    assert source.kinds() == [FindingKind.TRIGGER_DISABLED]
    assert source.mend() == [FindingKind.TRIGGER_DISABLED]
    app.execute("ALTER TABLE event_1 ENABLE TRIGGER USER")
    assert source.mend() == []
    source.assert_equal("event")
    assert source.kinds() == []


def test_partition_by_itself_and_its_root_exclude_each_other(app: App, source: Captured) -> None:
    source.attach("event_2")
    app.execute("UPDATE event SET day = 0, id = id + 50 WHERE day = 10 AND id = 1")
    source.assert_equal("event_2")
    with pytest.raises(AttachUnsafe, match="event_2"):
        source.attach("event")
    source.detach(discard=True)
    source.attach("event")
    with pytest.raises(AttachUnsafe, match="event"):
        source.attach("event_3_1")


def test_detach_takes_every_trigger(app: App, source: Captured) -> None:
    source.attach("event", mask=("note",))
    source.detach(discard=True)
    assert app.execute("SELECT count(*) FROM pg_trigger WHERE tgname LIKE '!%'").fetchone() == (0,)
    assert app.execute("SELECT to_regnamespace('headrace')").fetchone() == (None,)


def test_columns_of_a_partitioned_table_change(app: App, source: Captured) -> None:
    source.attach("event")
    app.execute("ALTER TABLE event ADD COLUMN size int")
    app.execute("UPDATE event SET size = 3 WHERE id = 2")
    assert source.mend() == []
    source.assert_equal("event")
    app.execute("ALTER TABLE event RENAME note TO remark")
    app.execute("ALTER TABLE event ALTER size TYPE text")
    assert source.mend() == []
    source.assert_equal("event")
    source.skip()
    app.execute("UPDATE event SET remark = 'after', size = 'x'")
    app.execute("UPDATE event SET id = id + 100")
    assert {row.values["size"] for row in source.new_rows()} == {"x"}
    source.assert_equal("event")
