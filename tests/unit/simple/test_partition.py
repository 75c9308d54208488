"""Partitions are those of TiCDC, to the bit."""

from __future__ import annotations

from decimal import Decimal

import msgspec
import pytest

from headrace.errors import ConfigInvalid, SimpleInvalid
from headrace.simple.message import Float32, Raw, Timestamp, UnsignedBigint
from headrace.simple.partition import NullHashing, PartitionRule, hash_of, placer_of
from headrace.simple.schema import Column, Index, TableSchema
from tests.simple_tables import change, column, insert, table

T1 = table("test.t1", "a")
T2 = table("test.t2", "a", "b", key=("a", "b"))
COLUMNS = table("test.t1", "col2", "col1", "col3", key=())


def test_the_hash() -> None:
    assert hash_of(b"hello", b"world") == hash_of(b"helloworld")
    assert hash_of(b"test", b"t1") % 16 == 15


@pytest.mark.parametrize(
    ("name", "partitions", "partition"),
    [
        ("test.t1", 16, 15),
        ("test.t2", 16, 5),
        ("test.t3", 16, 3),
        ("test_default1.table", 16, 14),
        ("test_default2.table", 16, 0),
        ("test_table.table", 16, 15),
        ("test.t1", 3, 0),
    ],
)
@pytest.mark.parametrize("rule", [PartitionRule.DEFAULT, PartitionRule.TABLE])
def test_by_table(name: str, partitions: int, partition: int, rule: PartitionRule) -> None:
    schema = table(name, "a")
    assert placer_of(schema, rule).partition_of(insert(schema, a="1"), partitions) == partition


def test_by_ts() -> None:
    assert placer_of(T1, PartitionRule.TS).partition_of(insert(T1, (1 << 64) - 1, a="1"), 10) == 5


@pytest.mark.parametrize(
    ("schema", "row", "partitions", "partition"),
    [
        (T1, {"a": "11"}, 16, 2),
        (T1, {"a": "22"}, 16, 11),
        (T1, {"a": 22}, 16, 11),
        (T2, {"a": "11", "b": "22"}, 16, 5),
        (T2, {"b": "22", "a": "11"}, 16, 5),
        (T2, {"a": "11", "b": "0"}, 16, 14),
        (T2, {"a": "11", "b": "33"}, 16, 2),
        (table("test_index_value.table", "a", "b"), {"a": "11", "b": "22"}, 10, 1),
    ],
)
def test_by_index_value(schema: TableSchema, row: dict[str, Raw], partitions: int, partition: int) -> None:
    placer = placer_of(schema, PartitionRule.INDEX_VALUE)
    assert placer.partition_of(change("INSERT", schema, 1, row), partitions) == partition
    assert placer.partition_of(change("DELETE", schema, 1, None, row), partitions) == partition
    other: dict[str, Raw] = dict.fromkeys(row, "77")
    assert placer.partition_of(change("UPDATE", schema, 1, row, other), partitions) == partition


def test_a_table_without_a_handle_key_goes_by_its_name() -> None:
    placer = placer_of(COLUMNS, PartitionRule.INDEX_VALUE)
    assert placer.partition_of(insert(COLUMNS, col1="1"), 16) == 15


@pytest.mark.parametrize(
    ("spelled", "columns", "partition"),
    [
        (("col2", "col1"), ("col2", "col1"), 15),
        (("col2", "col1"), ("COL2", "Col1"), 15),
        (("COL2", "Col1"), ("col2", "col1"), 5),
    ],
)
def test_by_columns(spelled: tuple[str, str], columns: tuple[str, ...], partition: int) -> None:
    schema = table("test.t1", *spelled, "col3", key=())
    row = change("INSERT", schema, 1, {spelled[0]: "11", spelled[1]: "22", "col3": "33"})
    assert placer_of(schema, PartitionRule.COLUMNS, columns=columns).partition_of(row, 16) == partition


def test_by_a_named_index() -> None:
    schema = table("test.t1", "a", "b", "c")
    indexes = (
        *schema.indexes,
        Index("By_B", True, False, False, ("b",)),
        Index("c", False, False, False, ("c",)),
    )
    schema = msgspec.structs.replace(schema, indexes=indexes)
    row = insert(schema, a="1", b="22", c="3")
    expected = (hash_of(b"test", b"t1") ^ hash_of(b"b", b"22")) % 97
    placer = placer_of(schema, PartitionRule.INDEX_VALUE, index="by_b")
    assert placer.partition_of(row, 97) == expected
    with pytest.raises(ConfigInvalid, match="not unique"):
        placer_of(schema, PartitionRule.INDEX_VALUE, index="C")
    with pytest.raises(ConfigInvalid, match="no index 'd'"):
        placer_of(schema, PartitionRule.INDEX_VALUE, index="d")
    with pytest.raises(ConfigInvalid, match="no column 'd'"):
        placer_of(schema, PartitionRule.COLUMNS, columns=("a", "d"))


def test_null_as_each_generation_has_it() -> None:
    row = insert(COLUMNS, col1="22", col2=None, col3="3")
    base = hash_of(b"test", b"t1") ^ hash_of(b"col1", b"22")
    columns = ("col1", "col2")
    default = placer_of(COLUMNS, PartitionRule.COLUMNS, columns=columns)
    skip = placer_of(COLUMNS, PartitionRule.COLUMNS, columns=columns, nulls=NullHashing.SKIP)
    assert default.partition_of(row, 997) == (base ^ hash_of(b"col2", b"null")) % 997
    assert skip.partition_of(row, 997) == base % 997


@pytest.mark.parametrize(
    ("of", "json", "avro", "hashed"),
    [
        (
            column("a", "bigint", unsigned=True),
            "18446744073709551615",
            UnsignedBigint(2**64 - 1),
            b"18446744073709551615",
        ),
        (column("a", "int"), "-7", -7, b"-7"),
        (column("a", "float"), "90.5", Float32(90.5), b"90.5"),
        (column("a", "float"), "1e20", Float32(1.0000000200408773e20), b"100000000000000000000"),
        (column("a", "double"), "0.1", 0.1, b"0.1"),
        (column("a", "double"), "-0", -0.0, b"0"),
        (column("a", "decimal", length=5, decimal=2), "5.00", "5.00", b"5.00"),
        (column("a", "varchar"), "héé", "héé", "héé".encode()),
        (column("a", "varbinary"), "AP8=", b"\x00\xff", b"\x00\xff"),
        (column("a", "enum", elements=("x", "y")), "2", 2, b"2"),
        (column("a", "set", elements=("x", "y", "z")), "5", 5, b"5"),
        (
            column("a", "bit", length=64, unsigned=True),
            "9223372036854775808",
            -(2**63),
            b"9223372036854775808",
        ),
        (column("a", "bit", length=10, unsigned=True), "682", "682", b"682"),
        (column("a", "year", unsigned=True), "2020", 2020, b"2020"),
        (column("a", "date"), "2020-02-20", "2020-02-20", b"2020-02-20"),
        (column("a", "time"), "-838:59:59", "-838:59:59", b"-838:59:59"),
        (
            column("a", "timestamp"),
            Timestamp("Asia/Shanghai", "2020-02-20 10:20:20"),
            Timestamp("UTC", "2020-02-20 10:20:20"),
            b"2020-02-20 10:20:20",
        ),
        (column("a", "json"), '{"a": 1}', '{"a": 1}', b'{"a": 1}'),
        (column("a", "vector"), "[1,2,3]", "[1,2,3]", b"[1,2,3]"),
        (column("a", "geometry"), "as it is", "as it is", b"as it is"),
    ],
    ids=lambda value: repr(value)[:30] if isinstance(value, bytes) else "",
)
def test_what_of_a_value_is_hashed(of: Column, json: Raw, avro: Raw, hashed: bytes) -> None:
    schema = table("s.t", of)
    placer = placer_of(schema, PartitionRule.INDEX_VALUE)
    expected = (hash_of(b"s", b"t") ^ hash_of(b"a", hashed)) % 65_521
    assert placer.partition_of(insert(schema, a=json), 65_521) == expected
    assert placer.partition_of(insert(schema, a=avro), 65_521) == expected


@pytest.mark.parametrize(
    ("of", "row", "field"),
    [
        (column("a", "int"), {"b": "1"}, "data.a"),
        (column("a", "int"), {"a": "x"}, "data.a"),
        (column("a", "int"), {"a": Decimal(1)}, "data.a"),
        (column("a", "varbinary"), {"a": "no base64"}, "data.a"),
        (column("a", "varchar"), {"a": "\ud800"}, "data.a"),
    ],
)
def test_a_key_that_can_not_be_hashed_is_named(of: Column, row: dict[str, Raw], field: str) -> None:
    schema = table("s.t", of)
    placer = placer_of(schema, PartitionRule.INDEX_VALUE)
    with pytest.raises(SimpleInvalid, match=r"INSERT of s\.t at commitTs 1") as caught:
        placer.partition_of(change("INSERT", schema, 1, row), 16)
    assert caught.value.members["field"] == field
