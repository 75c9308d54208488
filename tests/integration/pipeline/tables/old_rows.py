"""Generated definitions of a column, and what becomes of rows that are there: at MariaDB, and in Spark by the steps."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow as pa
from msgspec.structs import replace
from pymysql.connections import Connection
from pymysql.cursors import Cursor
from pymysql.err import MySQLError
from pyspark.sql import SparkSession

from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.ddl import TableName
from headrace.capture.ddl.columns import column_changes
from headrace.capture.mariadb.catalogue import read_table
from headrace.capture.mariadb.connection import Source
from headrace.errors import TableStopped
from headrace.pipeline.tables.moments import MOMENTS, sql_number
from headrace.pipeline.tables.simple.altering import follow
from headrace.pipeline.tables.simple.evolution import Columns, Unfollowed
from headrace.pipeline.tables.simple.spark_types import arrow_type, contains, reader, spark_kind
from headrace.simple.message import Raw
from headrace.simple.schema import TableSchema
from headrace.wire.arrays import array_of
from tests.integration.capture.folded_feed import rows_at_source
from tests.mariadb import Database
from tests.unit.pipeline.tables.simple.steps_folded import numbered

CHARSETS: Final = (
    *("", "", "", " CHARACTER SET latin1", " CHARACTER SET utf8mb4", " CHARACTER SET utf8mb3"),
    *(" CHARACTER SET ascii", " CHARACTER SET ucs2", " CHARACTER SET utf16", " CHARACTER SET gbk"),
    *(" CHARACTER SET cp1251", " CHARACTER SET sjis", " COLLATE utf8mb4_bin"),
    *(" CHARACTER SET binary", " CHARACTER SET koi8r", " CHARACTER SET latin2"),
)
MODES: Final = (
    "",
    "",
    "",
    "STRICT_ALL_TABLES",
    "TRADITIONAL",
    "ALLOW_INVALID_DATES",
    "NO_ZERO_IN_DATE,NO_ZERO_DATE",
    "TIME_ROUND_FRACTIONAL",
    "REAL_AS_FLOAT",
    "NO_AUTO_VALUE_ON_ZERO",
)
NUMBERS: Final = (
    *("0", "1", "-1", "5", "7.00", "-7.5", "0.1", "1.239", "99.995", "127", "128", "255", "256", "300", "1999", "70"),
    *("2156", "65535", "16777217", "-32768", "2147483648", "4294967296", "9007199254740993", "123456789.125"),
    *("9223372036854775807", "18446744073709551615", "1e3", "1.5e-3", "1e39", "3.4028235e38", "1e300", "1234567890.5"),
)  # fmt: skip
TEXTS: Final = (
    *("''", "'x'", "'X'", "'ab'", "'ab   '", "'  a'", "'abcdefghij'", "'é'", "'ü€'", "'я'", "'中'", "'😀'", "'~\\\\'"),
    *("'12'", "'012'", "'1.50'", "'-0'", "'1e2'", "' 5'", "'5 '", "'1_0'", "'+7'", "'0'", "'00'", "'70'", "'[x]'"),
    *("'x,z'", "'z,x'", "'x,x'", "'0x10'", "'a\\tb'", "'NaN'", "'a'", "'A'", "'ß'", "'ss'", "'ö'", "'\\0'"),
)  # fmt: skip
DATES: Final = (
    *("'2020-01-02'", "'0000-00-00'", "'2020-00-10'", "'2020-02-31'", "'0001-01-01'", "'9999-12-31'", "'1970-01-01'"),
    *("'2020-01-02 03:04:05'", "'2020-01-02 03:04:05.5'", "'2020-01-02 03:04:05.123456'", "'2020-01-02 00:00:00'"),
    *("'0000-00-00 00:00:00'", "'2020-02-31 10:00:00'", "'2038-01-19 03:14:07'", "'1970-01-01 00:00:01'", "'2020-1-2'"),
    *("'20200102'", "'12:00:00'", "'-12:34:56.5'", "'838:59:59'", "'1:2:3'", "'900:00:00'", "'0000-01-01'"),
    *("'2020-01-02T03:04:05'", "'2020-01-02 03:04:05.0'", "'2020-01-02 10:00'", "'00:00:00'", "'10'"),
)  # fmt: skip
OWN: Final = (
    *("'00112233-4455-6677-8899-aabbccddeeff'", "'00112233-4455-6677-8899-AABBCCDDEEFF'", "'1.2.3.4'", "'01.2.3.4'"),
    *("'::1'", "'0:0:0:0:0:0:0:1'", "'::ffff:1.2.3.4'", "'FE80::1'", "'0011223344556677 8899aabbccddeeff'"),
    *("""'{"a": [1, 2.50]}'""", "'[]'", "'null'"),
)  # fmt: skip
SPECIAL: Final = (
    *("x'41'", "x'00ff'", "b'101'", "b''", "x''", "0x41", "0x0041", "0b11", "TRUE", "FALSE", "NULL", "_latin1'é'", "N'é'"),
    *("_utf8mb4'я'", "_latin1'x'", "_ucs2'ab'", "_utf16'ab'", "_binary'ab'", "_binary'5'", "N'x'", "DATE'2020-1-2'"),
    *("DATE'2020-01-02'", "TIME'1:2:3'", "TIME'01:02:03'", "TIMESTAMP'2020-01-02 03:04:05.50'", "('x')", "('ab  ')", "(5)"),
    *("TIMESTAMP'2020-01-02 03:04:05'", "-5", "+5", "- 5", "'a' 'b'", '"x"', "_gbk'x'", "x'c3a9'", "_utf8mb3 x'41'", "-0"),
)  # fmt: skip
LABELS: Final = ("x", "y", "z", "X", "a", "b", "é", "я", "it''s", "ab  ", "1", "0", "", "中", "ö", "o")


def a_type(chance: random.Random) -> str:
    """A type as a statement says it."""
    size = chance.choice([1, 2, 3, 5, 9, 20, 36])
    digits = chance.choice([0, 0, 1, 3, 6])
    fraction = f"({digits})" if digits else ""
    sign = chance.choice(["", "", " UNSIGNED", " ZEROFILL"])
    exact = chance.choice(["(5,2)", "(9,0)", "(18,6)", "(20,1)", "(38,10)", "(45,3)", "(6,6)", ""])
    approximate = chance.choice(["", "", "(5,2)", "(7,3)", "(9,2)", "(20,4)"])
    labels = chance.sample(LABELS, chance.randrange(1, 6))
    listed = ", ".join(f"'{label}'" for label in labels)
    text = chance.choice(
        [f"CHAR({size})", f"VARCHAR({size})", f"VARCHAR({size})", "TINYTEXT", "TEXT", "MEDIUMTEXT"]
    )
    return chance.choice(
        [
            chance.choice(["TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT", "INT(3)"]) + sign,
            chance.choice(["TINYINT", "SMALLINT", "INT", "BIGINT"]) + sign,
            chance.choice(["BIT", "BIT(8)", "BIT(33)", "BIT(64)", "YEAR", "BOOL", "REAL"]),
            chance.choice(["FLOAT", "DOUBLE"]) + approximate + sign,
            f"DECIMAL{exact}{sign}",
            text + chance.choice(CHARSETS),
            text + chance.choice(CHARSETS),
            f"NCHAR({size})",
            chance.choice([f"BINARY({size})", f"VARBINARY({size})", "TINYBLOB", "BLOB"]),
            f"ENUM({listed})" + chance.choice(CHARSETS),
            f"SET({listed})" + chance.choice(CHARSETS),
            "DATE",
            chance.choice(["DATETIME", "DATETIME", "TIME"]) + fraction,
            f"TIMESTAMP{fraction} NULL",
            chance.choice(["UUID", "INET4", "INET6", "JSON"]),
        ]
    )


def a_definition(chance: random.Random) -> str:
    """A column as ADD has it."""
    kind = a_type(chance)
    pool = chance.choice([NUMBERS, TEXTS, DATES, OWN, SPECIAL, [f"'{label}'" for label in LABELS]])
    default = chance.choice(["", f" DEFAULT {chance.choice(pool)}", f" DEFAULT {chance.choice(pool)}"])
    null = chance.choice(["", "", " NOT NULL"]) if "NULL" not in kind else ""
    return f"{kind}{null}{default}"


class Statement(NamedTuple):
    """One ALTER of one column, which is called ``{c}`` here.

    ``mode``: the session's sql_mode; ``charset``: the table's; ``before``: the column's type, '' where it is added;
    ``values``: of its rows, as SQL, of which the source takes what it can. ``late``: capture reads it late, so that the
    schema that comes with it is one without the column.
    """

    clause: str
    before: str = ""
    values: tuple[str, ...] = ()
    mode: str = ""
    charset: str = "latin1"
    ignore: str = ""
    late: bool = False


def a_statement(chance: random.Random) -> Statement:
    """Any statement; the server refuses many."""
    mode, ignore = chance.choice(MODES), chance.choice(["", "", "IGNORE "])
    more = (
        mode,
        chance.choice(["latin1", "utf8mb4", "utf8mb3", "binary", "ucs2"]),
        ignore,
        chance.random() < 0.3,
    )
    if chance.random() < 0.4:
        return Statement(f"ADD {{c}} {a_definition(chance)}", "", (), *more)
    labels = tuple(f"'{label}'" for label in LABELS)
    values = [
        chance.choice(chance.choice([NUMBERS, TEXTS, TEXTS, DATES, OWN, labels, ("NULL", "x'c3a9'")]))
        for _ in range(3)
    ]
    kind, null = a_type(chance), chance.choice(["", "", " NOT NULL", " AUTO_INCREMENT UNIQUE"])
    clause = f"MODIFY {{c}} {kind}{null if 'NULL' not in kind else ''}"
    if chance.random() < 0.1:
        clause = (
            f"CONVERT TO CHARACTER SET {chance.choice(['latin1', 'utf8mb4', 'ascii', 'utf8mb3', 'cp1251'])}"
        )
    elif chance.random() < 0.05:
        clause = "DROP PRIMARY KEY, ADD PRIMARY KEY ({c})"
    return Statement(clause, a_type(chance), tuple(values), *more)


@dataclass
class Case:
    """One ALTER of one column of one table, and what became of its rows.

    ``name``: of the column, and of the table. ``held``: the cells before, of the Spark type ``kind``. ``ways``: the Spark
    type behind the statement alone, and behind the first row after it, with expression and checks in Spark SQL, and the
    cells that the source has. ``stopped``: why the table stops.
    """

    name: str
    said: str
    kind: str = ""
    held: Any = None
    ways: list[tuple[str, str, list[str], list[Any]]] = field(default_factory=list)
    stopped: str = ""


class Altered:
    """Runs statements at a database, each with a table of its own."""

    def __init__(self, database: Database, session: Source) -> None:
        self.database = database
        self.session = session
        self.cases: list[Case] = []
        self.refused = 0

    def run(self, app: Connection[Cursor], of: Statement) -> Case | None:
        """One statement; None if the server refuses it, or capture the table."""
        name = f"c{len(self.cases) + self.refused}"
        sql = f"ALTER {of.ignore}TABLE {name} {of.clause.format(c=name)}"
        told = f", of {of.before} {', '.join(of.values)}" if of.before else ""
        case = Case(
            name, f"{of.mode or 'no mode'}, {of.charset}: {sql}{told}{', told late' if of.late else ''}"
        )
        with app.cursor() as cursor:
            try:
                self._run(cursor, of, case, sql)
            except (MySQLError, TableStopped):
                self.refused += 1
                return None
            finally:
                cursor.execute(f"DROP TABLE IF EXISTS {name}")
        self.cases.append(case)
        return case

    def _run(self, cursor: Cursor, of: Statement, case: Case, sql: str) -> None:
        cursor.execute("SET sql_mode = ''")
        column = f", {case.name} {of.before}" if of.before else ""
        cursor.execute(f"CREATE TABLE {case.name} (id INT PRIMARY KEY{column}) CHARACTER SET {of.charset}")
        for at, value in enumerate(of.values or ("",)):
            try:
                cursor.execute(
                    f"INSERT IGNORE INTO {case.name} VALUES ({at}{', ' if of.before else ''}{value})"
                )
            except MySQLError:
                continue
        before = self.schema(case.name)
        held = cells(case.name, before, self.raw(case.name)) if of.before else None
        cursor.execute(f"SET sql_mode = '{of.mode}'")
        cursor.execute(sql)
        self.follow(case, sql, before, held, late=of.late)

    def schema(self, name: str) -> TableSchema:
        """The table's schema, as capture tells it."""
        found = read_table(self.session, TableName(self.database.name, name))
        assert found is not None
        return from_catalogue(found, 1, 1)

    def raw(self, name: str) -> list[Raw]:
        """The column's values at the source, by id, as messages have them."""
        rows = rows_at_source(self.database.dsn, TableName(self.database.name, name))
        return [row[name] for row in sorted(rows.values(), key=lambda row: int(str(row["id"])))]

    def follow(self, case: Case, sql: str, before: TableSchema, held: Any, *, late: bool) -> None:
        """What the steps make of the statement."""
        columns = Columns((), ())
        columns.reset(before)
        columns = Columns(columns.tracked(), columns.hidden)
        after, raw = self.schema(case.name), self.raw(case.name)
        case.held = held
        case.kind = next((slot.kind for slot in columns.slots if slot.name == case.name), "")
        try:
            # Told late, a schema is one that a later statement left: without the column.
            told = [one for one in after.columns if not (late and one.name == case.name)]
            follow(columns, column_changes(sql), _with(after, told), None)
            _add_way(case, columns, after, raw)
            columns.adopt(after)
            _add_way(case, columns, after, raw)
        except Unfollowed as error:
            case.stopped = str(error)


def _add_way(case: Case, columns: Columns, after: TableSchema, raw: list[Raw]) -> None:
    slot = next((one for one in columns.slots if one.name == case.name), None)
    column = next(one for one in after.columns if one.name == case.name)
    natural = spark_kind(column.data_type)
    if slot is None:
        assert natural is None
    elif natural is not None and contains(slot.kind, natural):
        found = numbered(pa.record_batch({"c": cells(case.name, after, raw, slot.kind)}))
        checks = [one.sql for one in columns.checks]
        case.ways.append((slot.kind, slot.value.sql(), checks, [row["c"] for row in found]))


def cells(name: str, schema: TableSchema, raw: list[Raw], kind: str = "") -> Any:
    """Values of a column as one of the Spark type ``kind`` holds them; default: of the type that tables get."""
    column = next(one for one in schema.columns if one.name == name)
    held = kind or spark_kind(column.data_type)
    assert held is not None
    read = reader(column.data_type, held)
    return array_of([None if one is None else read(one) for one in raw], arrow_type(held))


def _with(schema: TableSchema, columns: Iterable[Any]) -> TableSchema:
    return replace(schema, columns=tuple(columns), indexes=())


def differences(spark: SparkSession, cases: Sequence[Case]) -> list[str]:
    """Where Spark has other values than the source, and no check says so. A case that is checked out is ``stopped``."""
    height = max(len(way[3]) for case in cases for way in case.ways)
    arrays: dict[str, Any] = {"id": pa.array(range(height))}
    for case in cases:
        if case.kind:
            missing = pa.nulls(height - len(case.held), case.held.type)
            arrays[case.name] = pa.concat_arrays([case.held, missing])
    chosen = []
    for case in cases:
        for turn, (kind, value, checks, _) in enumerate(case.ways):
            bad = " OR ".join(["false", *(f"coalesce(NOT ({check}), false)" for check in checks)])
            plain = f"CASE WHEN NOT ({bad}) THEN CAST({value} AS {kind}) END"
            shown = sql_number(f"({plain})", kind) if kind in MOMENTS else plain
            chosen += [f"({bad}) AS {case.name}_{turn}_bad", f"{shown} AS {case.name}_{turn}"]
    rows = spark.createDataFrame(pa.table(arrays)).selectExpr("id", *chosen).orderBy("id").collect()
    odd = []
    for case in cases:
        for turn, (kind, value, _, wanted) in enumerate(case.ways):
            mine = rows[: len(wanted)]
            if any(row[f"{case.name}_{turn}_bad"] for row in mine):
                case.stopped = case.stopped or "a check"
                continue
            found = [_plain(row[f"{case.name}_{turn}"]) for row in mine]
            if repr(found) != repr(wanted):
                at = ("the statement", "the first row")[turn]
                odd.append(f"{case.said}: {wanted!r}; behind {at} {found!r} by {value} ({kind})")
    return odd


def _plain(cell: Any) -> Any:
    return bytes(cell) if isinstance(cell, bytearray) else cell
