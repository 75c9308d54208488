"""A SQLite database file as a :class:`~headrace.publisher.source.Source`: one connection, used by one thread."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.publisher.attach.finding import Attached, Finding
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState, CopyStep
from headrace.publisher.dsn import Dsn
from headrace.publisher.marked import APPEND_ENTRIES_MAX, MarkedRow, RowPlace
from headrace.publisher.outbox.sqlite import check_format, has_tables
from headrace.publisher.owner import Alarm, FeedPlace, Resume
from headrace.publisher.parked import ParkedRow, Retried
from headrace.publisher.source import AttachedTable, DetachedTable, Source
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


def open_source(dsn: Dsn) -> SqliteSource:
    """Open the database that ``dsn`` names; see :func:`~headrace.publisher.sqlite.connection.connect` for the errors."""
    return SqliteSource(path_of(dsn))


def state_reader(dsn: Dsn, feed: str, query: str | None) -> SqliteStateReader:
    """Return a reader of the state of ``feed``, not yet opened; DsnInvalid."""
    return SqliteStateReader(path_of(dsn), feed, query)


class SqliteSource(Source):
    """See :class:`~headrace.publisher.source.Source` for what the methods promise."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection = connect(path)
        self._file = self._identity()
        self._relays: dict[tuple[str, str], OutboxRelay] = {}
        self._data_version: int | None = None

    @property
    def connection(self) -> sqlite3.Connection:
        """The connection itself, for tests."""
        return self._connection

    def close(self) -> None:
        self._connection.close()

    def check_outbox(self) -> None:
        with sqlite_errors():
            check_format(self._connection)

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

    def alarm_of(self, feed: str) -> Alarm | None:
        with sqlite_errors():
            owner = ownership.read_owner(self._connection, feed)
        return None if owner is None else owner.alarm

    def set_alarm(self, feed: str, alarm: Alarm | None) -> None:
        with sqlite_errors():
            if has_tables(self._connection):
                ownership.set_alarm(self._connection, feed, alarm)

    def claim(self, feed: str, agent_id: str, place: FeedPlace, now_ms: int) -> Resume:
        relay = self._relays[feed, agent_id] = OutboxRelay(self._connection, feed, agent_id)
        return relay.claim(place, now_ms)

    def advance(
        self,
        feed: str,
        agent_id: str,
        epoch: int,
        done: RowPlace | None,
        now_ms: int,
        *,
        rows_max: int = APPEND_ENTRIES_MAX,
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

    def batch(self, feed: str, agent_id: str) -> list[MarkedRow]:
        return self._relay(feed, agent_id).batch()

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

    def skip(self, feed: str, row_id: int, reason: str) -> ParkedRow:
        return parked.skip(self._connection, feed, row_id, reason)

    def parked(self, feeds: Sequence[str]) -> list[ParkedRow]:
        return parked.parked_rows(self._connection, feeds)

    def retry_parked(self, row_id: int) -> Retried:
        return parked.retry(self._connection, row_id)

    def drop_parked(self, row_id: int) -> ParkedRow:
        return parked.drop(self._connection, row_id)

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

    def _relay(self, feed: str, agent_id: str) -> OutboxRelay:
        return self._relays.setdefault((feed, agent_id), OutboxRelay(self._connection, feed, agent_id))

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino
