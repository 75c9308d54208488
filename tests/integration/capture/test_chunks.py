"""Chunks of real tables: their order and bounds, what may happen to a table meanwhile, and nobody who waits for them."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from headrace.capture.mariadb.chunks import Chunk, NoChunk, NoChunkReason
from headrace.capture.mariadb.connection import Source, fetch
from headrace.errors import SourceForbidden, SourceUnavailable, TableStopped
from tests.integration.capture.tables_read import chunk_reader, read_chunks, read_rows
from tests.mariadb import Database, Server
from tests.waiting import wait_until

MIB = 1 << 20


@pytest.fixture
def numbers(database: Database) -> Database:
    """``numbers``: id from 1 to 1000."""
    database.sql("CREATE TABLE numbers (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8mb4)")
    database.sql("INSERT INTO numbers SELECT seq, CONCAT('é', seq) FROM seq_1_to_1000")
    return database


def test_chunks_are_the_table_in_the_order_of_its_key(numbers: Database) -> None:
    with closing(chunk_reader(numbers, "numbers", rows_max=300)) as reader:
        chunks = list(read_chunks(reader))
        assert reader.estimate_rows() is not None
    assert [len(chunk.rows) for chunk in chunks] == [300, 300, 300, 100]
    assert [chunk.last_key for chunk in chunks] == [("300",), ("600",), ("900",), ("1000",)]
    assert [chunk.whole for chunk in chunks] == [False, False, False, True]
    assert [row for chunk in chunks for row in chunk.rows] == [(str(i), f"é{i}") for i in range(1, 1001)]


def test_a_chunk_that_ends_with_the_table_is_followed_by_an_empty_one(numbers: Database) -> None:
    with closing(chunk_reader(numbers, "numbers", rows_max=500)) as reader:
        last = reader.read(("500",))
        assert isinstance(last, Chunk)
        assert (last.last_key, last.whole) == (("1000",), False)
        end = reader.read(last.last_key)
        assert isinstance(end, Chunk)
        assert (end.rows, end.last_key, end.whole) == ([], None, True)


def test_columns_that_are_not_chosen_are_not_read(database: Database) -> None:
    database.sql("CREATE TABLE t (a POINT, id INT PRIMARY KEY, b INT, c INT)")
    database.sql("INSERT INTO t VALUES (POINT(1, 2), 1, 2, 3)")
    with pytest.raises(TableStopped, match=r"\.t\.a is of the type geometry"):
        chunk_reader(database, "t")
    assert read_rows(chunk_reader(database, "t", (3,))) == [(None, "1", None, "3")]


def test_a_key_of_several_columns_is_walked_without_gaps(database: Database) -> None:
    """With a text whose collation has equal letters, an enum out of alphabetical order, and a column with an odd name."""
    database.sql(
        "CREATE TABLE t (n INT, kind ENUM('z', 'é', 'a') CHARACTER SET utf8mb4 NOT NULL, "
        "word VARCHAR(20) CHARACTER SET latin1 NOT NULL, `a``b` DATETIME(3) NOT NULL, "
        "UNIQUE KEY handle (kind, word, `a``b`))"
    )
    database.sql(
        "INSERT INTO t SELECT seq, 1 + seq % 3, CONCAT(IF(seq % 2, 'é', 'E'), seq % 5), "
        "'2020-01-01' + INTERVAL seq * 500000 MICROSECOND FROM seq_1_to_500"
    )
    ordered = database.sql("SELECT n FROM t ORDER BY kind, word, `a``b`")
    rows = read_rows(chunk_reader(database, "t", rows_max=7))
    assert [row[0] for row in rows] == [str(n) for (n,) in ordered]
    assert len(rows) == 500


@pytest.mark.parametrize(
    "key",
    [
        "a INT, b INT, PRIMARY KEY (a, b)",
        "a INT NOT NULL, b INT NOT NULL, UNIQUE KEY odd (b, a)",
        "a VARCHAR(20) CHARACTER SET utf8mb4, b DATETIME, PRIMARY KEY (a, b)",
        "a ENUM('3', '2', '1', '0'), b INT, PRIMARY KEY (a, b)",
        "a UUID, b DECIMAL(20, 2), PRIMARY KEY (a, b)",
        "a BINARY(2), b FLOAT, PRIMARY KEY (a, b)",
    ],
)
def test_the_server_reads_a_range_of_the_index_and_sorts_nothing(
    database: Database, source: Source, key: str
) -> None:
    database.sql(f"CREATE TABLE t ({key}, v TEXT)")
    value = "CONCAT('00000000-0000-0000-0000-00000000000', seq % 4)" if "UUID" in key else "seq % 4"
    date = "'2020-01-01' + INTERVAL seq SECOND" if "DATETIME" in key else "seq"
    database.sql(f"INSERT INTO t SELECT {value}, {date}, 'x' FROM seq_1_to_3000 WHERE seq % 4 > 0")
    database.sql("ANALYZE TABLE t")
    with closing(chunk_reader(database, "t", rows_max=100)) as reader:
        chunk = reader.read(None)
        assert isinstance(chunk, Chunk)
        assert chunk.last_key is not None
        query = reader.query(chunk.last_key)
    ((*_, access, _, index, _, _, _, extra),) = fetch(source, f"EXPLAIN {query}")
    assert (access, index) == ("range", "odd" if "odd" in key else "PRIMARY")
    assert "filesort" not in extra


def test_large_rows_end_a_chunk_and_the_rest_is_left_unread(database: Database) -> None:
    """Each row has 8 MiB. The server does not even send the whole table when two of them are wanted."""
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)")
    for number in range(1, 7):
        database.sql(f"INSERT INTO t VALUES ({number}, REPEAT('{number}', {8 * MIB}))")
    database.sql("INSERT INTO t SELECT seq, 'small' FROM seq_7_to_2000")
    with closing(chunk_reader(database, "t", bytes_max=9 * MIB)) as reader:
        before = _bytes_sent(database.server)
        chunks = [reader.read(None)]
        assert _bytes_sent(database.server) - before < 40 * MIB
        assert isinstance(chunks[0], Chunk)
        assert not chunks[0].whole
        assert reader.query(None).endswith("LIMIT 2"), "the next chunk need not be cut"
        chunks += read_chunks(reader, chunks[0].last_key)
    found = [chunk for chunk in chunks if isinstance(chunk, Chunk)]
    assert [len(chunk.rows) for chunk in found[:3]] == [2, 2, 2]
    assert all(chunk.size < 18 * MIB for chunk in found)
    assert [row[0] for chunk in found for row in chunk.rows] == [str(number) for number in range(1, 2001)]
    assert len(found) < 20


def test_writers_wait_for_no_chunk(numbers: Database) -> None:
    """Rows of the table are changed, added and deleted while its metadata lock is held: the snapshot comes behind that."""

    def write() -> None:
        numbers.sql("UPDATE numbers SET v = 'changed' WHERE id = 1000")
        numbers.sql("INSERT INTO numbers VALUES (0, 'new')")
        numbers.sql("DELETE FROM numbers WHERE id = 5")

    rows = read_rows(chunk_reader(numbers, "numbers", before_snapshot=write))
    assert len(rows) == 1000
    assert (rows[0], rows[-1]) == (("0", "new"), ("1000", "changed"))


def test_a_change_of_shape_waits_for_one_chunk_at_most(numbers: Database, mariadb: Server) -> None:
    """It comes while the lock is held. The chunk gives way, the next one sees the new shape, a new reader reads it."""
    altering = threading.Thread(target=numbers.sql, args=("ALTER TABLE numbers ADD COLUMN w INT DEFAULT 3",))

    def alter() -> None:
        altering.start()
        wait_until(lambda: _waits(mariadb, "ALTER TABLE numbers"), what="the ALTER TABLE to wait")

    with closing(chunk_reader(numbers, "numbers", before_snapshot=alter)) as reader:
        assert _reason(reader.read(None)) is NoChunkReason.TABLE_BUSY
        altering.join(30)
        assert not altering.is_alive()
        assert _reason(reader.read(None)) is NoChunkReason.TABLE_CHANGED
    assert read_rows(chunk_reader(numbers, "numbers"))[0] == ("1", "é1", "3")


def test_a_table_that_is_being_changed_is_busy(numbers: Database) -> None:
    with closing(numbers.connect()) as app, closing(chunk_reader(numbers, "numbers")) as reader:
        with app.cursor() as cursor:
            cursor.execute("LOCK TABLES numbers WRITE")
        assert _reason(reader.read(None)) is NoChunkReason.TABLE_BUSY
        with app.cursor() as cursor:
            cursor.execute("UNLOCK TABLES")
        assert isinstance(reader.read(None), Chunk)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("ALTER TABLE numbers CHANGE v w VARCHAR(20) CHARACTER SET utf8mb4", NoChunkReason.TABLE_CHANGED),
        ("ALTER TABLE numbers MODIFY v VARCHAR(20) CHARACTER SET latin1", NoChunkReason.TABLE_CHANGED),
        ("ALTER TABLE numbers MODIFY id BIGINT", NoChunkReason.TABLE_CHANGED),
        ("ALTER TABLE numbers MODIFY v UUID", NoChunkReason.TABLE_CHANGED),
        ("ALTER TABLE numbers DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", NoChunkReason.TABLE_CHANGED),
        ("DROP TABLE numbers", NoChunkReason.TABLE_GONE),
        ("RENAME TABLE numbers TO digits", NoChunkReason.TABLE_GONE),
        ("CREATE OR REPLACE VIEW numbers AS SELECT 1", NoChunkReason.TABLE_GONE),
        ("CREATE OR REPLACE SEQUENCE numbers", NoChunkReason.TABLE_GONE),
    ],
)
def test_a_table_of_another_shape_is_not_read(database: Database, change: str, reason: NoChunkReason) -> None:
    database.sql("CREATE TABLE numbers (id INT PRIMARY KEY, v VARCHAR(20) CHARACTER SET utf8mb4 NOT NULL)")
    with closing(chunk_reader(database, "numbers")) as reader:
        assert isinstance(reader.read(None), Chunk)
        if "REPLACE" in change:
            database.sql("DROP TABLE numbers")
        database.sql(change)
        assert _reason(reader.read(None)) is reason


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE numbers MODIFY v VARCHAR(20) CHARACTER SET utf8mb4 DEFAULT 'x' COMMENT 'no matter'",
        "ALTER TABLE numbers ADD INDEX other (v)",
        "ALTER TABLE numbers MODIFY id INT(5) ZEROFILL",
        "TRUNCATE numbers",
    ],
)
def test_what_does_not_matter_to_rows_is_no_change(numbers: Database, change: str) -> None:
    if "ZEROFILL" in change:
        numbers.sql("ALTER TABLE numbers MODIFY id INT(7) UNSIGNED")
    with closing(chunk_reader(numbers, "numbers")) as reader:
        numbers.sql(change)
        chunk = reader.read(None)
    assert isinstance(chunk, Chunk)
    assert chunk.rows[:1] == ([] if "TRUNCATE" in change else [("1", "é1")])


def test_a_table_without_snapshots_is_refused_unless_that_is_accepted(database: Database) -> None:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY) ENGINE = MyISAM")
    database.sql("INSERT INTO t VALUES (1)")
    with (
        closing(chunk_reader(database, "t")) as reader,
        pytest.raises(TableStopped, match="storage engine MyISAM"),
    ):
        reader.read(None)
    assert read_rows(chunk_reader(database, "t", any_engine=True)) == [("1",)]


def test_text_that_is_none_stops_the_table_by_name(database: Database) -> None:
    """0x98 is no character of cp1251, and the server stores it all the same."""
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET cp1251)")
    database.sql("INSERT INTO t VALUES (1, 'a'), (2, X'98'), (3, 'b')")
    with closing(chunk_reader(database, "t")) as reader:
        with pytest.raises(
            TableStopped, match=r"\.t\.v holds bytes that are no text .* with the key '2'"
        ) as found:
            reader.read(None)
        assert found.value.members == {"database": database.name, "table": "t"}
        assert isinstance(reader.read(("2",)), Chunk)


def test_a_user_without_the_right_to_read_is_refused(numbers: Database) -> None:
    numbers.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    with closing(chunk_reader(numbers, "t")) as reader:
        numbers.server.sql(f"REVOKE ALL ON `{numbers.name}`.* FROM app@`%`")
        with pytest.raises(SourceForbidden):
            reader.read(None)


def test_a_lost_connection_is_opened_again(numbers: Database, mariadb: Server) -> None:
    with closing(chunk_reader(numbers, "numbers")) as reader:
        assert isinstance(reader.read(None), Chunk)
        for (number,) in mariadb.sql(
            f"SELECT id FROM information_schema.processlist WHERE db = '{numbers.name}'"
        ):
            mariadb.sql(f"KILL {number}")
        with pytest.raises(SourceUnavailable):
            reader.read(None)
        assert isinstance(reader.read(None), Chunk)


def _reason(found: Chunk | NoChunk) -> NoChunkReason:
    assert isinstance(found, NoChunk), found
    assert found.detail
    return found.reason


def _bytes_sent(server: Server) -> int:
    ((_, sent),) = server.sql("SHOW GLOBAL STATUS LIKE 'Bytes_sent'")
    return int(sent)


def _waits(server: Server, statement: str) -> bool:
    found = server.sql(
        f"SELECT 1 FROM information_schema.processlist WHERE info LIKE '{statement}%' AND state LIKE '%metadata lock%'"
    )
    return bool(found)
