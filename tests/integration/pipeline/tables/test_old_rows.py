"""Rows that are there when a column is added or changed: what MariaDB makes of them, or the table stops with a reason."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import pytest
from pyspark.sql import SparkSession

from headrace.capture.mariadb.connection import Source, connect
from headrace.runtime.dsn import parse_dsn
from tests.integration.pipeline.tables.old_rows import Altered, Statement, a_statement, differences
from tests.mariadb import CAPTURE_OPTIONS, Database, Server
from tests.scale import scaled

SEED = 3
STATEMENTS = 40
AT_ONCE = 100
QUICK: Final = ("--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0")
"""What is lost with the machine does not matter here."""

LAX, STRICT = "", "STRICT_ALL_TABLES"

FOLLOWED: Final = (
    Statement("ADD {c} CHAR(5) DEFAULT 'ab   '"),
    Statement("ADD {c} VARCHAR(5) DEFAULT 'ab   '"),
    Statement("ADD {c} BIT(8) DEFAULT '5'"),
    Statement("ADD {c} BIT(8) DEFAULT b''"),
    Statement("ADD {c} VARCHAR(5) DEFAULT b''"),
    Statement("ADD {c} YEAR DEFAULT '0000'"),
    Statement("ADD {c} FLOAT(7,2) DEFAULT 1.25"),
    Statement("ADD {c} VARCHAR(5) DEFAULT _latin1'x'"),
    Statement("ADD {c} VARBINARY(5) DEFAULT 'y'", charset="ucs2"),
    Statement("ADD {c} VARCHAR(5) CHARACTER SET utf8mb4 DEFAULT 'я'"),
    Statement("MODIFY {c} SET('z','x')", "SET('x','z')", ("NULL", "''", "'x,z'")),
    Statement("MODIFY {c} INT AUTO_INCREMENT UNIQUE", "INT", ("1", "-2")),
    Statement(
        "MODIFY {c} VARCHAR(9) CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET utf8mb4", ("'é€'", "'x'")
    ),
    Statement("MODIFY {c} VARCHAR(9) CHARACTER SET utf8mb4", "VARCHAR(9) CHARACTER SET gbk", ("'中'",)),
    Statement("MODIFY {c} VARCHAR(9)", "VARCHAR(9) CHARACTER SET utf8mb3", ("'я'",), charset="utf8mb4"),
    Statement("MODIFY {c} DATETIME", "DATE", ("'0000-00-00'", "'2020-01-02'")),
    Statement("CONVERT TO CHARACTER SET utf8mb4", "ENUM('y','x')", ("'y'", "'x'")),
    Statement("CONVERT TO CHARACTER SET utf8mb4", "UUID", ("'00112233-4455-6677-8899-aabbccddeeff'",)),
    Statement("CONVERT TO CHARACTER SET utf8mb4", "CHAR(36) CHARACTER SET ascii", ("'x'",)),
    Statement("DROP PRIMARY KEY, ADD PRIMARY KEY ({c})", "INT", ("1", "2")),
    Statement("MODIFY {c} DOUBLE(9,2)", "FLOAT", ("0.25", "100.5")),
)
"""Rows follow, in the mode that is the least strict."""

STOPPED: Final = (
    Statement("ADD {c} FLOAT(7,2) DEFAULT 1.239"),
    Statement("ADD {c} VARCHAR(5) DEFAULT _latin1'é'", charset="utf8mb4"),
    Statement("ADD {c} JSON DEFAULT _ucs2'ab'"),
    Statement("ADD {c} TEXT CHARACTER SET binary DEFAULT 'y'", charset="ucs2"),
    Statement("ADD {c} YEAR DEFAULT '0'"),
    Statement("ADD {c} ENUM('中') CHARACTER SET koi8r NOT NULL"),
    Statement("ADD {c} UUID NOT NULL"),
    Statement("MODIFY {c} INT AUTO_INCREMENT UNIQUE", "INT", ("0", "7")),
    Statement("MODIFY {c} INT AUTO_INCREMENT UNIQUE", "INT", ("NULL", "7")),
    Statement("MODIFY {c} VARCHAR(9) CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET utf8mb4", ("'я'",)),
    Statement("MODIFY {c} VARCHAR(9) CHARACTER SET utf8mb3", "VARCHAR(9) CHARACTER SET utf8mb4", ("'😀'",)),
    Statement("MODIFY {c} VARCHAR(9)", "VARCHAR(9) CHARACTER SET utf8mb4", ("'я'",)),
    Statement("MODIFY {c} VARCHAR(2)", "VARCHAR(9)", ("'abc'",), late=True),
    Statement("MODIFY {c} DECIMAL(20,1) UNSIGNED", "VARCHAR(9)", ("'-7.5'",)),
    Statement("MODIFY {c} DATETIME", "DATE", ("'2020-00-10'",), mode="NO_ZERO_IN_DATE"),
    Statement("MODIFY {c} DOUBLE(9,2)", "FLOAT", ("0.1",)),
    Statement("MODIFY {c} FLOAT(5,2)", "FLOAT", ("5000",)),
    Statement("CONVERT TO CHARACTER SET utf8mb4", "ENUM('é','x')", ("'é'", "'x'")),
    Statement("CONVERT TO CHARACTER SET latin1", "ENUM('я','x') CHARACTER SET utf8mb4", ("'я'",)),
    Statement("CONVERT TO CHARACTER SET latin1", "VARCHAR(9) CHARACTER SET utf8mb4", ("'я'",)),
    Statement("DROP PRIMARY KEY, ADD PRIMARY KEY ({c})", "INT", ("NULL",)),
)
"""What became of rows, or may have, is not told: all of these were once followed, to other rows than the source has."""


@pytest.fixture(scope="module")
def quick() -> Iterator[Database]:
    """A database of a server that does not wait for the disk."""
    with Server(*CAPTURE_OPTIONS, *QUICK) as running:
        yield running.create_captured("altered")


@pytest.fixture(scope="module")
def session(quick: Database) -> Iterator[Source]:
    """A session of capture's."""
    opened = connect(parse_dsn(quick.dsn))
    yield opened
    opened.close()


def test_rows_are_what_the_source_has_or_the_table_stops(
    spark: SparkSession, quick: Database, session: Source
) -> None:
    altered, chance = Altered(quick, session), random.Random(SEED)
    with quick.connect(autocommit=True, charset="utf8mb4") as app:
        known = [(one, one in STOPPED, altered.run(app, one)) for one in (*FOLLOWED, *STOPPED)]
        for _ in range(scaled(STATEMENTS)):
            altered.run(app, a_statement(chance))
    cases = [case for case in altered.cases if case.ways]
    odd: list[str] = []
    for first in range(0, len(cases), AT_ONCE):
        odd += differences(spark, cases[first : first + AT_ONCE])
    assert odd == [], f"seed {SEED}"
    assert [one for one, _, case in known if case is None] == [], "the server refused it"
    wrong = [(one.clause, case.stopped) for one, stops, case in known if case and bool(case.stopped) != stops]
    assert wrong == []
    generated = altered.cases[len(known) :]
    followed = [case for case in generated if case.ways and not case.stopped]
    assert len(followed) * 4 > len(generated), "hardly anything was followed"
