"""Tables that come back: a stopped one is resumed at its place, or one is built anew beside the old and swapped in whole.

Operators ask by ``headrace pipeline tables resume`` and ``rebuild``, which leave requests in the folder. The job serves them
between two batches and at its start, on the same thread: the other tables wait meanwhile, and nothing is published before it
is done. What is read: the feed, and below its oldest entry the archive, if the job has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import HeadraceError, SequenceNotAvailable
from headrace.pipeline.failures import error_of
from headrace.pipeline.source.feed import FORMAT
from headrace.pipeline.tables.captured import CapturedTables, Keep, read_batch
from headrace.pipeline.tables.ledger import Ledger, free_folder
from headrace.pipeline.tables.merge import EXACT_WRITES
from headrace.pipeline.tables.simple.state import TableState, resumed
from headrace.pipeline.tables.states import CapturedTable, LeftFolder, Request
from headrace.runtime.logs import get_logger

logger = get_logger("pipeline")


class CatchingUp:
    """Serves the requests of one ledger; for one thread. ``options``: the source's, for batch reads of the whole feed."""

    def __init__(self, ledger: Ledger, options: Mapping[str, str], entries_max: int) -> None:
        """``entries_max``: entries that are looked at in one go."""
        self._ledger = ledger
        self._options = dict(options)
        self._entries_max = entries_max
        self._captured = CapturedTables(ledger)

    def serve(self, spark: SparkSession) -> bool:
        """Serve every request that is there; True if a table is another one since. A table that can't come back says why."""
        changed = False
        for request in self._ledger.requests():
            found = [one for one in self._ledger.tables if one.table == request.table]
            if found and self._ledger.reached is not None:
                for name, value in EXACT_WRITES.items():
                    spark.conf.set(name, value)
                changed |= self._serve(spark, request, found[0])
            self._ledger.served(request)
        return changed

    def _serve(self, spark: SparkSession, request: Request, table: CapturedTable) -> bool:
        try:
            if request.rebuild:
                self._rebuild(spark, table)
            elif table.stopped is not None:
                self._resume(spark, table)
        except (HeadraceError, PySparkException) as failure:
            error = error_of(failure)
            if not isinstance(error, SequenceNotAvailable):
                raise error from None
            logger.error("a table can't come back", table=".".join(table.table), detail=error.detail)
            if table.stopped is not None:
                reason = f"{table.stopped.reason}; what follows is not in the feed any more: {error.detail}"
                hint = "Run headrace capture copy for this table, or name an archive that has it (--archive)."
                note = msgspec.structs.replace(table.stopped, reason=reason, hint=hint)
                self._ledger.update(msgspec.structs.replace(table, stopped=note))
            return False
        return True

    def _resume(self, spark: SparkSession, table: CapturedTable) -> None:
        """Read a table's entries from its place on, and let it go on with the others if nothing stops it again."""
        note = table.stopped
        if note is None:
            return
        state = resumed(note.state) if note.state is not None else None
        name = tuple(state.name) if state is not None else table.table
        begin = msgspec.structs.replace(table, state=state, table=name, stopped=None)

        def keep(now: CapturedTable) -> None:
            self._ledger.update(msgspec.structs.replace(table, place=now.place, begun=now.begun))

        def whole(now: CapturedTable, last: int) -> None:
            after = msgspec.structs.replace(note, after=last, state=now.state)
            self._ledger.update(msgspec.structs.replace(table, place=last, begun=None, stopped=after))

        done = self._follow(spark, begin, note.after, keep, whole)
        if done is None:
            return  # it was dropped; the ledger has it no more once the job is there
        if done.stopped is not None:
            self._ledger.update(msgspec.structs.replace(table, place=done.place, stopped=done.stopped))
            return
        self._ledger.update(done)
        logger.info("a table goes on", table=".".join(done.table), after=note.after)

    def _rebuild(self, spark: SparkSession, table: CapturedTable) -> None:
        """Build a table from its first entry on, in another folder; then that one takes its place."""
        ledger = self._ledger
        taken = {one.path for one in ledger.tables} | {one.path for one in ledger.left}
        path = free_folder(table.table, table.identity, taken)
        # If this is cut short, the next attempt takes another folder, and this one is removed in a day.
        ledger.keep(left=[*ledger.left, LeftFolder(path, _now())])
        begin, after = self._birth(spark, table, path)
        done = self._follow(spark, begin, after, lambda now: None, lambda now, last: None)
        if done is None:
            return
        if done.stopped is not None:
            reason = done.stopped.reason
            logger.error("a table can't be built anew", table=".".join(table.table), reason=reason)
            return
        left = [one for one in ledger.left if one.path != path]
        others = [one for one in ledger.tables if one.identity != table.identity]
        ledger.keep(
            tables=sorted([*others, done], key=lambda one: one.identity),
            left=[*left, LeftFolder(table.path, _now())],
        )
        logger.info("a table was built anew", table=".".join(done.table), path=path)

    def _birth(self, spark: SparkSession, table: CapturedTable, path: str) -> tuple[CapturedTable, int]:
        """Return a table as it was before its first row, and the sequence id after which its entries are to be read."""
        identity = table.identity
        first = self._read(spark, identity, identity).select("table", "control").first()
        if first is None:
            raise SequenceNotAvailable(f"entry {identity}, with which the table begins, is not there")
        name = (first["table"][0], first["table"][1])
        state = TableState(identity=identity, name=name)
        begin = CapturedTable(identity=identity, table=name, path=path, state=state, place=identity - 1)
        # A CREATE makes a table of another identity; the schema entry behind it says what this one is.
        return begin, identity - 1 if first["control"] == "schema" else identity

    def _follow(
        self,
        spark: SparkSession,
        table: CapturedTable,
        after: int,
        keep: Keep,
        whole: Callable[[CapturedTable, int], None],
    ) -> CapturedTable | None:
        """Bring one table from behind ``after`` up to where the others are; returns what it is there, None if it is gone."""
        reached = self._ledger.reached
        end = reached.sequence_id if reached is not None else 0
        while after < end:
            last = min(after + self._entries_max, end)
            entries = self._read(spark, after + 1, last).persist()
            try:
                batch = read_batch(entries, after, last)
                outcome = self._captured.apply(batch, [table], keep, only=table.identity)
            finally:
                entries.unpersist()
            found = [one for one in outcome.tables if one.identity == table.identity]
            if not found:
                return None
            table, after = found[0], last
            if table.stopped is not None:
                return table
            whole(table, last)
        return table

    def _read(self, spark: SparkSession, first: int, last: int) -> DataFrame:
        place = {"start": str(first), "end": str(last)}
        return spark.read.format(FORMAT).options(**self._options, **place).load()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
