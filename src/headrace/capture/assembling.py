"""Binlog events -> what goes into the feed, and where in the source it stands then. A state machine without I/O.

Give each event to :meth:`Assembler.take`, in the binlog's order, and send what comes back, in its order; call
:meth:`Assembler.flush` where no more events are there at once. What is promised:

- Rows of a transaction are consecutive. An append holds whole transactions, or a part of a single large one.
- Each append has the position that is right once it is stored: begin with that one, and nothing comes twice or is missing.
- Rows go out under the schema that the binlog itself says they have, however late a DDL statement is understood.

What can't be told of one table stops that table, with a control entry; what can't be told at all is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace.capture.binlog.event import (
    AlterPhase,
    Begin,
    Commit,
    Event,
    Format,
    Gtid,
    GtidPosition,
    Heartbeat,
    Incident,
    Place,
    Rotate,
    RowsChanged,
    Statement,
    TableMapped,
    XaPrepared,
)
from headrace.capture.changes import APPEND_ENTRIES_MAX, PIECES_AN_APPEND, Append, TransactionEntries
from headrace.capture.commit_time import CommitClock
from headrace.capture.control import ControlEntry
from headrace.capture.ddl import TableName
from headrace.capture.effects import Times, stopped
from headrace.capture.group import Group
from headrace.capture.position import SourcePosition
from headrace.capture.schema_changes import SchemaChanges
from headrace.capture.tables import Covers, Tables, TableState, within
from headrace.errors import BinlogInvalid, BinlogUnsupported, SourceReplaced, TableStopped

_NONE: Final[list[Append]] = []
_SAVEPOINT, _ROLLBACK_TO = "SAVEPOINT ", "ROLLBACK TO "


class Assembler:
    """The state of one stream of events. It changes ``tables`` in place; between transactions copies do, too."""

    def __init__(
        self,
        position: SourcePosition,
        tables: Tables,
        changes: SchemaChanges,
        covers: Covers,
        *,
        append_bytes_max: int,
        wall_ms: Callable[[], int],
    ) -> None:
        """Begin at ``position``. ``wall_ms`` tells the buildTs of messages, ``covers`` where a copied table's keys stand."""
        self.tables = tables
        self.clock = CommitClock(position.commit_ts, wall_ms)
        self.gtids = GtidPosition.parse(position.gtid)
        self._under_way = position if position.under_way else None
        self._server_id = position.server_id
        self._place = Place(position.file, position.offset)
        self._time_s = position.time_s
        self._file = self._reached_file = position.file
        self._reached = position.offset
        self._changes = changes
        self._covers = covers
        self._wall_ms = wall_ms
        self._bytes_max = append_bytes_max
        self._piece_bytes = append_bytes_max // PIECES_AN_APPEND
        self._group: Group | None = None
        self._maps: dict[int, TableState | None] = {}
        self._whole: list[bytes] = []
        self._whole_bytes = 0
        self._ready: list[Append] = []
        self._takers: dict[type[Event], Callable[[Any], None]] = {
            Begin: self._begin,
            Statement: self._take_statement,
            Commit: self._end,
            TableMapped: self._take_map,
            RowsChanged: self._take_rows,
            Rotate: self._take_rotate,
            Format: self._take_format,
            Heartbeat: self._take_heartbeat,
            Incident: self._take_incident,
            XaPrepared: self._end,
        }

    @property
    def between_transactions(self) -> bool:
        """Whether everything up to :attr:`gtids` was taken, and nothing beyond."""
        return self._group is None and self._under_way is None

    @property
    def place(self) -> Place:
        """How far the binlog was taken, to the end of an event."""
        return Place(self._reached_file, self._reached)

    @property
    def committed_place(self) -> Place:
        """The end of the last transaction that is wholly taken."""
        return self._place

    @property
    def position(self) -> SourcePosition:
        """The position behind the last whole transaction, with what is known of tables and copies now."""
        group = self._group
        return self._standing() if group is None or group.before is None else group.before

    def _standing(self) -> SourcePosition:
        return SourcePosition(
            gtid=str(self.gtids),
            file=self._place.file,
            offset=self._place.offset,
            server_id=self._server_id,
            commit_ts=self.clock.last if self._group is None else self._group.ts_before,
            table_id=self.tables.last_id if self._group is None else self._group.table_id_before,
            time_s=self._time_s,
            copies=self.tables.progress(),
            whole=self.tables.is_whole,
            waiting=self.tables.awaited(),
            left_out=self.tables.left_out(),
            stopped=self.tables.reasons(),
        )

    def take(self, event: Event) -> list[Append]:
        """Take the next event and return the appends that are full.

        Raises BinlogInvalid for events in an order that can't be, BinlogUnsupported for changes that no row tells of and for
        XA transactions of captured tables, SourceReplaced if the stream does not go on where it was left.
        """
        taker = self._takers.get(type(event))
        if taker is not None:
            taker(event)
        if event.end > self._reached and self._file == self._reached_file and type(event) is not Rotate:
            self._reached = event.end
        return self._take_ready() if self._ready else _NONE

    def flush(self) -> list[Append]:
        """Return what is whole and was not handed out: an append at most, behind those that were full."""
        self._cut_whole()
        return self._take_ready()

    def take_full(self) -> list[Append]:
        """Return what is whole if it fills an append, else nothing."""
        return self.flush() if self._is_full() else _NONE

    def _is_full(self) -> bool:
        return self._whole_bytes >= self._bytes_max or len(self._whole) >= APPEND_ENTRIES_MAX

    def times(self, event_time_ms: int) -> Times:
        """Return the times of something that is said between two transactions, which no source transaction is."""
        return Times(self.clock.next(event_time_ms), self._wall_ms())

    def add(self, *entries: ControlEntry) -> None:
        """Put control entries between two transactions."""
        self.add_fields([entry.alone() for entry in entries])

    def add_fields(self, fields: list[bytes]) -> None:
        """Put entries that belong to no transaction of the source between two of them."""
        self._whole += fields
        self._whole_bytes += sum(map(len, fields))

    # -- transactions ---------------------------------------------------------------------------------------------------

    def _begin(self, event: Begin) -> None:
        if self._group is not None:
            raise self._invalid(event, f"the transaction {self._group.gtid} has not ended")
        left, self._under_way = self._under_way, None
        if left is not None and Gtid.parse(left.under_way) != event.gtid:
            raise SourceReplaced(
                f"the feed ends within the transaction {left.under_way}, and the server goes on with {event.gtid}"
            )
        self._group = Group(event, left, ts_before=self.clock.last, table_id_before=self.tables.last_id)

    def _entries(self, group: Group) -> TransactionEntries:
        return group.begun(self.clock, self._wall_ms)

    def _end(self, event: Event) -> None:
        """The transaction is whole."""
        group = self._running(event)
        self._group = None
        if self._maps:
            self._maps = {}
        self.gtids = self.gtids.advanced(group.begin.gtid)
        self._place = Place(self._file, event.end)
        self._time_s = event.time_s
        if group.entries is None:
            return
        self.add_fields(group.entries.end())
        if self._is_full():
            self._cut_whole()

    def _cut_whole(self) -> None:
        if self._whole:
            self._ready.append(Append(self._whole, self.position))
            self._whole, self._whole_bytes = [], 0

    def _cut_part(self, group: Group, fields: list[bytes]) -> None:
        """Hand out ``fields``, which were taken of the transaction under way."""
        self._cut_whole()
        if fields and group.entries is not None:
            group.is_cut = True
            position = msgspec.structs.replace(
                self._standing(),
                under_way=group.gtid,
                parts=group.entries.parts_taken,
                rows=group.entries.rows_taken,
                entries=group.entries.entries_taken,
                commit_ts=group.commit_ts,
                table_id=self.tables.last_id,
            )
            self._ready.append(Append(fields, position))

    def _cut_full(self, group: Group) -> None:
        if group.entries is not None and group.entries.is_full(self._bytes_max):
            self._cut_part(group, group.entries.take())

    def _take_ready(self) -> list[Append]:
        ready, self._ready = self._ready, []
        return ready

    def _running(self, event: Event) -> Group:
        if self._group is None:
            raise self._invalid(event, "it stands outside of any transaction")
        return self._group

    # -- rows -----------------------------------------------------------------------------------------------------------

    def _take_map(self, event: TableMapped) -> None:
        table = event.table
        name = TableName(table.database, table.table)
        state = self.tables.states.get(name)
        if state is None or state.identity != table.identity:
            state = self._fitted(name, event)
        self._maps[table.table_id] = state

    def _fitted(self, name: TableName, event: TableMapped) -> TableState | None:
        """Return the state of a table, ready for rows of this shape; None if rows of it do not go out."""
        tables = self.tables
        if not tables.captures(name) or name in tables.stopped:
            return None
        if name not in tables.states and tables.awaits_copy(name):
            return None
        group = self._running(event)
        entries = self._entries(group)
        self._cut_full(group)
        try:
            for entry in self._changes.fit(name, event.table, Times(entries.commit_ts, entries.build_ts)):
                self._say(group, entry)
        except TableStopped as error:
            self._stop(group, name, error)
        return tables.states.get(name)

    def _stop(self, group: Group, name: TableName, error: TableStopped) -> None:
        """Let no more rows of a table go out, and say so behind those of the transaction that came."""
        entries = self._entries(group)
        if entries.count and group.before is None:
            group.before = self._standing()
        self._say(group, stopped(self.tables, name, error, Times(entries.commit_ts, entries.build_ts)))

    def _say(self, group: Group, entry: ControlEntry) -> None:
        """Put a control entry before the rows of the transaction; where that is too late, behind those that came."""
        if group.is_cut or group.before is not None:
            self._entries(group).add_control(entry)
        else:
            self.add(entry)

    def _take_rows(self, event: RowsChanged) -> None:
        group = self._running(event)
        try:
            state = self._maps[event.table_id]
        except KeyError:
            raise self._invalid(
                event, f"no TABLE_MAP of the table id {event.table_id} stands before it"
            ) from None
        if event.end_of_statement:
            self._maps = {}
        if state is not None:
            group.touched[state.name] = group.parts
        if state is None or group.is_done() or state.name in self.tables.stopped:
            group.skip_part()
            return
        if group.begin.xa:
            raise self._unsupported(
                event, f"rows of {state.name} are in an XA transaction, whose end is unknown"
            )
        entries = self._entries(group)
        self._cut_full(group)
        try:
            rows, form = state.read(event)
            copying = self.tables.copies.get(state.name)
            if copying is not None and copying.leaves_out:
                rows = within(copying, form, rows, self._covers)
            place = entries.add_piece(form, rows, group.rows_done(), self._piece_bytes)
            while place < len(rows):
                self._cut_full(group)
                place = entries.add_piece(form, rows, place, self._piece_bytes)
        except TableStopped as error:
            group.skip_part()
            self._stop(group, state.name, error)
        else:
            group.parts += 1

    # -- statements -----------------------------------------------------------------------------------------------------

    def _take_statement(self, event: Statement) -> None:
        group = self._running(event)
        sql = event.sql
        if group.begin.standalone:
            if group.begin.alter not in {AlterPhase.START, AlterPhase.ROLLBACK}:
                self._apply(group, event)
            self._end(event)
        elif sql == "COMMIT":
            self._end(event)
        elif sql == "ROLLBACK":
            self._roll_back(group, None)
            self._end(event)
        elif sql.startswith(_SAVEPOINT):
            group.save(sql[len(_SAVEPOINT) :])
        elif sql.startswith(_ROLLBACK_TO):
            self._roll_back(group, sql[len(_ROLLBACK_TO) :])
        else:
            self._apply_within(group, event)

    def _roll_back(self, group: Group, savepoint: str | None) -> None:
        """Take back what came since a savepoint, or all of it; logged where the server could not leave the rows out."""
        why, names = group.take_back(savepoint, self.tables.stopped)
        error = TableStopped(f"{group.gtid} was rolled back, {why}")
        for name in names:
            self._stop(group, name, error)

    def _apply_within(self, group: Group, event: Statement) -> None:
        """Take DDL that is followed by rows in one group: CREATE TABLE … SELECT.

        To readers the rows are a transaction of their own, behind the statement: of one commitTs, rows come first.
        """
        if group.is_done():
            group.skip_part()
            if group.feed_ended_here() and any(self._changes.concerning(event)):
                group.begin_anew()
            return
        self._apply(group, event)
        group.skip_part()
        if group.entries is not None and group.entries.count:
            self._cut_part(group, group.entries.end())
            group.begin_anew()

    def _apply(self, group: Group, event: Statement) -> None:
        """Put what a statement does to tables into the transaction."""
        for statement in self._changes.concerning(event):
            entries = self._entries(group)
            times = entries.commit_ts, entries.build_ts
            for entry in self._changes.apply(statement, event.database, Times(*times)):
                entries.add_control(entry)

    # -- what stands between --------------------------------------------------------------------------------------------

    def _take_rotate(self, event: Rotate) -> None:
        if self._group is not None and not event.fake:
            raise self._invalid(event, f"the transaction {self._group.gtid} has not ended")
        self._file = event.file
        self._advance(Place(event.file, event.offset))

    def _take_format(self, event: Format) -> None:
        """A file begins. What was open when the server stopped is void: it was never committed."""
        if self._group is not None:
            if self._group.is_cut:
                raise self._unsupported(
                    event, f"{self._group.gtid} never ended, and a part of it is in the feed"
                )
            self._group = None
            self._maps = {}

    def _take_heartbeat(self, event: Heartbeat) -> None:
        self._advance(Place(event.file, event.end))

    def _advance(self, place: Place) -> None:
        """Note a place that may lie behind the one reached: a connection begins at the start of a file."""
        self._reached_file, self._reached = max(self.place, place)

    def _take_incident(self, event: Incident) -> None:
        raise self._unsupported(event, f"the server lost changes: {event.text}")

    def _invalid(self, event: Event, why: str) -> BinlogInvalid:
        return BinlogInvalid(f"{type(event).__name__} before {event.end} of {self._file}: {why}")

    def _unsupported(self, event: Event, why: str) -> BinlogUnsupported:
        return BinlogUnsupported(f"before {event.end} of {self._file}: {why}")
