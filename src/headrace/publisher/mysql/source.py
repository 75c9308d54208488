"""A MariaDB or MySQL database as a :class:`~headrace.publisher.source.Source`: one connection, used by one thread.

Only rows of ``Outbox.add`` come from here. Tables can't be attached: triggers of this database miss what foreign keys
cascade, and TRUNCATE. Capture reads them from the binlog.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from headrace.errors import AttachUnsafe, TableNotFound
from headrace.publisher.attach.finding import Attached, Finding
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState, CopyStep
from headrace.publisher.grants import Rights
from headrace.publisher.marked import APPEND_ENTRIES_MAX, RowPlace
from headrace.publisher.mysql import grants, ownership, parked, sweep, waiting
from headrace.publisher.mysql.connection import Source as Connection
from headrace.publisher.mysql.connection import connect, fetch, mysql_errors, transaction
from headrace.publisher.mysql.relay import OutboxRelay
from headrace.publisher.mysql.state import MysqlStateReader
from headrace.publisher.outbox.mysql import check_format, check_ordered, has_tables
from headrace.publisher.outbox_source import OutboxSource, Parts
from headrace.publisher.owner import Alarm, FeedPlace, Resume
from headrace.publisher.source import AttachedTable, DetachedTable
from headrace.publisher.standing import FeedStanding, Holder
from headrace.publisher.state import StatePlace, StateReader, StateSink
from headrace.runtime.dsn import Dsn

LOOK_S: Final = 0.005
"""A look that takes no longer than this is cheap: nothing waits for the next one."""

LOOK_PAUSE: Final = 4
"""How much longer than a dear look takes the next one waits. While some transaction stays open, the database can't purge its
index of marked rows, and a look steps over each of them: about 25 ms for a million."""

_DURABLE: Final = "SHOW GLOBAL VARIABLES LIKE 'innodb\\_flush\\_log\\_at\\_trx\\_commit'"

_PARTS: Final = Parts(OutboxRelay, parked, ownership.read_owner, check_format, mysql_errors)


def open_source(dsn: Dsn) -> MysqlSource:
    """Open the database that ``dsn`` names; see :func:`~headrace.publisher.mysql.connection.connect` for the errors.

    AttachUnsafe where the order of ids proves nothing: see :func:`~headrace.publisher.outbox.mysql.check_ordered`.
    """
    return MysqlSource(dsn)


def state_reader(dsn: Dsn, feed: str, query: str | None) -> MysqlStateReader:
    """Return a reader of the state of ``feed``, not yet opened."""
    return MysqlStateReader(dsn, feed, query)


def read_rights(dsn: Dsn, tables: Sequence[str], role: str, application_role: str | None) -> Rights:
    """Return the least rights that are needed; see :func:`headrace.publisher.mysql.grants.read_rights`."""
    return grants.read_rights(dsn, tables, role, application_role)


class MysqlSource(OutboxSource[Connection, OutboxRelay]):
    """See :class:`~headrace.publisher.source.Source` for what the methods promise."""

    def __init__(self, dsn: Dsn) -> None:
        super().__init__(connect(dsn), _PARTS)
        self._seen: dict[tuple[str, str], tuple[int, int] | None] = {}
        self._look_at = 0.0
        try:
            with mysql_errors():
                check_ordered(self._connection)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection.open:
            self._connection.close()

    def attach(self, request: AttachRequest) -> list[AttachedTable]:
        _refuse()

    def begin_copy(self, request: CopyRequest) -> int:
        _refuse()

    def copy_chunk(self, number: int) -> CopyStep | None:
        return None

    def copies(self) -> list[CopyStanding]:
        return []

    def set_copy_state(self, number: int, state: CopyState) -> None:
        _refuse()

    def detach(self, tables: Sequence[str], *, discard: bool = False) -> list[DetachedTable]:
        if tables:
            raise TableNotFound(f"{tables[0]} is not attached: in MariaDB and MySQL no table is")
        return []

    def check(self, feeds: Iterable[str] | None = None) -> list[Attached]:
        self.check_outbox()
        return []

    def advice(self) -> list[str]:
        with mysql_errors():
            found = dict(fetch(self._connection, _DURABLE))
        value = str(next(iter(found.values()), "1"))
        if value == "1":
            return []
        return [
            f"innodb_flush_log_at_trx_commit is {value}: a power failure takes back commits of the last second, which may "
            "be in the feed by then. 1 mends it."
        ]

    def accept(self, feed: str, reason: str) -> Alarm:
        return ownership.accept(self._connection, feed, reason)

    def set_alarm(self, feed: str, alarm: Alarm | None) -> None:
        with mysql_errors():
            known = has_tables(self._connection)
        if known:
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
        return self._relay(feed, agent_id).advance(epoch, done, now_ms, rows_max, ahead=ahead)

    def begin_snapshot(
        self, feed: str, agent_id: str, epoch: int, reader: StateReader, sink: StateSink
    ) -> StatePlace:
        assert isinstance(reader, MysqlStateReader)  # noqa: S101  # made by this module's state_reader
        owner = self._relay(feed, agent_id).mark_seen(epoch, reader.begin())
        return StatePlace(owner.incarnation or "", owner.next_sequence_id - 1)

    def mend(self, feed: str) -> list[Finding]:
        return []

    def copy_pending(self, feed: str) -> CopyStep | None:
        return None

    def sweep(self, feed: str, processed_before_ms: int) -> int:
        return sweep.sweep(self._connection, feed, processed_before_ms)

    def has_changed(self, *, busy: bool) -> bool:
        begun = time.monotonic()
        if begun < self._look_at:
            return False
        seen = {names: relay.waiting() for names, relay in self._relays.items()}
        changed = any(ends is not None and ends != self._seen.get(names) for names, ends in seen.items())
        self._seen = seen
        ended = time.monotonic()
        self._look_at = ended + LOOK_PAUSE * (ended - begun) if ended - begun > LOOK_S else ended
        return changed

    def is_replaced(self) -> bool:
        return not self._connection.open

    def schema_version(self) -> int:
        return 0

    def standing(self, feeds: Sequence[str] | None = None) -> list[FeedStanding]:
        with transaction(self._connection):
            return [
                waiting.standing(self._connection, feed) for feed in feeds or waiting.feeds(self._connection)
            ]

    def holders(self) -> list[Holder]:
        return []  # who reads an old state slows purging down, but is seen with the right PROCESS only


def _refuse() -> NoReturn:
    raise AttachUnsafe(
        "tables of MariaDB and MySQL can't be attached: their triggers miss rows that foreign keys cascade, and TRUNCATE",
        hint="Let capture read the binlog, or write the outbox yourself with Outbox.add.",
    )
