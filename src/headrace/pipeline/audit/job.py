"""The audit of a tables' folder: the feed up to the published moment, folded anew beside it, against what is published.

Called by ``headrace pipeline audit`` and tests. It reads the tables at the versions that the moment names, so the job that
keeps them may run on meanwhile, and the source may be written to: both sides stand at one sequence id.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import FeedRecreated, JournalCorrupt
from headrace.pipeline.audit.checksums import Difference, Figures, differences, figures_of, own_columns
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.failures import error_of
from headrace.pipeline.source.feed import FORMAT, register
from headrace.pipeline.source.planner import ENTRIES_MAX
from headrace.pipeline.tables.batches import Batches
from headrace.pipeline.tables.ledger import FOLDER, Ledger, PublishedFile, PublishedTable, local_folder
from headrace.pipeline.tables.reader import published_moment
from headrace.pipeline.tables.schemas import TableName

DIFFERENCES_MAX: Final = 20
"""Keys that are listed of a table, unless another number is asked for."""

_COLUMNS_SHOWN: Final = 10


class TableAudit(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One table's verdict. ``feed`` and ``published``: its figures on both sides, None where it is not there.

    ``reason``: what else differs than rows. ``differences``: the first keys that differ. ``stopped_after``: the table is
    stopped, and was compared as it was after this sequence id.
    """

    table: list[str]
    equal: bool
    feed: Figures | None = None
    published: Figures | None = None
    reason: str = ""
    differences: list[Difference] = []
    stopped_after: int | None = None


class Audit(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """What an audit found at one moment of the feed. ``commit_ts``: its WATERMARK, None for a feed that has none."""

    feed: str
    incarnation: str
    sequence_id: int
    lsn: str
    commit_ts: int | None = None
    equal: bool
    tables: list[TableAudit]
    seconds: float


def run_audit(
    spark: SparkSession,
    to: str,
    endpoint: Endpoint,
    *,
    archive: str = "",
    scratch: str = "",
    differences_max: int = DIFFERENCES_MAX,
    entries_max: int = ENTRIES_MAX,
    progress: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Compare what is published in the tables' folder ``to`` with the feed, folded from its first entry.

    ``archive``: URL of a folder of KWAL segments that hold what the server has dropped. The fold is made in a folder below
    ``scratch`` (default: in ``to``), which workers reach by the same path, and is removed at the end.

    Raises NothingPublished, SequenceNotAvailable if the feed's beginning is not there, FeedRecreated, ServerUnreachable,
    and what the tables job raises.
    """
    started = time.monotonic()
    moment = published_moment(to)
    with Connection(endpoint) as server:
        incarnation = server.feed(moment.feed).incarnation
    if incarnation != moment.incarnation:
        raise FeedRecreated(
            f"the tables in {to} are of the incarnation {moment.incarnation} of {moment.feed}, which now is {incarnation}",
            hint="The feed was made anew or restored: start its tables anew in an empty folder.",
        )
    below = Path(scratch) if scratch else local_folder(to) / FOLDER
    folded = Path(tempfile.mkdtemp(prefix="audit-", dir=below))
    try:
        ledger = Ledger(folded, moment.feed, moment.incarnation)
        try:
            progress(f"folding {moment.feed} up to sequence id {moment.sequence_id}")
            ours = _fold(spark, ledger, _options(endpoint, moment, archive), moment.sequence_id, entries_max)
            keys = {one.table: one.state.schema for one in ledger.tables if one.state is not None}
        finally:
            ledger.close()
        sides = _Sides(spark, folded, local_folder(to), differences_max)
        theirs = {tuple(one.table): one for one in moment.tables}
        tables = []
        for name in sorted(ours | theirs):
            progress(f"comparing {'.'.join(name) or '(entries without a table)'}")
            schema = keys.get(name)
            key = schema.handle_key if schema is not None else ()
            tables.append(sides.compared(name, ours.get(name), theirs.get(name), key))
    except PySparkException as error:
        raise error_of(error) from None
    finally:
        shutil.rmtree(folded, ignore_errors=True)
    return Audit(
        feed=moment.feed,
        incarnation=moment.incarnation,
        sequence_id=moment.sequence_id,
        lsn=moment.lsn,
        commit_ts=None if moment.commit_ts is UNSET else moment.commit_ts,
        equal=all(one.equal for one in tables),
        tables=tables,
        seconds=round(time.monotonic() - started, 3),
    )


def _options(endpoint: Endpoint, moment: PublishedFile, archive: str) -> dict[str, str]:
    options = {
        "endpoint": endpoint.server,
        "feeds": moment.feed,
        "incarnation": moment.incarnation,
        "retry-seconds": str(max(1, round(endpoint.retry_s))),
    }
    more = {"token-file": endpoint.token_file, "ca-file": endpoint.ca_file, "archive": archive}
    return options | {name: value for name, value in more.items() if value}


def _fold(
    spark: SparkSession, ledger: Ledger, source: dict[str, str], last: int, entries_max: int
) -> dict[TableName, PublishedTable]:
    """Bring the tables of a new ledger to the entry ``last``, and return them."""
    own = spark.newSession()  # the settings of Delta writes stay in it
    register(own)
    batches = Batches(ledger, lambda done: None)
    for number, first in enumerate(range(1, last + 1, entries_max)):
        ends = {"start": str(first), "end": str(min(last, first + entries_max - 1))}
        batches(own.read.format(FORMAT).options(**source, **ends).load(), number)
    if ledger.published is None or ledger.published.sequence_id != last:
        raise JournalCorrupt(
            f"the tables show the feed {ledger.feed} up to the entry {last}, which is no end of a transaction in it",
            hint="The published moment is none of this feed: was its folder edited, or an old copy of the server put back?",
        )
    return {tuple(one.table): one for one in ledger.published.tables}


class _Sides:
    """The two folders that are compared."""

    def __init__(self, spark: SparkSession, folded: Path, published: Path, differences_max: int) -> None:
        self._spark = spark
        self._folded = folded
        self._published = published
        self._differences_max = differences_max

    def compared(
        self,
        name: TableName,
        ours: PublishedTable | None,
        theirs: PublishedTable | None,
        key: tuple[str, ...],
    ) -> TableAudit:
        """Return the verdict on one table; None where a side has none of this name."""
        feed = None if ours is None else self._frame(self._folded, ours)
        table = None if theirs is None else self._frame(self._published, theirs)
        if ours is None or theirs is None or feed is None or table is None:
            return TableAudit(
                table=list(name),
                equal=False,
                feed=None if feed is None else figures_of(feed),
                published=None if table is None else figures_of(table),
                reason="the feed has no such table" if feed is None else "it is not published",
            )
        sides = figures_of(feed), figures_of(table)
        reason = _difference(ours, theirs, own_columns(feed), own_columns(table))
        same = sides[0] == sides[1]
        listed = [] if same or reason else differences(feed, table, key, self._differences_max)
        return TableAudit(
            table=list(name),
            equal=same and not reason,
            feed=sides[0],
            published=sides[1],
            reason=reason,
            differences=listed,
            stopped_after=_stopped_after(theirs),
        )

    def _frame(self, folder: Path, one: PublishedTable) -> DataFrame:
        reader = self._spark.read.format("delta").option("versionAsOf", one.version)
        return reader.load(str(folder / one.path))


def _difference(
    ours: PublishedTable, theirs: PublishedTable, columns: dict[str, str], published: dict[str, str]
) -> str:
    """Return what sets two tables apart besides their rows; empty if nothing does."""
    if _stopped_after(ours) != _stopped_after(theirs):
        return f"folded anew it stops after {_stopped_after(ours)}, the published one after {_stopped_after(theirs)}"
    if columns != published:
        odd = sorted(set(columns.items()) ^ set(published.items()))
        return f"its columns are others: {', '.join(f'{name} {kind}' for name, kind in odd[:_COLUMNS_SHOWN])}"
    return ""


def _stopped_after(table: PublishedTable) -> int | None:
    return None if table.stopped_after is UNSET else table.stopped_after
