"""Schemas on a real server: of a table with every type, catalogue and binlog agree, after each of many changes too."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.capture.binlog.event import Statement, TableMap, TableMapped
from headrace.capture.catalogue_schema import catalogue_forms, from_catalogue
from headrace.capture.catalogue_table import CatalogueTable, Generation, TableKind
from headrace.capture.ddl import TableName, parse
from headrace.capture.mariadb.catalogue import ListedTable, list_tables, read_table
from headrace.capture.mariadb.connection import Source
from headrace.capture.mariadb.server import read_collations, read_server
from headrace.capture.table_schema import binlog_forms, disagreement, enrich, from_table_map
from headrace.errors import SourceUnavailable
from headrace.simple.message import MessageType
from headrace.simple.schema import Column, DataType, Index
from tests.integration.capture.binlog_files import stored_events
from tests.integration.capture.every_type import ALTERS, COLUMNS, CREATE
from tests.mariadb import Database, Server


@pytest.fixture
def names(source: Source) -> dict[int, str]:
    collations = read_collations(source, read_server(source))
    return {number: collation.name for number, collation in collations.items()}


def shapes(database: Database, *wanted: str) -> list[TableMap]:
    """The shapes of rows of the tables ``wanted``, in the binlog's order."""
    maps = (event.table for _, event in stored_events(database) if isinstance(event, TableMapped))
    return [each for each in maps if each.database == database.name and each.table in wanted]


def read(source: Source, database: Database, table: str) -> CatalogueTable:
    found = read_table(source, TableName(database.name, table))
    assert found is not None
    return found


def test_catalogue_and_binlog_agree_after_every_change(
    database: Database, source: Source, names: dict[int, str]
) -> None:
    with database.connect(autocommit=True) as app, app.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(CREATE)
        cursor.execute("INSERT INTO every (id, x_auto) VALUES (1, 1)")
        catalogues = [read(source, database, "every")]
        for number, alter in enumerate(ALTERS, start=2):
            cursor.execute(f"ALTER TABLE every {alter}")
            cursor.execute(
                f"INSERT INTO every (id, x_auto, s_varchar, b_medium) VALUES ({number}, {number}, {number}, {number})"
            )
            catalogues.append(read(source, database, "every"))
    maps = shapes(database, "every")
    assert len(maps) == len(catalogues)
    for place, (table_map, catalogue) in enumerate(zip(maps, catalogues, strict=True)):
        schema = from_catalogue(catalogue, 1, 2)
        assert disagreement(schema, table_map, names) is None, ALTERS[place - 1]
        bare = from_table_map(table_map, names, 1, 2)
        assert disagreement(bare, table_map, names) is None
        assert [column.name for column in bare.columns] == [column.name for column in schema.columns]
        assert enrich(table_map, names, catalogue, None, table_id=1, version=2) == schema
        assert binlog_forms(schema, table_map) == catalogue_forms(catalogue)
        for earlier, before in zip(maps[:place], catalogues, strict=False):
            fits = disagreement(from_catalogue(before, 1, 2), table_map, names) is None
            assert fits == (from_table_map(earlier, names, 1, 2) == bare)


def test_what_the_catalogue_says_of_every_type(database: Database, source: Source) -> None:
    with database.connect(autocommit=True) as app, app.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+05:00'")
        cursor.execute(CREATE)
    catalogue = read(source, database, "every")
    schema = from_catalogue(catalogue, 3, 4)
    assert (schema.schema, schema.table, schema.table_id, schema.version) == (database.name, "every", 3, 4)
    columns = {column.name: column for column in schema.columns}
    assert list(columns) == list(COLUMNS)
    assert schema.handle_key == ("id",)
    assert schema.indexes == (
        Index("PRIMARY", unique=True, primary=True, nullable=False, columns=("id",)),
        Index("x_auto", unique=True, primary=False, nullable=False, columns=("x_auto",)),
        Index("long_one", unique=True, primary=False, nullable=True, columns=("s_text",)),
        Index("two", unique=False, primary=False, nullable=True, columns=("n_int", "s_varchar")),
    )
    number = DataType("int", "binary", "binary", 11)
    latin = ("latin1", "latin1_swedish_ci")
    longest = 4_294_967_295
    required = {"id", "s_varchar", "t_timestamp6"}
    for name, data_type, default in (
        ("id", number, None),
        ("n_bool", replace(number, mysql_type="tinyint", length=1), "1"),
        ("n_int", replace(number, length=5, unsigned=True, zerofill=True), "7"),
        ("n_big", replace(number, mysql_type="bigint", length=20, unsigned=True), "18446744073709551615"),
        ("n_year", replace(number, mysql_type="year", length=4, unsigned=True, zerofill=True), "2020"),
        ("n_bit", replace(number, mysql_type="bit", length=10, unsigned=True), 10),
        ("n_bits", replace(number, mysql_type="bit", length=64, unsigned=True), 2**64 - 1),
        (
            "n_decimal",
            replace(number, mysql_type="decimal", length=12, decimal=6, unsigned=True),
            "1.500000",
        ),
        ("n_float", replace(number, mysql_type="float", length=7), None),
        ("n_real", replace(number, mysql_type="double", length=22), None),
        ("s_char", DataType("char", "ucs2", "ucs2_general_ci", 3), "é"),
        ("s_varchar", DataType("varchar", "utf16", "utf16_general_ci", 10), "a\nb'c\\"),
        ("s_bin", DataType("varchar", "utf8mb4", "utf8mb4_bin", 10), ""),
        ("s_tiny", DataType("tinytext", *latin, 255), "hello"),
        ("s_long", DataType("longtext", *latin, longest), "current_timestamp()"),
        ("s_json", DataType("longtext", "utf8mb4", "utf8mb4_bin", longest), None),
        ("b_binary", DataType("binary", "binary", "binary", 5), "ab\0\0\0"),
        ("b_varbinary", DataType("varbinary", "binary", "binary", 7), "NULL"),
        ("b_blob", DataType("blob", "binary", "binary", 65_535), "\0\N{REPLACEMENT CHARACTER}"),
        ("z_varchar", DataType("varchar", "utf8mb4", "utf8mb4_general_ci", 20), None),
        (
            "e_enum",
            DataType("enum", "utf8mb4", "utf8mb4_general_ci", 3, elements=("a", "b'c", "ü,)")),
            "ü,)",
        ),
        ("e_set", DataType("set", *latin, 8, elements=("x", "yy", "zzz")), "x,zzz"),
        ("t_date", DataType("date", "binary", "binary", 10), "2020-02-20"),
        ("t_datetime", DataType("datetime", "binary", "binary", 19), "0000-00-00 00:00:00"),
        ("t_datetime3", DataType("datetime", "binary", "binary", 23, 3), "CURRENT_TIMESTAMP"),
        ("t_timestamp", DataType("timestamp", "binary", "binary", 19), "2020-01-01 22:04:05"),
        ("t_timestamp6", DataType("timestamp", "binary", "binary", 26, 6), "CURRENT_TIMESTAMP"),
        ("t_time2", DataType("time", "binary", "binary", 13, 2), "12:00:00.00"),
        ("m_uuid", DataType("char", "ascii", "ascii_general_ci", 36), "00112233-4455-6677-8899-aabbccddeeff"),
        ("m_inet6", DataType("varchar", "ascii", "ascii_general_ci", 39), "::1"),
        ("g_point", DataType("geometry", "binary", "binary", -1), None),
        ("x_default", number, "(1 + 2)"),
        ("x_virtual", number, None),
        ("x_invisible", number, "3"),
    ):
        assert columns[name] == Column(name, data_type, name not in required, default)
    generations = {column.name: column.generation for column in catalogue.columns if column.generation}
    assert generations == {"x_virtual": Generation.VIRTUAL, "x_stored": Generation.STORED}
    assert [column.name for column in catalogue.columns if column.invisible] == ["x_invisible"]


def test_what_is_listed(database: Database, source: Source) -> None:
    for statement in (
        "CREATE TABLE b (a int PRIMARY KEY) ENGINE=Aria",
        "CREATE TABLE `a``%` (a int PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE VIEW v AS SELECT * FROM b",
        "CREATE SEQUENCE s",
    ):
        database.sql(statement)
    own = [table for table in list_tables(source) if table.name.database == database.name]
    assert own == [
        ListedTable(TableName(database.name, "a`%"), TableKind.VERSIONED, "InnoDB"),
        ListedTable(TableName(database.name, "b"), TableKind.TABLE, "Aria"),
        ListedTable(TableName(database.name, "s"), TableKind.SEQUENCE, "InnoDB"),
        ListedTable(TableName(database.name, "v"), TableKind.VIEW, ""),
    ]
    assert read(source, database, "a`%").kind is TableKind.VERSIONED
    assert read(source, database, "v").columns
    database.sql("DROP TABLE b")
    assert read(source, database, "v").columns == ()
    assert read_table(source, TableName(database.name, "none")) is None
    assert not [table for table in list_tables(source) if table.name.database == "information_schema"]


def test_a_table_that_can_not_be_opened_is_not_taken_for_a_dropped_one(
    mariadb: Server, database: Database, source: Source
) -> None:
    database.sql("CREATE TABLE damaged (a int PRIMARY KEY)")
    definition = mariadb.folder / "data" / database.name / "damaged.frm"
    whole = definition.read_bytes()
    definition.write_bytes(b"x" * len(whole))
    mariadb.sql("FLUSH TABLES")
    with pytest.raises(SourceUnavailable, match=r"can't open the table .*`damaged`"):
        read_table(source, TableName(database.name, "damaged"))
    definition.write_bytes(whole)
    assert read(source, database, "damaged").columns


def test_columns_that_the_server_hides(database: Database, source: Source, names: dict[int, str]) -> None:
    for statement in (
        "CREATE TABLE hashed (a int NOT NULL, b blob NOT NULL, UNIQUE (b))",
        "INSERT INTO hashed VALUES (1, 'x')",
        "CREATE TABLE lookalike (a int PRIMARY KEY, DB_ROW_HASH_1 bigint unsigned NOT NULL)",
        "INSERT INTO lookalike VALUES (1, 2)",
        "CREATE TABLE versioned (a int PRIMARY KEY) WITH SYSTEM VERSIONING",
        "INSERT INTO versioned VALUES (1)",
    ):
        database.sql(statement)
    hashed, lookalike, versioned = shapes(database, "hashed", "lookalike", "versioned")
    assert [column.name for column in hashed.columns] == ["a", "b", "DB_ROW_HASH_1"]
    bare = from_table_map(hashed, names, 1, 2)
    assert [column.name for column in bare.columns] == ["a", "b"]
    schema = enrich(hashed, names, read(source, database, "hashed"), None, table_id=1, version=2)
    assert (schema.columns, schema.handle_key) == (bare.columns, ("b",))
    own = enrich(lookalike, names, read(source, database, "lookalike"), None, table_id=1, version=2)
    assert [column.name for column in own.columns] == ["a", "DB_ROW_HASH_1"]
    difference = disagreement(from_catalogue(read(source, database, "versioned"), 1, 2), versioned, names)
    assert difference == "there are 1 columns, in the binlog 3"


def test_labels_that_the_catalogue_has_no_letters_for(
    database: Database, source: Source, names: dict[int, str]
) -> None:
    database.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('😀','really?','o''k,') CHARACTER SET utf8mb4, "
        "s SET('😎','b?') CHARACTER SET utf8mb4, l ENUM('a?') CHARACTER SET latin1)"
    )
    database.sql("INSERT INTO t VALUES (1, '😀', '😎', 'a?')")
    (table_map,) = shapes(database, "t")
    schema = from_catalogue(read(source, database, "t"), 1, 1)
    labels = [column.data_type.elements for column in schema.columns]
    assert labels == [(), ("😀", "really?", "o'k,"), ("😎", "b?"), ("a?",)]
    assert disagreement(schema, table_map, names) is None


KEYS = (
    "a INT NOT NULL, b INT NOT NULL, UNIQUE (b, a), UNIQUE (a)",
    "a INT NOT NULL, b INT NOT NULL, UNIQUE (a), UNIQUE (b, a), PRIMARY KEY (b)",
    "a INT, b INT NOT NULL, UNIQUE (a), UNIQUE (b)",
    "a INT, b INT NOT NULL, UNIQUE (a, b)",
    "a INT, b INT NOT NULL, KEY (b)",
    "a VARCHAR(20) NOT NULL, b INT NOT NULL, UNIQUE (a(3)), UNIQUE (b)",
    "a VARCHAR(20) NOT NULL, b INT NOT NULL, UNIQUE (a(3))",
    "a TEXT NOT NULL, b INT NOT NULL, UNIQUE (a), UNIQUE (b)",
    "a TEXT NOT NULL, b INT NOT NULL, UNIQUE (b, a)",
    "a VARCHAR(20) NOT NULL, b INT NOT NULL, UNIQUE (a(20))",
    "a VARCHAR(2000) CHARACTER SET utf8mb4 NOT NULL, b INT NOT NULL, UNIQUE (a)",
    "a INT NOT NULL, b INT NOT NULL, UNIQUE (a) USING HASH, UNIQUE (b)",
    "a INT NOT NULL, b INT AS (a + 1) STORED, UNIQUE (b), UNIQUE (a)",
    "a INT NOT NULL, b INT AS (a + 1) VIRTUAL, UNIQUE (b)",
    "a INT NOT NULL, b POINT NOT NULL, SPATIAL (b), UNIQUE (a)",
    "a INT NOT NULL, b INT NOT NULL, UNIQUE later (b), UNIQUE first (a), KEY (a, b)",
    "a INT NOT NULL, b INT NOT NULL, UNIQUE (a), UNIQUE (b) IGNORED",
    "a INT NOT NULL, b INT NOT NULL INVISIBLE DEFAULT 3, UNIQUE (b), UNIQUE (a)",
    "a INT NOT NULL, b INT NOT NULL, UNIQUE (b DESC), UNIQUE (a)",
)


def test_catalogue_and_binlog_have_the_same_key(
    database: Database, source: Source, names: dict[int, str]
) -> None:
    for number, columns in enumerate(KEYS):
        database.sql(f"CREATE TABLE t{number} ({columns})")
        database.sql(
            f"INSERT INTO t{number} (a) VALUES ('1')"
            if " AS " in columns
            else f"INSERT INTO t{number} (a, b) VALUES ('1', {'POINT(1, 1)' if 'POINT' in columns else 1})"
        )
    maps = shapes(database, *(f"t{number}" for number in range(len(KEYS))))
    for number, (columns, table_map) in enumerate(zip(KEYS, maps, strict=True)):
        schema = from_catalogue(read(source, database, f"t{number}"), 1, 1)
        assert disagreement(schema, table_map, names) is None, columns


def test_statements_are_read_from_the_binlog_as_the_server_writes_them(database: Database) -> None:
    with database.connect(autocommit=True) as app, app.cursor() as cursor:
        for statement in (
            "create table a (id int primary key, x int)",
            "create or replace table b as select * from a",
            "create temporary table b (id int)",
            "drop temporary table b",
            "create table c (id int) partition by range (id) (partition p values less than (9))",
            "drop table if exists none, c",
            "set statement lock_wait_timeout = 3 for alter table a add key (x), rename to d",
            "rename table b wait 3 to e, d to b",
            "alter table b /*!50701 mysql */ /*M!100101 add y int */ /* c */",
            "alter table b engine=aria, drop key x",
            "drop index if exists none on b",
            "create view v as select * from b",
            "drop view v",
            "create sequence s",
            "analyze table b",
            "truncate b",
            "set sql_mode = 'ansi_quotes,no_backslash_escapes'",
            """create table "q""`" (id int) comment 'x\\'""",
        ):
            cursor.execute(statement)
    statements = [event for _, event in stored_events(database) if isinstance(event, Statement)]
    found = [
        (
            each.kind.value,
            each.table.table if each.table else "",
            each.new_name.table if each.new_name else "",
        )
        for event in statements
        if event.database == database.name
        for each in parse(
            event.sql,
            event.database,
            ansi_quotes=event.ansi_quotes,
            no_backslash_escapes=event.no_backslash_escapes,
        )
        if each.database_only is None
    ]
    create, erase, query, rename = (
        kind.value for kind in (MessageType.CREATE, MessageType.ERASE, MessageType.QUERY, MessageType.RENAME)
    )
    assert found == [
        (create, "a", ""),
        (erase, "b", ""),
        (create, "b", ""),
        (create, "c", ""),
        (erase, "none", ""),
        (erase, "c", ""),
        (MessageType.CINDEX.value, "a", ""),
        (rename, "a", "d"),
        (rename, "b", "e"),
        (rename, "d", "b"),
        (MessageType.ALTER.value, "b", ""),
        (MessageType.ALTER.value, "b", ""),
        (MessageType.DINDEX.value, "b", ""),
        (query, "v", ""),
        (query, "v", ""),
        (MessageType.TRUNCATE.value, "b", ""),
        (create, 'q"`', ""),
    ]
