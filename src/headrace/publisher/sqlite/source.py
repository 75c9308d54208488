"""A SQLite database file as a :class:`~headrace.publisher.source.Source`: one connection, used by one thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from headrace.publisher.attach.finding import Attached, Finding
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState, CopyStep
from headrace.publisher.marked import APPEND_ENTRIES_MAX, RowPlace
from headrace.publisher.outbox.sqlite import check_format, has_tables
from headrace.publisher.outbox_source import OutboxSource, Parts
from headrace.publisher.owner import Alarm, FeedPlace, Resume
from headrace.publisher.source import AttachedTable, DetachedTable
from headrace.publisher.sqlite import attach, check, copying, ownership, parked, sweep, waiting
from headrace.publisher.sqlite.catalogue import schema_cookie
from headrace.publisher.sqlite.connection import (
    connect,
    immediate,
    journal_mode,
    path_of,
    snapshot,
    sqlite_errors,
)
from headrace.publisher.sqlite.relay import OutboxRelay
from headrace.publisher.sqlite.state import SqliteStateReader
from headrace.publisher.standing import FeedStanding, Holder
from headrace.publisher.state import StatePlace, StateReader, StateSink
from headrace.runtime.dsn import Dsn

_PARTS: Final = Parts(OutboxRelay, parked, ownership.read_owner, check_format, sqlite_errors)


def open_source(dsn: Dsn) -> SqliteSource:
    """Open the database that ``dsn`` names; see :func:`~headrace.publisher.sqlite.connection.connect` for the errors."""
    return SqliteSource(path_of(dsn))


def state_reader(dsn: Dsn, feed: str, query: str | None) -> SqliteStateReader:
    """Return a reader of the state of ``feed``, not yet opened; DsnInvalid."""
    return SqliteStateReader(path_of(dsn), feed, query)


class SqliteSource(OutboxSource[sqlite3.Connection, OutboxRelay]):
    """See :class:`~headrace.publisher.source.Source` for what the methods promise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(connect(path), _PARTS)
        self._file = self._identity()
        self._data_version: int | None = None

    def close(self) -> None:
        self._connection.close()

    def attach(self, request: AttachRequest) -> list[AttachedTable]:
        with sqlite_errors():
            return attach.attach(self._connection, request)

    def begin_copy(self, request: CopyRequest) -> int:
        return copying.request_copy(self._connection, request)

    def copy_chunk(self, number: int) -> CopyStep | None:
        return copying.copy_chunk(self._connection, number)

    def copies(self) -> list[CopyStanding]:
        return copying.standing(self._connection)

    def set_copy_state(self, number: int, state: CopyState) -> None:
        copying.set_copy_state(self._connection, number, state)

    def detach(self, tables: Sequence[str], *, discard: bool = False) -> list[DetachedTable]:
        return attach.detach(self._connection, tables, discard=discard)

    def check(self, feeds: Iterable[str] | None = None) -> list[Attached]:
        with sqlite_errors():
            return check.check(self._connection, feeds)

    def advice(self) -> list[str]:
        with sqlite_errors():
            mode = journal_mode(self._connection)
        if mode == "wal":
            return []
        return [
            f"the journal mode is {mode}: readers and writers wait for each other, and while a snapshot is read all writers "
            "wait. PRAGMA journal_mode = WAL mends it."
        ]

    def accept(self, feed: str, reason: str) -> Alarm:
        return ownership.accept(self._connection, feed, reason)

    def set_alarm(self, feed: str, alarm: Alarm | None) -> None:
        with sqlite_errors():
            if has_tables(self._connection):
                ownership.set_alarm(self._connection, feed, alarm)

    def claim(self, feed: str, agent_id: str, place: FeedPlace, now_ms: int) -> Resume:
        return self._new_relay(feed, agent_id).claim(place, now_ms)

    def advance(
        self,
        feed: str,
        agent_id: str,
        epoch: int,
        done: RowPlace | None,
        now_ms: int,
        *,
        rows_max: int = APPEND_ENTRIES_MAX,
        ahead: bool = False,
    ) -> int:
        return self._relay(feed, agent_id).advance(epoch, done, now_ms, rows_max)

    def begin_snapshot(
        self, feed: str, agent_id: str, epoch: int, reader: StateReader, sink: StateSink
    ) -> StatePlace:
        assert isinstance(reader, SqliteStateReader)  # noqa: S101  # made by this module's open_reader
        relay = self._relay(feed, agent_id)
        with immediate(self._connection):
            in_wal = journal_mode(self._connection) == "wal"
            if in_wal:
                reader.begin()
            owner = relay.mark_seen(epoch)
            place = StatePlace(owner.incarnation or "", owner.next_sequence_id - 1)
            if not in_wal:  # a reader beside us would keep this transaction from committing
                sink(place, reader.lines_on(self._connection))
                reader.was_read = True
        relay.moved_to(owner)
        return place

    def mend(self, feed: str) -> list[Finding]:
        return check.mend(self._connection, feed)

    def copy_pending(self, feed: str) -> CopyStep | None:
        return copying.copy_pending(self._connection, feed)

    def sweep(self, feed: str, processed_before_ms: int) -> int:
        with sqlite_errors():
            count = sweep.sweep(self._connection, feed, processed_before_ms)
            if not count:
                sweep.clear_ended(self._connection, feed)
            return count

    def has_changed(self, *, busy: bool) -> bool:
        with sqlite_errors():
            version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        changed = bool(version != self._data_version)
        self._data_version = version
        return changed

    def is_replaced(self) -> bool:
        return self._identity() != self._file

    def schema_version(self) -> int:
        with sqlite_errors():
            return schema_cookie(self._connection)

    def standing(self, feeds: Sequence[str] | None = None) -> list[FeedStanding]:
        with snapshot(self._connection):
            return [
                waiting.standing(self._connection, feed) for feed in feeds or waiting.feeds(self._connection)
            ]

    def holders(self) -> list[Holder]:
        return []  # SQLite does not tell which process reads

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
