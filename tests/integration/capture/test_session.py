"""A real MariaDB and sessions of capture, with a feed in memory: what the feed tells is what the source holds."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pymysql
import pytest

from headrace.simple.message import Ddl
from tests.integration.capture.folded_feed import Captured, captured, named
from tests.mariadb import Database
from tests.scale import SEED, scaled, sized


@pytest.fixture
def one(database: Database, tmp_path: Path) -> Iterator[Captured]:
    made = captured(database, tmp_path)
    yield made
    made.close()


def test_rows_that_are_there_come_first_and_changes_follow(database: Database, one: Captured) -> None:
    database.sql("CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), amount DECIMAL(10,2))")
    database.sql("INSERT INTO orders SELECT seq, CONCAT('n', seq), seq / 3 FROM seq_1_to_350")
    database.sql("CREATE TABLE tags (a VARCHAR(10), b INT, PRIMARY KEY (a, b))")
    database.sql("INSERT INTO tags VALUES ('x', 1), ('y', 2)")
    one.run_to_watermark()
    one.check(*named(database, "orders", "tags"))
    assert all(change.copy for change in one.feed.changes() if not change.control)
    for statement in (
        "UPDATE orders SET note = 'new' WHERE id < 40",
        "UPDATE orders SET id = id + 1000 WHERE id = 41",
        "DELETE FROM orders WHERE id BETWEEN 50 AND 60",
        "ALTER TABLE orders ADD COLUMN z INT DEFAULT 5, ADD INDEX (note)",
        "INSERT INTO orders VALUES (50, 'again', 1, 2)",
        "RENAME TABLE tags TO labels",
        "INSERT INTO labels VALUES ('q', 1)",
        "TRUNCATE labels",
        "INSERT INTO labels VALUES ('r', 1)",
        "CREATE TABLE copied (PRIMARY KEY (id)) SELECT * FROM orders",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "INSERT INTO gone VALUES (1)",
        "DROP TABLE gone",
        "CREATE OR REPLACE TABLE labels (n INT PRIMARY KEY)",
        "INSERT INTO labels VALUES (1), (2)",
    ):
        database.sql(statement)
    one.run_to_watermark()
    one.check(*named(database, "orders", "labels", "copied"))
    kinds = [
        message.type for message in one.feed.messages() if message.type not in {"INSERT", "UPDATE", "DELETE"}
    ]
    assert kinds == ["ALTER", "RENAME", "TRUNCATE", "CREATE", "CREATE", "ERASE", "ERASE", "CREATE"]
    assert one.feed.appends[-1].position.stopped == {}


def test_a_default_that_is_no_text_is_no_fault(database: Database, one: Captured) -> None:
    database.sql("CREATE TABLE `é t` (id INT PRIMARY KEY, `é` VARBINARY(4) DEFAULT x'00ff')")
    one.run_to_watermark()
    database.sql("CREATE TABLE later (id INT PRIMARY KEY, v VARBINARY(4) DEFAULT x'ff00')")
    for table in ("`é t`", "later"):
        database.sql(f"INSERT INTO {table} (id) VALUES (1)")
    one.run_to_watermark()
    one.check(*named(database, "é t", "later"))


def test_a_transaction_is_told_whole_and_in_its_order(database: Database, one: Captured) -> None:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    one.run_to_watermark()
    with closing(database.connect()) as app, app.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1, 1)")
        cursor.execute("SAVEPOINT a")
        cursor.execute("INSERT INTO t VALUES (2, 2)")
        cursor.execute("ROLLBACK TO a")
        cursor.execute("UPDATE t SET id = 3 WHERE id = 1")
        app.commit()
        cursor.execute("INSERT INTO t VALUES (4, 4)")
        app.rollback()
    one.run_to_watermark()
    rows = [change for change in one.feed.changes() if not change.control]
    assert [(change.op, change.key, change.tx_index, change.tx_last) for change in rows] == [
        ("put", f'["{database.name}","t","1"]'.encode(), 0, False),
        ("delete", f'["{database.name}","t","1"]'.encode(), 1, False),
        ("put", f'["{database.name}","t","3"]'.encode(), 2, True),
    ]
    assert len({change.source_tx for change in rows}) == 1
    one.check(*named(database, "t"))


def test_what_the_server_could_not_leave_out_of_its_binlog_is_taken_back(
    database: Database, one: Captured
) -> None:
    """A table without transactions makes the server log ROLLBACK and ROLLBACK TO with the rows before them."""
    database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    one.run_to_watermark()
    with closing(database.connect()) as app, app.cursor() as cursor:
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.execute("CREATE TEMPORARY TABLE x (a INT)")
        cursor.execute("DROP TEMPORARY TABLE x")
        app.rollback()
        cursor.execute("INSERT INTO t VALUES (2)")
        app.commit()
    assert b"ROLLBACK" in database.server.binlogs()[-1].read_bytes()
    one.run_to_watermark()
    one.check(*named(database, "t"))


def test_a_table_whose_key_changes_while_it_is_copied_is_copied_anew(
    database: Database, one: Captured
) -> None:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)")
    database.sql("INSERT INTO t SELECT seq, 1000 - seq FROM seq_1_to_500")
    one.run_until(lambda: any(copy.rows == 200 for copy in one.feed.copies()))
    database.sql("DELETE FROM t WHERE id IN (1, 450)")
    database.sql("ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (v, id)")
    database.sql("DELETE FROM t WHERE id IN (2, 451)")
    one.run_to_watermark()
    one.check(*named(database, "t"))
    assert [message.type for message in one.feed.messages() if isinstance(message, Ddl)] == [
        "ALTER",
        "TRUNCATE",
    ]


def test_a_copy_that_is_asked_for_while_a_key_change_is_still_to_come_keeps_rows_apart(
    database: Database, one: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.capture.session.REQUESTS_EVERY_S", 0)
    database.sql("CREATE TABLE t (id INT, v INT, PRIMARY KEY (id, v))")
    database.sql("INSERT INTO t VALUES (1, 1), (1, 2)")
    one.run_to_watermark()
    for statement in (
        "ALTER TABLE t ADD COLUMN x INT",
        "UPDATE t SET v = v + 10",
        "DELETE FROM t WHERE v = 12",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
    ):
        database.sql(statement)
    before = len(one.feed.controls("schema"))
    one.requests.submit(database.name, "t", 1)
    one.run_until(lambda: len(one.feed.controls("copy-begin")) == 2)
    assert len(one.feed.controls("schema")) == before, "the copy began with a schema of its own"
    one.run_until(lambda: len(one.feed.controls("copy-end")) == 2)
    one.run_to_watermark()
    one.check(*named(database, "t"))


def test_a_request_waits_until_it_is_known_what_the_snapshot_copies(
    database: Database, one: Captured
) -> None:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    one.run_to_watermark()
    one.close()
    database.sql("INSERT INTO t VALUES (1)")
    database.sql("CREATE TABLE u (id INT PRIMARY KEY)")
    asked = [one.requests.submit(database.name, table, number) for number, table in enumerate("tu")]
    one.run_until(lambda: len(one.feed.controls("copy-end")) == 3)
    assert [one.requests.take_refusal(request.id) for request in asked] == [None, None]
    one.check(*named(database, "t", "u"))


WRITERS = 3
KEYS = 300


@contextmanager
def writing(database: Database, seed: int, *also: Callable[[threading.Event], None]) -> Iterator[None]:
    """Write to the tables t and u from several connections at once, and whatever ``also`` does, until the end."""
    stop = threading.Event()

    def write(number: int) -> None:
        chance = random.Random(f"{SEED} {seed} {number}")
        with closing(database.connect(charset="utf8mb4")) as app, app.cursor() as cursor:
            cursor.execute("SET innodb_lock_wait_timeout = 1, lock_wait_timeout = 1")
            while not stop.is_set():
                try:
                    for _ in range(chance.choice((1, 2, 5, 40))):
                        cursor.execute(*_change(chance))
                    (app.rollback if chance.random() < 0.1 else app.commit)()
                except pymysql.err.MySQLError:  # a deadlock, a column that was changed meanwhile
                    app.rollback()

    works = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    works += [threading.Thread(target=work, args=(stop,)) for work in also]
    for work in works:
        work.start()
    try:
        yield
    finally:
        stop.set()
        for work in works:
            work.join()


def _change(chance: random.Random) -> tuple[str, tuple[object, ...]]:
    key, text = chance.randrange(KEYS), f"v{chance.random()}"
    word, other = ("".join(chance.choice("aAbB eé") for _ in range(3)).strip() for _ in range(2))
    return chance.choice(
        (
            ("REPLACE INTO t (id, v) VALUES (%s, %s)", (key, text)),
            ("UPDATE t SET v = %s WHERE id = %s", (text, key)),
            ("DELETE FROM t WHERE id = %s", (key,)),
            ("UPDATE IGNORE t SET id = %s WHERE id = %s", (chance.randrange(KEYS), key)),
            ("UPDATE t SET v = CONCAT(LEFT(v, 20), '.') WHERE id BETWEEN %s AND %s", (key, key + 30)),
            ("REPLACE INTO u VALUES (%s, %s, %s)", (word, key % 3, text)),
            ("UPDATE IGNORE u SET a = %s WHERE a = %s", (other, word)),
            ("DELETE FROM u WHERE a = %s", (word,)),
        )
    )


def make_tables(database: Database) -> None:
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.sql(f"INSERT INTO t SELECT seq, CONCAT('v', seq) FROM seq_1_to_{KEYS}")
    database.sql("CREATE TABLE u (a VARCHAR(10), b INT, v VARCHAR(200), PRIMARY KEY (a, b)) CHARSET utf8mb4")
    database.sql("INSERT INTO u SELECT CHAR(65 + seq % 26, 97 + seq % 7), seq, 'c' FROM seq_1_to_200")


def test_nothing_twice_nothing_missing_wherever_it_is_cut(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions are killed at any append, the last ones of which are lost, while others write and copies run."""
    monkeypatch.setattr("headrace.capture.session.APPEND_BYTES_MAX", 4000)
    chance = random.Random(SEED)
    make_tables(database)
    one = captured(database, tmp_path, chunk_rows=30)
    asked = ["t", "u"]
    with writing(database, 5):
        rounds = scaled(sized(8, soak=14))
        for kills in range(rounds):
            session = one.open()
            for _ in range(chance.randrange(1, 40)):
                one.feed.appends += session.step()
            if kills >= min(11, rounds - 3) and asked:
                one.requests.submit(database.name, asked.pop(), kills)
            if lost := chance.randrange(6):
                del one.feed.appends[-lost:]
    one.open()
    one.run_to_watermark()
    one.run_until(lambda: not one.feed.appends[-1].position.copies)
    one.run_to_watermark()
    one.close()
    one.check(*named(database, "t", "u"))
    assert any(append.position.under_way for append in one.feed.appends), "no transaction was cut"


def test_rows_are_never_told_under_another_shape_in_an_alter_storm(
    database: Database, tmp_path: Path
) -> None:
    make_tables(database)
    one = captured(database, tmp_path, chunk_rows=30)

    def alter(stop: threading.Event) -> None:
        chance, number = random.Random(SEED), 0
        with closing(database.connect(autocommit=True)) as app, app.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 1")
            while not stop.is_set():
                number += 1
                for statement in (
                    f"ALTER TABLE t ADD COLUMN c{number} INT {chance.choice(('FIRST', ''))}",
                    f"ALTER TABLE t MODIFY COLUMN v VARCHAR({chance.randrange(200, 300)})",
                    f"ALTER TABLE t DROP COLUMN c{number}",
                ):
                    with suppress(
                        pymysql.err.MySQLError
                    ):  # another one did not get the lock: the column is not there
                        cursor.execute(statement)

    with writing(database, 7, alter):
        for _ in range(scaled(3)):
            session = one.open()
            for _ in range(25):
                one.feed.appends += session.step()
    one.run_to_watermark()
    one.close()
    one.check(*named(database, "t", "u"))
    assert len(one.feed.controls("ddl")) > 5
