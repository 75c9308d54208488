"""Which changes of a column's type are followed in place, by a cast, or not at all; tests with Spark have the values."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.pipeline.tables.simple.conversions import converted, is_widening
from headrace.pipeline.tables.simple.expressions import Cast, Constant, Field
from headrace.pipeline.tables.simple.spark_types import contains, spark_kind, widens
from headrace.simple.schema import DataType


def kind(name: str, length: int = 0, decimal: int = 0, **more: Any) -> DataType:
    return DataType(name, "binary", "binary", length, decimal, **more)


def text(name: str, length: int, charset: str = "utf8mb4") -> DataType:
    return DataType(name, charset, "", length)


INT, DATE, DATETIME, FLOAT = (kind(name) for name in ("int", "date", "datetime", "float"))
EXACT = kind("decimal", 8, 2)
ENUM = DataType("enum", "utf8mb4", "", 0, 0, ("a",))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (DATETIME, kind("timestamp")),
        (kind("timestamp"), DATETIME),
        (kind("int", 5, unsigned=True, zerofill=True), text("varchar", 9)),
        (text("char", 36, "ascii"), kind("binary", 16)),
        (text("varchar", 36), text("char", 36, "ascii")),
        (text("varchar", 9, "gbk"), kind("varbinary", 18)),
        (text("varchar", 9), DATE),
        (text("varchar", 9), kind("json")),
        (ENUM, INT),
        (FLOAT, text("varchar", 9)),
        (FLOAT, EXACT),
        (INT, kind("geometry")),
    ],
)
def test_what_no_statement_tells(old: DataType, new: DataType) -> None:
    assert converted(Field("c"), spark_kind(old) or "", old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "in_place"),
    [
        ("tinyint", "smallint", True),
        ("smallint", "bigint", True),
        ("int", "double", True),
        ("bigint", "double", False),
        ("int", "decimal(10,0)", True),
        ("tinyint", "decimal(5,0)", False),
        ("bigint", "decimal(20,0)", True),
        ("bigint", "decimal(19,0)", False),
        ("float", "double", True),
        ("decimal(8,2)", "decimal(10,4)", True),
        ("decimal(8,2)", "decimal(9,4)", False),
        ("date", "timestamp_ntz", True),
        ("date", "timestamp", False),
        ("bigint", "int", False),
        ("int", "string", False),
        ("int", "int", False),
    ],
)
def test_what_delta_widens(old: str, new: str, in_place: bool) -> None:
    assert widens(old, new) == in_place
    assert is_widening(Cast(Field("c"), new), "c", new, old) == (in_place or old == new)
    assert not is_widening(Cast(Constant(1, old), new), "c", new, old)


def test_what_holds_what() -> None:
    assert contains("decimal(5,0)", "tinyint")
    assert not contains("decimal(5,2)", "smallint")
    assert not contains("string", "int")


def test_constants_as_sql() -> None:
    assert Constant("it's \\ so", "string").sql() == "CAST('it\\'s \\\\ so' AS string)"
    assert Constant(None, "int").sql() == "CAST(NULL AS int)"
    assert Constant(b"\x00\xff", "binary").sql() == "CAST(X'00ff' AS binary)"
