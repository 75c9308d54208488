"""What statements do to values, as SQL of Spark's: each conversion and its checks, in one query."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from headrace.pipeline.tables.moments import MOMENTS, sql_number
from headrace.pipeline.tables.simple.conversions import converted
from headrace.pipeline.tables.simple.expressions import Constant, Field, Ordered, Scalar
from headrace.pipeline.tables.simple.spark_types import spark_kind
from headrace.simple.schema import DataType


def kind(name: str, length: int = 0, decimal: int = 0, **more: Any) -> DataType:
    return DataType(name, "binary", "binary", length, decimal, **more)


def text(name: str, length: int, charset: str = "utf8mb4") -> DataType:
    return DataType(name, charset, "", length)


def labels(name: str, *elements: str) -> DataType:
    return DataType(name, "utf8mb4", "", 0, 0, elements)


DAY = 86_400_000_000
TINY, SMALL, INT, BIG = (kind(name) for name in ("tinyint", "smallint", "int", "bigint"))
NATURAL = kind("bigint", unsigned=True)
EXACT = kind("decimal", 8, 2)
FLOAT, DOUBLE = kind("float"), kind("double")
DATE, DATETIME, DATETIME6 = kind("date"), kind("datetime"), kind("datetime", 26, 6)
CHANGED = "changed"

CASES: list[tuple[DataType, Scalar, DataType, str | None]] = [
    (TINY, -5, BIG, "-5"),
    (BIG, -5, TINY, "-5"),
    (BIG, 1 << 40, INT, CHANGED),
    (BIG, 5, NATURAL, "5"),
    (BIG, -5, NATURAL, CHANGED),
    (NATURAL, str((1 << 64) - 1), BIG, CHANGED),
    (INT, 1999, kind("year"), "1999"),
    (INT, 70, kind("year"), CHANGED),
    (INT, 511, kind("bit", 9), "511"),
    (INT, 512, kind("bit", 9), CHANGED),
    (INT, None, kind("bit", 9), None),
    (INT, 7, EXACT, "7.00"),
    (INT, 7_000_000, EXACT, CHANGED),
    (EXACT, "1.50", kind("decimal", 12, 4), "1.5000"),
    (EXACT, "1.50", kind("decimal", 7, 1), "1.50"),
    (EXACT, "1.50", kind("decimal", 8, 1), "1.5"),
    (EXACT, "1.55", kind("decimal", 8, 1), CHANGED),
    (EXACT, "7.00", INT, "7"),
    (EXACT, "7.50", INT, CHANGED),
    (EXACT, "-7.00", kind("int", unsigned=True), CHANGED),
    (EXACT, "1.50", kind("decimal", 65, 30), f"1.5{'0' * 29}"),
    (EXACT, "1.50", DOUBLE, "1.5"),
    (FLOAT, 0.5, DOUBLE, "0.5"),
    (DOUBLE, 0.5, FLOAT, "0.5"),
    (DOUBLE, 0.1, FLOAT, CHANGED),
    (DOUBLE, 0.25, kind("double", 9, 2), "0.25"),
    (DOUBLE, 0.125, kind("double", 9, 2), CHANGED),
    (DOUBLE, 3.0, INT, "3"),
    (DOUBLE, 3.5, INT, CHANGED),
    (BIG, (1 << 53) + 1, DOUBLE, CHANGED),
    (INT, 12, text("varchar", 9), "12"),
    (INT, 123, text("varchar", 2), CHANGED),
    (EXACT, "1.50", text("varchar", 9), "1.50"),
    (kind("year"), 0, text("varchar", 9), CHANGED),
    (DATE, 2, text("varchar", 20), "1970-01-03"),
    (DATE, -10_000_000, text("varchar", 20), CHANGED),
    (DATETIME, DAY, text("varchar", 20), "1970-01-02 00:00:00"),
    (text("varchar", 9), "-12", INT, "-12"),
    (text("varchar", 9), "012", INT, CHANGED),
    (text("varchar", 9), "x", INT, CHANGED),
    (text("varchar", 9), "300", TINY, CHANGED),
    (text("varchar", 9), "1.50", EXACT, "1.50"),
    (text("varchar", 9), "1.5", EXACT, CHANGED),
    (text("varchar", 9), "ab", text("char", 2), "ab"),
    (text("varchar", 9), "a ", text("char", 9), CHANGED),
    (text("varchar", 9), "abc", text("varchar", 2), CHANGED),
    (text("text", 65_535), "é" * 130, text("tinytext", 255), CHANGED),
    (text("varchar", 9), "é", kind("varbinary", 2), "C3A9"),
    (text("varchar", 9), "é", kind("binary", 3), "C3A900"),
    (text("varchar", 9), "é", kind("varbinary", 1), CHANGED),
    (kind("binary", 2), b"ab", kind("binary", 4), "61620000"),
    (kind("varbinary", 4), b"abc", kind("binary", 2), CHANGED),
    (kind("blob"), b"a" * 300, kind("tinyblob"), CHANGED),
    (labels("enum", "a", "b"), "b", labels("enum", "x", "b", "a"), "b"),
    (labels("enum", "a", "b"), "b", labels("enum", "a"), CHANGED),
    (text("varchar", 9), "it's", labels("enum", "it's"), "it's"),
    (labels("set", "a", "b"), "a,b", labels("set", "b", "x", "a"), "b,a"),
    (labels("set", "a", "b"), "", labels("set", "b", "a"), ""),
    (labels("set", "a", "b"), None, labels("set", "b", "a"), None),
    (text("varchar", 9), "a\\é€", text("varchar", 9, "latin1"), "a\\é€"),
    (text("varchar", 9), "я", text("varchar", 9, "latin1"), CHANGED),
    (text("varchar", 9), "\n😀", text("varchar", 9, "utf8mb3"), CHANGED),
    (text("varchar", 9), "\nя", text("varchar", 9, "utf8mb3"), "\nя"),
    (text("varchar", 9), "я", text("varchar", 9, "koi8r"), CHANGED),
    (text("varchar", 9), "-1.50", kind("decimal", 8, 2, unsigned=True), CHANGED),
    (DATE, -9_159_670, DATETIME, CHANGED),
    (DATETIME, -9_159_670 * DAY, DATETIME6, CHANGED),
    (DATETIME, -9_159_670 * DAY, DATE, CHANGED),
    (FLOAT, 5000.0, kind("float", 5, 2), CHANGED),
    (kind("float", 7, 2), 0.10000000149011612, kind("double", 7, 2), CHANGED),
    (labels("set", "a", "b"), "a,b", labels("set", "b"), CHANGED),
    (labels("set", "a", "b"), "a,b", text("varchar", 9), "a,b"),
    (DATE, 2, DATETIME, str(2 * DAY)),
    (DATE, -10_000_000, DATETIME, str(-10_000_000 * DAY)),
    (DATETIME, 2 * DAY, DATE, str(2 * DAY)),
    (DATETIME, 2 * DAY + 1_000_000, DATE, CHANGED),
    (DATETIME6, DAY + 1_500_000, kind("datetime", 21, 1), str(DAY + 1_500_000)),
    (DATETIME6, DAY + 1_550_000, kind("datetime", 21, 1), CHANGED),
    (kind("timestamp", 26, 6), 1, kind("timestamp"), CHANGED),
    (kind("time", 17, 6), "12:00:00.5", kind("time", 12, 1), "12:00:00.5"),
    (kind("time", 17, 6), "12:00:00.5", kind("time"), CHANGED),
    (kind("timestamp"), -864_000_000_000_000_000, kind("timestamp", 26, 6), "-864000000000000000"),
]  # fmt: skip
"""A type, a value of it, the type that it becomes, and the value then: NULL for None, or CHANGED where a check says so."""


def shown(sql: str, of: str) -> str:
    """SQL that shows a value as text: dates and timestamps as numbers, bytes in hex."""
    if of in MOMENTS:
        return f"CAST({sql_number(sql, of)} AS string)"
    return f"hex({sql})" if of == "binary" else f"CAST({sql} AS string)"


def test_values_are_what_they_were_or_a_check_says_so(spark: SparkSession) -> None:
    constants, checks, values = [], [], []
    for place, (old, value, new, _) in enumerate(CASES):
        before = spark_kind(old)
        assert before is not None
        constants.append(f"{Constant(value, before).sql()} AS c{place}")
        way = converted(Field(f"c{place}"), before, old, new)
        assert way is not None, (old, new)
        conditions = [f"(c{place} IS NULL OR coalesce({condition}, false))" for condition in way.conditions]
        holds = " AND ".join(["true", *conditions])
        checks.append(f"{holds} AS k{place}")
        values.append(f"CASE WHEN k{place} THEN {shown(way.value.sql(), way.kind)} END AS v{place}")
    inner = f"SELECT *, {', '.join(checks)} FROM (SELECT {', '.join(constants)})"
    (row,) = (
        spark.sql(f"SELECT {', '.join(values)}, * FROM ({inner})")
        .select(*[f"k{place}" for place in range(len(CASES))], *[f"v{place}" for place in range(len(CASES))])
        .collect()
    )
    found = [row[f"v{place}"] if row[f"k{place}"] else CHANGED for place in range(len(CASES))]
    odd = [(case, value) for case, value in zip(CASES, found, strict=True) if case[-1] != value]
    assert odd == []


def test_labels_of_a_column_with_any_name(spark: SparkSession) -> None:
    """Nothing in the expression may hide the column."""
    value = Ordered(Field("l"), ("b", "a", "c")).sql()
    assert spark.sql(f"SELECT {value} AS v FROM (SELECT 'a,b' AS l)").collect()[0]["v"] == "b,a"
