"""A restore of keys and values: the newest value of each key of each feed, as Parquet, one folder a feed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, Observation
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.errors import RestoreInexact
from headrace.pipeline.restore.clearing import check_exact, cleared_of
from headrace.pipeline.restore.counting import live_keys
from headrace.pipeline.restore.folding import (
    CHANGE_DDL,
    STATE_DDL,
    RestoredFeed,
    change_batches,
    group_batches,
    state_batches,
)
from headrace.pipeline.restore.lines import Kept
from headrace.pipeline.restore.outcome import RestoredHistory
from headrace.pipeline.restore.surveying import Survey
from headrace.pipeline.restore.work import Work, restored_feeds
from headrace.pipeline.tables.schemas import TableName
from headrace.pipeline.watching import Watching

_NAMES: Final = ("feed", "key", "sequence_id", "commit_ts", "op", "value", "control", "table")
_COLUMNS: Final = ("key", "value", "lsn", "sequence_id", "incarnation", "committed_at")
"""What a feed's checksum is of, as it is stored."""
PARTITION_BYTES: Final = 128 << 20
"""Bytes of the archive whose keys are folded in one task, about."""


class Figures(NamedTuple):
    """What was written of a feed."""

    rows: int
    checksum: str


class Whole(NamedTuple):
    """All feeds' rows in figures, each with its feed's name: equal rows give equal ones, in whatever order."""

    rows: int
    digest: int


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

    RestoreInexact if another count of the log is not the same; or if what was written is not, when it is read back: its
    rows as Spark was given them and as it finds them have one count and one sum of 64-bit hashes.
    """
    work, feeds = exact_feeds(work, survey, leave_out=allow_incomplete)
    spark = work.spark
    with watching.step("restoring", 0.6):
        make, of_group = partial(change_batches, feeds=feeds), partial(group_batches, feeds=feeds)
        changes = work.entries(_NAMES, make, CHANGE_DDL, of_group=of_group)
        least = int(spark.conf.get("spark.sql.shuffle.partitions", "2") or 2)
        count = max(least, -(-work.bytes // PARTITION_BYTES))
        ordered = changes.repartition(count, "feed", "key").sortWithinPartitions("feed", "key", "sequence_id")
        states = ordered.mapInArrow(partial(state_batches, feeds=feeds), STATE_DDL)
        told = Observation()
        observed = states.observe(told, F.count("*").alias("rows"), _sum("feed", *_COLUMNS).alias("digest"))
        observed.write.option("compression", "zstd").partitionBy("feed").parquet(str(into / "keys"))
        folded = Whole(int(told.get["rows"]), int(told.get["digest"] or 0))
    _placed(into)
    with watching.step("counting", 0.25):
        written, found = _figures(work, into)
        if found != folded:
            raise RestoreInexact(
                f"{folded.rows} keys were written, and what is read back of them, {found.rows}, is not the same",
                hint="Restore to a folder on another volume: this one, or a worker, changed what was written.",
            )
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


def _sum(*columns: str) -> Column:
    """The sum of the rows' hashes: exact, as 10^18 of them fit a decimal(38)."""
    return F.sum(F.xxhash64(*columns).cast("decimal(38,0)"))


def _figures(work: Work, into: Path) -> tuple[dict[str, Figures], Whole]:
    """Read back what was written: rows and checksum of each feed, and of all together."""
    found: dict[str, Figures] = {one.feed: Figures(0, "0") for one in work.feeds}
    if not list(into.glob("feed=*")):
        return found, Whole(0, 0)
    rows = (
        work.spark.read.schema(STATE_DDL)
        .option("basePath", str(into))
        .parquet(*[str(one) for one in sorted(into.glob("feed=*"))])
    )
    whole = Whole(0, 0)
    sums = (_sum(*_COLUMNS).alias("sum"), _sum("feed", *_COLUMNS).alias("digest"))
    for row in rows.groupBy("feed").agg(F.count("*").alias("rows"), *sums).collect():
        told: Any = row
        found[told["feed"]] = Figures(int(told["rows"]), f"{int(told['sum']) & (1 << 64) - 1:016x}")
        whole = Whole(whole.rows + int(told["rows"]), whole.digest + int(told["digest"]))
    return found, whole


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
