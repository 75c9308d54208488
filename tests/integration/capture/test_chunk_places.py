"""A chunk is exactly what the binlog up to its place makes of the table: its values, and its place under writers."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial

import pymysql
from pymysql.constants import ER

from headrace.capture.binlog.event import Place
from headrace.capture.binlog.rows import Row
from headrace.capture.catalogue_schema import catalogue_forms, from_catalogue
from headrace.capture.ddl import TableName
from headrace.capture.mariadb.catalogue import read_table
from headrace.capture.mariadb.chunks import Chunk, RawValues
from headrace.capture.mariadb.connection import Source
from headrace.capture.mariadb.server import current_place
from headrace.capture.position import RawKey
from tests.integration.capture.binlog_files import stored_transactions
from tests.integration.capture.every_type import COLUMNS, CREATE
from tests.integration.capture.tables_read import chunk_reader, read_rows
from tests.mariadb import Database, Server
from tests.scale import SEED, scaled
from tests.waiting import wait_until

WRITERS = 4
CHUNKS = 20
IDS = 300
CHUNK_ROWS = IDS // 4
_VALUES = {
    "n": "0, 1, -1, 18446744073709551615, -9223372036854775808, 3.4028235e38, 1e-45, 0.1, 5e-324, 1e22, 123.456, -0.5, NULL",
    "s": "'', 'a', 'é', 'a \\\\', '<&>', '\t', '  ', '中', '\"', 'NULL', '€', '0', NULL",
    "b": "'', 'a', X'FF', X'00', X'6100', ' ', X'0061', '\\\\', NULL, 'abcdefg', X'C3', '0', 'é'",
    "z": "'', 'a', 'é', REPEAT('a',20), REPEAT(' ',20), NULL, '0'",
    "e": "0, 1, 2, 3, '', 'zz', NULL",
    "t": "'0000-00-00', '2020-00-00', '9999-12-31 23:59:59.999999', '2038-01-19 03:14:07.999999', '1970-01-01 00:00:01', "
    "'-838:59:59.99', '838:59:59.99', '-00:00:00.01', '2020-02-29 12:00:00.5', 0, NULL",
    "m": "'::', '255.255.255.255', '0.0.0.0', 'ffffffff-ffff-ffff-ffff-ffffffffffff', '::ffff:1.2.3.4', '1:0:0:2::', NULL, "
    "'018f9e5a-1ed1-7000-8000-000000000000', '::1.2.3.4', 'fe80::1:0:0:1', '11b72f5a-1ed1-11ef-9fcd-0242ac120002'",
}
"""For each kind of column, what is written into each of its columns in turn; the server makes of it what it will."""


def test_every_value_is_read_as_the_binlog_has_it(database: Database, source: Source) -> None:
    with closing(database.connect(autocommit=True, charset="utf8mb4")) as app, app.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(CREATE)
        cursor.execute("ALTER TABLE every DROP INDEX long_one")
        cursor.execute("INSERT INTO every (id, x_auto) VALUES (0, 1000)")
        for number in range(1, 14):
            values = {name: _value(name, number) for name in COLUMNS if name[0] in _VALUES}
            values["s_json"] = f'\'{{"a": [{number}, "é"]}}\''
            cursor.execute(
                f"INSERT IGNORE INTO every (id, x_auto, {', '.join(values)}) "
                f"VALUES ({number}, {number}, {', '.join(values.values())})"
            )
    found = read_table(source, TableName(database.name, "every"))
    assert found is not None
    schema, forms = from_catalogue(found, 1, 1), catalogue_forms(found)
    shapeless = tuple(place for place, column in enumerate(schema.columns) if column.name.startswith("g_"))
    delivered = [place for place in range(len(schema.columns)) if place not in shapeless]
    rows = read_rows(chunk_reader(database, "every", delivered, rows_max=4))
    by_place = {
        place: forms[column.name] for place, column in enumerate(schema.columns) if column.name in forms
    }
    logged = [
        row for one in stored_transactions(database, "every", by_place, shapeless) for _, row in one.rows
    ]
    assert len(rows) == len(logged) == 14
    for read, written in zip(rows, logged, strict=True):
        assert written is not None
        differing = [
            (column.name, ours, theirs)
            for column, ours, theirs in zip(schema.columns, read, written, strict=True)
            if ours != theirs
        ]
        assert not differing


def test_a_chunk_is_what_the_binlog_up_to_its_place_makes(
    database: Database, mariadb: Server, source: Source
) -> None:
    """Four writers change rows in transactions of several, and the binlog is rotated, while chunks are read."""
    seed = SEED
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT NOT NULL)")
    chunks: list[tuple[RawKey | None, Chunk]] = []
    with writers(database, seed), closing(chunk_reader(database, "t", rows_max=CHUNK_ROWS)) as reader:
        last: RawKey | None = None
        for number in range(scaled(CHUNKS)):
            chunk = reader.read(last)
            assert isinstance(chunk, Chunk), chunk
            chunks.append((last, chunk))
            last = None if chunk.whole else chunk.last_key
            if number % 20 == 10:
                mariadb.rotate()
            wait_until(partial(_beyond, source, chunk.place), what="a writer to commit")
    states = _states(database, "t", {chunk.place for _, chunk in chunks})
    for after, chunk in chunks:
        state = states[chunk.place]
        behind = sorted(int(key) for key in state if after is None or int(key) > int(str(after[0])))
        expected = [state[str(key)] for key in behind]
        assert chunk.rows == (expected if chunk.whole else expected[:CHUNK_ROWS]), f"seed {seed}"
        assert chunk.whole or len(chunk.rows) == CHUNK_ROWS


@contextmanager
def writers(database: Database, seed: int) -> Iterator[None]:
    """Writers of ``t``, until the body ends."""
    ended = threading.Event()

    def write(chance: random.Random) -> None:
        with closing(database.connect(autocommit=False)) as app:
            while not ended.is_set():
                _transaction(app, chance)

    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(write, random.Random(f"{seed} {one}")) for one in range(WRITERS)]
        try:
            yield
        finally:
            ended.set()
        for one in writing:
            one.result()


def _beyond(source: Source, place: Place) -> bool:
    return current_place(source) > place


def _transaction(app: Source, chance: random.Random) -> None:
    try:
        with app.cursor() as cursor:
            for _ in range(chance.randint(1, 4)):
                key, value = chance.randrange(IDS), chance.randrange(1 << 20)
                cursor.execute(
                    chance.choice(
                        (
                            f"REPLACE INTO t VALUES ({key}, {value})",
                            f"INSERT INTO t VALUES ({key}, {value}) ON DUPLICATE KEY UPDATE v = {value}",
                            f"UPDATE t SET v = v + 1 WHERE id BETWEEN {key} AND {key + 5}",
                            f"DELETE FROM t WHERE id = {key}",
                        )
                    )
                )
        if chance.random() < 0.1:
            app.rollback()
        else:
            app.commit()
    except pymysql.err.OperationalError as error:
        if error.args[0] != ER.LOCK_DEADLOCK:
            raise
        app.rollback()


def _states(database: Database, table: str, places: set[Place]) -> dict[Place, dict[str, RawValues]]:
    """The table, key -> row, at each of ``places``, made of the binlog alone."""
    states: dict[Place, dict[str, RawValues]] = {}
    state: dict[str, RawValues] = {}
    for one in stored_transactions(database, table):
        for row in one.rows:
            _apply(state, row)
        if one.place in places:
            states[one.place] = dict(state)
    return states


def _apply(state: dict[str, RawValues], row: Row) -> None:
    before, after = row
    if before is not None:
        del state[str(before[0])]
    if after is not None:
        state[str(after[0])] = after


def _value(name: str, number: int) -> str:
    values = _VALUES[name[0]].split(", ")
    return values[(number + len(name)) % len(values)]
