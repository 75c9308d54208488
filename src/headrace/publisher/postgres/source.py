"""A PostgreSQL database as a :class:`~headrace.publisher.source.Source`: one connection, used by one thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from headrace.errors import SourceUnavailable
from headrace.publisher.attach.finding import Attached, Finding
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState, CopyStep
from headrace.publisher.grants import Rights
from headrace.publisher.marked import APPEND_ENTRIES_MAX, RowPlace
from headrace.publisher.outbox.postgres import check_format, has_tables
from headrace.publisher.outbox_source import OutboxSource, Parts
from headrace.publisher.owner import Alarm, FeedPlace, Resume
from headrace.publisher.postgres import (
    attach,
    check,
    copies,
    copying,
    grants,
    ownership,
    parked,
    standing,
    sweep,
)
from headrace.publisher.postgres.connection import Source as Connection
from headrace.publisher.postgres.connection import connect, fetch_one, postgres_errors, transaction
from headrace.publisher.postgres.looking import poll
from headrace.publisher.postgres.relay import OutboxRelay
from headrace.publisher.postgres.sleeping import Sleeper, why_polling
from headrace.publisher.postgres.state import PostgresStateReader
from headrace.publisher.source import AttachedTable, DetachedTable
from headrace.publisher.standing import FeedStanding, Holder
from headrace.publisher.state import StatePlace, StateReader, StateSink
from headrace.runtime.dsn import Dsn

_PARTS: Final = Parts(OutboxRelay, parked, ownership.read_owner, check_format, postgres_errors)


def open_source(dsn: Dsn) -> PostgresSource:
    """Open the database that ``dsn`` names; see :func:`~headrace.publisher.postgres.connection.connect` for the errors."""
    return PostgresSource(dsn)


def state_reader(dsn: Dsn, feed: str, query: str | None) -> PostgresStateReader:
    """Return a reader of the state of ``feed``, not yet opened."""
    return PostgresStateReader(dsn, feed, query)


def read_rights(dsn: Dsn, tables: Sequence[str], role: str, application_role: str | None) -> Rights:
    """Return the least rights that are needed; see :func:`headrace.publisher.postgres.grants.read_rights`."""
    return grants.read_rights(dsn, tables, role, application_role)


class PostgresSource(OutboxSource[Connection, OutboxRelay]):
    """See :class:`~headrace.publisher.source.Source` for what the methods promise."""

    def __init__(self, dsn: Dsn) -> None:
        super().__init__(connect(dsn), _PARTS)
        self._sleeper = Sleeper(self._connection, dsn)
        self._newest = -1

    def close(self) -> None:
        self._connection.close()

    def attach(self, request: AttachRequest) -> list[AttachedTable]:
        return attach.attach(self._connection, request)

    def begin_copy(self, request: CopyRequest) -> int:
        return copies.request_copy(self._connection, request)

    def copy_chunk(self, number: int) -> CopyStep | None:
        return copying.copy_chunk(self._connection, number)

    def copies(self) -> list[CopyStanding]:
        with transaction(self._connection):
            return copies.read_copies(self._connection)

    def set_copy_state(self, number: int, state: CopyState) -> None:
        copies.set_copy_state(self._connection, number, state)

    def copy_pending(self, feed: str) -> CopyStep | None:
        return copying.copy_pending(self._connection, feed)

    def detach(self, tables: Sequence[str], *, discard: bool = False) -> list[DetachedTable]:
        return attach.detach(self._connection, tables, discard=discard)

    def check(self, feeds: Iterable[str] | None = None) -> list[Attached]:
        with transaction(self._connection):
            return check.check(self._connection, feeds)

    def advice(self) -> list[str]:
        with postgres_errors():
            fsync, pages = fetch_one(
                self._connection, "SELECT current_setting('fsync'), current_setting('full_page_writes')"
            )
        reason = why_polling(self._connection)
        polling = [f"the agent polls, and commits never notify: {reason}"] if reason else []
        return polling + [
            f"{name} is off: a crash of the machine can take back changes that the feed already has"
            for name, value in (("fsync", fsync), ("full_page_writes", pages))
            if value == "off"
        ]

    def accept(self, feed: str, reason: str) -> Alarm:
        with transaction(self._connection):
            return ownership.accept(self._connection, feed, reason)

    def set_alarm(self, feed: str, alarm: Alarm | None) -> None:
        with transaction(self._connection):
            if has_tables(self._connection):
                ownership.set_alarm(self._connection, feed, alarm)

    def claim(self, feed: str, agent_id: str, place: FeedPlace, now_ms: int) -> Resume:
        return self._new_relay(feed, agent_id).claim(place)

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
        return self._relay(feed, agent_id).advance(epoch, done, rows_max, ahead=ahead)

    def begin_snapshot(
        self, feed: str, agent_id: str, epoch: int, reader: StateReader, sink: StateSink
    ) -> StatePlace:
        assert isinstance(reader, PostgresStateReader)  # noqa: S101  # made by this module's state_reader
        owner = self._relay(feed, agent_id).mark_seen(epoch, reader.begin())
        return StatePlace(owner.incarnation or "", owner.next_sequence_id - 1)

    def mend(self, feed: str) -> list[Finding]:
        return check.mend(self._connection, feed)

    def sweep(self, feed: str, processed_before_ms: int) -> int:
        count = sweep.sweep(self._connection, feed, processed_before_ms)
        if not count:
            sweep.sweep_passes(self._connection, feed, processed_before_ms)
            sweep.clear_ended(self._connection, feed)
        return count

    def has_changed(self, *, busy: bool) -> bool:
        if self._sleeper.is_asleep:
            called = self._sleeper.is_called()
            if called:
                self._sleeper.wake()
            return called
        changed = self._polls_a_change()
        # Just after it is said that the agent sleeps, one more look: what committed before that did not notify.
        return changed or (not busy and self._sleeper.fall_asleep())

    def is_replaced(self) -> bool:
        return bool(self._connection.closed)

    def schema_version(self) -> int:
        with postgres_errors():
            return check.schema_fingerprint(self._connection)

    def standing(self, feeds: Sequence[str] | None = None) -> list[FeedStanding]:
        return standing.standing(self._connection, feeds)

    def holders(self) -> list[Holder]:
        return standing.holders(self._connection)

    def _polls_a_change(self) -> bool:
        newest, _, snapshot, standby = poll(self._connection)
        if standby:
            self._connection.close()
            raise SourceUnavailable(
                "the database became a standby", hint="The agent looks for the new primary."
            )
        relays = self._relays.values()
        changed = newest != self._newest or any(relay.is_waiting(newest, snapshot) for relay in relays)
        self._newest = newest
        return changed
