"""Statements as they stand in a binlog: what each does to tables; names, quotes, comments in every form; nothing guessed."""

from __future__ import annotations

import pytest

from headrace.capture.ddl import DdlStatement, TableName, parse
from headrace.simple.message import MessageType

T, U = TableName("d", "t"), TableName("d", "u")
ALTER, CREATE, ERASE = MessageType.ALTER, MessageType.CREATE, MessageType.ERASE
RENAME, CINDEX, DINDEX = MessageType.RENAME, MessageType.CINDEX, MessageType.DINDEX
QUERY, TRUNCATE = MessageType.QUERY, MessageType.TRUNCATE


def one(sql: str, **flags: bool) -> DdlStatement:
    (statement,) = parse(sql, "d", **flags)
    return statement


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("CREATE TABLE t (id INT PRIMARY KEY)", CREATE),
        ("create table if not exists t like s", CREATE),
        ("create table t (a int) partition by range (a) (partition p values less than (1))", CREATE),
        ("CREATE UNIQUE INDEX IF NOT EXISTS i USING BTREE ON t (a)", CINDEX),
        ("create or replace fulltext index i on t (a)", CINDEX),
        ("DROP INDEX IF EXISTS i ON t WAIT 3", DINDEX),
        ("TRUNCATE t", TRUNCATE),
        ("truncate table t nowait;", TRUNCATE),
        ("alter table t add index (a), add unique key (b), add primary key (c)", CINDEX),
        ("alter table t add constraint c foreign key (a) references u (a), algorithm=inplace", CINDEX),
        ("alter table t add constraint if not exists `c` unique (a)", CINDEX),
        ("alter table t drop index a, drop key b, drop primary key, drop foreign key f, lock=none", DINDEX),
        ("alter table t add index (a), drop index b", ALTER),
        ("alter table t add index (a) partition by key (a)", ALTER),
        ("alter table t add a int unique, add key (b)", ALTER),
        ("alter table t add constraint check (a > 0)", ALTER),
        ("alter table t drop constraint c", ALTER),
        ("alter table t drop index i remove partitioning", ALTER),
        ("alter table t nowait add c int", ALTER),
        ("alter table t wait 3 drop index i", DINDEX),
        ("alter table t drop column `index`", ALTER),
        ("alter table t add `index` int", ALTER),
        ("alter table t rename column a to b, rename index i to j, rename key k to l", ALTER),
        ("alter table t comment 'rename to u'", ALTER),
        ("alter table t convert to character set utf8mb4", ALTER),
        ("alter table t engine = innodb", ALTER),
        (
            "alter table t add partition (partition p values less than (4), partition q values less than (5))",
            ALTER,
        ),
        ("alter table t add a int default (1 + 2), add uuid int, auto_increment = 5", ALTER),
        ("alter table t add serial int after serial, add column (serial int, b int)", ALTER),
        ("alter table t add at datetime default now(), alter u set default uuid()", ALTER),
        ("alter table t add version int default 3, add user varchar(9) default 'x'", ALTER),
        ("alter table t force", ALTER),
        ("alter table t", ALTER),
    ],
)
def test_the_kind_of_a_statement_about_one_table(sql: str, kind: MessageType) -> None:
    statement = one(sql)
    assert (statement.kind, statement.table, statement.sql) == (kind, T, sql)
    assert not any((statement.moves_rows, statement.unread, statement.statement_format, statement.temporary))


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("t", T),
        ("`t`", T),
        ("d.t", T),
        (" d . `t` ", T),
        (".t", T),
        ("`a``b.c`.`x y`", TableName("a`b.c", "x y")),
        ("e.1t$_ü", TableName("e", "1t$_ü")),
        ("`select`.`table`", TableName("select", "table")),
        ("/* d.x */d/**/.#y\n-- z\nt", T),
        ("/*!40005 d.*//*M!100301 t */", T),
        ("/*!50701 mysql.*/t", T),
        ("/*! d. /* inner */ t */", T),
        ("/*!50701 /* inner */ mysql. */ t", T),
        ("/*M!50701 e. */ t", TableName("e", "t")),
    ],
)
def test_a_name_is_read_however_it_is_written(written: str, name: TableName) -> None:
    statement = one(f"ALTER TABLE {written} ADD c INT")
    assert (statement.kind, statement.table, statement.conditional) == (ALTER, name, False)
    assert one(f"ALTER TABLE IF EXISTS {written} ADD c INT").conditional


def test_quotes_mean_what_the_session_says() -> None:
    assert one('alter table "a""b" add c int', ansi_quotes=True).table == TableName("d", 'a"b')
    assert one('alter table "t" add c int').unread
    escaped = r"alter table t comment '\', rename to u -- '"
    assert one(escaped).kind is ALTER
    assert [each.kind for each in parse(escaped, "d", no_backslash_escapes=True)] == [ALTER, RENAME]


def test_the_text_has_the_quotes_that_every_reader_takes() -> None:
    ansi = """alter /* "c" */ table "t`""x" add `"` int comment '"' default "y"; -- "z" """
    plain = """alter /* "c" */ table `t``"x` add `"` int comment '"' default `y`; -- "z" """
    assert one(ansi, ansi_quotes=True).sql == plain
    literal = r"""alter table t comment '\' /* \ */, add `\` int default "\" """
    escaped = r"""alter table t comment '\\' /* \ */, add `\` int default "\\" """
    assert one(literal, no_backslash_escapes=True).sql == escaped


def test_names_are_in_lower_case_where_the_server_keeps_them_so() -> None:
    (rename,) = parse("rename table A.B to c", "D", lower_case_names=True)
    assert (rename.table, rename.new_name) == (TableName("a", "b"), TableName("d", "c"))


def test_a_statement_about_several_tables_is_split_in_its_order() -> None:
    erased = parse("DROP TABLES IF EXISTS t, e.`v``w` CASCADE /* generated by server */", "d")
    assert [(each.kind, each.sql, each.conditional) for each in erased] == [
        (ERASE, "DROP TABLE `d`.`t`", True),
        (ERASE, "DROP TABLE `e`.`v``w`", True),
    ]
    renamed = parse("rename table if exists t wait 3 to x, u nowait to t, x to e.u", "d")
    assert [(each.kind, each.sql) for each in renamed] == [
        (RENAME, "RENAME TABLE `d`.`t` TO `d`.`x`"),
        (RENAME, "RENAME TABLE `d`.`u` TO `d`.`t`"),
        (RENAME, "RENAME TABLE `d`.`x` TO `e`.`u`"),
    ]
    assert [(each.table, each.new_name) for each in renamed[1:]] == [
        (U, T),
        (TableName("d", "x"), TableName("e", "u")),
    ]


@pytest.mark.parametrize("word", ["", "TO ", "AS ", "= "])
def test_a_rename_inside_an_alter_is_a_message_of_its_own(word: str) -> None:
    rename = "RENAME TABLE `e`.`t` TO `d`.`u`"
    alone = parse(f"alter table e.t rename {word}u, algorithm=copy", "d")
    assert [(each.kind, each.sql, each.new_name) for each in alone] == [(RENAME, rename, U)]
    mixed = parse(f"alter table e.t add c int, RENAME {word}u, add d decimal(5,2) default 1", "d")
    assert [(each.kind, each.sql) for each in mixed] == [
        (ALTER, "alter table e.t add c int, add d decimal(5,2) default 1"),
        (RENAME, rename),
    ]


def test_the_last_of_several_renames_counts() -> None:
    assert [each.new_name for each in parse("alter table t rename x, rename u", "d")] == [U]


def test_a_table_that_is_replaced_is_dropped_first() -> None:
    drop, create = parse("CREATE /* new */ OR REPLACE TABLE t (a int)", "d")
    assert (drop.kind, drop.sql, drop.table, drop.conditional) == (ERASE, "DROP TABLE `d`.`t`", T, True)
    assert (create.kind, create.sql, create.table) == (CREATE, "CREATE TABLE t (a int)", T)


@pytest.mark.parametrize(
    ("sql", "others"),
    [
        ("alter table t exchange partition p with table e.u without validation", (TableName("e", "u"),)),
        ("alter table t convert partition p to table u", (U,)),
        ("alter table t convert table u to partition p values less than (5)", (U,)),
        ("alter table t drop partition p, q", ()),
        ("alter table t truncate partition all", ()),
        ("alter table t discard tablespace", ()),
        ("alter table t import partition p tablespace", ()),
        ("alter table t drop system versioning", ()),
        ("alter table t engine=BlackHole", ()),
        ("alter online ignore table t add unique (a)", ()),
        ("alter table t add id int auto_increment primary key first, add b int", ()),
        ("alter table t add (id serial, b int default 1)", ()),
        ("alter table t add column (b int default 1, u char(36) default (concat('x', uuid())))", ()),
        ("alter table t add n int default nextval(s)", ()),
        ("alter table t add n int default s.nextval", ()),
        ("alter table t add n int default (connection_id())", ()),
        ("alter table t add who varchar(80) default current_user", ()),
        ("alter table t add n int default next value for s", ()),
    ],
)
def test_rows_that_go_without_a_row_event_are_flagged(sql: str, others: tuple[TableName, ...]) -> None:
    statement = one(sql)
    assert (statement.table, statement.others, statement.moves_rows) == (T, others, True)


@pytest.mark.parametrize(
    ("sql", "actions"),
    [
        (
            "create table t (a int references u (a) on delete cascade on update set null)",
            ("ON DELETE CASCADE", "ON UPDATE SET NULL"),
        ),
        (
            "create or replace table t (a int, foreign key (a) references u (a) /*!40000 on update set */ default)",
            ("ON UPDATE SET DEFAULT",),
        ),
        (
            "alter table t add foreign key (a) references u (a) on delete cascade, rename u",
            ("ON DELETE CASCADE",),
        ),
        ("alter table t add b int references u (a) on delete cascade", ("ON DELETE CASCADE",)),
        ("alter table t add foreign key (a) references u (a) on delete restrict on update no action", ()),
        ("alter table t add b timestamp on update current_timestamp comment 'on delete cascade'", ()),
        ("create table t (a int) -- on delete cascade", ()),
        ("create table t (a int, `on` int, `delete` int, `cascade` int)", ()),
    ],
)
def test_what_foreign_keys_do_unseen_is_told(sql: str, actions: tuple[str, ...]) -> None:
    told = [each for each in parse(sql, "d") if each.kind not in {ERASE, RENAME}]
    assert [each.unlogged_actions for each in told] == [actions]


@pytest.mark.parametrize(
    ("sql", "database", "moves_rows"),
    [
        ("create database if not exists `x y`", "x y", False),
        ("alter schema e default character set latin1", "e", False),
        ("alter database character set = latin1", "d", False),
        ("drop database if exists e", "e", True),
        ("create or replace schema e", "e", True),
    ],
)
def test_a_database(sql: str, database: str, moves_rows: bool) -> None:
    statement = one(sql)
    assert (statement.kind, statement.table, statement.sql) == (QUERY, None, sql)
    assert (statement.database_only, statement.moves_rows) == (database, moves_rows)


def test_views() -> None:
    made = "CREATE OR REPLACE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW IF NOT EXISTS `t` AS select 1"
    for sql in (made, "alter definer=current_user() view t as select 2", "create view t as select 1"):
        assert (one(sql).kind, one(sql).table, one(sql).view, one(sql).sql) == (QUERY, T, True, sql)
    assert [each.sql for each in parse("drop view t, e.u", "d")] == ["DROP VIEW `d`.`t`", "DROP VIEW `e`.`u`"]


def test_settings_for_one_statement_are_left_out() -> None:
    statement = one("set statement max_statement_time=1, lock_wait_timeout=(1+2) FOR alter table t rename a")
    assert (statement.kind, statement.new_name) == (RENAME, TableName("d", "a"))
    added = one("SET STATEMENT a=1 FOR /* x */ create table t (a int)")
    assert (added.kind, added.sql) == (CREATE, "create table t (a int)")
    (altered, _) = parse("SET STATEMENT a=1 FOR alter table t rename u, add c int", "d")
    assert altered.sql == "alter table t add c int"
    assert one("set statement a=substring('x' from 1 for 2) for truncate t").kind is TRUNCATE
    assert one("set statement a=1 for insert into t values (1)").statement_format
    assert parse("set statement a=1 for analyze table t", "d") == ()


def test_temporary_tables_are_told_apart() -> None:
    for sql in ("create temporary table t (a int)", "DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`"):
        assert (one(sql).table, one(sql).temporary) == (T, True)
    (replaced,) = parse("create or replace temporary table t (a int)", "d")
    assert replaced.temporary


@pytest.mark.parametrize(
    "sql",
    [
        "insert into t values (1)",
        "DELETE FROM t",
        "with x as (select 1) update t set a=1",
        "load data infile 'x'",
        "create table t as select 1",
        "create table t values (1)",
        "create table t (a int) ignore as (select 1)",
    ],
)
def test_rows_that_were_changed_in_words_are_flagged(sql: str) -> None:
    assert one(sql).statement_format


@pytest.mark.parametrize(
    "sql",
    [
        "",
        " \n",
        "# Dummy event",
        "/* nothing */",
        "BEGIN",
        "COMMIT",
        "ROLLBACK TO `s`",
        "SAVEPOINT `s`",
        "XA END 'x'",
        "grant all on t to u",
        "flush tables",
        "analyze table t",
        "optimize table t",
        "set password for u = 'x'",
        "create definer=`a`@`b` trigger i before insert on t for each row set new.a = 1",
        "drop user u",
        "rename user a to b",
        "create or replace aggregate function f() returns int return 1",
        "drop procedure if exists p",
        "create sequence s",
        "create definer=current_role event e on schedule every 1 day do delete from t",
        "create role r",
        "alter sequence s",
    ],
)
def test_what_is_no_tables_business(sql: str) -> None:
    assert parse(sql, "d") == ()


@pytest.mark.parametrize(
    "sql",
    [
        "frobnicate t",
        "create",
        "create table",
        "alter table t rename to",
        "rename table t",
        "drop table t, u frobnicate",
        "alter table 't' add a int",
        "alter table t /* not closed",
        "alter table t comment 'not closed",
        "truncate t, u",
        "/*! create table t (a int)",
        "alter table t add a int,, add b int",
        "set statement a=1",
        "drop frobnicator t",
        "create table `` (a int)",
        "alter table t exchange partition p",
        "rename table t to u frobnicate",
        "/*!50701 x",
    ],
)
def test_what_can_not_be_read_says_so(sql: str) -> None:
    assert parse(sql, "d") == (DdlStatement(QUERY, sql, unread=True),)


def test_a_name_without_any_database_is_not_guessed() -> None:
    assert parse("drop table t", "")[0].unread
    assert parse("drop table d.t", "")[0].table == T


@pytest.mark.parametrize(
    "part",
    ["'", "`", '"', "/*", "/*!", "/*!50701 /*", "*/", "(", ",", "a.", "\\'", "''", "#\n", "é ", "rename b,"],
)
def test_a_huge_text_takes_linear_time(part: str) -> None:
    size = 100_000 // len(part)
    assert parse(f"alter table t {part * size}", "d")
    assert parse(f"alter table t comment 'x{part * size}", "d")
