"""Tables that come back: a stopped one is resumed at its place, or one is built anew beside the old and swapped in whole.

Operators ask by ``headrace pipeline tables resume``, ``rebuild`` and ``forget``, which leave requests in the folder. The job
serves them between two batches and at its start, on the same thread: the other tables wait meanwhile, and nothing is
published before it is done. What is read: the feed, and below its oldest entry the archive, if the job has one. A request
never ends the job: why it could not be served is kept with its table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.errors import HeadraceError, SequenceNotAvailable, SimpleInvalid, SimpleUnsupported, ValueUnfit
from headrace.pipeline.failures import error_of
from headrace.pipeline.source.feed import FORMAT
from headrace.pipeline.tables.captured import REBUILD_HINT, Batch, CapturedTables, Keep, read_batch
from headrace.pipeline.tables.delta_log import newest_version
from headrace.pipeline.tables.ledger import Ledger, free_folder
from headrace.pipeline.tables.merge import EXACT_WRITES
from headrace.pipeline.tables.origins import MIDDLE, now_text, origin_of
from headrace.pipeline.tables.requests import forget_request, waiting_requests
from headrace.pipeline.tables.schemas import TableName
from headrace.pipeline.tables.simple.plan import Control
from headrace.pipeline.tables.simple.state import TableState, resumed
from headrace.pipeline.tables.states import (
    FORGOTTEN,
    GONE,
    NO_VERSION,
    CapturedTable,
    LeftFolder,
    Refusal,
    Request,
    StopNote,
)
from headrace.runtime.logs import get_logger
from headrace.simple import json_codec
from headrace.simple.message import Ddl, MessageType

logger = get_logger("pipeline")

COPY_HINT: Final = (
    "Run headrace capture copy for this table, or name an archive that has what is missing (--archive)."
)
COPY_ONLY_HINT: Final = "Run headrace capture copy for this table."


class _LeftOffError(Exception):
    """The job is to stop: what was begun goes on when it runs again."""


class CatchingUp:
    """Serves the requests of one ledger; for one thread. ``options``: the source's, for batch reads of the whole feed."""

    def __init__(self, ledger: Ledger, options: Mapping[str, str], entries_max: int) -> None:
        """``entries_max``: entries that are looked at in one go."""
        self._ledger = ledger
        self._options = dict(options)
        self._entries_max = entries_max
        self._captured = CapturedTables(ledger)
        self._go_on: Callable[[], bool] = lambda: True

    def serve(self, spark: SparkSession, go_on: Callable[[], bool] = lambda: True) -> bool:
        """Serve every request that can be served now; True if a table is another one since.

        What a batch that was cut has begun is left to that batch: its request waits. So does one that fails because the
        server is away. ``go_on`` is asked before each part that is read; where it says no, what is left waits too.
        """
        changed = False
        self._go_on = go_on
        for request in waiting_requests(self._ledger.to, aside=True):
            found = [one for one in self._ledger.tables if one.table == request.table]
            if not found:
                logger.error("a request names a table that is not there", table=".".join(request.table))
                forget_request(self._ledger.to, request)
            elif self._is_due(request, found[0]):
                changed |= self._serve(spark, request, found[0])
        return changed

    def _is_due(self, request: Request, table: CapturedTable) -> bool:
        """Tell whether the last whole batch has got to where the request begins."""
        if request.forget:
            return table.state is not None  # else the batch that was cut has brought it
        if request.rebuild and table.state is not None and table.state.copying:
            return False  # without the rest of the copy it might not be whole
        begin = table.identity if request.rebuild or table.stopped is None else table.stopped.after
        return self._ledger.reached is not None and begin <= self._ledger.reached.sequence_id

    def _serve(self, spark: SparkSession, request: Request, table: CapturedTable) -> bool:
        for name, value in EXACT_WRITES.items():
            spark.conf.set(name, value)
        fresh = msgspec.structs.replace(table, refused=None)
        try:
            self._check_on()
            if request.forget:
                done = self._forget(fresh)
            elif request.rebuild:
                done = self._rebuild(spark, fresh)
            else:
                done = table.stopped is not None and self._resume(spark, fresh)
        except _LeftOffError:
            return False
        except (HeadraceError, PySparkException, Py4JError) as failure:
            if isinstance(failure, Py4JError) and not isinstance(failure, Py4JJavaError):
                raise  # nobody is there to serve it
            error = error_of(failure)
            if error.retryable:
                logger.warning("a request waits", table=".".join(table.table), detail=error.detail)
                return False
            self._refuse(request, table.identity, error)
            done = False
        forget_request(self._ledger.to, request)
        return done

    def _refuse(self, request: Request, identity: int, error: HeadraceError) -> None:
        """Keep why a request could not be served."""
        tables = [one for one in self._ledger.tables if one.identity == identity]
        logger.error(
            "a request could not be served",
            request=request.word,
            table=".".join(request.table),
            code=error.code,
            detail=error.detail,
        )
        for table in tables:  # as it is now: a part of it may have been read
            gone = isinstance(error, SequenceNotAvailable)
            hint = COPY_HINT if gone and error.advice != COPY_ONLY_HINT else error.advice
            refused = Refusal(
                request=request.word, code=error.code, reason=error.detail, hint=hint, at=now_text()
            )
            note = table.stopped
            # What a rebuild lacks is the beginning: from where the table stopped it may still be resumed.
            if note is not None and note.holds and gone and not request.rebuild:
                reason = f"{note.reason}; what follows is not in the feed any more: {error.detail}"
                note = msgspec.structs.replace(note, code=GONE, reason=reason, hint=hint)
            self._ledger.update(msgspec.structs.replace(table, refused=refused, stopped=note))

    def _forget(self, table: CapturedTable) -> bool:
        """Let go of a stopped table: what is in it, and its place. A copy, a TRUNCATE or a CREATE brings it in whole."""
        ledger, note, state = self._ledger, table.stopped, table.state
        if note is None or state is None:
            return False
        taken = {one.path for one in ledger.tables} | {one.path for one in ledger.left}
        path = free_folder(table.table, table.identity, taken)
        bare = TableState(
            identity=state.identity,
            name=state.name,
            schema=state.schema,
            stopped=state.stopped or note.reason,
            moving=state.moving,
        )
        let_go = StopNote(
            after=note.after,
            state=None,
            code=FORGOTTEN,
            reason=f"it was let go: {note.reason}",
            hint="If the table is to come back: headrace capture copy.",
            at=now_text(),
            commit_ts=note.commit_ts,
        )
        forgotten = msgspec.structs.replace(table, path=path, state=bare, stopped=let_go, begun=None)
        others = [one for one in ledger.tables if one.identity != table.identity]
        ledger.keep(tables=[*others, forgotten], left=[*ledger.left, LeftFolder(table.path, now_text())])
        logger.info("a table was let go", table=".".join(table.table), path=table.path)
        return True

    def _resume(self, spark: SparkSession, table: CapturedTable) -> bool:
        """Read a table's entries from its place on, and let it go on with the others if nothing stops it again."""
        note = table.stopped
        if note is None:
            return False
        if note.state is None:
            raise SequenceNotAvailable("the table has no place in the feed from which it could go on")
        state = resumed(note.state)
        begin = msgspec.structs.replace(table, state=state, table=tuple(state.name), stopped=None)
        held = msgspec.structs.replace(table, stopped=self._shown(table, note))
        self._ledger.update(held)  # before anything is merged: readers see the version of the place alone

        def keep(now: CapturedTable) -> None:
            self._ledger.update(msgspec.structs.replace(held, place=now.place, begun=now.begun))

        def whole(now: CapturedTable, last: int) -> bool:
            nonlocal held
            if now.stopped is not None:
                return False
            moved = msgspec.structs.replace(note, after=last, state=now.state, version=UNSET)
            held = msgspec.structs.replace(
                held, place=now.place, begun=None, stopped=self._shown(table, moved)
            )
            self._ledger.update(held)
            return True

        done = self._follow(spark, begin, note.after, keep, whole)
        if done is None:
            return True  # it was dropped; the ledger has it no more once the job is there
        if done.stopped is not None:
            self._ledger.update(
                msgspec.structs.replace(table, place=done.place, begun=done.begun, stopped=done.stopped)
            )
            return True
        self._ledger.update(done)
        logger.info("a table goes on", table=".".join(done.table), after=note.after)
        return True

    def _shown(self, table: CapturedTable, note: StopNote) -> StopNote:
        """Return the note with the version that shows its place: the newest one, unless it says another."""
        if note.version is not UNSET:
            return note
        newest = newest_version(self._ledger.to / table.path)
        return msgspec.structs.replace(note, version=NO_VERSION if newest is None else newest)

    def _rebuild(self, spark: SparkSession, table: CapturedTable) -> bool:
        """Build a table from its first entry on, in another folder; then that one takes its place.

        What stops it on the way does not count where a copy, further on, brings it in whole.
        """
        ledger = self._ledger
        if table.started_from == MIDDLE:
            raise SequenceNotAvailable(
                "nobody knows at which entry the table begins: the tables here were begun in the middle of the feed",
                hint=COPY_ONLY_HINT,
            )
        taken = {one.path for one in ledger.tables} | {one.path for one in ledger.left}
        path = free_folder(table.table, table.identity, taken)
        # If this is cut short, the next attempt takes another folder, and this one is removed in a day.
        ledger.keep(left=[*ledger.left, LeftFolder(path, now_text())])
        begin, after = self._birth(spark, table, path)
        done = self._follow(spark, begin, after, lambda now: None, lambda now, last: True)
        if done is None:
            return False
        if done.stopped is not None:
            note = done.stopped
            raise ValueUnfit(note.reason, hint=note.hint or REBUILD_HINT, table=list(table.table))
        left = [one for one in ledger.left if one.path != path]
        others = [one for one in ledger.tables if one.identity != table.identity]
        ledger.keep(tables=[*others, done], left=[*left, LeftFolder(table.path, now_text())])
        logger.info("a table was built anew", table=".".join(done.table), path=path)
        return True

    def _birth(self, spark: SparkSession, known: CapturedTable, path: str) -> tuple[CapturedTable, int]:
        """Return a table as it was before its first row, and the sequence id after which its entries are to be read."""
        identity = known.identity
        first = self._read(spark, identity, identity).select("table", "control").first()
        if first is None:
            raise SequenceNotAvailable(f"entry {identity}, with which the table begins, is not there")
        name = (first["table"][0], first["table"][1])
        state = TableState(identity=identity, name=name)
        begin = CapturedTable(
            identity=identity,
            table=name,
            path=path,
            state=state,
            place=identity - 1,
            started_from=known.started_from or origin_of(identity, self._ledger.start),
        )
        # A CREATE makes a table of another identity; the schema entry behind it says what this one is.
        return begin, identity - 1 if first["control"] == "schema" else identity

    def _follow(
        self,
        spark: SparkSession,
        table: CapturedTable,
        after: int,
        keep: Keep,
        whole: Callable[[CapturedTable, int], bool],
    ) -> CapturedTable | None:
        """Bring one table from behind ``after`` up to where the others are; returns what it is there, None if it is gone.

        ``whole`` is told of each part that is read, and says whether to go on.
        """
        reached = self._ledger.reached
        end = reached.sequence_id if reached is not None else 0
        while after < end:
            self._check_on()
            last = min(after + self._entries_max, end)
            entries, batch = self._batch(spark, table, after, last)
            try:
                outcome = self._captured.apply(batch, [table], keep, only=table.identity)
            finally:
                entries.unpersist()
            found = [one for one in outcome.tables if one.identity == table.identity]
            if not found:
                return None
            table, after = found[0], last
            if not whole(table, last):
                break
        return table

    def _batch(
        self, spark: SparkSession, table: CapturedTable, after: int, last: int
    ) -> tuple[DataFrame, Batch]:
        """Read what may be of one table, and keep no other table's rows: those are most of a feed.

        The first tuple member is persisted. A table that is renamed on the way is read again, by all its names.
        """
        names = {table.table}
        while True:
            mine = F.col("control").isNotNull() | F.col("table").isin(
                *[F.array(*[F.lit(part) for part in name]) for name in sorted(names)]
            )
            entries = self._read(spark, after + 1, last).where(mine).persist()
            try:
                batch = read_batch(entries, after, last)
                known = names_of(table.table, batch.controls)
                if known <= names:
                    return entries, batch
            except BaseException:
                entries.unpersist()
                raise
            entries.unpersist()
            names |= known

    def _check_on(self) -> None:
        if not self._go_on():
            raise _LeftOffError

    def _read(self, spark: SparkSession, first: int, last: int) -> DataFrame:
        place = {"start": str(first), "end": str(last)}
        return spark.read.format(FORMAT).options(**self._options, **place).load()


def names_of(name: TableName, controls: Sequence[Control]) -> set[TableName]:
    """Return the names that a table may have behind these control entries, which it begins with ``name``: all, or more."""
    names = {name}
    for one in controls:
        if one.control == "ddl" and one.table in names:
            try:
                message = json_codec.decode(one.value)
            except (SimpleInvalid, SimpleUnsupported):
                continue  # it stops the table
            if isinstance(message, Ddl) and message.type is MessageType.RENAME and message.table_schema:
                names.add((message.table_schema.schema, message.table_schema.table))
    return names
