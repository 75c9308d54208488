"""Checksums: equal rows in any order are equal, and nothing else is."""

from __future__ import annotations

from functools import reduce

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.audit.checksums import Difference, differences, figures_of, own_columns

pytestmark = pytest.mark.usefixtures("several_tasks")


def table(spark: SparkSession, *rows: str) -> DataFrame:
    """A table of rows that are written as SELECT lists."""
    return reduce(DataFrame.unionAll, [spark.sql(f"SELECT {row}") for row in rows])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["1 AS a"], ["2 AS a"]),
        (["1 AS a"], ["1 AS a", "1 AS a"]),
        (["1 AS a", "1 AS a"], ["2 AS a", "2 AS a"]),
        (["'' AS a"], ["cast(NULL AS string) AS a"]),
        (["'-' AS a"], ["cast(NULL AS string) AS a"]),
        (["'x' AS a, '1:y' AS b"], ["'x1:' AS a, 'y' AS b"]),
        (["'x' AS a, 'y' AS b"], ["'y' AS a, 'x' AS b"]),
        (["1.0BD AS a"], ["1.1BD AS a"]),
        (["X'00' AS a"], ["X'0000' AS a"]),
        (["cast('0.1' AS double) AS a"], ["nextafter AS a"]),
        (["timestamp_micros(1) AS a"], ["timestamp_micros(2) AS a"]),
        (["TIMESTAMP_NTZ'2024-01-01 00:00:00.000001' AS a"], ["TIMESTAMP_NTZ'2024-01-01 00:00:00' AS a"]),
        (["array('a', 'b') AS a"], ["array('a,b') AS a"]),
        (["true AS a"], ["false AS a"]),
    ],
)
def test_different_rows_have_different_figures(spark: SparkSession, one: list[str], other: list[str]) -> None:
    other = [row.replace("nextafter", "cast('0.10000000000000002' AS double)") for row in other]
    assert figures_of(table(spark, *one)) != figures_of(table(spark, *other))


def test_equal_rows_have_equal_figures_in_any_order(spark: SparkSession) -> None:
    columns = "{0} AS a, cast({0} AS decimal(38, 5)) AS b, X'FF' AS c, timestamp_micros({0}) AS d, 'ä' AS e"
    rows = [columns.format(n) for n in (3, 1, 2, 1)]
    one = figures_of(table(spark, *rows))
    # Our own columns, and the order of columns, are none of the source's.
    shuffled = (
        table(spark, *sorted(rows)).repartition(3).selectExpr("e", "d", "7 AS _headrace_x", "c", "b", "a")
    )
    assert figures_of(shuffled) == one
    assert list(own_columns(shuffled)) == ["a", "b", "c", "d", "e"]
    assert (one.rows, figures_of(shuffled.limit(0)).rows) == (4, 0)


def test_differing_keys_are_listed_up_to_a_bound(spark: SparkSession) -> None:
    feed = table(spark, "1 AS id, 'x' AS a", "2 AS id, 'y' AS a", "3 AS id, 'z' AS a", "3 AS id, 'z' AS a")
    other = table(spark, "1 AS id, 'x' AS a", "2 AS id, '?' AS a", "4 AS id, 'w' AS a", "3 AS id, 'z' AS a")
    expected = [
        Difference('{"id":"2"}', 1, 1),
        Difference('{"id":"3"}', 1, 0),
        Difference('{"id":"4"}', 0, 1),
    ]
    assert differences(feed, other, ("id",), 10) == expected
    assert differences(feed, other, ("id",), 2) == expected[:2]
    assert [one.key for one in differences(feed, other, (), 9)][:1] == ['{"a":"?","id":"2"}']
    ours = ("encode(concat('k', id), 'UTF-8') AS _headrace_key", "a")
    found = differences(feed.selectExpr(*ours), other.selectExpr(*ours), (), 9)
    assert [one.key for one in found] == ["k2", "k3", "k4"]
