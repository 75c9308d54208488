"""A restore as tables: what the tables job would have published at the target, one folder a feed, folded by its own
machinery.

The base's rows come first, then the segments, in batches that are merged one after another. The moment that is
published at the end is the target, so ``format("headrace.tables")`` reads it, and a tables job may go on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.errors import RestoreInexact
from headrace.pipeline.audit.checksums import figures_of
from headrace.pipeline.bases.scanning import Spans
from headrace.pipeline.restore.batching import segment_batches
from headrace.pipeline.restore.clearing import cleared_of, is_captured
from headrace.pipeline.restore.counting import Rows, live_rows
from headrace.pipeline.restore.lines import Kept
from headrace.pipeline.restore.outcome import RestoredHistory, RestoredTable
from headrace.pipeline.restore.pieces import base_pieces
from headrace.pipeline.restore.scanning import entries_task, scan
from headrace.pipeline.restore.surveying import Survey
from headrace.pipeline.restore.work import Work, restored_feeds
from headrace.pipeline.session import session_apart
from headrace.pipeline.tables.batches import Batches, publish_moment
from headrace.pipeline.tables.ledger import Ledger, folder_of
from headrace.pipeline.tables.origins import ARCHIVE, now_text
from headrace.pipeline.tables.reader import version_frame
from headrace.pipeline.tables.schemas import TableName
from headrace.pipeline.tables.states import CapturedTable, Reached, Start
from headrace.pipeline.watching import Watching
from headrace.wire.columns import DDL, SCHEMA

ENTRIES_MAX: Final = 1_000_000
"""Entries that are folded at once."""
_SHARE: Final = 0.65
"""What folding is of a restore, about."""
_NAMES: Final = (
    *("sequence_id", "lsn", "op", "key", "value", "control", "table"),
    *("source_tx", "tx_last", "append_end", "source_time"),
)
"""The columns that a batch of tables is made of; no others are read."""
_READ: Final = ("feed", *_NAMES)
_COLUMNS: Final = tuple(name for name in SCHEMA.names if name in _READ)
_DDL: Final = ", ".join(
    kind for name, kind in zip(SCHEMA.names, DDL.split(", "), strict=True) if name in _READ
)


class FeedTables:
    """The tables of one feed in the folder ``to``, on their way to the target. Close it."""

    def __init__(self, to: Path, kept: Kept) -> None:
        self.kept = kept
        self.ledger = Ledger(to, kept.feed, kept.incarnation)
        self.ledger.keep(
            start=Start(source=ARCHIVE, after=kept.first - 1, oldest=kept.last + 1, at=now_text())
        )
        self._batches = Batches(self.ledger, lambda done: None, compacted=True)
        self._number = 0

    def fold(self, entries: DataFrame) -> None:
        """Merge entries; all that are left of what is before them are merged."""
        self._batches(entries, self._number)
        self._number += 1

    def publish(self) -> None:
        """Publish the target as the moment of the tables, whatever the last entry is that is left of the feed there."""
        ledger, end = self.ledger, Reached(self.kept.last, str(self.kept.lsn))
        if ledger.reached is not None or ledger.tables:
            known = ledger.reached.commit_ts if ledger.reached is not None else 0
            ledger.keep(reached=Reached(end.sequence_id, end.lsn, known))
        else:
            ledger.keep(merged=end)
        publish_moment(ledger, end)

    def close(self) -> None:
        """Let the folder go."""
        self.ledger.close()


def restore_tables(
    work: Work,
    survey: Survey,
    into: Path,
    watching: Watching,
    *,
    allow_incomplete: bool,
    entries_max: int = ENTRIES_MAX,
) -> list[RestoredHistory]:
    """Write the tables at the target into folders below ``into``, and check their rows against a count of the log.

    RestoreInexact if a table is not whole there (it is stopped, or its first rows were still being copied) and that is not
    allowed, or if a count differs. Raises what the tables job raises.
    """
    with session_apart(work.spark) as own:  # the settings of Delta writes stay in it
        return _restored(
            work._replace(spark=own),
            survey,
            into,
            watching,
            allow_incomplete=allow_incomplete,
            entries_max=entries_max,
        )


def _restored(
    work: Work, survey: Survey, into: Path, watching: Watching, *, allow_incomplete: bool, entries_max: int
) -> list[RestoredHistory]:
    fold: dict[str, FeedTables] = {}
    try:
        for one in work.feeds:
            fold[one.feed] = FeedTables(into / folder_name(one.feed), one)
        _fold_base(work, fold, into, watching, entries_max)
        _fold_segments(work, fold, watching, entries_max)
        for tables in fold.values():
            tables.publish()
        with watching.step("counting", 0.2):
            return _checked(work, survey, fold, allow_incomplete=allow_incomplete)
    finally:
        for tables in fold.values():
            tables.close()


def folder_name(feed: str) -> str:
    """Return the folder of a feed's tables below OUT: the feed's name, ``:`` and a dot or ``_`` in front in hex.

    Names that begin with those are nobody's tables: readers pass over them, and the outcome's folder is one.
    """
    name = feed.replace(":", "%3A")
    return f"%{ord(name[0]):02X}{name[1:]}" if name[0] in "_." else name


def _fold_base(
    work: Work, fold: dict[str, FeedTables], into: Path, watching: Watching, entries_max: int
) -> None:
    share = _SHARE * work.base_bytes / (work.bytes or 1)
    with base_pieces(work, _READ, into, entries_max) as pieces:
        total = sum(piece.rows for piece, _ in pieces) or 1
        done = 0
        for piece, rows in pieces:
            fold[piece.feed].fold(rows.select(*_NAMES))
            done += piece.rows
            watching.part("restoring", share * done / total)
    watching.passed(share)


def _fold_segments(work: Work, fold: dict[str, FeedTables], watching: Watching, entries_max: int) -> None:
    batches = segment_batches(work.parts, work.spans, work.plan.after_lsn, work.plan.target_lsn, entries_max)
    done, total = 0, sum(batch.bytes for batch in batches) or 1
    share = _SHARE * (1 - work.base_bytes / (work.bytes or 1))
    for batch in batches:
        groups = [[part] for part in batch.parts]
        entries = scan(work.spark, work.range, groups, _Entries(work.spans), _DDL)
        several = len(batch.feeds) > 1
        if several:
            entries = entries.persist()
        try:
            for feed in batch.feeds:
                fold[feed].fold(entries.where(F.col("feed") == feed).select(*_NAMES))
        finally:
            if several:
                entries.unpersist()
        done += batch.bytes
        watching.part("restoring", share * done / total)
    watching.passed(share)


class _Entries:
    """Reads whole entries; travels to workers."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def __call__(self, wanted: Any, part: Any) -> Iterator[Any]:
        return entries_task(wanted, part, spans=self._spans, names=_COLUMNS)


def _checked(
    work: Work, survey: Survey, fold: dict[str, FeedTables], *, allow_incomplete: bool
) -> list[RestoredHistory]:
    cleared: dict[str, dict[TableName, int]] = {}
    odd: dict[str, dict[TableName, str]] = {}
    simple = set()
    for one in work.feeds:
        controls = one.controls(survey)
        cleared[one.feed], odd[one.feed] = cleared_of(controls)
        if is_captured(controls):
            simple.add(one.feed)
    counted = live_rows(work, restored_feeds(work, cleared), simple)
    _check_keys(work, counted)
    found = []
    for feed, tables in fold.items():
        known = {table: rows for (name, table), rows in counted.items() if name == feed}
        listed = _tables_of(work, tables, known, odd[feed])
        incomplete = [one for one in listed if one.stopped is not None]
        if incomplete and not allow_incomplete:
            first = incomplete[0]
            raise RestoreInexact(
                f"{feed}: the table {'.'.join(first.table)} is not whole at lsn={work.plan.target_lsn}: {first.stopped}",
                hint="Restore another moment, other feeds (--feeds), or what there is: --allow-incomplete.",
            )
        kept = tables.kept
        found.append(
            RestoredHistory(
                feed=feed,
                incarnation=kept.incarnation,
                sequence_id=kept.last,
                lsn=str(kept.lsn),
                entries=kept.entries(survey),
                folder=folder_name(feed),
                older=list(kept.older),
                tables=listed,
            )
        )
    return found


def _check_keys(work: Work, counted: Mapping[tuple[str, TableName], Rows]) -> None:
    """Raise RestoreInexact where a base has rows of a Simple feed whose keys are none of capture's, and its writer did not
    look for such: tables tell rows apart by the handle key, and it may have left entries out by their keys.
    """
    feeds = work.plan.base.manifest.feeds if work.plan.base is not None else ()
    unsure = {one.feed for one in feeds if one.other_keys is UNSET}
    for (feed, table), rows in sorted(counted.items()):
        if feed in unsure and not rows.named:
            raise RestoreInexact(
                f"{feed}: keys of {'.'.join(table)} do not begin with database and table, as those of captured rows do, and "
                f"the base {work.plan.base_url} is of a release that left entries out by their keys: the table would not be "
                f"exact",
                hint="If the segments begin with the log, restore a copy of the archive without its bases; else leave the "
                "feed out: --feeds.",
            )


def _tables_of(
    work: Work, tables: FeedTables, counted: dict[TableName, Rows], odd: dict[TableName, str]
) -> list[RestoredTable]:
    """Return the published tables of a feed, checked, and those that are not whole. RestoreInexact where a count differs."""
    ledger = tables.ledger
    shown = ledger.published.tables if ledger.published is not None else []
    notes = {one.table: one for one in ledger.known if one.stopped is not None or one.copying}
    found = []
    for one in shown:
        name = tuple(one.table)
        note = notes.pop(name, None)
        figures = figures_of(version_frame(work.spark, ledger.to / one.path, one.version))
        known = counted.pop(name, Rows(0, named=True))
        is_counted = name not in odd and note is None and known.named
        if is_counted and figures.rows != known.live:
            raise RestoreInexact(
                f"{tables.kept.feed}: {figures.rows} rows of {'.'.join(name) or 'the entries without a table'} were "
                f"restored, and the log has {known.live} at lsn={work.plan.target_lsn}"
            )
        stopped = note.stopped.reason if note is not None and note.stopped is not None else None
        found.append(
            RestoredTable(
                table=list(name),
                path=one.path,
                rows=figures.rows,
                checksum=figures.checksum,
                counted=is_counted,
                stopped=stopped,
                stopped_after=None if one.stopped_after is UNSET else one.stopped_after,
            )
        )
    for table, note in notes.items():
        counted.pop(table, None)
        reason = note.stopped.reason if note.stopped is not None else "its rows were still being copied"
        path = note.path if isinstance(note, CapturedTable) else folder_of(table)
        found.append(
            RestoredTable(table=list(table), path=path, rows=0, checksum="", counted=False, stopped=reason)
        )
    missing = sorted(name for name, rows in counted.items() if rows.live)
    if missing and not odd:  # rows of a renamed table stand under its old name in the log
        raise RestoreInexact(
            f"{tables.kept.feed}: the log has rows of {'.'.join(missing[0]) or 'entries without a table'} at "
            f"lsn={work.plan.target_lsn}, and no such table was restored"
        )
    return found
