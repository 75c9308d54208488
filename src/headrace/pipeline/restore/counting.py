"""Rows that there must be, counted in the log another way than they are restored: by Spark's own aggregates over keys.

No value is read. Of each key the greatest sequence id counts, with what it did in its lowest bit: one number a key, which
Arrow brings together in each task, and Spark for all, without sorting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.entries.entry import Op
from headrace.pipeline.bases.naming import are_named
from headrace.pipeline.restore.folding import RestoredFeed
from headrace.pipeline.restore.work import Making, Work
from headrace.pipeline.tables.schemas import TableName
from headrace.wire.arrays import array_of, scalar_of

_NAMES: Final = ("feed", "key", "sequence_id", "op", "control")
_DDL: Final = "feed INT, key BINARY, moved BIGINT"
_TABLED_DDL: Final = f"{_DDL}, `table` ARRAY<STRING>, named BOOLEAN"
ROWS_MAX: Final = 2_000_000
"""Keys that a task brings together in memory, and those of a segment above that."""


class Rows(NamedTuple):
    """``live``: how many keys of a table are there. ``named``: the keys of all its entries begin with database and table,
    as those of captured rows do; True where nobody asked for it.
    """

    live: int
    named: bool


def live_keys(work: Work, feeds: Sequence[RestoredFeed]) -> dict[str, int]:
    """Return how many keys of each feed are there at the target. One more pass over the archive."""
    if any(one.cleared for one in feeds):
        found: dict[str, int] = {}
        for (feed, _), rows in live_rows(work, feeds).items():
            found[feed] = found.get(feed, 0) + rows.live
        return found
    make = partial(_moves, feeds=tuple(one.feed for one in feeds), tabled=False, simple=frozenset())
    moves = work.entries(_NAMES, make, _DDL, of_group=partial(last_moves, make=make))
    last = moves.groupBy("feed", "key").agg(F.max("moved").alias("moved"))
    counts = last.where(F.col("moved") % 2 == 1).groupBy("feed").count().collect()
    return {feeds[row["feed"]].feed: int(row["count"]) for row in counts}


def live_rows(
    work: Work, feeds: Sequence[RestoredFeed], simple: Collection[str] = ()
) -> dict[tuple[str, TableName], Rows]:
    """Return how many keys of each feed and table are there at the target; ``simple``: the feeds whose keys are looked at.

    One more pass over the archive.
    """
    names = tuple(one.feed for one in feeds)
    make = partial(_moves, feeds=names, tabled=True, simple=frozenset(simple))
    rows = _above(work.entries((*_NAMES, "table"), make, _TABLED_DDL), feeds)
    last = rows.groupBy("feed", "table", "key", "named").agg(F.max("moved").alias("moved"))
    totals = last.groupBy("feed", "table").agg(
        F.sum(F.col("moved") % 2).alias("count"), F.min("named").alias("named")
    )
    return {
        (feeds[row["feed"]].feed, tuple(row["table"] or ())): Rows(int(row["count"]), bool(row["named"]))
        for row in totals.collect()
    }


def _moves(
    batches: Iterator[Any], *, feeds: Sequence[str], tabled: bool, simple: frozenset[str]
) -> Iterator[Any]:
    """Rows as (feed's place in the list, key, twice its sequence id and one more unless it is a deletion, its table,
    whether its key begins as one of a captured row does).
    """
    known = array_of(feeds, pa.string())
    for batch in batches:
        rows = batch.filter(pc.is_null(batch.column("control")))
        there = pc.not_equal(rows.column("op"), scalar_of(Op.DELETE.value)).cast(pa.int64())
        arrays = {
            "feed": pc.index_in(rows.column("feed"), known),
            "key": rows.column("key"),
            "moved": pc.add(pc.multiply(rows.column("sequence_id"), scalar_of(2, pa.int64())), there),
        }
        if tabled:
            arrays["table"] = rows.column("table")
            arrays["named"] = are_named(rows, simple)
        yield pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def last_moves(segments: Iterator[Iterator[Any]], *, make: Making, rows_max: int = ROWS_MAX) -> Iterator[Any]:
    """Yield of rows that ``make`` makes of segments (feed, key, moved) the greatest move of each key.

    A key may be told again after ``rows_max`` keys: so many are held, and those of one segment above that.
    """
    held: list[Any] = []
    for batches in segments:
        held += make(batches)
        if not held:
            continue
        found = pa.Table.from_batches(held).group_by(["feed", "key"]).aggregate([("moved", "max")])
        held = found.rename_columns(["feed", "key", "moved"]).combine_chunks().to_batches()
        if found.num_rows >= rows_max:
            yield from held
            held = []
    yield from held


def _above(rows: DataFrame, feeds: Sequence[RestoredFeed]) -> DataFrame:
    """Leave out the rows of tables that were cleared behind them."""
    clears = [
        (number, list(table), place)
        for number, one in enumerate(feeds)
        for table, place in one.cleared.items()
    ]
    if not clears:
        return rows
    known = rows.sparkSession.createDataFrame(clears, "feed INT, `table` ARRAY<STRING>, place BIGINT")
    joined = rows.join(F.broadcast(known), ["feed", "table"], "left")
    return joined.where(F.col("place").isNull() | (F.col("moved") > 2 * F.col("place") + 1)).drop("place")
