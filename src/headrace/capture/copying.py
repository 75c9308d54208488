"""Rows that are there already, copied between the changes: the initial snapshot, and what somebody asks for.

A chunk of rows is the table's state at a place of the binlog. It goes out once the stream was read to exactly that place,
so what the feed holds of the copied part is the table's state there, and all that follows applies to it. Changes of rows
that are not copied yet are left out. The source position says how far a copy is: a restart goes on behind the last row
that is in the feed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from headrace.capture.assembling import Assembler
from headrace.capture.binlog.event import GtidPosition
from headrace.capture.catalogue_schema import catalogue_forms, from_catalogue
from headrace.capture.catalogue_table import CatalogueTable
from headrace.capture.changes import Append, TransactionEntries
from headrace.capture.ddl import TableName
from headrace.capture.effects import Times, adopted, begun, ended, judge, key_types, returned, stopped
from headrace.capture.mariadb.chunks import Chunk, ChunkReader, NoChunk
from headrace.capture.mariadb.connection import Source
from headrace.capture.position import RawKey
from headrace.capture.row_form import RowForm
from headrace.capture.settings import ChunkSize
from headrace.capture.source_schemas import SourceCatalogue
from headrace.capture.tables import Copying, Unknown
from headrace.capture.watermark import SourceMoment
from headrace.errors import TableNotFound, TableStopped, Usage
from headrace.runtime.logs import get_logger
from headrace.simple.schema import TableSchema

logger = get_logger("capture")

_SLICE_ROWS: Final = 256
"""Rows that are made entries of before it is looked whether an append is full."""


class _Reading(NamedTuple):
    """A table that is read in chunks, in the shape that it had when that began."""

    name: TableName
    table: CatalogueTable
    reader: ChunkReader


class _Pending(NamedTuple):
    """A chunk that the stream has yet to reach; ``after`` is the border behind which it was read."""

    name: TableName
    table: CatalogueTable
    copying: Copying
    after: RawKey | None
    chunk: Chunk


class Copier:
    """Copies one table after the other. Its methods are called between transactions alone, by the thread of the stream."""

    def __init__(
        self,
        assembler: Assembler,
        catalogue: SourceCatalogue,
        *,
        connect: Callable[[], Source],
        ask_moment: Callable[[], SourceMoment],
        size: ChunkSize,
    ) -> None:
        """``connect`` opens sessions for chunks; ``ask_moment`` asks the source for its time and place."""
        self._assembler = assembler
        self._tables = assembler.tables
        self._catalogue = catalogue
        self._connect = connect
        self._ask_moment = ask_moment
        self._missing: dict[TableName, GtidPosition] = {}
        self._size = size
        self._listed: tuple[GtidPosition, list[TableName]] | None = None
        self._reading: _Reading | None = None
        self._pending: _Pending | None = None
        self._refused = self._hindrance = ""

    @property
    def remaining(self) -> int:
        """How many tables are not copied whole yet."""
        return len(self._tables.copies) + len(self._tables.waiting)

    @property
    def done(self) -> str:
        """How far the copies under way are, in words."""
        return ", ".join(
            f"{'.'.join(name)}: {copying.rows} rows" for name, copying in self._tables.copies.items()
        )

    @property
    def hindrance(self) -> str:
        """Why no chunk could be read when that was tried last; empty if one was."""
        return self._hindrance

    @property
    def is_waiting(self) -> bool:
        """Whether a chunk waits for the stream to reach its place."""
        return self._pending is not None

    def plan(self) -> None:
        """Find the tables of which the feed knows nothing.

        They are copied once the stream is where the source was after that: those whose CREATE TABLE comes on the way need no
        copy.
        """
        names = self._catalogue.captured(self._tables)
        self._listed = self._ask_moment().gtids, names

    def take_out(self, names: Iterable[TableName]) -> None:
        """Take out of the feed what it holds of tables that went stale and are not copied."""
        for name in names:
            times = self._assembler.times(self._ask_moment().time_ms)
            self._assembler.add(*returned(self._tables, name, times))

    def ask(self, name: TableName, request: str) -> list[Append]:
        """Begin to copy a table because somebody asked, under the id ``request``; returns the append that says so.

        Nothing while it is not known yet whether the snapshot has to copy the table. Raises TableNotFound, Usage (it is
        being copied), TableStopped (it can't be captured).
        """
        tables = self._tables
        if any(copying.request == request for copying in tables.copies.values()):
            return []
        table = self._catalogue.table(name) if tables.captures(name) else None
        if table is None:
            raise TableNotFound(f"{'.'.join(name)} is no table of the source that is captured")
        if name in tables.copies or name in tables.waiting:
            raise Usage(
                f"{'.'.join(name)} is being copied", hint="headrace capture status shows how far that is."
            )
        is_held = name in tables.states and name not in tables.stopped
        if not is_held and name not in tables.stopped and tables.awaits_copy(name):
            return []
        self._begin(name, table, leaves_out=not is_held, request=request)
        return self._assembler.flush()

    def step(self) -> list[Append]:
        """Do what can be done now, a chunk at most: read the next one, or hand out the one whose place is reached."""
        self._take_listed()
        if self._pending is None:
            self._read()
        pending = self._pending
        if pending is None or self._assembler.place < pending.chunk.place:
            return self._assembler.flush() if self._tables.copies else []
        self._pending = None
        out = self._hand_out(pending)
        return [*out, *self._assembler.flush()]

    def close(self) -> None:
        """Close the connections."""
        self._stop_reading()

    # -- what is to be copied -------------------------------------------------------------------------------------------

    def _take_listed(self) -> None:
        if self._listed is None or not self._has_reached(self._listed[0]):
            return
        (_, names), self._listed = self._listed, None
        tables = self._tables
        tables.unknown = Unknown.STOPS
        there = frozenset(names)
        self.take_out([name for name in tables.stale if tables.captures(name) and name not in there])
        for name in names:
            if name not in tables.states and name not in tables.stopped:
                tables.waiting[name] = None
        logger.info("tables to copy", count=len(tables.waiting) + len(tables.copies))

    def _next(self) -> TableName | None:
        """Return the table to go on with, begun if need be."""
        for name in list(self._tables.waiting):
            if self._tables.copies:
                break
            table = self._catalogue.table(name)
            if table is None:
                self._note_missing(name)
                continue
            self._missing.pop(name, None)
            try:
                self._begin(name, table, leaves_out=True)
            except TableStopped as error:
                times = self._assembler.times(self._ask_moment().time_ms)
                self._assembler.add(stopped(self._tables, name, error, times))
        return next(iter(self._tables.copies), None)

    def _note_missing(self, name: TableName) -> None:
        """A table that waits is not there: the stream will come to its DROP or RENAME. If it does not, there was none."""
        since = self._missing.setdefault(name, self._ask_moment().gtids)
        if self._has_reached(since):
            del self._missing[name], self._tables.waiting[name]

    def _has_reached(self, gtids: GtidPosition) -> bool:
        return all(map(self._assembler.gtids.covers, gtids.gtids))

    def _begin(self, name: TableName, table: CatalogueTable, *, leaves_out: bool, request: str = "") -> None:
        schema = from_catalogue(table, 0, 0)
        judge(table, schema, self._tables, self._catalogue)
        times = self._assembler.times(self._ask_moment().time_ms)
        self._assembler.add(*begun(self._tables, name, schema, times, leaves_out=leaves_out, request=request))
        logger.info("a table is copied", database=name.database, table=name.table, request=request)

    # -- chunks ---------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read the next chunk, if there is something to copy."""
        name = self._next()
        if name is None:
            self._stop_reading()
            return
        copying = self._tables.copies[name]
        try:
            reading = self._reading_of(name)
            found = reading.reader.read(copying.last) if reading is not None else None
        except TableStopped as error:
            self._stop_reading()
            times = self._assembler.times(self._ask_moment().time_ms)
            self._assembler.add(stopped(self._tables, name, error, times))
            return
        if reading is None or found is None:
            return
        if isinstance(found, NoChunk):
            self._note(name, found)
            self._stop_reading()
            return
        self._refused = self._hindrance = ""
        if found.place >= self._assembler.committed_place:
            # An older one misses a transaction that went by already: the server logs it before its rows can be seen.
            self._pending = _Pending(name, reading.table, copying, copying.last, found)

    def _reading_of(self, name: TableName) -> _Reading | None:
        """Return what reads a table in its present shape; None if there is none now."""
        if self._reading is not None and self._reading.name == name:
            return self._reading
        self._stop_reading()
        table = self._catalogue.table(name)
        if table is None:
            return None
        schema = from_catalogue(table, 0, 0)
        known = self._tables.states[name].schema
        if known is not None and key_types(schema) != key_types(known):
            return None  # the border is one of the old key; the stream will come to the statement that changed it
        judge(table, schema, self._tables, self._catalogue)
        reader = ChunkReader(
            self._connect,
            schema,
            catalogue_forms(table),
            self._tables.selection.of(schema).delivered,
            rows_max=self._size.rows_max,
            bytes_max=self._size.bytes_max,
        )
        self._reading = _Reading(name, table, reader)
        return self._reading

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.reader.close()
            self._reading = None

    def _note(self, name: TableName, why: NoChunk) -> None:
        said = f"{'.'.join(name)}: {why.reason}"
        self._hindrance = f"{said}: {why.detail}"
        if said != self._refused:
            self._refused = said
            logger.info("a table is read again in a moment", table=said, detail=why.detail)

    def _hand_out(self, pending: _Pending) -> list[Append]:
        """Put a chunk whose place is reached into the feed, unless the table has become another one on the way there."""
        name, copying, chunk = pending.name, pending.copying, pending.chunk
        state = self._tables.states.get(name)
        if state is None or self._tables.copies.get(name) is not copying or copying.last != pending.after:
            return []
        times = self._assembler.times(self._ask_moment().time_ms)
        self._assembler.add(*adopted(self._tables, state, from_catalogue(pending.table, 0, 0), times))
        out: list[Append] = []
        try:
            if state.schema is not None:
                form = judge(pending.table, state.schema, self._tables, self._catalogue)
                out = self._rows(form, state.schema, copying, chunk, times)
        except TableStopped as error:
            self._assembler.add(stopped(self._tables, name, error, times))
            return out
        if chunk.whole:
            self._assembler.add(*ended(self._tables, name))
            logger.info(
                "a table is copied whole", database=name.database, table=name.table, rows=copying.rows
            )
        return out

    def _rows(
        self, form: RowForm, schema: TableSchema, copying: Copying, chunk: Chunk, times: Times
    ) -> list[Append]:
        """Make entries of a chunk's rows, and appends as they are full; the border moves with each."""
        out: list[Append] = []
        columns = [column.name for column in schema.columns]
        key = [columns.index(name) for name in schema.handle_key]
        entries = TransactionEntries("", times.commit_ts, times.build_ts, 0, copy=True)
        for start in range(0, len(chunk.rows), _SLICE_ROWS):
            rows = chunk.rows[start : start + _SLICE_ROWS]
            entries.add_part(form, [(None, row) for row in rows])
            self._assembler.add_fields(entries.end())
            copying.last = tuple(rows[-1][place] for place in key)
            copying.rows += len(rows)
            out += self._assembler.take_full()
        return out
