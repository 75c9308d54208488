"""The captured tables of one ledger: a batch's control entries and rows -> steps, carried out, each table for itself.

Called by :mod:`headrace.pipeline.tables.batches` for feeds of the Simple Protocol. A table that can't go on is stopped with
a reason and the others go on. The plan of a batch follows from the ledger's states and the batch, so a batch that runs again
comes to the same steps; those that are no merges of rows are noted when they are done, and passed over then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.errors import HeadraceError, SimpleInvalid, SimpleUnsupported, ValueUnfit
from headrace.pipeline.failures import failed_at
from headrace.pipeline.tables import carrying
from headrace.pipeline.tables.delta_log import newest_version
from headrace.pipeline.tables.ledger import Ledger, free_folder
from headrace.pipeline.tables.merge import APP_ID, APP_VERSION, SOURCE_AS_IT_IS, settings
from headrace.pipeline.tables.parallel import run_all
from headrace.pipeline.tables.simple.plan import Control, Run, cuts, plan
from headrace.pipeline.tables.simple.state import TableState, stopped
from headrace.pipeline.tables.simple.steps import Empty, Erase, Evolve, Make, Rows, Step, Stop
from headrace.pipeline.tables.states import Begun, CapturedTable, StopNote
from headrace.pipeline.tables.stretches import STRETCH_DDL, stretch_batches
from headrace.runtime.logs import get_logger

logger = get_logger("pipeline")

CONTROLS: Final = ("schema", "ddl", "watermark", "stopped", "copy-begin", "copy-end")
"""Control entries that a plan looks at."""

STOPPING: Final = (ValueUnfit, SimpleInvalid, SimpleUnsupported)
"""What is wrong with one table, not with the job."""

REBUILD_HINT: Final = "headrace pipeline tables rebuild makes it anew; so does headrace capture copy."

Keep = Callable[[CapturedTable], None]
"""Keeps durably how far one table is."""


class Outcome(NamedTuple):
    """What became of a batch.

    ``tables``: all that there are behind it; ``erased``: the folders of those that are gone; ``touched``: how many were
    written to; ``watermark``: the greatest commitTs of a WATERMARK in it.
    """

    tables: list[CapturedTable]
    erased: list[str]
    touched: int
    watermark: int | None


class Batch(NamedTuple):
    """The entries above ``after`` up to ``last``, with what a plan needs to know of them."""

    entries: DataFrame
    controls: Sequence[Control]
    runs: Sequence[Run]
    after: int
    last: int


def read_batch(entries: DataFrame, after: int, last: int) -> Batch:
    """Return a batch with its control entries, as many as there were statements and seconds, and where its rows stand."""
    wanted = entries.where(F.col("control").isin(*CONTROLS)).select(
        "sequence_id", "control", "table", "value", F.unix_seconds("source_time").alias("source_s")
    )
    controls = [
        Control(
            row["sequence_id"],
            row["control"],
            tuple(row["table"] or ()),
            bytes(row["value"]),
            row["source_s"],
        )
        for row in sorted(wanted.collect(), key=lambda row: int(row["sequence_id"]))
    ]
    return Batch(entries, controls, read_runs(entries, cuts(controls)), after, last)


def read_runs(entries: DataFrame, places: Sequence[int]) -> list[Run]:
    """Return where the rows of each table stand between ``places``, in order."""
    rows = entries.where(F.col("control").isNull() & F.col("table").isNotNull()).select(
        "table", "sequence_id"
    )
    if places:
        rows = rows.mapInArrow(partial(stretch_batches, places=tuple(places)), STRETCH_DDL)
    found = (
        rows.groupBy([name for name in rows.columns if name != "sequence_id"])
        .agg(F.min("sequence_id").alias("first"), F.max("sequence_id").alias("last"))
        .collect()
    )
    runs = [Run(tuple(row["table"]), row["first"], row["last"]) for row in found]
    return sorted(runs, key=lambda run: run.first)


class _Work:
    """One table's way through a batch: its steps, how many are done, and what it is behind them."""

    def __init__(self, table: CapturedTable, after: int, keep: Keep) -> None:
        self.table = table
        self.after = after
        self.steps: list[Step] = []
        self.state = table.state
        self.done = 0
        self.merged = False
        self.failure: HeadraceError | None = None
        self._keep = keep

    @property
    def ends_with_rows(self) -> bool:
        return bool(self.steps) and isinstance(self.steps[-1], Rows)

    def note(self, **changes: Any) -> None:
        """Keep something of the table durably."""
        self.table = msgspec.structs.replace(self.table, **changes)
        self._keep(self.table)

    def is_done(self) -> bool:
        """Pass over the steps that are next and were done when this batch ran before; tell whether none is left."""
        while self.done < len(self.steps):
            step = self.steps[self.done]
            if step.place > self.table.place or isinstance(step, Erase):
                return False
            self.passed(step)
        return True

    def passed(self, step: Step) -> None:
        """The step is done."""
        self.state = step.state
        self.done += 1


class CapturedTables:
    """Carries plans out on the tables of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def apply(
        self, batch: Batch, known: Sequence[CapturedTable], keep: Keep, *, only: int | None = None
    ) -> Outcome:
        """Bring the tables ``known`` up to the end of the batch; safe to repeat. ``keep``: of a table in the middle of it.

        ``only``: the identity of the one table that this is about. Raises what is no single table's fault.
        """
        before = {one.identity: one for one in known}

        def kept(table: CapturedTable) -> None:
            old = before.get(table.identity)
            # Until the batch is done, a table's state is the one that the batch begins with.
            state, name = (old.state, old.table) if old is not None else (None, table.table)
            keep(msgspec.structs.replace(table, state=state, table=name))

        whole = Outcome(list(known), [], 0, None)
        for part in _parts(batch, known):
            done = self._apply(part, whole.tables, kept, only)
            watermark = done.watermark if done.watermark is not None else whole.watermark
            whole = Outcome(done.tables, whole.erased + done.erased, whole.touched + done.touched, watermark)
        return whole

    def _apply(self, batch: Batch, known: Sequence[CapturedTable], keep: Keep, only: int | None) -> Outcome:
        begin = [one.state for one in known if one.state is not None]
        found = plan(begin, batch.controls, batch.runs, feed=self._ledger.feed, only=only)
        works = self._works(batch, known, found.steps, keep)
        spark = batch.entries.sparkSession
        application = f"headrace:{self._ledger.feed}:{self._ledger.incarnation}"
        named = {APP_ID: application, APP_VERSION: str(batch.last)}
        with settings(spark, SOURCE_AS_IT_IS | named):
            for work in works:
                self._run(spark, batch, work, len(work.steps) - work.ends_with_rows)
            spark.conf.set(APP_VERSION, str(batch.last))
            late = [work for work in works if work.failure is None and not work.is_done()]
            # Only these at once: what names a commit's version is a setting of the session.
            run_all(spark, [partial(self._try, spark, batch, work, work.steps[-1]) for work in late])
            after = {state.identity: state for state in found.tables}
            for work in works:
                while work.failure is not None:
                    self._stop(spark, batch, work, after)
        return _outcome(batch, known, works, after, found.watermark)

    def _works(
        self, batch: Batch, known: Sequence[CapturedTable], steps: Sequence[Step], keep: Keep
    ) -> list[_Work]:
        works = {one.identity: _Work(one, batch.after, keep) for one in known}
        taken = {one.path for one in (*known, *self._ledger.tables)}
        taken |= {one.path for one in self._ledger.left}
        for step in steps:
            if step.identity not in works:
                name = tuple(step.state.name)
                path = free_folder(name, step.identity, taken)
                taken.add(path)
                fresh = CapturedTable(identity=step.identity, table=name, path=path, state=None)
                works[step.identity] = _Work(fresh, batch.after, keep)
            works[step.identity].steps.append(step)
        return [work for work in works.values() if work.steps]

    def _run(self, spark: SparkSession, batch: Batch, work: _Work, count: int) -> None:
        """Do the first ``count`` steps, one after the other, up to the one that fails."""
        while not work.is_done() and work.done < count:
            step = work.steps[work.done]
            spark.conf.set(APP_VERSION, str(step.place))
            self._try(spark, batch, work, step)
            if work.failure is not None:
                return

    def _try(self, spark: SparkSession, batch: Batch, work: _Work, step: Step) -> None:
        """Do a step, or note why it can't be done; raises what is not this table's fault."""
        path = self._ledger.to / work.table.path
        try:
            match step:
                case Rows():
                    carrying.merge_rows(spark, path, batch.entries, step)
                    work.merged = True
                case Stop():
                    self._note_stop(work, "table-stopped", step.reason, step.hint)
                case Erase():
                    pass  # it is not among the tables behind the batch
                case Evolve():
                    self._evolve(spark, path, work, step)
                case Make() | Empty():
                    (carrying.make if isinstance(step, Make) else carrying.empty)(spark, path, step.columns)
                    work.note(place=step.place, stopped=None, begun=None)
                case _:
                    work.note(place=step.place)
        except (HeadraceError, PySparkException) as failure:
            error = failed_at(failure, f"table {'.'.join(work.table.table)}, sequence id {step.place}")
            unable = isinstance(step, Evolve) and isinstance(failure, AnalysisException)
            if not isinstance(error, STOPPING) and not unable:
                raise error from None
            work.failure = error
            return
        work.passed(step)

    def _evolve(self, spark: SparkSession, path: Path, work: _Work, step: Evolve) -> None:
        begun = work.table.begun
        if begun is None:
            carrying.check(spark, path, step)
            begun = Begun(step.place, newest_version(path) or 0)
            # The rows before it are merged: they would not fit the table any more if the batch ran again.
            place = max([work.table.place, *(one.place for one in work.steps[: work.done])])
            work.note(begun=begun, place=place)
        elif begun.place != step.place:
            raise ValueUnfit(
                f"table {'.'.join(work.table.table)}: a change of its columns was cut short, and can't be finished",
                hint=REBUILD_HINT,
            )
        carrying.evolve(spark, path, step, begun.version)
        work.note(place=step.place, begun=None)

    def _stop(self, spark: SparkSession, batch: Batch, work: _Work, after: dict[int, TableState]) -> None:
        """Stop a table at the step that failed, then do what is left for a stopped one: a TRUNCATE makes it whole again."""
        failed, error = work.steps[work.done], work.failure
        if error is None or work.state is None:
            raise error or RuntimeError("a table that was never made can't be stopped")
        self._note_stop(work, error.code, error.detail, error.advice)
        halted = stopped(work.state, error.detail, failed.state)
        rest = plan(
            [halted],
            [one for one in batch.controls if one.sequence_id > failed.place],
            [one for one in batch.runs if one.first > failed.place],
            feed=self._ledger.feed,
            only=work.table.identity,
        )
        after.pop(work.table.identity, None)
        after.update(
            {state.identity: state for state in rest.tables if state.identity == work.table.identity}
        )
        work.after = max(work.after, failed.place)
        work.steps, work.done, work.failure, work.state = list(rest.steps), 0, None, halted
        self._run(spark, batch, work, len(work.steps))

    def _note_stop(self, work: _Work, code: str, reason: str, hint: str) -> None:
        done = [step.place for step in work.steps[: work.done]]
        after = max([work.after, *done])
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        published = self._ledger.published
        note = StopNote(
            after=after,
            state=work.state,
            code=code,
            reason=reason,
            hint=hint,
            at=at,
            commit_ts=(published.commit_ts or None) if published is not None else None,
        )
        # Not the batch's beginning: the step that failed may have that very place.
        work.note(stopped=note, place=max([work.table.place, *done]), begun=None)
        logger.error(
            "a table is stopped",
            table=".".join(work.table.table),
            after=after,
            code=code,
            reason=reason,
            hint=hint,
        )


def _parts(batch: Batch, known: Sequence[CapturedTable]) -> list[Batch]:
    """Cut a batch where an earlier one, maybe a longer one, was cut behind a statement: so the same steps come again."""
    done = {one.place for one in known}
    begun = {one.begun.place for one in known if one.begun is not None}
    # A change that was begun at another entry is the one that the row behind it brings, wherever a batch ends.
    ends = [
        one.sequence_id
        for one in batch.controls
        if one.sequence_id in done or (one.control == "ddl" and one.sequence_id in begun)
    ]
    parts, after = [], batch.after
    for last in [*[end for end in ends if batch.after < end < batch.last], batch.last]:
        controls = [one for one in batch.controls if after < one.sequence_id <= last]
        # Every such place is one of those that runs are cut at.
        runs = [one for one in batch.runs if after < one.first <= last]
        parts.append(Batch(batch.entries, controls, runs, after, last))
        after = last
    return parts


def _outcome(
    batch: Batch,
    known: Sequence[CapturedTable],
    works: Sequence[_Work],
    after: dict[int, TableState],
    watermark: int | None,
) -> Outcome:
    tables = {one.identity: one for one in known} | {work.table.identity: work.table for work in works}
    there, erased = [], []
    for identity, table in sorted(tables.items()):
        state = after.get(identity)
        if state is None:
            erased.append(table.path)
        else:
            # A batch that runs again may get past what stopped the table before.
            note = table.stopped if state.stopped else None
            name = tuple(state.name)
            # The place stays: the end of a batch may be that of a step of the next one.
            there.append(msgspec.structs.replace(table, state=state, table=name, stopped=note, begun=None))
    return Outcome(there, erased, sum(work.merged for work in works), watermark)
