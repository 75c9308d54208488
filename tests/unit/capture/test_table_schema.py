"""Schemas from the binlog's shape of a table, which decides, and from the catalogue, where that has the same columns."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from headrace.capture.binlog.event import BinlogColumn, TableMap
from headrace.capture.binlog.network import Form
from headrace.capture.binlog.table_map import ColumnType
from headrace.capture.catalogue_schema import from_catalogue
from headrace.capture.catalogue_table import (
    CatalogueColumn,
    CatalogueIndex,
    CatalogueTable,
    Generation,
    TableKind,
)
from headrace.capture.ddl import TableName
from headrace.capture.table_schema import (
    binlog_forms,
    disagreement,
    enrich,
    from_table_map,
)
from headrace.simple.schema import DataType, Index

COLLATIONS = {8: "latin1_swedish_ci", 45: "utf8mb4_general_ci", 63: "binary"}
ID = BinlogColumn("id", ColumnType.LONG, 0, nullable=False)
NAME = BinlogColumn("name", ColumnType.VARCHAR, 40, nullable=True, collation=45, charset="utf8mb4")
ADDRESS = BinlogColumn("address", ColumnType.STRING, 16, nullable=True, collation=63, charset="binary")
HASH = BinlogColumn("DB_ROW_HASH_1", ColumnType.LONGLONG, 0, nullable=True, unsigned=True)

CATALOGUE = CatalogueTable(
    TableName("d", "t"),
    TableKind.TABLE,
    "InnoDB",
    (
        CatalogueColumn("id", "int(7)", "int", "", "", nullable=False, default=None),
        CatalogueColumn(
            "name", "varchar(10)", "varchar", "utf8mb4", "utf8mb4_general_ci", nullable=True, default="'x'"
        ),
        CatalogueColumn("address", "inet6", "inet6", "", "", nullable=True, default="'::1'"),
    ),
    (
        CatalogueIndex("PRIMARY", unique=True, columns=("id",), prefixes=(None,)),
        CatalogueIndex("by_name", unique=False, columns=("name",), prefixes=(4,)),
    ),
)


def shape(*columns: BinlogColumn, key: tuple[int, ...] = (0,)) -> TableMap:
    return TableMap(7, "d", "t", columns, key, (0,) * len(key), b"")


WHOLE = shape(ID, NAME, ADDRESS)


def default(base_type: str, sql: str | None, generation: Generation | None = None) -> str | int | None:
    column = CatalogueColumn(
        "c", base_type, base_type, "", "", nullable=True, default=sql, generation=generation
    )
    table = CatalogueTable(TableName("d", "t"), TableKind.TABLE, "InnoDB", (column,), ())
    return from_catalogue(table, 1, 1).columns[0].default


@pytest.mark.parametrize(
    ("base_type", "sql", "value"),
    [
        ("int", None, None),
        ("varchar", "NULL", None),
        ("varchar", "'NULL'", "NULL"),
        ("varchar", "''", ""),
        ("varchar", r"'it''s\\ \"\n\0\%'", "it's\\ \"\n\0%"),
        ("varchar", "'a' + 'b'", "'a' + 'b'"),
        ("varchar", "concat('a','b')", "concat('a','b')"),
        ("int", "0000000007", "7"),
        ("int", "-5", "-5"),
        ("decimal", "-1.50", "-1.50"),
        ("int", "(1 + 2)", "(1 + 2)"),
        ("bit", "b'1010'", 10),
        ("bit", "b'" + "1" * 64 + "'", 2**64 - 1),
        ("bit", r"'\0a'", 97),
        ("bit", "(1 + 2)", "(1 + 2)"),
        ("blob", "X'c3a9ff'", "é\N{REPLACEMENT CHARACTER}"),
        ("datetime", "current_timestamp(6)", "CURRENT_TIMESTAMP"),
        ("timestamp", "NOW()", "CURRENT_TIMESTAMP"),
        ("datetime", "current_timestamp() + interval 1 day", "current_timestamp() + interval 1 day"),
        ("varchar", "'current_timestamp()'", "current_timestamp()"),
    ],
)
def test_defaults(base_type: str, sql: str | None, value: str | int | None) -> None:
    assert default(base_type, sql) == value


def test_a_generated_column_has_no_default() -> None:
    assert default("int", "5", Generation.VIRTUAL) is None


def test_the_binlog_alone_tells_types_and_the_primary_key() -> None:
    schema = from_table_map(replace(WHOLE, primary_key=(1, 0), key_prefixes=(4, 0)), COLLATIONS, 3, 4)
    assert (schema.schema, schema.table, schema.table_id, schema.version) == ("d", "t", 3, 4)
    assert [column.data_type for column in schema.columns] == [
        DataType("int", "binary", "binary", 11),
        DataType("varchar", "utf8mb4", "utf8mb4_general_ci", 10),
        DataType("binary", "binary", "binary", 16),
    ]
    assert [column.nullable for column in schema.columns] == [False, True, True]
    assert schema.indexes == (
        Index("PRIMARY", unique=True, primary=True, nullable=False, columns=("name", "id")),
    )
    assert from_table_map(shape(ID, key=()), COLLATIONS, 3, 4).indexes == ()


def test_types_that_no_message_names_are_unspecified() -> None:
    null = BinlogColumn("n", ColumnType.NULL, 0, nullable=True)
    assert from_table_map(shape(null, key=()), {}, 1, 1).columns[0].data_type == DataType(
        "unspecified", "", ""
    )


def test_details_come_from_the_catalogue_if_it_fits() -> None:
    schema = enrich(WHOLE, COLLATIONS, CATALOGUE, None, table_id=3, version=4)
    assert schema == from_catalogue(CATALOGUE, 3, 4)
    assert [(column.data_type.length, column.default) for column in schema.columns] == [
        (7, None),
        (10, "x"),
        (39, "::1"),
    ]
    assert [index.name for index in schema.indexes] == ["PRIMARY", "by_name"]
    assert binlog_forms(schema, WHOLE) == {"address": Form.INET6}


def test_the_catalogue_goes_before_the_version_before() -> None:
    previous = from_table_map(WHOLE, COLLATIONS, 1, 2)
    assert enrich(WHOLE, COLLATIONS, CATALOGUE, previous, table_id=3, version=4) == from_catalogue(
        CATALOGUE, 3, 4
    )


def test_else_from_the_version_before_if_that_fits() -> None:
    later = replace(CATALOGUE, columns=CATALOGUE.columns[:2])
    previous = replace(from_catalogue(CATALOGUE, 1, 2), table="before")
    schema = enrich(WHOLE, COLLATIONS, later, previous, table_id=3, version=4)
    assert schema == from_catalogue(CATALOGUE, 3, 4)


def test_else_of_single_columns_and_indexes() -> None:
    """Where several statements came at once, what is known is of a later shape: columns that it shares stay as they are."""
    added = CatalogueColumn("added", "int(3)", "int", "", "", nullable=True, default=None)
    later = replace(CATALOGUE, columns=(added, *CATALOGUE.columns))
    without_id = replace(CATALOGUE, columns=(added, *CATALOGUE.columns[1:]), indexes=CATALOGUE.indexes[1:])
    expected = from_catalogue(CATALOGUE, 3, 4)
    for catalogue, previous in ((later, None), (None, later), (without_id, later)):
        known = from_catalogue(previous, 1, 2) if previous is not None else None
        schema = enrich(WHOLE, COLLATIONS, catalogue, known, table_id=3, version=4)
        assert schema == expected
        assert binlog_forms(schema, WHOLE) == {"address": Form.INET6}
    schema = enrich(WHOLE, COLLATIONS, without_id, None, table_id=3, version=4)
    assert schema.columns[1:] == expected.columns[1:]
    assert schema.columns[0].data_type.length == 11
    assert schema.handle_key == ("id",), "the catalogue has another primary key"


def test_a_column_that_became_another_is_not_taken_for_what_it_was() -> None:
    changed = CatalogueColumn("address", "binary(8)", "binary", "", "", nullable=True, default=None)
    later = replace(CATALOGUE, columns=(*CATALOGUE.columns[:1], changed))
    schema = enrich(WHOLE, COLLATIONS, later, None, table_id=3, version=4)
    assert schema.columns[2] == from_table_map(WHOLE, COLLATIONS, 3, 4).columns[2]


def test_else_the_schema_is_bare() -> None:
    schema = enrich(WHOLE, COLLATIONS, None, None, table_id=3, version=4)
    assert schema == from_table_map(WHOLE, COLLATIONS, 3, 4)
    assert binlog_forms(schema, WHOLE) == {}


@pytest.mark.parametrize(
    ("table_map", "words"),
    [
        (shape(ID, ADDRESS, NAME), "column 2 is 'name', in the binlog 'address'"),
        (shape(ID, NAME), "there are 3 columns, in the binlog 2"),
        (shape(ID, NAME, ADDRESS, replace(ID, name="more")), "there are 3 columns, in the binlog 4"),
        (shape(ID, NAME, ADDRESS, key=(1,)), "the primary key is (id), in the binlog (name)"),
        (shape(ID, NAME, ADDRESS, key=()), "the primary key is (id), in the binlog ()"),
        (
            shape(replace(ID, unsigned=True), NAME, ADDRESS),
            "column 'id': its unsigned is False, True in the binlog",
        ),
        (
            shape(replace(ID, nullable=True), NAME, ADDRESS),
            "column 'id': it is not nullable, nullable in the binlog",
        ),
        (
            shape(replace(ID, type=ColumnType.LONGLONG), NAME, ADDRESS),
            "column 'id': its mysql_type is 'int', 'bigint' in the binlog",
        ),
        (
            shape(ID, replace(NAME, meta=44), ADDRESS),
            "column 'name': its length is 10, 11 in the binlog",
        ),
        (
            shape(ID, replace(NAME, collation=8, charset="latin1", meta=10), ADDRESS),
            "column 'name': its charset is 'utf8mb4', 'latin1' in the binlog",
        ),
        (
            shape(ID, NAME, replace(ADDRESS, meta=4)),
            "column 'address': its mysql_type is 'varchar', 'binary' in the binlog",
        ),
    ],
)
def test_what_does_not_fit_is_said(table_map: TableMap, words: str) -> None:
    assert disagreement(from_catalogue(CATALOGUE, 1, 1), table_map, COLLATIONS) == words


def test_labels_count() -> None:
    enum = BinlogColumn(
        "e", ColumnType.ENUM, 1, nullable=True, collation=8, charset="latin1", labels=("a", "b")
    )
    schema = from_table_map(shape(ID, enum), COLLATIONS, 1, 1)
    assert schema.columns[1].data_type == DataType(
        "enum", "latin1", "latin1_swedish_ci", 1, elements=("a", "b")
    )
    assert disagreement(schema, shape(ID, enum), COLLATIONS) is None
    other = shape(ID, replace(enum, labels=("b", "a")))
    assert disagreement(schema, other, COLLATIONS) == (
        "column 'e': its elements is ('a', 'b'), ('b', 'a') in the binlog"
    )


def test_what_the_binlog_does_not_tell_does_not_count() -> None:
    old = BinlogColumn("moment", ColumnType.DATETIME, 0, nullable=True)
    column = CatalogueColumn("moment", "datetime(3)", "datetime", "", "", nullable=True, default=None)
    compressed = replace(NAME, type=ColumnType.VARCHAR_COMPRESSED, meta=41)
    catalogue = replace(CATALOGUE, columns=(*CATALOGUE.columns[:2], column))
    table_map = shape(ID, compressed, old)
    schema = enrich(table_map, COLLATIONS, catalogue, None, table_id=1, version=1)
    assert schema.columns[2].data_type == DataType("datetime", "binary", "binary", 23, 3)


def test_a_hidden_column_is_left_out_unless_the_table_has_it() -> None:
    table_map = shape(ID, NAME, ADDRESS, HASH)
    bare = from_table_map(table_map, COLLATIONS, 1, 1)
    assert [column.name for column in bare.columns] == ["id", "name", "address"]
    known = from_catalogue(CATALOGUE, 1, 1)
    assert disagreement(known, table_map, COLLATIONS) is None
    own = CatalogueColumn(
        "DB_ROW_HASH_1", "bigint(20) unsigned", "bigint", "", "", nullable=True, default=None
    )
    wide = from_catalogue(replace(CATALOGUE, columns=(*CATALOGUE.columns, own)), 1, 1)
    assert disagreement(wide, table_map, COLLATIONS) is None
    in_the_middle = shape(ID, HASH, NAME)
    assert len(from_table_map(in_the_middle, COLLATIONS, 1, 1).columns) == 3


def test_a_unique_index_may_stand_for_the_primary_key() -> None:
    unique = CatalogueIndex("u", unique=True, columns=("id",), prefixes=(None,))
    nullable = CatalogueIndex("n", unique=True, columns=("name",), prefixes=(None,))
    schema = from_catalogue(replace(CATALOGUE, indexes=(nullable, unique)), 1, 1)
    assert [(index.name, index.primary) for index in schema.indexes] == [("n", False), ("u", True)]
    assert disagreement(schema, shape(ID, NAME, ADDRESS, key=(0,)), COLLATIONS) is None
    difference = disagreement(schema, shape(ID, NAME, ADDRESS, key=(1,)), COLLATIONS)
    assert difference == "the primary key is (id), in the binlog (name)"
