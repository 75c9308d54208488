"""What stops a capture, or one of its tables, and what does not: real MariaDB, a feed in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.capture.settings import Cascades, InitialSnapshot
from headrace.errors import BinlogUnsupported, PositionPurged, SourceReplaced, SourceUnfit
from tests.integration.capture.folded_feed import Captured, captured, fold, named, rows_at_source
from tests.mariadb import CAPTURE_OPTIONS, Database, Server


@pytest.fixture
def one(database: Database, tmp_path: Path) -> Iterator[Captured]:
    made = captured(database, tmp_path)
    yield made
    made.close()


def test_only_what_can_be_told_is_told_and_the_rest_stops_loudly(database: Database, tmp_path: Path) -> None:
    database.sql("CREATE TABLE parent (id INT PRIMARY KEY)")
    one = captured(database, tmp_path)
    one.run_to_watermark()
    for statement in (
        "CREATE TABLE keyless (id INT)",
        "INSERT INTO keyless VALUES (1)",
        "CREATE TABLE places (id INT PRIMARY KEY, at POINT)",
        "INSERT INTO places VALUES (1, POINT(1, 2))",
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "CREATE TABLE orphan (id INT PRIMARY KEY, p INT)",
        "ALTER TABLE orphan ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL",
        "ALTER TABLE orphan DROP FOREIGN KEY f",
        "CREATE TABLE numbered (id INT PRIMARY KEY)",
        "ALTER TABLE numbered ADD n INT AUTO_INCREMENT UNIQUE",
        "CREATE TABLE plain (id INT PRIMARY KEY) ENGINE = MyISAM",
        "CREATE TABLE years (id INT PRIMARY KEY) PARTITION BY RANGE (id) "
        "(PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (20))",
        "INSERT INTO years VALUES (1), (11)",
        "ALTER TABLE years DROP PARTITION a",
        "CREATE SEQUENCE numbers",
        "SELECT NEXTVAL(numbers)",
        "CREATE VIEW seen AS SELECT * FROM parent",
        "INSERT INTO parent VALUES (1)",
    ):
        database.sql(statement)
    one.run_to_watermark()
    stopped = one.feed.appends[-1].position.stopped
    reasons = {
        "keyless": "nothing tells its rows apart",
        "places": "column at: values of this type are not read",
        "child": "ON DELETE CASCADE",
        "orphan": "a foreign key has ON DELETE SET NULL",
        "numbered": "AUTO_INCREMENT",
        "plain": "MyISAM",
        "years": "DROP PARTITION",
    }
    assert set(stopped) == {f"{database.name}.{table}" for table in reasons}
    for table, words in reasons.items():
        assert words in stopped[f"{database.name}.{table}"]
    assert len(one.feed.controls("stopped")) == len(reasons)
    told = fold(one.feed.changes())
    assert {name.table: len(table.rows) for name, table in told.items()} == {
        **dict.fromkeys(reasons, 0),
        "parent": 1,
        "years": 2,
    }
    one.open()
    database.sql("INSERT INTO years VALUES (12)")
    one.run_to_watermark()
    assert one.feed.appends[-1].position.stopped == stopped
    one.close()


def test_a_stopped_table_goes_on_with_a_copy(database: Database, one: Captured) -> None:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    one.run_to_watermark()
    for statement in (
        "INSERT INTO t VALUES (1), (2)",
        "ALTER TABLE t DROP PRIMARY KEY",
        "DELETE FROM t WHERE id = 1",
        "ALTER TABLE t ADD PRIMARY KEY (id)",
        "INSERT INTO t VALUES (3)",
    ):
        database.sql(statement)
        one.run_to_watermark()
    assert list(one.feed.appends[-1].position.stopped) == [f"{database.name}.t"]
    one.requests.submit(database.name, "t", 1)
    one.run_until(lambda: len(one.feed.controls("copy-end")) == 2)
    database.sql("INSERT INTO t VALUES (4)")
    one.run_to_watermark()
    assert one.feed.appends[-1].position.stopped == {}
    one.check(*named(database, "t"))


def test_columns_are_left_out_and_masked_in_snapshot_and_stream_alike(
    database: Database, tmp_path: Path
) -> None:
    database.sql(
        "CREATE TABLE people (id INT PRIMARY KEY, mail VARCHAR(50), word VARCHAR(50), at POINT, n INT)"
    )
    database.sql("INSERT INTO people VALUES (1, 'a@b', 'secret', POINT(1, 2), 7)")
    one = captured(
        database, tmp_path, mask=("*.people.mail",), exclude_columns=("*.people.word", "*.people.at")
    )
    one.run_to_watermark()
    database.sql("UPDATE people SET n = 8, word = 'other', mail = 'c@d'")
    one.run_to_watermark()
    one.close()
    messages = [message for message in one.feed.messages() if message.type in {"INSERT", "UPDATE"}]
    assert [getattr(message, "data", None) for message in messages] == [
        {"id": "1", "mail": "***", "n": "7"},
        {"id": "1", "mail": "***", "n": "8"},
    ]
    assert b"secret" not in b"".join(change.value for change in one.feed.changes())


@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (
            ("XA START 'x'", "INSERT INTO t VALUES (9)", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"),
            "XA transaction",
        ),
        (("SET SESSION binlog_format = STATEMENT", "INSERT INTO t VALUES (9)"), "logged without them"),
        (("SET SESSION binlog_row_image = MINIMAL", "UPDATE t SET v = 2"), "not all columns"),
    ],
    ids=["xa", "statement", "minimal"],
)
def test_what_no_row_tells_of_stops_the_capture(
    database: Database, one: Captured, statements: tuple[str, ...], words: str
) -> None:
    columns = "id INT PRIMARY KEY, v INT" if words == "not all columns" else "id INT PRIMARY KEY"
    database.sql(f"CREATE TABLE t ({columns})")
    database.sql("INSERT INTO t (id) VALUES (1)")
    one.run_to_watermark()
    with database.server.connect_as_root() as root, root.cursor() as cursor:
        cursor.execute(f"USE {database.name}")
        for statement in statements:
            cursor.execute(statement)
    with pytest.raises(BinlogUnsupported, match=words):
        one.run_to_watermark()
    database.sql("DROP TABLE t")


def test_statements_that_are_met_late_never_mislabel_a_row(database: Database, one: Captured) -> None:
    """Everything below is done before capture sees any of it: the catalogue has only what came of it."""
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    database.sql("INSERT INTO t VALUES (1, 'a')")
    one.run_to_watermark()
    for statement in (
        "UPDATE t SET v = 'b'",
        "ALTER TABLE t ADD COLUMN n INT FIRST",
        "INSERT INTO t VALUES (7, 2, 'c')",
        "ALTER TABLE t DROP COLUMN v, MODIFY COLUMN n BIGINT UNSIGNED",
        "INSERT INTO t VALUES (18446744073709551615, 3)",
        "CREATE TABLE t_new LIKE t",
        "ALTER TABLE t_new ADD COLUMN e ENUM('x', 'y') DEFAULT 'x', ADD UNIQUE KEY (e, n)",
        "INSERT INTO t_new (n, id) SELECT n, id FROM t",
        "RENAME TABLE t TO t_old, t_new TO t",
        "INSERT INTO t VALUES (5, 5, 'y')",
        "DROP TABLE t_old",
    ):
        database.sql(statement)
    one.run_to_watermark()
    one.check(*named(database, "t"))
    told = fold(one.feed.changes())
    (table,) = told.values()
    assert [index.name for index in table.schema.indexes] == ["PRIMARY", "e"]
    assert table.schema.columns[2].default == "x"


def test_a_table_that_comes_into_the_capture_by_its_new_name_is_copied(
    database: Database, tmp_path: Path
) -> None:
    database.sql("CREATE TABLE draft (id INT PRIMARY KEY)")
    database.sql("INSERT INTO draft VALUES (1), (2)")
    one = captured(database, tmp_path, tables=(f"{database.name}.*", f"!{database.name}.draft"))
    one.run_to_watermark()
    assert fold(one.feed.changes()) == {}
    database.sql("RENAME TABLE draft TO final")
    database.sql("INSERT INTO final VALUES (3)")
    one.run_to_watermark()
    one.close()
    one.check(*named(database, "final"))


def test_a_table_that_came_in_anothers_place_is_copied_wherever_it_is_cut(
    database: Database, tmp_path: Path
) -> None:
    one = captured(database, tmp_path, tables=(f"{database.name}.*", f"!{database.name}._*"), chunk_rows=2)
    database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    database.sql("INSERT INTO t VALUES (1), (2)")
    one.run_to_watermark()
    for statement in (
        "CREATE TABLE _t_new (id INT PRIMARY KEY, v INT DEFAULT 7)",
        "INSERT INTO _t_new (id) VALUES (2), (3), (4), (5)",
        "RENAME TABLE t TO _t_old, _t_new TO t",
        "INSERT INTO t VALUES (6, 6)",
    ):
        database.sql(statement)
    one.run_to_watermark()
    appends = one.feed.appends
    for count in range(1, len(appends)):
        one.close()
        one.feed.appends = appends[:count]
        one.run_to_watermark()
        (name,) = named(database, "t")
        assert one.feed.tables()[name].rows == rows_at_source(one.dsn, name)
    one.close()


@pytest.mark.parametrize("snapshot", [InitialSnapshot.WHEN_NEW, InitialSnapshot.NEVER])
def test_a_table_that_was_left_out_for_a_while_begins_anew(
    database: Database, tmp_path: Path, snapshot: InitialSnapshot
) -> None:
    for table in "abc":
        database.sql(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        database.sql(f"INSERT INTO {table} VALUES (1), (2)")
    wide = captured(database, tmp_path)
    wide.run_to_watermark()
    wide.close()
    narrow = captured(database, tmp_path, tables=(f"{database.name}.a",))
    narrow.feed = wide.feed
    narrow.run_to_watermark()
    for statement in ("INSERT INTO b VALUES (3)", "DELETE FROM b WHERE id = 1", "DROP TABLE c"):
        database.sql(statement)
    narrow.run_to_watermark()
    narrow.open()
    narrow.run_to_watermark()
    narrow.close()
    assert [change.table[1] for change in wide.feed.controls("stopped")] == ["b", "c"]
    again = captured(database, tmp_path, initial_snapshot=snapshot)
    again.feed = wide.feed
    again.run_to_watermark()
    database.sql("INSERT INTO b VALUES (4)")
    again.run_to_watermark()
    again.close()
    if snapshot is InitialSnapshot.NEVER:
        tables = again.feed.tables()
        assert {name.table: list(table.rows) for name, table in tables.items()} == {
            "a": [("1",), ("2",)],
            "b": [("4",)],
        }
    else:
        again.check(*named(database, "a", "b"))
    assert again.feed.appends[-1].position.left_out == ()


def test_without_a_snapshot_the_feed_begins_with_the_changes(database: Database, tmp_path: Path) -> None:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    database.sql("INSERT INTO t VALUES (1)")
    one = captured(database, tmp_path, initial_snapshot=InitialSnapshot.NEVER)
    one.run_to_watermark()
    database.sql("INSERT INTO t VALUES (2)")
    one.run_to_watermark()
    one.close()
    (table,) = fold(one.feed.changes()).values()
    assert list(table.rows) == [("2",)]


def test_a_gap_that_is_accepted_stops_nothing(database: Database, tmp_path: Path) -> None:
    database.sql("CREATE TABLE parent (id INT PRIMARY KEY)")
    database.sql(
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)"
    )
    refusing = captured(database, tmp_path)
    with pytest.raises(SourceUnfit, match="ON DELETE CASCADE"):
        refusing.open()
    one = captured(database, tmp_path, cascades=Cascades.ACCEPT)
    one.run_to_watermark()
    database.sql("ALTER TABLE child ADD q INT REFERENCES parent (id) ON DELETE SET NULL")
    one.run_to_watermark()
    one.close()
    one.check(*named(database, "parent", "child"))
    refusing.feed = one.feed
    refusing.run_to_watermark()
    refusing.close()
    assert list(one.feed.appends[-1].position.stopped) == [f"{database.name}.child"]


def test_a_binlog_that_was_dropped_or_begun_anew_is_an_error_of_its_own(tmp_path: Path) -> None:
    with Server(*CAPTURE_OPTIONS) as mariadb:
        database = mariadb.create_captured("shop")
        database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        one = captured(database, tmp_path)
        one.run_to_watermark()
        one.close()
        database.sql("INSERT INTO t VALUES (1)")
        mariadb.rotate()
        database.sql("INSERT INTO t VALUES (2)")
        mariadb.purge()
        with pytest.raises(PositionPurged, match="no longer has") as purged:
            one.run_to_watermark()
        assert "new snapshot" in purged.value.advice
        mariadb.sql("RESET MASTER")
        with pytest.raises(SourceReplaced):
            one.open()
