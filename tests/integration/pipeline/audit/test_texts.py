"""Texts of values, as both sides make them: one text for what is one value, and never one for two."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.pipeline.audit.texts import TextKind, source_text, table_text
from headrace.pipeline.tables.moments import date_text
from headrace.pipeline.tables.simple.dates import days_of


def of_source(spark: SparkSession, kind: TextKind, *texts: str) -> list[str]:
    frame = spark.createDataFrame([(text,) for text in texts], "v STRING")
    return [row[0] for row in frame.select(source_text(F.col("v"), kind)).collect()]


def of_days(spark: SparkSession, *days: int) -> list[str]:
    frame = spark.createDataFrame([(day,) for day in days], "n INT").select(
        F.date_from_unix_date("n").alias("v")
    )
    return [
        row[0] for row in frame.select(table_text("v", frame.schema["v"].dataType, TextKind.MOMENT)).collect()
    ]


def test_what_is_written_otherwise_is_one_value(spark: SparkSession) -> None:
    numbers = ("001.50", "1.5", "-0.00", "0", "100", "-0012", "-12.000")
    assert of_source(spark, TextKind.NUMBER, *numbers) == ["1.5", "1.5", "0", "0", "100", "-12", "-12"]
    moments = ("2020-02-02 00:00:00.000", "2020-02-02", "2020-02-02 00:00:00.500", "2020-02-20 10:00:00")
    assert of_source(spark, TextKind.MOMENT, *moments) == [
        "2020-02-02",
        "2020-02-02",
        "2020-02-02 00:00:00.5",
        "2020-02-20 10:00:00",
    ]
    assert of_source(spark, TextKind.TIME, "12:00:00.10", "12:00:00", "-00:00:01.50") == [
        "12:00:00.1",
        "12:00:00",
        "-00:00:01.5",
    ]


def test_what_is_another_value_has_another_text(spark: SparkSession) -> None:
    others = {
        TextKind.NUMBER: (
            "1",
            "-1",
            "10",
            "1.01",
            "1.1",
            "0.1",
            "0.01",
            "18446744073709551615",
            "18446744073709551614",
        ),
        TextKind.FLOAT: ("0.1", "0.10000001", "-0.0", "0.0", "1e-30"),
        TextKind.DOUBLE: ("0.1", "0.10000000000000002", "-0.0", "0.0"),
        TextKind.MOMENT: (
            "2020-02-02",
            "2020-02-02 00:00:01",
            "2020-02-02 00:00:00.000001",
            "2020-02-20",
            "2020-02-00",
        ),
        TextKind.TIME: ("12:00:00", "-12:00:00", "12:00:00.000001", "12:00:10", "120:00:00"),
        TextKind.TEXT: ("a", "A", "a ", " a", "ä", "", "0", "00", "1.50", "1.5"),
        TextKind.BYTES: ("00", "0000", "", "0A", "A0"),
    }
    assert set(others) == set(TextKind)
    for kind, texts in others.items():
        assert len(set(of_source(spark, kind, *texts))) == len(texts), kind


def test_a_date_has_one_number_alone(spark: SparkSession) -> None:
    regular = [0, 18294, -719_162, 2_932_896]
    assert of_days(spark, *regular) == [date_text(day) for day in regular]
    irregular = ["0000-00-00", "2020-00-10", "2021-02-31", "2020-02-00", "0000-01-01", "9999-12-00"]
    assert of_days(spark, *map(days_of, irregular)) == irregular
    # Numbers that nothing types: of a date that there is as an irregular one, and of a day of the year 0 as a regular one.
    assert of_days(spark, days_of("2020-02-02"), -719_163, -719_528) == [
        f"day {days_of('2020-02-02')}",
        "day -719163",
        "day -719528",
    ]
