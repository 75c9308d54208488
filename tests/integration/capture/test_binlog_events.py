"""What a real server writes into its binlog under settings and statements that change its form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.capture.binlog.event import (
    AlterPhase,
    Begin,
    Commit,
    Event,
    Format,
    RowsChanged,
    RowsKind,
    Statement,
    XaPrepared,
)
from headrace.capture.binlog.kinds import EventKind
from headrace.capture.binlog.rows import RowDecoder
from headrace.errors import BinlogUnsupported, TableStopped
from tests.binlog import charsets_of, read_events, read_rows, split_events, table_maps
from tests.mariadb import CAPTURE_OPTIONS, Database, Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of this module's own, since its variables are changed."""
    with Server(*CAPTURE_OPTIONS, "--log-bin-compress-min-len=20") as running:
        yield running


@pytest.fixture(scope="module")
def shop(server: Server) -> Database:
    return server.create_database("shop")


def run(server: Server, *statements: str) -> list[Event]:
    """What the statements, one session's, leave in a binlog file of their own."""
    file = server.rotate()
    with server.connect_as_root() as root, root.cursor() as cursor:
        cursor.execute("USE shop")
        for statement in statements:
            cursor.execute(statement)
    server.rotate()
    return read_events(file, charsets_of(server))


def begins(events: list[Event]) -> list[Begin]:
    return [event for event in events if isinstance(event, Begin)]


def test_compressed_events_hold_the_same(server: Server, shop: Database) -> None:
    text = "x" * 100
    statements = (
        "CREATE TABLE zipped (a int PRIMARY KEY, b varchar(100)) COMMENT '" + text + "'",
        "INSERT INTO zipped VALUES " + ",".join(f"({number}, '{text}')" for number in range(1000)),
        "UPDATE zipped SET b = 'new' WHERE a < 2",
        "DELETE FROM zipped WHERE a > 989",
        "DROP TABLE zipped",
    )
    plain = run(server, *statements)
    server.sql("SET GLOBAL log_bin_compress = ON")
    zipped = run(server, *statements)
    server.sql("SET GLOBAL log_bin_compress = OFF")
    kinds = {raw[4] for raw in split_events(server.binlogs()[-2].read_bytes())}
    assert kinds >= {
        EventKind.QUERY_COMPRESSED,
        EventKind.WRITE_ROWS_COMPRESSED_V1,
        EventKind.UPDATE_ROWS_COMPRESSED_V1,
        EventKind.DELETE_ROWS_COMPRESSED_V1,
    }
    assert read_rows(zipped, "zipped") == read_rows(plain, "zipped")
    assert len(read_rows(zipped, "zipped")) == 1012
    told = [[event.sql for event in events if isinstance(event, Statement)] for events in (plain, zipped)]
    assert told[0] == told[1]
    assert told[0][0] == statements[0]


def test_a_server_without_checksums(server: Server, shop: Database) -> None:
    server.sql("SET GLOBAL binlog_checksum = NONE")
    events = run(server, "CREATE TABLE bare (a int PRIMARY KEY)", "INSERT INTO bare VALUES (1)")
    server.sql("SET GLOBAL binlog_checksum = CRC32")
    assert [event.checksums for event in events if isinstance(event, Format)] == [False]
    assert read_rows(events, "bare") == [(None, ("1",))]


def test_transactions_statements_and_ddl(server: Server, shop: Database) -> None:
    events = run(
        server,
        "CREATE TABLE plain (a int PRIMARY KEY, b int AS (a * 2) VIRTUAL, c int AS (a + 1) STORED)",
        "BEGIN",
        "INSERT INTO plain (a) VALUES (1), (2)",
        "UPDATE plain SET a = 3 WHERE a = 1",
        "DELETE FROM plain WHERE a = 2",
        "COMMIT",
        "SET binlog_alter_two_phase = ON",
        "ALTER TABLE plain ADD d int",
    )
    create, transaction, start, commit = begins(events)
    assert (create.standalone, create.ddl) == (True, True)
    assert (transaction.standalone, transaction.ddl, transaction.alter) == (False, False, None)
    assert (start.alter, commit.alter) == (AlterPhase.START, AlterPhase.COMMIT)
    assert [begin.gtid.sequence - create.gtid.sequence for begin in begins(events)] == [0, 1, 2, 3]
    assert len([event for event in events if isinstance(event, Commit)]) == 1
    kinds = [event.kind for event in events if isinstance(event, RowsChanged)]
    assert kinds == [RowsKind.INSERT, RowsKind.UPDATE, RowsKind.DELETE]
    assert read_rows(events, "plain") == [
        (None, ("1", "2", "2")),
        (None, ("2", "4", "3")),
        (("1", "2", "2"), ("3", "6", "4")),
        (("2", "4", "3"), None),
    ]
    assert table_maps(events)["plain"].primary_key == (0,)


def test_parts_of_xa_transactions_are_marked(server: Server, shop: Database) -> None:
    server.sql("CREATE TABLE shop.apart (a int PRIMARY KEY)")
    rows = "INSERT INTO apart VALUES ({})"
    events = run(
        server,
        *("XA START 'a'", rows.format(1), "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'"),
        *("XA START 'b'", rows.format(2), "XA END 'b'", "XA COMMIT 'b' ONE PHASE"),
    )
    assert [begin.xa for begin in begins(events)] == [True, True, False]
    assert [event.one_phase for event in events if isinstance(event, XaPrepared)] == [False]


def test_rows_without_all_columns_are_refused(server: Server, shop: Database) -> None:
    server.sql("CREATE TABLE shop.narrow (a int PRIMARY KEY, b int, c int)")
    events = run(
        server,
        "SET binlog_row_image = MINIMAL",
        "INSERT INTO narrow VALUES (1, 2, 3)",
        "UPDATE narrow SET b = 5",
    )
    with pytest.raises(
        BinlogUnsupported, match=r"rows of shop\.narrow before offset [0-9]+ have not all columns"
    ):
        read_rows(events, "narrow")


def test_a_binlog_without_names_is_refused(server: Server, shop: Database) -> None:
    server.sql("CREATE TABLE shop.nameless (a int PRIMARY KEY)")
    server.sql("SET GLOBAL binlog_row_metadata = MINIMAL")
    with pytest.raises(BinlogUnsupported, match=r"does not name the columns of shop\.nameless"):
        run(server, "INSERT INTO nameless VALUES (1)")
    server.sql("SET GLOBAL binlog_row_metadata = FULL")


def test_times_of_the_old_form_stop_their_table(server: Server, shop: Database) -> None:
    server.sql("SET GLOBAL mysql56_temporal_format = OFF")
    events = run(
        server, "CREATE TABLE old (a int PRIMARY KEY, b datetime(3))", "INSERT INTO old VALUES (1, NOW(3))"
    )
    server.sql("SET GLOBAL mysql56_temporal_format = ON")
    with pytest.raises(TableStopped, match=r"shop\.old, column b: .* ALTER TABLE \.\.\. FORCE"):
        RowDecoder(table_maps(events)["old"])
    events = run(server, "ALTER TABLE old FORCE", "UPDATE old SET b = '2020-02-20 02:20:20.5'")
    [(_, after)] = read_rows(events, "old")
    assert after == ("1", "2020-02-20 02:20:20.500")


def test_text_that_no_character_set_has_stops_its_table(server: Server, shop: Database) -> None:
    server.sql(
        "CREATE TABLE shop.odd (a int PRIMARY KEY, b varchar(5) CHARACTER SET tis620, c varchar(5) CHARACTER SET dec8)"
    )
    events = run(server, "INSERT INTO odd VALUES (1, x'db', 'x')")
    with pytest.raises(
        TableStopped, match=r"shop\.odd, column c: text with the character set 'dec8' is not read"
    ):
        read_rows(events, "odd")
    decoder = RowDecoder(table_maps(events)["odd"], skip={2})
    [rows] = [event for event in events if isinstance(event, RowsChanged)]
    with pytest.raises(
        TableStopped, match=r"shop\.odd, column b: a value in rows of shop\.odd before offset"
    ):
        decoder.rows(rows)


def test_a_geometry_column_counts_among_those_with_a_character_set(server: Server, shop: Database) -> None:
    events = run(
        server,
        "CREATE TABLE spots (a int PRIMARY KEY, g point, b varchar(9) CHARACTER SET latin1, c text CHARACTER SET utf8mb4)",
        "INSERT INTO spots VALUES (1, POINT(1, 2), 'é', 'é')",
    )
    columns = table_maps(events)["spots"].columns
    assert [(column.charset, column.geometry) for column in columns] == [
        ("", None),
        ("", 1),
        ("latin1", None),
        ("utf8mb4", None),
    ]
