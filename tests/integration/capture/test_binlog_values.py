"""Values of every type, at their limits: what the binlog's decoder makes of them is what the server says they are."""

from __future__ import annotations

import base64
import itertools
import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from headrace.capture.binlog.columns import RawValue
from headrace.simple.message import Timestamp
from headrace.simple.numeric import single_text
from tests.binlog import charsets_of, read_events, read_rows
from tests.mariadb import Database, Server

NUMBER = "CAST($ + 0 AS CHAR)"
MASK = "CAST(CAST($ AS UNSIGNED) AS CHAR)"
TEXT = "CONVERT($ USING utf8mb4)"
PRINTED = "CAST($ AS CHAR)"
BYTES = "$"


class Case(NamedTuple):
    """A type, values of it, and the expression with which the server says what each is."""

    type: str
    values: tuple[str, ...]
    said: str = PRINTED


def _integers(bits: int) -> tuple[Case, ...]:
    name = {8: "tinyint", 16: "smallint", 24: "mediumint", 32: "int", 64: "bigint"}[bits]
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return (
        Case(name, (str(low), "-1", "0", "1", str(high))),
        Case(f"{name} unsigned", ("0", "1", str(high + 1), str(2 * high + 1))),
        Case(f"{name} zerofill", ("0", "7", str(2 * high + 1)), NUMBER),
    )


MOMENTS = (
    *("'1970-01-01 00:00:01'", "'1999-12-31 23:59:59.999999'", "'2020-02-20 02:20:20.123456'"),
    *("'2038-01-19 03:14:07'", "'2024-02-29 12:00:00.000001'", "0"),
)
DATES = (
    "'1000-01-01'",
    "'9999-12-31'",
    "'0000-00-00'",
    "'2020-00-10'",
    "'2020-10-00'",
    "'2021-02-31'",
    "'0001-01-01'",
)
TIMES = (
    *(
        "'-838:59:59.999999'",
        "'838:59:59.999999'",
        "'00:00:00'",
        "'-00:00:00.5'",
        "'-00:00:01'",
        "'100:00:00'",
    ),
    *("'23:59:59.000001'", "'-12:34:56.789'", "'-00:00:00.01'", "'-00:00:00.0001'"),
)
FLOATS = (
    *(
        "0",
        "-0e0",
        "1",
        "0.1",
        "-90.5",
        "3.4028234e38",
        "-3.4028235e38",
        "1.17549435e-38",
        "1e-45",
        "16777216",
        "1e20",
    ),
    *("8388609", "0.3", "9007199254740993", "33554432", "4.2039e-45", "2.2250738585072014e-308"),
)
DECIMALS = (
    "0",
    "-0",
    "1",
    "-1",
    "0.5",
    "-0.5",
    "99999999999999999999999999999999999999",
    "1.000000000000000000000000001",
)
TEXTS = ("''", "'a'", "'é'", "'  a '", "REPEAT('ä', 10)", "'tab\\tnl\\n\\0end'")
BLOBS = ("''", "x'00'", "x'ff00fe'", "REPEAT(x'80', 300)", "'text'", "'a   '", "x'610000'")

CASES = (
    *(case for bits in (8, 16, 24, 32, 64) for case in _integers(bits)),
    Case("boolean", ("true", "false")),
    *(
        Case(f"decimal({precision},{scale})", DECIMALS)
        for precision, scale in (
            *(
                (1, 0),
                (1, 1),
                (9, 0),
                (10, 2),
                (12, 6),
                (18, 9),
                (19, 1),
                (20, 20),
                (38, 38),
                (65, 0),
                (65, 30),
            ),
            *((5, 4), (11, 10), (30, 1)),
        )
    ),
    Case("decimal(8,3) unsigned", ("0", "12345.678", "99999.999")),
    Case("year", ("0", "1901", "2155", "2026"), NUMBER),
    *(
        Case(f"bit({bits})", ("0", "1", f"{(1 << bits) - 1}", f"{1 << bits - 1}"), NUMBER)
        for bits in (1, 7, 8, 9, 10, 33, 63, 64)
    ),
    Case("date", DATES),
    *(Case(f"datetime({digits})", (*MOMENTS, *DATES)) for digits in range(7)),
    *(Case(f"timestamp({digits}) null", MOMENTS) for digits in range(7)),
    *(Case(f"time({digits})", TIMES) for digits in range(7)),
    Case("enum('a','b','ü') character set latin1", ("'a'", "'ü'", "'no such'"), NUMBER),
    Case(f"enum({','.join(repr(str(n)) for n in range(300))})", ("'0'", "'255'", "'299'"), NUMBER),
    *(
        Case(
            f"set({','.join(repr(f'l{n}') for n in range(size))})",
            ("''", "'l0'", f"'l{size - 1}'", f"{(1 << size) - 1}"),
            MASK,
        )
        for size in (1, 8, 9, 16, 17, 24, 25, 32, 33, 64)
    ),
    *(Case(f"char({size}) character set utf8mb4", TEXTS, TEXT) for size in (20, 100)),
    *(Case(f"varchar({size}) character set utf8mb4", (*TEXTS, "'😀'"), TEXT) for size in (20, 63, 64, 3000)),
    *(
        Case(f"{kind} character set utf8mb4", (*TEXTS, "'😀'", "REPEAT('😀', 50)"), TEXT)
        for kind in ("tinytext", "text", "mediumtext", "longtext")
    ),
    *(
        Case(f"varchar(20) character set {name}", TEXTS, TEXT)
        for name in ("latin1", "ucs2", "utf16", "utf16le", "utf32")
    ),
    Case("char(10) character set ucs2", TEXTS, TEXT),
    Case("char(200) character set utf32", TEXTS, TEXT),
    Case("longtext", ("REPEAT('x', 70000)",), TEXT),
    Case("mediumblob", ("REPEAT('x', 70000)",), BYTES),
    *(Case(f"binary({size})", BLOBS, BYTES) for size in (1, 5, 255)),
    *(Case(f"varbinary({size})", BLOBS, BYTES) for size in (5, 255, 256, 400)),
    *(Case(kind, BLOBS, BYTES) for kind in ("tinyblob", "blob", "mediumblob", "longblob")),
    Case("varchar(400) compressed character set utf8mb4", (*TEXTS, "REPEAT('😀', 200)"), TEXT),
    Case("varchar(20) compressed character set latin1", TEXTS, TEXT),
    Case("text compressed", ("REPEAT('x', 300)", "REPEAT('xyz', 9000)", "''"), TEXT),
    *(
        Case(f"{kind} compressed", (*BLOBS, "REPEAT('y', 70000)"), BYTES)
        for kind in ("varbinary(400)", "longblob")
    ),
    Case("json", ('\'{"a": [1, "é"]}\'', "'null'"), TEXT),
    Case("inet4", ("'0.0.0.0'", "'255.255.255.255'", "'1.2.3.0'", "'127.0.0.1'")),
    Case(
        "inet6",
        (
            *(
                "'::'",
                "'::1'",
                "'::1.2.3.4'",
                "'::ffff:1.2.3.4'",
                "'::ffff:0:1.2.3.4'",
                "'1::'",
                "'1::2:0:0:0:3'",
            ),
            *(
                "'2001:db8::ff00:42:8329'",
                "'1:2:3:4:5:6:7:8'",
                "'1:0:3:4:5:6:7:8'",
                "'0:0:1:0:0:0:0:0'",
                "'::1:2'",
            ),
            *(
                "'0:1::'",
                "'fe80::'",
                "'64:ff9b::1.2.3.4'",
                "'1:2:3:4:5:6:0:0'",
                "'0:0:3:4:5:6:7:8'",
                "'0:2:3:4:5:6:7:8'",
                "'1:2:3:4:5:6:7:0'",
            ),
        ),
    ),
    Case(
        "uuid",
        (
            *("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"),
            *(f"'12345678-9abc-{version:x}def-8123-456789abcdef'" for version in range(16)),
            *(f"'12345678-9abc-{part:x}def-{15 - part:x}123-456789abcdef'" for part in range(16)),
        ),
    ),
)
ID = Case("int", ())
FORMS = ("inet4", "inet6", "uuid")
GROUP = 12
"""Types of one table: more would not fit into one of InnoDB's pages."""


def test_values_are_what_the_server_says(mariadb: Server) -> None:
    database = mariadb.create_database("types_of_values")
    file = mariadb.rotate()
    groups = [CASES[start : start + GROUP] for start in range(0, len(CASES), GROUP)]
    said = [_write(database, f"t{number}", group) for number, group in enumerate(groups)]
    events = read_events(file, charsets_of(mariadb))
    wrong = []
    for number, (group, answers) in enumerate(zip(groups, said, strict=True)):
        forms = {place: case.type for place, case in enumerate(group) if case.type in FORMS}
        rows = [after for _, after in read_rows(events, f"t{number}", forms)]
        for values, row in zip(rows, answers, strict=True):
            assert values is not None
            for case, value, answer in zip((*group, ID), values, row, strict=True):
                if (found := _plain(value, answer)) != answer:
                    wrong.append((case.type, found, answer))
    assert wrong == []


def _write(database: Database, table: str, cases: Sequence[Case]) -> list[tuple[object, ...]]:
    """Write the values of the cases, a column each, with NULL behind the last, and return what the server says of them."""
    columns = ", ".join(f"v{number} {case.type}" for number, case in enumerate(cases))
    rows = [
        *itertools.zip_longest(*(case.values for case in cases), fillvalue="NULL"),
        ("NULL",) * len(cases),
    ]
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    said = ", ".join(case.said.replace("$", f"v{number}") for number, case in enumerate(cases))
    with database.connect(autocommit=True, charset="utf8mb4") as app, app.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
        cursor.execute(f"CREATE TABLE {table} ({columns}, id int AUTO_INCREMENT INVISIBLE PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {table} VALUES {values}")
        cursor.execute(f"SELECT {said}, CAST(id AS CHAR) FROM {table} ORDER BY id")
        return list(cursor.fetchall())


def _plain(value: RawValue, answer: object) -> object:
    if isinstance(value, Timestamp):
        assert value.location == "UTC"
        return value.value
    return base64.b64decode(value) if isinstance(answer, bytes) and value is not None else value


@pytest.mark.parametrize("kind", ["float", "double"])
def test_floats_are_the_fewest_digits_that_read_back(mariadb: Server, kind: str) -> None:
    database = mariadb.create_database(f"values_{kind}")
    file = mariadb.rotate()
    answers = [answer for answer, _ in _write(database, "f", [Case(kind, FLOATS, "CAST($ AS DOUBLE)")])]
    rows = read_rows(read_events(file, charsets_of(mariadb)), "f")
    texts = [after[0] for _, after in rows if after is not None]
    assert texts.pop() is answers.pop() is None
    for text, answer in zip(texts, answers, strict=True):
        assert isinstance(text, str)
        assert isinstance(answer, float)
        assert "e" not in text
        if kind == "float":
            assert text == single_text(answer)
            assert struct.pack("f", float(text)) == struct.pack("f", answer)
        else:
            assert float(text) == answer
            assert len(text.strip("-0.").replace(".", "")) <= 17
