"""Dates and timestamps of a real PostgreSQL stand in Delta tables as the very numbers they are, and are found by filters."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.tables.job import read_tables
from headrace.pipeline.tables.reader import iter_rows
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.conftest import Run
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.postgres import Database
from tests.scale import SEED, sized

ORDERS = ("public", "orders")
MICROS_MAX = (1 << 63) - 1
DAYS_MAX = (1 << 31) - 1
MOMENTS = [
    "infinity",
    "-infinity",
    "4714-11-24 00:00:00 BC",
    "0044-03-15 12:00:00.000001 BC",
    "0001-12-31 23:59:59.999999 BC",
    "0001-01-01 00:00:00",
    "1582-10-14 23:59:59.999999",  # a day that the calendar of Java's older classes leaves out
    "1900-02-28 23:59:59.5",
    "1969-12-31 23:59:59.999999",
    "2024-01-02 03:04:05.123456",
    "9999-12-31 23:59:59.999999",
    "10000-01-01 00:00:00",
    "294247-01-10 04:00:54.775806",
]
DATES = ["infinity", "-infinity", "4714-11-24 BC", "0044-03-15 BC", "0001-12-31 BC", "1582-10-14"]
DATES += [
    "1582-10-04",
    "1900-02-28",
    "1970-01-01",
    "2024-02-29",
    "9999-12-31",
    "10000-01-01",
    "5874897-12-31",
]
COLUMNS = [ID, column("at", "timestamp"), column("plain", "timestamp-ntz"), column("day", "date")]

FILTERED = sized(1, soak=len(MOMENTS))
"""How many of the values, beside the infinities, each column is filtered by."""

Numbers = dict[int, tuple[int, ...]]


@pytest.fixture
def truth(database: Database, source: SourceTables) -> Numbers:
    """Rows of PostgreSQL in the feed, twice each time, and the numbers that PostgreSQL reckons for them."""
    database.sql("CREATE TABLE orders (id bigint PRIMARY KEY, at timestamptz, plain timestamp, day date)")
    with database.connect(options="-c TimeZone=UTC") as app:
        app.cursor().executemany(
            "INSERT INTO orders VALUES (%s, %s::timestamptz, %s::timestamp, %s)",
            [
                (place, moment if "infinity" in moment else zoned(moment), moment, day)
                for place, (moment, day) in enumerate(zip(MOMENTS, DATES, strict=True))
            ],
        )
        rows = app.execute(
            "SELECT to_jsonb(o)::text, extract(epoch FROM at) * 1000000, extract(epoch FROM plain) * 1000000,"
            " CASE WHEN isfinite(day) THEN day - '1970-01-01' END FROM orders o ORDER BY id"
        ).fetchall()
    source.schema(ORDERS, *COLUMNS, column("n", "int64"))
    wanted: Numbers = {}
    for place, (text, *numbers) in enumerate(rows):
        if "infinity" in MOMENTS[place]:
            ends = (MICROS_MAX, MICROS_MAX, DAYS_MAX)
            wanted[place] = ends if place == 0 else tuple(-end - 1 for end in ends)
        else:
            wanted[place] = tuple(map(int, numbers))
        source.put(ORDERS, json.loads(text) | {"n": 0})
    return wanted


def zoned(moment: str) -> str:
    return moment.replace(" BC", "+00 BC") if moment.endswith(" BC") else f"{moment}+00"


def numbers(spark: SparkSession, to: str) -> Numbers:
    frame = read_tables(spark, to)[ORDERS].select("id", "at", "plain", "day").toArrow()
    kinds = {"at": "int64", "plain": "int64", "day": "int32"}
    columns = [frame["id"], *(frame[name].cast(kind) for name, kind in kinds.items())]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return {place: tuple(values) for place, *values in rows}


def test_every_time_of_postgres_is_kept_through_merges_patches_and_filters(
    spark: SparkSession, source: SourceTables, to: str, run: Run, truth: Numbers
) -> None:
    first = source.commit()
    for (
        place
    ) in truth:  # rows that are patched, and rows that a merge writes anew because they share their file
        if place % 2:
            source.patch(ORDERS, place, {"n": 1})
    source.commit()
    with own_settings(spark):
        assert run(entries_max=first).batches == 2
        assert {name: spark.conf.get(name) for name in ANOTHER_SESSION} == ANOTHER_SESSION
        assert numbers(spark, to) == truth
    assert numbers(spark, to) == truth
    are_found_by_filters(read_tables(spark, to)[ORDERS], truth)
    are_read_as_python_has_them_or_as_text(to)
    # Any reader of Parquet gets them, in 64 bits: not as nanoseconds, in which three centuries have room.
    file = next(Path(to, "public.orders").glob("*.parquet"))
    assert {str(field.type) for field in pyarrow.parquet.read_schema(file)} >= {
        "timestamp[us, tz=UTC]",
        "timestamp[us]",
        "date32[day]",
    }


def are_found_by_filters(frame: DataFrame, truth: Numbers) -> None:
    """Each column, by = and >=, by the infinities and a few others: all in one query."""
    literals = {
        "at": ("timestamp_micros({})", 0),
        "plain": ("cast(timestamp_micros({}) AS timestamp_ntz)", 1),
        "day": ("date_from_unix_date({})", 2),
    }
    chance = random.Random(SEED)
    wanted: dict[str, set[int]] = {}
    for name, (literal, at) in literals.items():
        for values in [truth[0], truth[1], *chance.sample(list(truth.values()), FILTERED)]:
            for sign in ("=", ">="):
                wanted[f"{name} {sign} {literal.format(values[at])}"] = {
                    place
                    for place, others in truth.items()
                    if others[at] == values[at] or (sign == ">=" and others[at] > values[at])
                }
    queries = [frame.where(one).selectExpr("id", f'"{one}" AS condition') for one in wanted]
    found: dict[str, set[int]] = {one: set() for one in wanted}
    for row in reduce(DataFrame.unionAll, queries).collect():
        found[row["condition"]].add(row["id"])
    assert found == wanted, SEED


ANOTHER_SESSION = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
}


@contextmanager
def own_settings(spark: SparkSession) -> Iterator[None]:
    """As if the session were a user's own, with another zone and older ways of writing."""
    before = {name: spark.conf.get(name) for name in ANOTHER_SESSION}
    for name, value in ANOTHER_SESSION.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, found in before.items():
            spark.conf.set(name, str(found))


def are_read_as_python_has_them_or_as_text(to: str) -> None:
    rows = {row["id"]: row for _, row in iter_rows(to)}
    assert {place: row["n"] for place, row in rows.items()} == {place: place % 2 for place in rows}
    assert [rows[0][name] for name in ("at", "plain", "day")] == ["infinity"] * 3
    assert [rows[1][name] for name in ("at", "plain", "day")] == ["-infinity"] * 3
    assert rows[3]["at"] == "0044-03-15T12:00:00.000001+00:00 BC"
    assert rows[3]["plain"] == "0044-03-15T12:00:00.000001 BC"
    assert rows[3]["day"] == "0044-03-15 BC"
    moment = datetime.fromisoformat("1582-10-14T23:59:59.999999")
    assert (rows[6]["at"], rows[6]["plain"]) == (moment.replace(tzinfo=UTC), moment)
    assert (rows[9]["day"], rows[12]["day"]) == (date(2024, 2, 29), "5874897-12-31")


def test_json_numbers_and_times_that_only_postgres_has(
    database: Database, source: SourceTables, to: str, bring: Bring
) -> None:
    ((numeric, time, array, document),) = database.sql(
        "SELECT '-1234567890123456789012345678901234567890.5000'::numeric::text, to_jsonb('24:00'::time) #>> '{}',"
        """ to_jsonb(ARRAY[[1, NULL], [3, 4]])::text, '{"a": 1.10, "n": 1e400}'::jsonb::text"""
    )
    source.schema(
        ORDERS,
        ID,
        column("amount", "decimal"),
        column("hour", "time"),
        column("tags", "json"),
        column("doc", "json"),
    )
    row = {"id": 1, "amount": numeric, "hour": time, "tags": json.loads(array)}
    held = {"tags": "[[1,null],[3,4]]"}
    source.put(ORDERS, row | {"doc": {"json": None}}, shown=held | {"doc": "null"})
    source.put(ORDERS, row | {"id": 2, "amount": "NaN", "doc": None}, shown=held)
    source.put(
        ORDERS,
        row | {"id": 3, "amount": "-Infinity", "doc": {"json": {"json": [None]}}},
        shown=held | {"doc": '{"json":[null]}'},
    )
    first = source.commit()
    source.patch(ORDERS, 1, {"hour": "00:00:00"})
    source.patch(ORDERS, 3, {"hour": "00:00:00"})
    source.commit()
    assert bring(entries_max=first).batches == 2
    assert document.startswith('{"a": 1.10, "n": 1000')
    assert {row["id"]: packed(row) for _, row in iter_rows(to)} == source.rows[ORDERS]


def packed(row: dict[str, Any]) -> dict[str, Any]:
    """The row with its JSON texts written without spaces."""
    texts = {name: row[name].replace(" ", "") for name in ("tags", "doc") if row[name] is not None}
    return row | texts


def test_the_years_that_spark_does_not_have_are_refused_by_name(source: SourceTables, run: Run) -> None:
    moments = ("294276-12-31T23:59:59.999999+00:00", "294247-01-10T04:00:54.775807+00:00")
    for place, moment in enumerate(moments):
        source.schema(("public", f"t{place}"), *COLUMNS)
        source.put(("public", f"t{place}"), {"id": 1, "at": moment})
    last = source.commit()
    stopped_tables = sorted(run().stopped, key=lambda one: one.table)
    for place, (moment, stopped) in enumerate(zip(moments, stopped_tables, strict=True)):
        assert stopped.code == "value-unfit"
        told = f"feed {source.feed.name}, sequence id {last - 2 * (1 - place)}, table public.t{place}, column at: "
        assert f"{told}{moment}" in stopped.reason
