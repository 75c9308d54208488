"""A restore of keys and values: the newest value of each key of each feed, as Parquet, one folder a feed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.errors import RestoreInexact
from headrace.pipeline.restore.clearing import check_exact, cleared_of
from headrace.pipeline.restore.counting import live_keys
from headrace.pipeline.restore.folding import (
    CHANGE_DDL,
    STATE_DDL,
    RestoredFeed,
    change_batches,
    segment_batches,
    state_batches,
)
from headrace.pipeline.restore.lines import Kept
from headrace.pipeline.restore.outcome import RestoredHistory
from headrace.pipeline.restore.surveying import Survey
from headrace.pipeline.restore.work import Work, restored_feeds
from headrace.pipeline.tables.schemas import TableName
from headrace.pipeline.watching import Watching

_NAMES: Final = ("feed", "key", "sequence_id", "commit_ts", "op", "value", "control", "table")
PARTITION_BYTES: Final = 128 << 20
"""Bytes of the archive whose keys are folded in one task, about."""


class Figures(NamedTuple):
    """What was written of a feed."""

    rows: int
    checksum: str


def exact_feeds(work: Work, survey: Survey, *, leave_out: bool) -> tuple[Work, tuple[RestoredFeed, ...]]:
    """Return the feeds with what clears their tables. Where keys do not tell a feed's rows apart: RestoreInexact, or
    left out.
    """
    cleared: dict[str, dict[TableName, int]] = {}
    exact = []
    for one in work.feeds:
        cleared[one.feed], odd = cleared_of(one.controls(survey))
        if not leave_out:
            check_exact(one.feed, odd)
        if not odd:
            exact.append(one)
    work = work._replace(feeds=tuple(exact))
    return work, restored_feeds(work, cleared)


def restore_kv(
    work: Work, survey: Survey, into: Path, watching: Watching, *, allow_incomplete: bool = False
) -> list[RestoredHistory]:
    """Write the keys and values at the target into ``into``, ``feed=…`` a folder, and check them.

    ``allow_incomplete``: feeds of which keys and values alone are no exact state are left out, rather than refused.

    RestoreInexact if another count of the log, or what was written when it is read back, is not the same.
    """
    work, feeds = exact_feeds(work, survey, leave_out=allow_incomplete)
    spark = work.spark
    with watching.step("restoring", 0.6):
        make, of_segment = (partial(one, feeds=feeds) for one in (change_batches, segment_batches))
        changes = work.entries(_NAMES, make, CHANGE_DDL, of_segment=of_segment)
        least = int(spark.conf.get("spark.sql.shuffle.partitions", "2") or 2)
        count = max(least, -(-work.bytes // PARTITION_BYTES))
        ordered = changes.repartition(count, "feed", "key").sortWithinPartitions("feed", "key", "sequence_id")
        states = ordered.mapInArrow(partial(state_batches, feeds=feeds), STATE_DDL)
        states.write.option("compression", "zstd").partitionBy("feed").parquet(str(into / "keys"))
    _placed(into)
    with watching.step("counting", 0.25):
        written = _figures(work, into)
        counted = live_keys(work, feeds)
    for one in work.feeds:
        if (rows := written[one.feed].rows) != counted.get(one.feed, 0):
            raise RestoreInexact(
                f"{one.feed}: {rows} keys were restored, and the log has {counted.get(one.feed, 0)} "
                f"at lsn={work.plan.target_lsn}"
            )
    return [_history(one, written[one.feed], one.entries(survey)) for one in work.feeds]


def folder_name(feed: str) -> str:
    """Return the folder of a feed's keys: Hive's form, as readers of partitioned folders take it."""
    return f"feed={feed.replace(':', '%3A')}"  # of what names of feeds may hold, this alone is written in hex


def _placed(into: Path) -> None:
    """Move the feeds' folders to where they belong; what else the job of Spark left goes."""
    written = into / "keys"
    for one in sorted(written.glob("feed=*")):
        one.rename(into / one.name)
    for left in sorted(written.iterdir()):
        left.unlink()
    written.rmdir()


def _figures(work: Work, into: Path) -> dict[str, Figures]:
    """Read back what was written: rows and checksum of each feed."""
    found: dict[str, Figures] = {one.feed: Figures(0, "0") for one in work.feeds}
    if not list(into.glob("feed=*")):
        return found
    columns = ("key", "value", "lsn", "sequence_id", "incarnation", "committed_at")
    rows = (
        work.spark.read.schema(STATE_DDL)
        .option("basePath", str(into))
        .parquet(*[str(one) for one in sorted(into.glob("feed=*"))])
    )
    digest = F.xxhash64(*columns).cast("decimal(38,0)")
    for row in rows.groupBy("feed").agg(F.count("*").alias("rows"), F.sum(digest).alias("sum")).collect():
        told: Any = row
        found[told["feed"]] = Figures(int(told["rows"]), f"{int(told['sum']) & (1 << 64) - 1:016x}")
    return found


def _history(one: Kept, figures: Figures, entries: int) -> RestoredHistory:
    return RestoredHistory(
        feed=one.feed,
        incarnation=one.incarnation,
        sequence_id=one.last,
        lsn=str(one.lsn),
        entries=entries,
        folder=folder_name(one.feed),
        older=list(one.older),
        rows=figures.rows,
        checksum=figures.checksum,
    )
