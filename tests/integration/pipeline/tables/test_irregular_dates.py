"""Dates that no calendar has, from the feed to who reads the tables: the text that the source has."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final

from pyspark.sql import SparkSession

from headrace.pipeline.tables.job import read_tables
from headrace.pipeline.tables.reader import iter_rows
from headrace.simple.message import Timestamp
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.kafka.captured_feed import append, row_entry, schema_entry, watermark
from tests.servers import Feed
from tests.simple_tables import column, insert, table

DATED = table(
    "shop.dated",
    "a",
    *(column(name, name, nullable=True) for name in ("date", "datetime", "timestamp")),
)
ROWS: Final = {
    1: ("0000-00-00", "0000-00-00 00:00:00", "0000-00-00 00:00:00"),
    2: ("2020-00-10", "2021-02-31 12:00:00", None),
    3: ("2020-01-02", "2020-01-02 03:04:05", "2020-01-02 03:04:05"),
}


def test_they_are_told_as_the_source_has_them(spark: SparkSession, feed: Feed, to: str, bring: Bring) -> None:
    rows = [
        row_entry(
            insert(DATED, 10, a=str(key), date=day, datetime=moment, timestamp=at and Timestamp("UTC", at))
        )
        for key, (day, moment, at) in ROWS.items()
    ]
    append(feed, [schema_entry(DATED), *rows, watermark(20)])
    bring()
    found = {row["a"]: (row["date"], row["datetime"], row["timestamp"]) for _, row in iter_rows(to)}
    plain = datetime(2020, 1, 2, 3, 4, 5)  # noqa: DTZ001  # of a column without a zone
    assert found == ROWS | {3: (date(2020, 1, 2), plain, plain.replace(tzinfo=UTC))}
    frame = read_tables(spark, to)["shop", "dated"]
    assert [row["a"] for row in frame.where("date > '1970-01-01'").select("a").collect()] == [3]
