"""The tables of a shop on MariaDB, how they are altered, and random values that fit their columns: what a load is made of.

Every write of a row gives it a ``seq`` that no other write has, by which each change can be told wherever it is met.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tests.integration.capture.every_type import COLUMNS
from tests.scale import sized

SEQ_FIRST: Final = 7_000_000_000_000
"""No other number in any column has thirteen digits that begin with a 7."""

SEQ_WRITTEN_FIRST: Final = SEQ_FIRST + 50_000
"""Those below it are of the rows that :data:`FILL` makes."""

_EVERY = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items() if not name.startswith("g_"))
_ENTRY = "(id INT AUTO_INCREMENT PRIMARY KEY, seq BIGINT, note VARCHAR(60), at DATETIME(3)) CHARSET utf8mb4"

TABLES: Final = {
    "account": "(id INT PRIMARY KEY, seq BIGINT, name VARCHAR(40), amount DECIMAL(12,2), kind ENUM('a','b'))"
    " CHARSET utf8mb4",
    "place": "(a VARCHAR(10), b INT, seq BIGINT, v VARCHAR(200), PRIMARY KEY (a, b)) CHARSET utf8mb4",
    "tag": "(code VARCHAR(12) NOT NULL, wide INT NOT NULL, seq BIGINT, v TEXT, UNIQUE (wide, code), UNIQUE (code))"
    " CHARSET utf8mb4",
    "every": f"({_EVERY}, seq BIGINT, UNIQUE long_one (s_text), KEY two (n_int, s_varchar(4)))",
    "entry": _ENTRY,
    "draft": _ENTRY,
    "hidden": "(id INT PRIMARY KEY, seq BIGINT, v INT)",
}
"""``tag`` has no primary key. ``entry`` and ``draft`` change places. ``hidden`` is not to be captured."""

_MANY, _SOME, _LESS, _FEW = sized((400, 150, 100, 50), soak=(1500, 300, 200, 100))
FILL: Final = (
    f"INSERT INTO account (id, seq, name) SELECT seq, {SEQ_FIRST} + seq, CONCAT('n', seq) FROM seq_1_to_{_MANY}",
    f"INSERT INTO place SELECT CHAR(65 + seq % 26, 97 + seq % 7), seq, {SEQ_FIRST} + 10000 + seq, 'é' FROM seq_1_to_{_SOME}",
    f"INSERT INTO tag SELECT CONCAT('t', seq), seq, {SEQ_FIRST} + 20000 + seq, 'old' FROM seq_1_to_{_LESS}",
    f"INSERT INTO every (id, seq, s_varchar, b_medium) SELECT seq, {SEQ_FIRST} + 30000 + seq, 'x', 'y' FROM seq_1_to_{_FEW}",
    f"INSERT INTO entry (seq, note) SELECT {SEQ_FIRST} + 40000 + seq, 'first' FROM seq_1_to_50",
)

EVERY_ALTERS: Final = (
    "ADD COLUMN added int unsigned NOT NULL DEFAULT 4",
    "ADD COLUMN first_one varchar(5) FIRST, ADD COLUMN later date AFTER n_bool",
    "MODIFY n_bool tinyint(3) unsigned",
    "MODIFY n_small int",
    "MODIFY n_big bigint",
    "CHANGE n_medium n_renamed decimal(9,3)",
    "RENAME COLUMN n_renamed TO n_again",
    "MODIFY n_decimal decimal(65,30)",
    "MODIFY n_bit bit(11)",
    "MODIFY s_varchar varchar(300) character set utf8mb4 NULL",
    "MODIFY s_bin varchar(10) collate utf8mb4_general_ci",
    "MODIFY s_gbk varbinary(14)",
    "MODIFY s_tiny mediumtext",
    "MODIFY s_char char(3) character set latin1 NOT NULL",
    "MODIFY b_binary binary(6)",
    "MODIFY z_varchar varchar(20) character set utf8mb4",
    "MODIFY z_text text compressed NOT NULL",
    "MODIFY e_enum enum('ü,)','a','b''c','d') character set utf8mb4",
    "MODIFY e_set set('x','yy','zzz','4','5','6','7','8','9') character set utf8mb3",
    "MODIFY t_datetime datetime(6) NOT NULL",
    "MODIFY t_time time(6)",
    "MODIFY t_timestamp datetime",
    "DROP COLUMN x_virtual, ADD COLUMN x_virtual int as (id + 2) stored FIRST",
    "DROP COLUMN n_tiny, DROP INDEX long_one",
    "CONVERT TO CHARACTER SET utf8mb4",
)
"""Of the table ``every``, one after the other: each changes the table that those before it left.

None changes an INET4, INET6 or UUID: where statements come at once, a row before such a change may be told as bytes, with a
schema that says so, and the replica's column, which was made by statements, does not take them.
"""

_SWAP = ("RENAME TABLE place TO third, tag TO place, third TO tag",)
"""Of two tables that have nothing in common."""

_ADDED = (
    "INT NOT NULL DEFAULT 4",
    "VARCHAR(10) DEFAULT 'é'",
    "DATETIME NOT NULL",
    "ENUM('x','y') NOT NULL",
    "DECIMAL(5,2) DEFAULT 1.5",
    "BIT(3) DEFAULT b'101'",
    "TIMESTAMP NULL",
    "VARBINARY(9)",
    "INT AS (id + 1) VIRTUAL",
)

KEYS: Final[dict[str, Callable[[random.Random], dict[str, object]]]] = {
    "account": lambda chance: {"id": chance.randrange(1, 1800)},
    "place": lambda chance: {"a": _word(chance), "b": chance.randrange(300)},
    "tag": lambda chance: {"code": f"t{chance.randrange(300)}", "wide": chance.randrange(300)},
    "every": lambda chance: {"id": chance.randrange(150)},
    "entry": lambda chance: {"id": chance.randrange(1, 400)},
    "draft": lambda chance: {"id": chance.randrange(1, 400)},
    "hidden": lambda chance: {"id": chance.randrange(50)},
}
"""A key that a table may have, or get."""


class Column(NamedTuple):
    """A column as writers find it; ``kind`` is its data type."""

    name: str
    kind: str
    nullable: bool


def value(chance: random.Random, column: Column) -> object:
    """A value for a column; a session without a strict mode makes it fit."""
    if column.nullable and chance.random() < 0.15:
        return None
    if column.name == "s_json":
        return chance.choice(('{"a": [1, "é"]}', "null", '"\\u2028<&>"'))
    choices = _VALUES.get(column.kind)
    if choices is None:
        raise AssertionError(f"nobody has said what a {column.kind} may hold")
    return choices(chance)


def alters(chance: random.Random, table: str, columns: Sequence[str], number: int) -> list[str]:
    """One ALTER of a table, or several at once; ``columns`` it has now, ``number`` tells this call from others."""
    spare = [name for name in columns if re.fullmatch(r"c\d+", name)]
    if table == "tag":
        drops = [f"DROP COLUMN {name}" for name in spare]
        others = ["MODIFY v MEDIUMTEXT", "MODIFY v TEXT", f"ADD INDEX i{number} (v(10))"]
        return [f"ADD COLUMN c{number} INT FIRST", chance.choice(others), *drops]
    words = [
        f"ADD COLUMN c{number} {chance.choice(_ADDED)} {chance.choice(('', 'FIRST', 'AFTER name'))}",
        f"MODIFY name VARCHAR({chance.randrange(40, 90)})",
        f"MODIFY amount DECIMAL({chance.randrange(12, 20)},{chance.randrange(2, 5)})",
        f"ADD INDEX i{number} (name)",
        f"DROP INDEX i{number}",
        f"MODIFY id {chance.choice(('INT', 'BIGINT'))}",
        f"COMMENT 'of {number}'",
    ]
    if spare:
        old = chance.choice(spare)
        words += [f"RENAME COLUMN {old} TO c{number}", f"DROP COLUMN {old}", f"DROP COLUMN {old}"]
        words.append(f"DROP COLUMN {old}, ADD COLUMN c{number} {chance.choice(_ADDED)}")
    if chance.random() < 0.3:  # a name that comes back means another column
        return [f"ADD COLUMN again {chance.choice(_ADDED)}", words[0], "DROP COLUMN again"]
    return chance.sample(words, chance.choice((1, 1, 2, 4)))


def entry_statements(chance: random.Random) -> tuple[str, ...]:
    """Statements about whole tables, ``entry`` and ``draft`` most of all."""
    return chance.choice(
        (
            ("TRUNCATE entry",),
            ("TRUNCATE TABLE draft",),
            ("RENAME TABLE draft TO third, entry TO draft, third TO entry",),
            ("ALTER TABLE entry RENAME TO third", "ALTER TABLE third RENAME entry"),
            (*_SWAP, *_SWAP),
            ("DROP TABLE entry", f"CREATE TABLE entry {_ENTRY}"),
            (f"CREATE OR REPLACE TABLE draft {_ENTRY}",),
            (
                "CREATE OR REPLACE TABLE made (PRIMARY KEY (id)) CHARSET utf8mb4 "
                "SELECT id, seq, name FROM account WHERE id < 100",
            ),
            (
                "DROP TABLE IF EXISTS entry, draft",
                f"CREATE TABLE draft {_ENTRY}",
                "CREATE TABLE entry LIKE draft",
            ),
        )
    )


def _word(chance: random.Random) -> str:
    return "".join(chance.choice("aAbB eé") for _ in range(3)).strip()


def _text(chance: random.Random) -> object:
    return chance.choice(("", "a\nb", "é <&>", "\u2028", "naïve 😀", "\\'\"`")) + f"{chance.random():.6f}"


def _bytes(chance: random.Random) -> object:
    return chance.randbytes(chance.choice((0, 1, 5, 300)))


def _of(*values: object) -> Callable[[random.Random], object]:
    return lambda chance: chance.choice(values)


_VALUES: Final[dict[str, Callable[[random.Random], object]]] = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int"), _of(0, 1, -1, 100, -(2**40), 2**40)),
    "bigint": _of(0, -5, 2**63 - 1, -(2**63), 2**64 - 1),
    "bit": _of(0, 1, 5, 2**64 - 1),
    "year": _of(0, 1901, 2155),
    "decimal": _of("0", "-1.5", "1234567890123456789.123456789", "0.001"),
    "float": _of(0.5, -1e20, 1 / 3, 1e-30, 0),
    "double": _of(0.5, -1e20, 1 / 3, 1e-300, 0),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext"), _text),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _bytes),
    "enum": _of(0, 1, 2, 3),
    "set": _of(0, 1, 5, 7),
    "date": _of("2020-02-20", "9999-12-31", "0000-00-00"),
    **dict.fromkeys(
        ("datetime", "timestamp"),
        _of("2020-02-20 10:20:30.123456", "1999-12-31 23:59:59.9", "2038-01-01 00:00:00"),
    ),
    "time": _of("-838:59:59", "12:34:56.789", "00:00:00", "838:59:59"),
    "uuid": _of("123e4567-e89b-12d3-a456-426655440000"),
    "inet4": _of("192.0.2.1", "0.0.0.0"),
    "inet6": _of("2001:db8::1", "::ffff:192.0.2.1"),
}
