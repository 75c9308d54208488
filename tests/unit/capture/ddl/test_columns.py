"""What statements do to columns, from their text."""

from __future__ import annotations

import pytest

from headrace.capture.ddl.columns import (
    Add,
    Change,
    ColumnChanges,
    ColumnDefinition,
    ColumnUnknown,
    Default,
    DefaultKind,
    Drop,
    Rename,
    column_changes,
)
from headrace.simple.schema import DataType


def added(definition: str) -> ColumnDefinition:
    (clause,) = column_changes(f"ALTER TABLE t ADD COLUMN c {definition}").clauses
    assert isinstance(clause, Add)
    return clause.column


@pytest.mark.parametrize(
    ("alter", "clauses"),
    [
        ("DROP a", [Drop("a")]),
        ("DROP COLUMN IF EXISTS `a``b`", [Drop("a`b", conditional=True)]),
        ("DROP COLUMN `index`", [Drop("index")]),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", [Rename("a", "b"), Rename("b", "a")]),
        ("RENAME COLUMN IF EXISTS a TO b", [Rename("a", "b", conditional=True)]),
        ("DROP PARTITION p, ALGORITHM = INPLACE, LOCK NONE", []),
        ("DROP INDEX a, DROP FOREIGN KEY b, DROP CONSTRAINT c, DROP CHECK d, DROP KEY e", []),
        ("ADD INDEX (a), ADD UNIQUE KEY b (c), ADD CONSTRAINT x FOREIGN KEY (a) REFERENCES u (a)", []),
        ("ADD SYSTEM VERSIONING, ADD PERIOD FOR p (a, b), ADD CHECK (a > 0), ADD PARTITION (PARTITION p VALUES IN (1))", []),
        ("ALTER COLUMN a SET DEFAULT 5, ALTER a DROP DEFAULT, ALTER INDEX i INVISIBLE, COMMENT 'DROP COLUMN x'", []),
        ("RENAME INDEX a TO b, RENAME KEY c TO d, ORDER BY a, ENGINE = InnoDB, FORCE, AUTO_INCREMENT = 5", []),
        ("SET TIFLASH REPLICA 1", []),
    ],
)  # fmt: skip
def test_clauses(alter: str, clauses: list[object]) -> None:
    assert column_changes(f"ALTER TABLE `d`.`t` {alter}") == ColumnChanges(tuple(clauses))  # type: ignore[arg-type]  # clauses of any kind


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD c INT",
        "alter online ignore table if exists d.t wait 5 add column c int(11) first",
        "ALTER /* a */ TABLE t NOWAIT ADD COLUMN (c INTEGER, INDEX (c))",
        "/*!40000 ALTER TABLE t */ ADD `c` INT4 AFTER `x`, ALGORITHM=INSTANT;",
    ],
)
def test_forms_of_one_statement(sql: str) -> None:
    assert column_changes(sql).clauses == (Add(ColumnDefinition("c", INT, None, None)),)


INT = DataType("int", "binary", "binary", 11)


@pytest.mark.parametrize(
    ("definition", "data_type"),
    [
        ("int unsigned", DataType("int", "binary", "binary", 10, unsigned=True)),
        ("INT(5) ZEROFILL", DataType("int", "binary", "binary", 5, unsigned=True, zerofill=True)),
        ("bool", DataType("tinyint", "binary", "binary", 1)),
        ("bigint unsigned", DataType("bigint", "binary", "binary", 20, unsigned=True)),
        ("serial", DataType("bigint", "binary", "binary", 20, unsigned=True)),
        ("numeric(9,3)", DataType("decimal", "binary", "binary", 9, 3)),
        ("dec", DataType("decimal", "binary", "binary", 10)),
        ("double precision", DataType("double", "binary", "binary", 22)),
        ("float(25)", DataType("double", "binary", "binary", 22)),
        ("float(7,4)", DataType("float", "binary", "binary", 7, 4)),
        ("bit(9)", DataType("bit", "binary", "binary", 9, unsigned=True)),
        ("year", DataType("year", "binary", "binary", 4, unsigned=True, zerofill=True)),
        ("datetime(6)", DataType("datetime", "binary", "binary", 26, 6)),
        ("timestamp", DataType("timestamp", "binary", "binary", 19)),
        ("time(2)", DataType("time", "binary", "binary", 13, 2)),
        ("character varying(9) charset latin1", DataType("varchar", "latin1", "latin1", 9)),
        ("national varchar(3)", DataType("varchar", "", "", 3)),
        ("char(4) character set binary", DataType("binary", "binary", "binary", 4)),
        ("char(4) byte", DataType("binary", "binary", "binary", 4)),
        ("varchar(4) collate utf8mb4_bin", DataType("varchar", "utf8mb4", "utf8mb4", 4)),
        ("long varbinary", DataType("mediumblob", "binary", "binary", 16_777_215)),
        ("long", DataType("mediumtext", "", "", 16_777_215)),
        ("enum('a','b''c','d\\'')", DataType("enum", "", "", 3, 0, ("a", "b'c", "d'"))),
        ("set('x ', 'yy') charset utf8mb4", DataType("set", "utf8mb4", "utf8mb4", 4, 0, ("x", "yy"))),
        ("uuid", DataType("char", "ascii", "ascii", 36)),
        ("inet6", DataType("varchar", "ascii", "ascii", 39)),
        ("point", None),
        ("mariadb_schema.date", None),
    ],
)
def test_types(definition: str, data_type: DataType | None) -> None:
    assert added(definition).data_type == data_type


@pytest.mark.parametrize(
    ("definition", "default"),
    [
        ("int", None),
        ("int default null", Default(DefaultKind.NULL)),
        ("int default - 5", Default(DefaultKind.NUMBER, "-5")),
        ("double default 1.5e-3 not null", Default(DefaultKind.NUMBER, "1.5e-3")),
        ("bool default true", Default(DefaultKind.NUMBER, "1")),
        ("varchar(9) default 'a\\nb''c\\\\' comment 'NOT NULL'", Default(DefaultKind.TEXT, "a\nb'c\\")),
        ("varchar(9) default \"it's\"", Default(DefaultKind.TEXT, "it's")),
        ("varchar(9) default _utf8mb4'x' 'y'", Default(DefaultKind.TEXT, "xy")),
        ("date default date'2020-01-01'", Default(DefaultKind.TEXT, "2020-01-01")),
        ("text default ('x')", Default(DefaultKind.TEXT, "x")),
        ("bit(9) default b'101'", Default(DefaultKind.BYTES, "05")),
        ("blob default x'00ff'", Default(DefaultKind.BYTES, "00ff")),
        ("blob default 0xabc", Default(DefaultKind.BYTES, "0abc")),
        ("timestamp default now() on update now()", Default(DefaultKind.NOW)),
        ("timestamp(3) default current_timestamp(3) on update current_timestamp(3)", Default(DefaultKind.NOW, "3")),
        ("int default (1 + 2)", Default(DefaultKind.EXPRESSION)),
        ("varchar(9) default concat('a', 'b') not null", Default(DefaultKind.EXPRESSION)),
        ("int default next value for s", Default(DefaultKind.EXPRESSION)),
        ("varchar(9) default _latin1'é'", Default(DefaultKind.EXPRESSION)),
        ("varchar(9) default _ucs2'ab'", Default(DefaultKind.EXPRESSION)),
        ("varchar(9) default n'x'", Default(DefaultKind.TEXT, "x")),
        ("date default date'2020-1-1'", Default(DefaultKind.EXPRESSION)),
        ("varbinary(9) default b''", Default(DefaultKind.BYTES, "")),
    ],
)  # fmt: skip
def test_defaults(definition: str, default: Default | None) -> None:
    assert added(definition).default == default


@pytest.mark.parametrize(
    ("definition", "nullable"),
    [
        ("int", None),
        ("int null default 5", True),
        ("int default 5 not null", False),
        ("int primary key", False),
        ("int references u (a) on delete set null on update cascade", None),
        ("int not null references u (a) on delete set null", False),
        ("int check (c is not null)", None),
        ("int comment 'not null'", None),
        ("serial", False),
    ],
)
def test_whether_null_is_allowed(definition: str, nullable: bool | None) -> None:
    assert added(definition).nullable is nullable


def test_what_the_source_alone_knows() -> None:
    assert added("int as (a + 1) stored").generated
    assert added("int generated always as (a) virtual").generated
    assert added("int auto_increment unique").auto_increment
    assert added("bigint serial default value").auto_increment
    assert not added("int default 5").auto_increment


def test_keys_and_character_sets() -> None:
    found = column_changes("ALTER TABLE t DROP PRIMARY KEY, ADD CONSTRAINT PRIMARY KEY (a, b)")
    assert (found.clauses, found.drops_primary_key, found.primary_key) == ((), True, ("a", "b"))
    assert column_changes("ALTER TABLE t ADD c INT PRIMARY KEY").primary_key == ("c",)
    named = "ALTER TABLE t ADD (CONSTRAINT `p q` PRIMARY KEY x USING BTREE (`A b`(10) DESC, c), INDEX i (d), e INT)"
    assert column_changes(named).primary_key == ("A b", "c")
    assert (
        column_changes(
            "ALTER TABLE t ADD INDEX (a), ADD CONSTRAINT u UNIQUE (b), ADD CHECK (c > 0)"
        ).primary_key
        == ()
    )
    assert (
        column_changes("ALTER TABLE t CONVERT TO CHARACTER SET 'utf8mb4' COLLATE x").converts_charset
        == "utf8mb4"
    )
    assert column_changes("ALTER TABLE t CONVERT TO CHARSET DEFAULT").converts_charset == "default"
    assert column_changes("ALTER TABLE t DEFAULT CHARACTER SET latin1") == ColumnChanges()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX i ON t (a)",
        "TRUNCATE TABLE t",
        "ALTER DATABASE d CHARSET utf8mb4",
        "",
        "ANALYZE TABLE t",
    ],
)
def test_other_statements_do_nothing_to_columns(sql: str) -> None:
    assert column_changes(sql) == ColumnChanges()


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE t ADD",
        "ALTER TABLE t ADD c",
        "ALTER TABLE t ADD c INT DEFAULT",
        "ALTER TABLE t ADD (c INT",
        "ALTER TABLE t RENAME COLUMN a b",
        "ALTER TABLE t CHANGE a",
        "ALTER TABLE t ADD c 'INT",
        "ALTER TABLE",
        f"ALTER TABLE t ADD c VARCHAR({'9' * 5000}) CHARACTER x",
    ],
)
def test_what_can_not_be_read_says_so(sql: str) -> None:
    assert column_changes(sql) == ColumnChanges(unread=True)


def outcome(alter: str, *names: str) -> tuple[list[tuple[str, str]], list[str]]:
    found = column_changes(f"ALTER TABLE t {alter}").applied(names)
    return [(names[place], name) for place, (name, _) in found.kept.items()], [
        one.name for one in found.added
    ]


def test_clauses_speak_of_the_columns_that_were_there() -> None:
    assert outcome("RENAME COLUMN a TO b, RENAME COLUMN b TO a", "a", "b") == ([("a", "b"), ("b", "a")], [])
    assert outcome("DROP a, ADD a INT", "a", "b") == ([("b", "b")], ["a"])
    assert outcome("CHANGE A c INT, ADD a INT", "a") == ([("a", "c")], ["a"])
    assert outcome("ADD IF NOT EXISTS A INT, ADD IF NOT EXISTS b INT, DROP IF EXISTS x", "a") == (
        [("a", "a")],
        ["b"],
    )
    assert outcome("MODIFY IF EXISTS x INT, RENAME COLUMN IF EXISTS y TO z", "a") == ([("a", "a")], [])


def test_a_definition_goes_with_its_column() -> None:
    found = column_changes("ALTER TABLE t CHANGE a b INT, DROP c").applied(["a", "c"])
    assert found.kept == {0: ("b", ColumnDefinition("b", INT, None, None))}
    assert (found.dropped, found.names) == ((1,), ["b"])
    assert isinstance(column_changes("ALTER TABLE t MODIFY a INT").clauses[0], Change)


def test_a_column_that_is_not_there() -> None:
    with pytest.raises(ColumnUnknown, match="x"):
        column_changes("ALTER TABLE t DROP x").applied(["a"])
