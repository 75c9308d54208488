"""What statements do to columns and to the rows that are there."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.pipeline.tables.simple.steps import Evolve, Stop
from headrace.simple.schema import DataType, TableSchema
from tests.unit.pipeline.tables.simple.history import (
    BIGINT,
    BYTES,
    DATE,
    EXACT,
    INT,
    LATE_MS,
    MOMENT,
    MS,
    POINT,
    STAMP,
    TEXT,
    UNSIGNED,
    WORD,
    labels,
    schema_of,
    versioned,
)
from tests.unit.pipeline.tables.simple.played import Played, T, kinds, rows


def test_names_come_from_the_statement_not_from_schemas() -> None:
    played = Played({"id": INT, "a": INT, "b": INT}, {"id": 1, "a": 5, "b": 6})
    played.feed.alter(
        "RENAME COLUMN a TO b, RENAME COLUMN b TO a", schema_of({"id": INT, "b": INT, "a": INT}, version=2)
    )
    (step,) = played.take()
    assert isinstance(step, Evolve)
    assert step.in_place
    assert len(step.renames) == 3
    assert rows(played.tables) == [{"id": 1, "b": 5, "a": 6}]
    played.feed.alter("DROP a, ADD a INT", schema_of({"id": INT, "b": INT, "a": INT}, version=3))
    played.take()
    assert rows(played.tables) == [{"id": 1, "b": 5, "a": None}]


def test_a_schema_that_was_read_late_adds_nothing_of_later_statements() -> None:
    played = Played()
    last = schema_of({"id": INT, "c": WORD, "d": INT}, version=2, key=("d",))
    played.feed.alter("ADD c INT NOT NULL DEFAULT 4", last)
    played.take()
    assert rows(played.tables) == [{"id": 1, "a": 5, "c": 4}]
    between = schema_of({"id": INT, "a": INT, "c": INT}, version=3)
    played.feed.schema(between)
    played.feed.row(between, {"id": 2, "a": 6, "c": 7})
    played.feed.alter("DROP c, ADD c VARCHAR(20), CHANGE a d INT", last)
    played.feed.schema(last)
    played.feed.row(last, {"id": 3, "c": "x", "d": 8})
    played.take()
    assert rows(played.tables) == [
        {"id": 1, "d": 5, "c": None},
        {"id": 2, "d": 6, "c": None},
        {"id": 3, "d": 8, "c": "x"},
    ]


def test_what_comes_and_goes_between_two_rows_leaves_no_step() -> None:
    played = Played()
    played.feed.alter("ADD c INT NOT NULL DEFAULT 4", schema_of({"id": INT, "a": INT}, version=2))
    played.feed.alter("RENAME COLUMN c TO d", schema_of({"id": INT, "a": INT}, version=3))
    played.feed.alter("DROP d", schema_of({"id": INT, "a": INT}, version=4))
    assert played.take() == []


@pytest.mark.parametrize(
    ("definition", "value"),
    [
        ("INT", None),
        ("INT NOT NULL", 0),
        ("INT DEFAULT -5", -5),
        ("INT DEFAULT NULL", None),
        ("BIGINT UNSIGNED DEFAULT 18446744073709551615", Decimal(18446744073709551615)),
        ("DECIMAL(6,2) DEFAULT 1.5", Decimal("1.50")),
        ("DECIMAL(6,2) NOT NULL", Decimal("0.00")),
        ("FLOAT DEFAULT 0.1", 0.10000000149011612),
        ("DOUBLE DEFAULT '1e-3'", 0.001),
        ("BIT(9) DEFAULT b'101'", 5),
        ("YEAR DEFAULT 2020", 2020),
        ("VARCHAR(9) NOT NULL", ""),
        ("VARCHAR(9) DEFAULT 'it''s'", "it's"),
        ("VARCHAR(9) DEFAULT 7", "7"),
        ("VARBINARY(9) DEFAULT x'00ff'", b"\x00\xff"),
        ("BINARY(4) DEFAULT 'ab'", b"ab\0\0"),
        ("BINARY(3) NOT NULL", b"\0\0\0"),
        ("ENUM('x','y') NOT NULL", "x"),
        ("ENUM('x','y') DEFAULT 'y'", "y"),
        ("SET('x','y','z') DEFAULT 'z,x'", "x,z"),
        ("TIME DEFAULT '-12:00:00'", "-12:00:00"),
        ("TIME NOT NULL", "00:00:00"),
        ("DATE DEFAULT '1970-01-03'", 2),
        ("DATETIME DEFAULT '1970-01-01 00:00:01'", 1_000_000),
        ("DATETIME DEFAULT '1970-01-02'", 86_400_000_000),
        ("TIMESTAMP NULL", None),
        ("DATE NOT NULL", -10_000_000),
        ("CHAR(5) DEFAULT 'ab   '", "ab"),
        ("VARCHAR(5) DEFAULT 'ab   '", "ab   "),
        ("VARCHAR(5) CHARACTER SET utf8mb4 DEFAULT '😀'", "😀"),
        ("VARCHAR(5) CHARACTER SET latin1 DEFAULT 'é€'", "é€"),
        ("VARCHAR(5) CHARACTER SET latin1 DEFAULT x'41'", "A"),
        ("VARCHAR(5) CHARACTER SET latin1 DEFAULT b''", ""),
        ("VARCHAR(5) DEFAULT _utf8mb4'x'", "x"),
        ("BIT(8) DEFAULT '5'", 53),
        ("BIT(8) DEFAULT b''", 0),
        ("YEAR DEFAULT '0000'", 0),
        ("FLOAT(7,2) DEFAULT 1.25", 1.25),
        ("DATE DEFAULT DATE'1970-01-03'", 2),
    ],
)  # fmt: skip
def test_what_old_rows_have_in_a_new_column(definition: str, value: Any) -> None:
    played = Played()
    played.feed.alter(f"ADD c {definition}", played.was)
    (step,) = played.take()
    assert isinstance(step, Evolve)
    assert step.in_place == (value is None)
    assert rows(played.tables) == [{"id": 1, "a": 5, "c": value}]


def test_the_statements_time_is_the_sources() -> None:
    played = Played()
    columns = {"id": INT, "a": INT, "c": STAMP}
    shown = schema_of(columns, version=2, required=("c",), defaults={"c": "CURRENT_TIMESTAMP"})
    played.feed.alter("ADD c TIMESTAMP NOT NULL DEFAULT NOW()", shown)
    played.feed.alter("ADD d TIMESTAMP", versioned_stamp(shown))
    played.take()
    at = (MS + 2000 - LATE_MS) * 1000
    assert rows(played.tables) == [{"id": 1, "a": 5, "c": at, "d": at + 1_000_000}]


def test_fractions_of_the_statements_time_are_not_told() -> None:
    played = Played()
    finer = replace(STAMP, decimal=3)
    shown = schema_of({"id": INT, "a": INT, "c": finer}, version=2, defaults={"c": "CURRENT_TIMESTAMP"})
    played.feed.alter("ADD c TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP(3)", shown)
    played.take()
    (stop,) = played.tables.stops.values()
    assert "whole seconds" in stop.reason


def versioned_stamp(before: TableSchema) -> TableSchema:
    """Where TIMESTAMP alone means NOT NULL DEFAULT CURRENT_TIMESTAMP, the schema says so."""
    columns = {one.name: one.data_type for one in before.columns} | {"d": STAMP}
    return schema_of(columns, version=3, required=("c", "d"), defaults={"d": "CURRENT_TIMESTAMP"})


def test_a_default_in_the_sessions_zone_is_told_by_the_schema_in_utc() -> None:
    played = Played()
    shown = schema_of({"id": INT, "a": INT, "c": STAMP}, version=2, defaults={"c": "2020-01-02 01:04:05"})
    played.feed.alter("ADD c TIMESTAMP NULL DEFAULT '2020-01-02 03:04:05'", shown)
    played.take()
    at = datetime(2020, 1, 2, 1, 4, 5, tzinfo=UTC).timestamp() * 1_000_000
    assert rows(played.tables) == [{"id": 1, "a": 5, "c": at}]


@pytest.mark.parametrize(
    ("clauses", "reason"),
    [
        ("ADD c INT AS (a + 1)", "generated"),
        ("ADD c INT AUTO_INCREMENT UNIQUE", "AUTO_INCREMENT"),
        ("ADD c INT DEFAULT (a + 1)", "expression"),
        ("ADD c DATETIME DEFAULT NOW()", "time zone"),
        ("ADD c TIMESTAMP NULL DEFAULT '2020-01-02 03:04:05'", "time zone"),
        ("ADD c TIMESTAMP", "settings"),
        ("ADD c INT DEFAULT 1.5", "1.5"),
        ("ADD c INT DEFAULT '1_0'", "1_0"),
        ("ADD c INT DEFAULT ' 5'", "' 5'"),
        ("ADD c INT UNSIGNED DEFAULT -1", "-1"),
        ("ADD c FLOAT(7,2) DEFAULT 1.239", "1.239"),
        ("ADD c DOUBLE(9,0) DEFAULT 0.5", "0.5"),
        ("ADD c FLOAT DEFAULT 1e39", "1e39"),
        ("ADD c FLOAT UNSIGNED DEFAULT -0.5", "-0.5"),
        ("ADD c DECIMAL(5,2) UNSIGNED DEFAULT -0.5", "-0.5"),
        ("ADD c BIT(8) DEFAULT '55'", "'55'"),
        ("ADD c YEAR DEFAULT '0'", "'0'"),
        ("ADD c YEAR DEFAULT 2156", "2156"),
        ("ADD c VARCHAR(9) DEFAULT 'é'", "'é'"),
        ("ADD c VARCHAR(9) CHARACTER SET latin1 DEFAULT 'я'", "'я'"),
        ("ADD c VARCHAR(9) CHARACTER SET utf8mb3 DEFAULT '😀'", "'😀'"),
        ("ADD c VARCHAR(2) DEFAULT 'ab  '", "'ab  '"),
        ("ADD c TINYTEXT DEFAULT '" + "x" * 80 + "'", "xx"),
        ("ADD c TEXT(9) DEFAULT '" + "x" * 80 + "'", "xx"),
        ("ADD c VARCHAR(9) CHARACTER SET ucs2 DEFAULT x'0041'", "'0041'"),
        ("ADD c VARCHAR(9) DEFAULT x'41'", "'41'"),
        ("ADD c VARCHAR(9) DEFAULT _latin1'é'", "expression"),
        ("ADD c VARCHAR(9) DEFAULT _ucs2'ab'", "expression"),
        ("ADD c VARCHAR(9) DEFAULT TIME'1:2:3'", "expression"),
        ("ADD c VARBINARY(1) DEFAULT 'ab'", "'ab'"),
        ("ADD c BLOB DEFAULT 'y'", "'y'"),
        ("ADD c UUID NOT NULL", "UUID"),
        ("ADD c INET6 DEFAULT '::1'", "'::1'"),
        ("ADD c ENUM('я')", "no letters for 'я'"),
        ("ADD c ENUM('a') DEFAULT 'A'", "'A'"),
        ("ADD c SOMETHING", "type is not known"),
        ("DROP x", "column x, which the table does not have"),
        ("MODIFY a INT AS (id + 1) STORED", "generated"),
        ("MODIFY a TIMESTAMP", "what its values are as timestamp"),
        ("MODIFY a SOMETHING", "type is not known"),
        ("ADD _headrace_key INT", "may not be named"),
        ("CONVERT TO CHARACTER SET binary", "character sets"),
        ("ADD c", "can't be read"),
    ],
)
def test_what_can_not_be_followed_stops_the_table(clauses: str, reason: str) -> None:
    played = Played()
    played.feed.alter("ADD before_it INT", played.was)
    at = played.feed.alter(clauses, played.was)
    *_, evolve, stop = played.take()
    assert isinstance(stop, Stop)
    assert reason in stop.reason
    assert clauses in stop.reason
    assert "headrace capture copy shop.t" in stop.hint
    assert (stop.place, played.reason()) == (at, stop.reason)
    assert isinstance(evolve, Evolve)
    assert [one.name for one in evolve.adds] == ["before_it"]


@pytest.mark.parametrize("columns", [{"id": INT}, {"id": INT, "a": INT, "odd": INT}, {"id": INT, "a": BYTES}])
def test_a_version_that_no_statement_explains_stops_the_table(columns: dict[str, DataType]) -> None:
    played = Played()
    odd = schema_of(columns, version=2)
    played.feed.schema(odd)
    at = played.feed.row(odd, {"id": 2})
    (stop,) = played.take()
    assert isinstance(stop, Stop)
    assert stop.place == at


def test_types_are_sure_from_the_first_row_of_a_version() -> None:
    played = Played()
    wide = schema_of({"id": INT, "a": BIGINT}, version=2)
    played.feed.schema(wide)
    played.feed.row(wide, {"id": 2, "a": 1 << 40})
    evolve, merged = played.take()
    assert isinstance(evolve, Evolve)
    assert [(one.name, one.kind) for one in evolve.widenings] == [("a", "bigint")]
    assert evolve.place < merged.place
    assert rows(played.tables) == [{"id": 1, "a": 5}, {"id": 2, "a": 1 << 40}]


def test_a_narrower_type_keeps_the_wide_column_and_looks_at_its_values() -> None:
    played = Played({"id": INT, "a": UNSIGNED}, {"id": 1, "a": 5})
    now = schema_of({"id": INT, "a": INT}, version=2)
    played.feed.alter("MODIFY a INT", now)
    played.feed.row(now, {"id": 2, "a": -1})
    evolve, _ = played.take()
    assert isinstance(evolve, Evolve)
    assert evolve.before == evolve.after
    assert [check.column for check in evolve.checks] == ["a"]
    assert "BETWEEN -2147483648 AND 2147483647" in evolve.checks[0].sql
    assert rows(played.tables) == [{"id": 1, "a": Decimal(5)}, {"id": 2, "a": Decimal(-1)}]


@pytest.mark.parametrize(
    ("clauses", "sql"),
    [
        ("MODIFY a INT AUTO_INCREMENT", "<> 0"),
        ("MODIFY a INT AUTO_INCREMENT", "`a` IS NOT NULL"),
        ("DROP PRIMARY KEY, ADD CONSTRAINT p PRIMARY KEY USING BTREE (`A` DESC)", "`a` IS NOT NULL"),
        ("MODIFY a INT PRIMARY KEY", "`a` IS NOT NULL"),
        ("MODIFY w VARCHAR(20) CHARACTER SET latin1", "RLIKE '[^"),
        ("MODIFY w VARCHAR(9) CHARACTER SET utf8mb4", "char_length(`w`) <= 9"),
        ("CONVERT TO CHARACTER SET utf8mb3", "\\x{FFFF}"),
        ("CONVERT TO CHARACTER SET DEFAULT", "\\x{7F}"),
    ],
)
def test_what_the_source_may_have_changed_is_looked_for(clauses: str, sql: str) -> None:
    """The schema is that of a later statement, which took it all back."""
    played = Played({"id": INT, "a": INT, "w": WORD}, {"id": 1, "a": 5, "w": "x"})
    played.feed.alter(clauses, versioned(played.was, version=2))
    (step,) = played.take()
    assert isinstance(step, Evolve)
    assert any(sql in check.sql for check in step.checks), step.checks


def test_a_wider_character_set_changes_nothing() -> None:
    played = Played({"id": INT, "w": WORD}, {"id": 1, "w": "x"})
    played.feed.alter(
        "MODIFY w VARCHAR(20) CHARACTER SET utf16, CONVERT TO CHARACTER SET utf8mb4", played.was
    )
    assert played.take() == []


def test_null_that_nobody_allows_any_more_is_looked_for() -> None:
    """No statement says NOT NULL: a server's setting may, of a TIMESTAMP."""
    played = Played({"id": INT, "t": STAMP}, {"id": 1, "t": None})
    now = schema_of({"id": INT, "t": STAMP}, version=2, required=("t",))
    played.feed.schema(now)
    played.feed.row(now, {"id": 2, "t": datetime(2020, 1, 1, tzinfo=UTC)})
    evolve, _ = played.take()
    assert isinstance(evolve, Evolve)
    assert ["IS NOT NULL" in check.sql for check in evolve.checks] == [True]


def test_labels_stay_labels() -> None:
    played = Played({"id": INT, "e": labels("a", "b")}, {"id": 1, "e": "b"})
    now = schema_of({"id": INT, "e": labels("x", "b", "a")}, version=2)
    played.feed.alter("MODIFY e ENUM('x','b','a')", now)
    played.feed.row(now, {"id": 2, "e": "x"})
    played.take()
    assert rows(played.tables) == [{"id": 1, "e": "b"}, {"id": 2, "e": "x"}]


def test_labels_of_a_later_statement_do_not_count() -> None:
    played = Played()
    later = schema_of({"id": INT, "a": INT, "c": labels("q")}, version=2)
    played.feed.alter("ADD c ENUM('x','y') DEFAULT 'y'", later)
    played.take()
    assert rows(played.tables) == [{"id": 1, "a": 5, "c": "y"}]


def test_a_batch_may_end_between_a_statement_and_what_its_first_row_makes_sure() -> None:
    played = Played()
    sure = schema_of({"id": INT, "a": INT, "c": BIGINT}, version=2)
    played.feed.alter("ADD c INT", sure)
    (added,) = played.take()
    played.feed.row(sure, {"id": 2, "a": 1, "c": 1 << 40})
    widened, merged = played.take()
    assert added.place < widened.place < merged.place
    assert rows(played.tables)[1] == {"id": 2, "a": 1, "c": 1 << 40}


def test_columns_without_values_have_no_column() -> None:
    played = Played({"id": INT, "g": POINT}, {"id": 1})
    assert played.tables.named()[T].names() == ["id"]
    played.feed.alter("RENAME COLUMN g TO h", schema_of({"id": INT, "h": POINT}, version=2))
    played.feed.alter("ADD k POINT, DROP h", schema_of({"id": INT, "k": POINT}, version=3))
    now = schema_of({"id": INT, "k": POINT}, version=3)
    played.feed.row(now, {"id": 2})
    assert kinds(played.take()) == ["Rows"]
    played.feed.alter("ADD h INT", schema_of({"id": INT, "k": POINT, "h": INT}, version=4))
    played.feed.alter("MODIFY h BIGINT", schema_of({"id": INT, "k": POINT, "h": BIGINT}, version=5))
    assert kinds(played.take()) == ["Evolve"]
    played.feed.alter("MODIFY k INT", schema_of({"id": INT, "k": INT}, version=4))
    assert "messages had no values of it before" in str(played.take()) + played.reason()


def test_dates_and_text_are_what_they_were() -> None:
    columns = {"id": INT, "d": DATE, "m": MOMENT, "w": WORD, "x": EXACT}
    row = {"id": 1, "d": date(1970, 1, 2), "m": datetime(1970, 1, 1, 0, 0, 1), "w": "é", "x": Decimal("1.50")}  # noqa: DTZ001  # of a column without a zone
    played = Played(columns, row)
    now = schema_of({"id": INT, "d": MOMENT, "m": WORD, "w": TEXT, "x": WORD}, version=2)
    played.feed.alter("MODIFY d DATETIME, MODIFY m VARCHAR(20), MODIFY w TEXT, MODIFY x VARCHAR(20)", now)
    (step,) = played.take()
    assert isinstance(step, Evolve)
    assert [one.value.sql() for one in step.projection] == [
        "`id`", "CAST(`d` AS timestamp_ntz)", "CAST(`m` AS string)", "`w`", "CAST(`x` AS string)",
    ]  # fmt: skip
