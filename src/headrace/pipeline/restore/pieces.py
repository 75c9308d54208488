"""A base's rows in pieces that tables are folded from: by feed, and of each feed by sequence id, in order.

However many pieces there are, the base's files are read twice at most: to count rows, where a feed has many, and to write
the pieces into a folder below OUT, which is taken away again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.pipeline.restore.batching import row_ranges
from headrace.pipeline.restore.lines import Kept
from headrace.pipeline.restore.work import Work
from headrace.wire.arrays import array_of, arrow_ints, numpy_ints

_STRETCHES: Final = 1_000
"""So finely a feed's rows are counted, to be cut into pieces."""
DIRECT_MAX: Final = 2
"""Up to so many pieces are read from the base itself, each by reading all of it."""
_TASKS_MAX: Final = 200
FOLDER: Final = "_base"
"""Where pieces are written, below the folder that a restore writes."""


class Piece(NamedTuple):
    """Rows of one feed: the sequence ids, both inclusive, and how many rows they are, about."""

    feed: str
    first: int
    last: int
    rows: int


@contextmanager
def base_pieces(
    work: Work, names: Sequence[str], into: Path, entries_max: int
) -> Iterator[list[tuple[Piece, DataFrame]]]:
    """Give the pieces of the plan's base, of about ``entries_max`` rows each, with their rows; [] without a base.

    They are in order for each feed, and can be read as long as the context lasts.
    """
    base = work.base(("incarnation", *names))
    if base is None:
        yield []
        return
    base = _mine(work, base)
    pieces = _pieces(work, base, entries_max)
    if len(pieces) <= DIRECT_MAX:
        yield [
            (
                one,
                base.where(
                    (F.col("feed") == one.feed) & F.col("sequence_id").between(one.first, one.last)
                ).select(*names),
            )
            for one in pieces
        ]
        return
    folder = into / FOLDER
    try:
        _write(work, base.select(*names), pieces, folder)
        found = work.spark.read.schema(base.select(*names).schema)
        # A piece may have no rows: ids are counted in stretches.
        places = [(one, folder / f"piece={number}") for number, one in enumerate(pieces)]
        yield [(one, found.parquet(str(place))) for one, place in places if place.exists()]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _mine(work: Work, base: DataFrame) -> DataFrame:
    """Return the rows of the histories that are restored."""
    wanted = None
    for one in work.feeds:
        histories = [span.incarnation for span in one.spans]
        is_mine = (F.col("feed") == one.feed) & F.col("incarnation").isin(histories)
        wanted = is_mine if wanted is None else wanted | is_mine
    return base.where(wanted if wanted is not None else F.lit(False))  # as Spark takes it


def _pieces(work: Work, base: DataFrame, entries_max: int) -> list[Piece]:
    told = work.plan.base.manifest.feeds if work.plan.base is not None else ()
    totals = {
        one: sum(
            end.entries
            for end in told
            if end.feed == one.feed and any(span.incarnation == end.incarnation for span in one.spans)
        )
        for one in work.feeds
    }
    large = [one for one, total in totals.items() if total > entries_max]
    counts = _counts(base, large) if large else {}
    found = []
    for one, total in totals.items():
        if one.feed not in counts:
            ranges = row_ranges([], entries_max) if total else []
        else:
            ranges = row_ranges(counts[one.feed], entries_max)
        found += [Piece(one.feed, first, last, total // len(ranges)) for first, last in ranges]
    return found


def _counts(base: DataFrame, feeds: Sequence[Kept]) -> dict[str, list[tuple[int, int]]]:
    """Return, of each feed, (first sequence id, rows) of neighbouring stretches, in order."""
    widths = {one.feed: max(1, (one.last - one.first + 1) // _STRETCHES) for one in feeds}
    number = F.lit(None).cast("bigint")
    for one in feeds:
        place = F.floor((F.col("sequence_id") - one.first) / widths[one.feed])
        number = F.when(F.col("feed") == one.feed, place).otherwise(number)
    counted = base.where(F.col("feed").isin(list(widths))).groupBy("feed", number.alias("number")).count()
    firsts = {one.feed: one.first for one in feeds}
    found: dict[str, list[tuple[int, int]]] = {feed: [] for feed in widths}
    for row in counted.orderBy("feed", "number").collect():
        feed = row["feed"]
        found[feed].append((firsts[feed] + int(row["number"]) * widths[feed], int(row["count"])))
    return found


def _write(work: Work, rows: DataFrame, pieces: Sequence[Piece], folder: Path) -> None:
    make = partial(_placed, pieces=tuple(pieces))
    ddl = ", ".join(f"`{one.name}` {one.dataType.simpleString()}" for one in rows.schema.fields)
    placed = rows.mapInArrow(make, f"{ddl}, piece INT")
    tasks = min(len(pieces), max(_TASKS_MAX, work.spark.sparkContext.defaultParallelism))
    placed.repartition(tasks, "piece").write.partitionBy("piece").parquet(str(folder))


def _placed(batches: Iterator[Any], *, pieces: Sequence[Piece]) -> Iterator[Any]:
    """Add the number of its piece to each row."""
    feeds = list(dict.fromkeys(one.feed for one in pieces))
    known = array_of(feeds, pa.string())
    starts = [next(at for at, one in enumerate(pieces) if one.feed == feed) for feed in feeds]
    firsts = [np.asarray([one.first for one in pieces if one.feed == feed], np.int64) for feed in feeds]
    for batch in batches:
        of_feeds = numpy_ints(pc.index_in(batch.column("feed"), known).cast(pa.int64()))
        ids = numpy_ints(batch.column("sequence_id"))
        found = np.zeros(len(ids), np.int64)
        for number in np.unique(of_feeds).tolist():
            mine = of_feeds == number
            found[mine] = starts[number] + np.searchsorted(firsts[number], ids[mine], "right") - 1
        place = arrow_ints(found).cast(pa.int32())
        yield pa.RecordBatch.from_arrays([*batch.columns, place], names=[*batch.schema.names, "piece"])
