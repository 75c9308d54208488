"""Which keys a chunk has behind it: judged as the server's index has them, for every type and many collations."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.capture.mariadb.connection import Source, connect, execute, fetch
from headrace.capture.mariadb.key_order import AskedOrder
from headrace.capture.position import RawKey
from headrace.errors import TableStopped
from headrace.runtime.dsn import parse_dsn
from tests.integration.capture.tables_read import chunk_reader, read_chunks, read_rows
from tests.mariadb import Database, Server
from tests.scale import SEED

_WORDS = (
    "'', 'a', 'A', 'á', 'aa', 'a\t', 'a!', 'b', 'B', 'z', 'Z', 'ch', 'cz', 'é', 'e', 'ss', 'ß', 'ä', 'ñ', 'n', 'ij', '~', "
    "'_', '0', '10', '9'"
)
_MORE_WORDS = "'😀', 'ﬀ', 'ﬁ', 'Σ', 'ς', 'İ', '\u0131', 'Å', '\uff21', '中', '\\'', '\\\\', 'ö'"
_UUIDS = (
    "'00000000-0000-0000-0000-000000000000', '11b72f5a-1ed1-11ef-9fcd-0242ac120002', "
    "'01b72f5a-2ed1-11ef-9fcd-0242ac120001', '018f9e5a-1ed1-7000-8000-000000000000', "
    "'118f9e5a-1ed1-7000-8000-000000000000', 'f47ac10b-58cc-4372-a567-0e02b2c3d479', "
    "'ffffffff-ffff-ffff-ffff-ffffffffffff', '0f8fad5b-d9cb-469f-a165-70867728950e'"
)


@pytest.fixture(scope="module")
def shared(mariadb: Server) -> Database:
    """A database for all of these tests, each of which makes its table anew."""
    return mariadb.create_captured("capture_order")


@pytest.fixture(scope="module")
def app(shared: Database) -> Iterator[Source]:
    """What writes, whatever the values are."""
    with closing(shared.connect(autocommit=True, charset="utf8mb4")) as connection:
        execute(connection, "SET sql_mode = '', time_zone = '+00:00'")
        yield connection


@pytest.fixture(scope="module")
def session(shared: Database) -> Iterator[Source]:
    """What is asked about keys."""
    with closing(connect(parse_dsn(shared.dsn))) as connection:
        yield connection


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci", f"{_WORDS}, {_MORE_WORDS}"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", f"{_WORDS}, {_MORE_WORDS}"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_nopad_ci", f"{_WORDS}, {_MORE_WORDS}"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_as_cs", f"{_WORDS}, {_MORE_WORDS}"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", f"{_WORDS}, {_MORE_WORDS}"),
        ("VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin", f"{_WORDS}, {_MORE_WORDS}, 'a '"),
        ("VARCHAR(9) CHARACTER SET utf8mb3 COLLATE utf8mb3_bin", _WORDS),
        ("CHAR(9) CHARACTER SET utf8mb3 COLLATE utf8mb3_czech_ci", _WORDS),
        ("VARCHAR(9) CHARACTER SET utf8mb3 COLLATE utf8mb3_spanish2_ci", _WORDS),
        ("CHAR(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci", _WORDS),
        ("VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_german2_ci", _WORDS),
        ("VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_general_cs", _WORDS),
        ("VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_bin", f"{_WORDS}, '€', 'Ÿ'"),
        ("VARCHAR(9) CHARACTER SET latin2 COLLATE latin2_hungarian_ci", "'a', 'á', 'b', 'cs', 'ő', 'ö'"),
        ("VARCHAR(9) CHARACTER SET ucs2 COLLATE ucs2_general_ci", _WORDS),
        ("VARCHAR(9) CHARACTER SET utf16 COLLATE utf16_bin", f"{_WORDS}, {_MORE_WORDS}"),
        ("VARCHAR(9) CHARACTER SET utf32 COLLATE utf32_unicode_ci", _WORDS),
        ("VARCHAR(9) CHARACTER SET ascii COLLATE ascii_general_ci", "'', 'a', 'B', 'c', '_', '~', 'a b'"),
        ("VARCHAR(9) CHARACTER SET cp1251 COLLATE cp1251_bulgarian_ci", "'\u0430', 'Б', 'я', 'ё', 'a', 'Ђ'"),
        ("VARCHAR(9) CHARACTER SET sjis COLLATE sjis_japanese_ci", "'a', 'B', 'c', '_', 'a b', '10', '9'"),
        ("VARCHAR(9) CHARACTER SET gbk COLLATE gbk_chinese_ci", "'a', 'B', 'c', '_', 'a b', '10', '9'"),
        ("UUID", _UUIDS),
        ("INET6", "'::', '::1', '::ffff:1.2.3.4', '2001:db8::1', 'ff02::1', '10::', '9::', 'a::'"),
        ("INET4", "'0.0.0.0', '10.0.0.1', '9.0.0.1', '255.255.255.255', '127.0.0.1'"),
        ("ENUM('z', 'a', 'm', '')", "1, 2, 3, 4"),
        ("SET('z', 'a', 'm')", "0, 1, 2, 3, 4, 5, 6, 7"),
        ("BIGINT", "-9223372036854775808, -10, -9, 0, 9, 10, 9223372036854775807"),
        ("BIGINT UNSIGNED", "0, 9, 10, 9223372036854775808, 18446744073709551615"),
        ("INT(9) ZEROFILL", "0, 9, 10, 100"),
        ("BIT(64)", "0, 9, 10, 9223372036854775808, 18446744073709551615"),
        ("YEAR", "0, 1901, 1970, 2000, 2155"),
        ("DECIMAL(40, 5)", "-10, -9.99999, 0, 0.00001, 9, 10, 12345678901234567890123456789012345.00001"),
        ("DECIMAL(9, 2) ZEROFILL", "0, 0.5, 9, 10, 1000.25"),
        ("FLOAT", "-3.4028235e38, -0.2, -0.1, 0, 1e-45, 0.1, 0.2, 16777216, 3.4028235e38"),
        ("DOUBLE", "-1.7976931348623157e308, -0.1, 0, 5e-324, 0.1, 0.30000000000000004, 0.3, 1e22, 1e23"),
        ("DATE", "'0000-00-00', '2020-00-00', '2020-00-10', '2020-02-20', '9999-12-31'"),
        (
            "DATETIME(6)",
            "'0000-00-00', '2020-02-20 00:00:00.000001', '2020-02-20', '9999-12-31 23:59:59.999999'",
        ),
        (
            "TIMESTAMP(3)",
            "'0000-00-00', '1970-01-01 00:00:01', '2020-02-20 10:00:00.001', '2038-01-19 03:14:07.999'",
        ),
        (
            "TIME(2)",
            "'-838:59:59.99', '-99:00:00', '-00:00:00.01', 0, '00:00:00.01', '99:00:00', '100:00:00', '838:59:59'",
        ),
        ("BINARY(3)", "'', 'a', 'A', X'FF', X'610001', X'80'"),
        ("VARBINARY(9)", "'', 'a', X'6100', X'610001', X'FF', 'A'"),
    ],
)
def test_keys_are_judged_as_the_index_has_them(
    shared: Database, app: Source, session: Source, kind: str, values: str
) -> None:
    execute(
        app,
        f"CREATE OR REPLACE TABLE t (id INT AUTO_INCREMENT UNIQUE, k {kind} NOT NULL, n INT, PRIMARY KEY (k, n))",
    )
    rows = [f"({value}, {number})" for value in values.split(", ") for number in (1, 2)]
    execute(app, f"INSERT IGNORE INTO t (k, n) VALUES {', '.join(rows)}")
    ordered = [
        str(number) for (number,) in fetch(app, "SELECT id FROM t FORCE INDEX (PRIMARY) ORDER BY k, n")
    ]
    with closing(chunk_reader(shared, "t", rows_max=9)) as reader:
        read = [row for chunk in read_chunks(reader) for row in chunk.rows]
        assert [number for number, _, _ in read] == ordered
        assert len(ordered) >= 8
        order = AskedOrder(lambda: session, reader.order)
        keys: list[RawKey] = [(k, n) for _, k, n in read]
        for at, last in list(enumerate(keys))[:: max(1, len(keys) // 16)]:
            assert order.covers(last, keys) == [True] * (at + 1) + [False] * (len(keys) - at - 1), last


@pytest.mark.parametrize(
    "collation", ["general_ci", "unicode_ci", "unicode_520_ci", "uca1400_ai_ci", "latin1"]
)
def test_words_are_judged_here(shared: Database, app: Source, collation: str) -> None:
    """The collations that most tables have need no question where a key is a code or a UUID."""
    charset, collation = (
        ("latin1", "latin1_swedish_ci") if collation == "latin1" else ("utf8mb4", f"utf8mb4_{collation}")
    )
    chance = random.Random(f"{SEED} {collation}")
    words = {"".join(chance.choices("-09azAZbBeKsS", k=chance.randrange(8))) for _ in range(150)}
    words |= {
        *"-0123456789abcdefghijklmnopqrstuvwxyz",
        *"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "ss",
        "ae",
        "ch",
        "ll",
        "a",
        "a-",
        "aa",
    }
    execute(
        app,
        f"CREATE OR REPLACE TABLE t (k VARCHAR(9) CHARACTER SET {charset} COLLATE {collation} PRIMARY KEY)",
    )
    values = ", ".join(f"('{word}')" for word in sorted(words))
    execute(app, f"INSERT IGNORE INTO t VALUES {values}")
    reader = chunk_reader(shared, "t")
    keys: list[RawKey] = [(k,) for (k,) in read_rows(reader)]
    assert len(keys) > 100
    for at, last in enumerate(keys):
        assert [reader.order.covers(last, key) for key in keys] == [True] * (at + 1) + [False] * (
            len(keys) - at - 1
        ), last


def test_many_and_long_texts_are_asked_in_several_questions(
    shared: Database, app: Source, session: Source
) -> None:
    execute(
        app,
        "CREATE OR REPLACE TABLE t (k VARCHAR(700) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY)",
    )
    order = AskedOrder(lambda: session, chunk_reader(shared, "t").order)
    keys: list[RawKey] = [(f"{number:04}{'é' * (number % 600)}",) for number in range(3000)]
    assert order.covers(("1499É",), keys) == [number <= 1498 for number in range(3000)]


def test_text_that_the_server_may_not_find_again_stops_the_table(shared: Database) -> None:
    """A backslash has two codes in sjis; the server takes the other one."""
    shared.sql("CREATE OR REPLACE TABLE t (k VARCHAR(9) CHARACTER SET sjis PRIMARY KEY)")
    shared.sql("INSERT INTO t VALUES ('a'), (X'5C'), ('z')")
    with pytest.raises(TableStopped, match=r"\.t\.k is in the handle key; rows can't be found by '\\\\'"):
        read_rows(chunk_reader(shared, "t", rows_max=1))
