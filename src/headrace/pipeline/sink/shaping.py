"""Data frames in the shape that the sink asks for. Users put one of these before ``writeStream.format("headrace")``."""

from __future__ import annotations

from pyspark.sql import DataFrame, functions


def one_task(frame: DataFrame) -> DataFrame:
    """Return the same rows in one task, behind a shuffle, so that what comes before still runs in many."""
    return frame.repartition(1)


def by_feed(frame: DataFrame, column: str) -> DataFrame:
    """Return the same rows so that those with the same feed in ``column`` are in the same task, for ``feed-column``."""
    return frame.repartition(functions.col(column))
