"""One micro-batch of a feed -> all its tables, then published as one moment. The body of the tables job's foreachBatch.

Order: schemas are kept durably, then every table that the batch touches is merged (several at once), then
``published.json`` is replaced. A batch that runs again, after a crash anywhere between, comes to the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import msgspec
from msgspec import UNSET
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.pipeline.tables.attached import CONTROLS, SCHEMA, Control, follow_controls, with_stops
from headrace.pipeline.tables.attaching import AttachedBatch
from headrace.pipeline.tables.captured import CapturedTables, read_batch
from headrace.pipeline.tables.catching_up import CatchingUp
from headrace.pipeline.tables.ledger import Ledger, PublishedFile, PublishedTable, folder_of, newest_version
from headrace.pipeline.tables.merge import EXACT_WRITES
from headrace.pipeline.tables.origins import begin_with, check_place, now_text, with_origins
from headrace.pipeline.tables.schemas import unfit
from headrace.pipeline.tables.simple.plan import is_simple
from headrace.pipeline.tables.states import NO_VERSION, LeftFolder, Reached
from headrace.pipeline.tables.survey import Survey, survey_of
from headrace.pipeline.tables.upkeep import Upkeep


class BatchDone(NamedTuple):
    """What became of a batch. ``published``: readers see its end."""

    entries: int
    tables: int
    sequence_id: int
    published: bool
    seconds: float


class Batches:
    """Applies micro-batches to the tables of one ledger; give it to ``foreachBatch``. Called by one thread at a time."""

    def __init__(
        self,
        ledger: Ledger,
        done: Callable[[BatchDone], None],
        coming_back: CatchingUp | None = None,
        *,
        compacted: bool = False,
    ) -> None:
        """``done`` is told of every batch, on Spark's thread. ``coming_back``: brings stopped tables back.

        ``compacted``: entries that others overwrote may be missing before a batch, as in a base snapshot.
        """
        self._ledger = ledger
        self._done = done
        self._coming_back = coming_back
        self._compacted = compacted
        self._upkeep = Upkeep(ledger)
        self._captured = CapturedTables(ledger)

    def __call__(self, entries: DataFrame, batch_id: int) -> None:
        """Apply one micro-batch: rows of the source, all its columns. Safe to repeat."""
        started = time.monotonic()
        entries = entries.persist()
        try:
            survey = survey_of(entries)
            if not survey.entries:
                return
            if not self._compacted:
                check_place(self._ledger, survey.first)
            begin_with(self._ledger, survey.first)
            touched = self._apply(entries, survey)
        finally:
            entries.unpersist()
        if self._coming_back is not None:
            self._coming_back.serve(entries.sparkSession)
        shown = survey.whole and self._ledger.may_publish(survey.sequence_id)
        if shown:
            publish_moment(self._ledger, Reached(survey.sequence_id, survey.lsn))
            self._upkeep.published()
            if self._upkeep.work(entries.sparkSession):
                publish_again(self._ledger)
        elapsed = time.monotonic() - started
        self._done(BatchDone(survey.entries, touched, survey.sequence_id, shown, elapsed))

    def _apply(self, entries: DataFrame, survey: Survey) -> int:
        ledger = self._ledger
        for part in survey.parts:
            if part.batches:
                problem = "an entry of several mutations can't be kept in tables"
                raise unfit(ledger.feed, survey.sequence_id, part.table, "", problem)
        spark = entries.sparkSession  # the query's own copy of the session: what is set here stays here
        for name, value in EXACT_WRITES.items():
            spark.conf.set(name, value)
        found = self._controls(entries, survey)
        captured = survey.captured or ledger.reached is not None or bool(ledger.tables)
        if captured or any(is_simple(one.value) for one in found if one.control == SCHEMA):
            ledger.begin(survey.sequence_id, [])
            plain = AttachedBatch(ledger, entries, survey, follow_controls((), (), ledger.feed))
            return plain.merge_plain() + self._follow_capture(entries, survey)
        return self._follow_attached(entries, survey, found)

    def _follow_attached(self, entries: DataFrame, survey: Survey, controls: list[Control]) -> int:
        """Bring attached tables, and the one of entries without a table, up to the batch's end, and keep that they are."""
        ledger = self._ledger
        before = ledger.attached
        changes = follow_controls(before, controls, ledger.feed)
        ledger.begin(survey.sequence_id, changes.schemas)
        batch = AttachedBatch(ledger, entries, survey, changes)
        count = batch.merge()
        if ledger.merged is None or ledger.merged.sequence_id < survey.sequence_id:
            after = with_stops(changes.states, batch.stops, before)
            changed = {"attached": after} if after != before else {}
            ledger.keep(merged=Reached(survey.sequence_id, survey.lsn), **changed)
        return count

    def _follow_capture(self, entries: DataFrame, survey: Survey) -> int:
        """Bring captured tables up to the batch's end, and keep durably that they are."""
        ledger = self._ledger
        after = survey.first - 1
        if ledger.reached is not None and ledger.reached.sequence_id > after:
            # The batch runs again, and the ledger's states are those behind it, or behind a part of it.
            after = ledger.reached.sequence_id
            if after >= survey.sequence_id:
                return 0
            entries = entries.where(F.col("sequence_id") > after)
        batch = read_batch(entries, after, survey.sequence_id)
        before = ledger.tables
        outcome = self._captured.apply(batch, before, ledger.update)
        left = [LeftFolder(path, now_text()) for path in outcome.erased]
        known_ts = ledger.reached.commit_ts if ledger.reached is not None else 0
        # Kept with the place: if the job dies before it publishes, no WATERMARK may come for long.
        reached = Reached(survey.sequence_id, survey.lsn, outcome.watermark or known_ts)
        copied = [one.table for one in batch.controls if one.control == "copy-begin"]
        seen = [*(run.table for run in batch.runs), *(one.table for one in batch.controls)]
        tables = with_origins(outcome.tables, before, copied, seen, ledger.start)
        ledger.keep(tables=tables, reached=reached, **({"left": [*ledger.left, *left]} if left else {}))
        return outcome.touched

    def _controls(self, entries: DataFrame, survey: Survey) -> list[Control]:
        """Return the batch's control entries about tables, in feed order: as many as there were such commands."""
        if not any(part.controls for part in survey.parts):
            return []
        wanted = entries.where(F.col("control").isin(*CONTROLS))
        rows = wanted.select("sequence_id", "control", "key", "value", "source_tx").collect()
        found = [
            Control(
                int(row["sequence_id"]),
                row["control"],
                bytes(row["key"]),
                bytes(row["value"]),
                bytes(row["source_tx"] or b""),
            )
            for row in rows
        ]
        return sorted(found)


def publish_moment(ledger: Ledger, end: Reached) -> None:
    """Publish every table at its newest version as the moment ``end``: all that is there must be merged up to it."""
    before = ledger.published.commit_ts if ledger.published is not None else UNSET
    commit_ts = ledger.reached.commit_ts if ledger.reached is not None else 0
    ledger.publish(
        PublishedFile(
            feed=ledger.feed,
            incarnation=ledger.incarnation,
            sequence_id=end.sequence_id,
            lsn=end.lsn,
            published_at=now_text(),
            tables=newest_tables(ledger),
            commit_ts=commit_ts or before,
            readable_from=2 if ledger.tables else 1,
        )
    )


def publish_again(ledger: Ledger) -> None:
    """Publish the same moment with the versions that its tables have now: rows are the same, files are others."""
    if ledger.published is not None:
        tables = newest_tables(ledger)
        ledger.publish(msgspec.structs.replace(ledger.published, published_at=now_text(), tables=tables))


def newest_tables(ledger: Ledger) -> list[PublishedTable]:
    """Return every table of a ledger at its newest version, but for those whose rows are still being copied.

    Of a stopped table that a resume has brought a part of the way, the version before that part.
    """
    tables = []
    attached = {one.table: one for one in ledger.attached}
    for table in [(), *ledger.schemas.tables()]:
        version = newest_version(ledger.to / folder_of(table))
        state = attached.get(table)
        note = state.stopped if state is not None else None
        whole = (state is None or not state.copying) and (note is None or note.version != NO_VERSION)
        if version is not None and whole:
            after = UNSET if note is None else note.after
            tables.append(PublishedTable(list(table), folder_of(table), version, after))
    for one in ledger.tables:
        version = newest_version(ledger.to / one.path)
        note = one.stopped
        if note is not None and note.version is not UNSET:
            version = note.version if note.version != NO_VERSION else None
        if version is not None and not one.copying:
            after = UNSET if note is None else note.after
            tables.append(PublishedTable(list(one.table), one.path, version, after))
    return tables
