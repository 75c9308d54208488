"""A table changed by many statements, captured, and kept by the steps for Spark tables: it is what the source has."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.ddl import TableName
from headrace.capture.mariadb.catalogue import read_table
from headrace.capture.mariadb.connection import connect
from headrace.pipeline.tables.simple.spark_types import arrow_type, reader
from headrace.runtime.dsn import parse_dsn
from headrace.wire.arrays import array_of
from tests.integration.capture.folded_feed import Captured, captured, rows_at_source
from tests.mariadb import Database
from tests.scale import SEED
from tests.unit.pipeline.tables.simple.steps_folded import Entry, Table, Tables, numbered

CREATE = """CREATE TABLE t (
    id INT PRIMARY KEY, tiny TINYINT, small SMALLINT UNSIGNED, medium MEDIUMINT, whole INT, big BIGINT UNSIGNED,
    exact DECIMAL(8,3), single FLOAT, twice DOUBLE, bits BIT(10), y YEAR,
    word VARCHAR(20) CHARACTER SET utf8mb4, note TEXT CHARACTER SET latin1, fixed CHAR(5),
    raw VARBINARY(9), padded BINARY(4), blob_ BLOB,
    e ENUM('a','b','c'), s SET('x','yy','z'), doc JSON,
    d DATE, dt DATETIME(3), ts TIMESTAMP(6) NULL, t TIME(2))"""

ALTERS = (
    "ADD COLUMN plain INT",
    "ADD COLUMN n1 INT NOT NULL, ADD COLUMN n2 DECIMAL(6,2) NOT NULL, ADD COLUMN n3 VARCHAR(5) NOT NULL",
    "ADD COLUMN n4 BINARY(3) NOT NULL, ADD n5 ENUM('q','r') NOT NULL, ADD n6 SET('q','r') NOT NULL, ADD n7 TIME NOT NULL",
    "ADD (f1 INT DEFAULT -5, f2 BIGINT UNSIGNED DEFAULT 18446744073709551615, f3 DECIMAL(5,2) DEFAULT 1.5)",
    "ADD f4 FLOAT DEFAULT 0.1, ADD f5 DOUBLE DEFAULT 1e-3, ADD f6 BIT(9) DEFAULT b'101', ADD f7 YEAR DEFAULT 2020",
    "ADD f8 VARCHAR(20) DEFAULT 'it''s \\\\ a\\nline' FIRST, ADD f9 TEXT DEFAULT ('x'), ADD f10 CHAR(3) DEFAULT 7",
    "ADD f11 VARBINARY(5) DEFAULT x'000a', ADD f12 BINARY(4) DEFAULT 'ab', ADD f13 ENUM('k','l') DEFAULT 'l'",
    "ADD f14 SET('k','l','m') DEFAULT 'm,k', ADD f15 DATE DEFAULT '2020-02-20', ADD f16 DATETIME(2) DEFAULT '2020-02-20'",
    "ADD f17 TIMESTAMP NULL DEFAULT '2020-01-02 03:04:05', ADD f18 TIME(1) DEFAULT '12:00:00.5', ADD f19 BOOL DEFAULT TRUE",
    "MODIFY tiny SMALLINT, MODIFY small INT, MODIFY medium BIGINT, MODIFY whole BIGINT UNSIGNED",
    "MODIFY whole INT",
    "RENAME COLUMN tiny TO small, RENAME COLUMN small TO tiny",
    "DROP COLUMN f1, ADD COLUMN f1 VARCHAR(9) DEFAULT 'other'",
    "CHANGE exact exact2 DECIMAL(20,6), CHANGE single single2 DOUBLE",
    "RENAME COLUMN exact2 TO EXACT2",
    "MODIFY medium DECIMAL(24,2), MODIFY tiny DECIMAL(12,1)",
    "MODIFY whole VARCHAR(30), MODIFY bits INT",
    "MODIFY word VARCHAR(200) CHARACTER SET latin1, MODIFY note MEDIUMTEXT, MODIFY fixed VARCHAR(9)",
    "MODIFY padded BINARY(7), MODIFY raw BLOB",
    "MODIFY e ENUM('x','c','a','b'), MODIFY s SET('z','x','w','yy')",
    "MODIFY d DATETIME, MODIFY dt DATETIME(6), MODIFY ts TIMESTAMP(3) NULL, MODIFY t TIME(6)",
    "MODIFY ts TIMESTAMP(6) NULL",
    "MODIFY e VARCHAR(10), MODIFY y INT",
    "DROP PRIMARY KEY, ADD PRIMARY KEY (f8, id)",
    "ADD INDEX (whole), COMMENT 'x'",
    "CONVERT TO CHARACTER SET utf8mb4",
    "DROP COLUMN IF EXISTS nothing, ADD COLUMN IF NOT EXISTS e INT, MODIFY COLUMN IF EXISTS nothing INT",
    "ADD COLUMN short_lived INT NOT NULL DEFAULT 3",
    "CHANGE short_lived longer BIGINT",
    "DROP COLUMN longer",
    "DROP COLUMN n1, DROP n2, DROP n3, DROP COLUMN n4",
)
"""Each changes the table that those before it left; the table's rows fit."""

SOME: dict[str, str] = {
    "medium": "-99",
    "whole": "12",
    "big": "18446744073709551615",
    "exact": "-1.250",
    "single": "0.1",
    "twice": "2.5e-7",
    "bits": "b'1000000001'",
    "y": "1999",
    "word": "'né'",
    "note": "'ü'",
    "fixed": "'ab'",
    "raw": "x'00ff01'",
    "padded": "'z'",
    "blob_": "x'ff'",
    "e": "'b'",
    "s": "'x,z'",
    "doc": """'{"a": [1, 2.50]}'""",
    "d": "'2024-02-29'",
    "dt": "'2024-02-29 01:02:03.400'",
    "ts": "'2024-02-29 01:02:03.000'",
    "t": "'-123:04:05.60'",
}


def write(database: Database, chance: random.Random, first: int) -> None:
    """New rows, changed rows and deleted ones, under whatever columns the table has now."""
    with database.connect(autocommit=True) as app, app.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        asked = (
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = 't'"
        )
        cursor.execute(asked, (database.name,))
        names = [str(row[0]) for row in cursor.fetchall()]
        chosen = [name for name in SOME if name in names and chance.random() < 0.6]
        columns = ", ".join(["id", *chosen])
        values = ", ".join(SOME[name] for name in chosen)
        for number in range(first, first + 4):
            cursor.execute(
                f"INSERT INTO t ({columns}) VALUES ({', '.join([str(number), values] if values else [str(number)])})"
            )
        cursor.execute(f"UPDATE t SET twice = {chance.random():.5f} WHERE id % 7 = {chance.randrange(7)}")
        cursor.execute(f"UPDATE t SET id = id + 10000 WHERE id = {chance.randrange(first + 4)}")
        cursor.execute(f"DELETE FROM t WHERE id = {chance.randrange(first + 4)}")


def entries_of(work: Captured) -> list[Entry]:
    return [Entry(at, change) for at, change in enumerate(work.feed.changes(), start=1)]


def folded(work: Captured, chance: random.Random) -> Tables:
    """The feed, taken in batches of random sizes."""
    tables, left = Tables(), entries_of(work)
    while left:
        size = chance.choice([1, 2, 7, 40, 10_000])
        tables.take(left[:size])
        left = left[size:]
    return tables


def at_source(database: Database, table: Table, name: TableName) -> list[dict[str, Any]]:
    """The rows at the source, as the columns of ``table`` hold them."""
    connection = connect(parse_dsn(database.dsn))
    catalogue = read_table(connection, name)
    connection.close()
    assert catalogue is not None
    kinds = {column.name: column.kind for column in table.columns}
    types = {column.name: column.data_type for column in from_catalogue(catalogue, 1, 1).columns}
    assert kinds.keys() == types.keys()
    rows = list(rows_at_source(database.dsn, name).values())
    columns = {}
    for column, kind in kinds.items():
        read = reader(types[column], kind)
        cells = [None if row[column] is None else read(row[column]) for row in rows]
        columns[column] = array_of(cells, arrow_type(kind))
    return numbered(pa.record_batch(columns)) if rows else []


def differences(kept: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[str]:
    """Where rows with the same id differ: kept, then at the source."""
    ours, theirs = ({row["id"]: row for row in rows} for rows in (kept, found))
    odd = [f"{number}: only on one side" for number in ours.keys() ^ theirs.keys()]
    for number in ours.keys() & theirs.keys():
        row = theirs[number]
        odd += [
            f"{number}.{name}: {ours[number][name]!r} {row[name]!r}"
            for name in row
            if ours[number][name] != row[name]
        ]
    return odd


@pytest.mark.parametrize("late", [False, True], ids=["in-time", "late"])
def test_the_steps_keep_what_the_source_has(database: Database, tmp_path: Path, late: bool) -> None:
    chance = random.Random(f"{SEED} {late}")
    work = captured(database, tmp_path)
    database.sql(CREATE)
    database.sql("INSERT INTO t (id) VALUES (0)")
    try:
        work.run_to_watermark()
        for number, alter in enumerate(ALTERS):
            write(database, chance, 100 + number * 10)
            database.sql(f"ALTER TABLE t {alter}")
            if not late and number % 4 == 0:
                work.run_to_watermark()
        if not late:  # read late, no schema would be left that tells defaults in the session's time zone
            database.sql("RENAME TABLE t TO moved")
            database.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR(3))")
            database.sql("INSERT INTO t VALUES (1, 'new')")
        work.run_to_watermark()
    finally:
        work.close()
    tables = folded(work, chance)
    assert tables.stopped() == {}
    for name, table in tables.named().items():
        assert table.rows
        found = at_source(database, table, TableName(*name))
        assert differences(table.rows, found) == [], name
    assert {name[1] for name in tables.named()} == ({"t"} if late else {"t", "moved"})
