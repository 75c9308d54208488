"""What a function makes of segments, spread over Spark's workers. For bases and restores, which read whole archives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

P = TypeVar("P")


def spread(
    spark: SparkSession, groups: Sequence[Sequence[P]], task: Callable[[P], Iterator[Any]], ddl: str
) -> DataFrame:
    """Return the record batches that ``task`` yields of each part, one task of Spark's for each group.

    It is read anew by each action. ``task`` is pickled; ``ddl``: the columns of what it yields.
    """
    return spread_groups(spark, groups, partial(_of_each, task=task), ddl)


def spread_groups(
    spark: SparkSession, groups: Sequence[Sequence[P]], task: Callable[[Sequence[P]], Iterator[Any]], ddl: str
) -> DataFrame:
    """Return the same of a ``task`` that takes a group at once."""
    if not groups:
        return spark.createDataFrame([], ddl)
    numbers = spark.range(0, len(groups), 1, len(groups))
    return numbers.mapInArrow(partial(_run, groups=tuple(groups), task=task), ddl)


def _of_each(parts: Sequence[P], *, task: Callable[[P], Iterator[Any]]) -> Iterator[Any]:
    for part in parts:
        yield from task(part)


def _run(
    batches: Iterator[Any], *, groups: Sequence[Sequence[P]], task: Callable[[Sequence[P]], Iterator[Any]]
) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from task(groups[number])
