"""One group of appends as one transaction: the journal's end is locked, the rules judge, the frames go in, COMMIT.

The lock is held from the question to the commit, so the groups of all servers of a database come one after another: LSN
order is commit order, an epoch can't be stale, and nobody else can have moved the end in between.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

import google_crc32c
import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.errors import HeadraceError, JournalCorrupt, StoreUnavailable, WriterStopped
from headrace.log.contract import Begin, Group
from headrace.log.postgres.connection import Address, fetch_one, one_line, unavailable
from headrace.log.postgres.pool import CALL_S_MAX, Watch, connect_again
from headrace.log.postgres.view import View, encode_tail, load_moved
from headrace.log.tail import JournalState
from headrace.runtime.backoff import Backoff
from headrace.runtime.histogram import SECONDS, Histogram
from headrace.runtime.logs import get_logger
from headrace.wire.frame import HEADER_SIZE
from headrace.wire.versions import LOG_TABLES

logger = get_logger("log")

CHANNEL: Final = "headrace_log"
"""NOTIFY's channel; the payload is ``{end}:{oldest}`` of the journal after the commit, in decimal."""
READ_BACK_S_MAX: Final = 25.0
"""How long an unclear COMMIT is looked after before its callers hear that it is unclear."""

# The lock must be one statement and the look at the feeds a later one: a statement that waits for a row's lock goes on
# with the newest version of that row only, and with the old versions of everything else.
_LOCK: Final = """
SELECT end_position, oldest_position, segment_position, global_ts, next_region_id, pg_current_xact_id()::text::numeric,
    (SELECT max(readable_from) FROM headrace_log.format)
FROM headrace_log.journal FOR UPDATE"""

_COPY: Final = (
    "COPY headrace_log.frame (position, size, region_id, count, first_sequence_id, last_global_ts, data)"
    " FROM STDIN (FORMAT BINARY)"
)
_COPY_TYPES: Final = ["int8", "int4", "int8", "int8", "int8", "int8", "bytea"]

_FEEDS: Final = """
INSERT INTO headrace_log.feed (region_id, name, tail, crc)
SELECT * FROM unnest(%b::bigint[], %b::text[], %b::bytea[], %b::bigint[])
ON CONFLICT (region_id) DO UPDATE SET tail = excluded.tail, crc = excluded.crc"""

_JOURNAL: Final = """
UPDATE headrace_log.journal SET end_position = %s, segment_position = %s, global_ts = %s, next_region_id = %s
RETURNING pg_notify('headrace_log', end_position || ':' || oldest_position)"""

# The transaction's number beside the bytes: another server could have been given the same append in the same millisecond.
_LANDED: Final = """
SELECT xmin::text::bigint = %s AND substring(data FOR %s) = %s FROM headrace_log.frame WHERE position = %s"""

# Only while it waits for its next statement: one that is committing ends by itself, and says to the standbys what it must.
_END_SESSION: Final = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = %s AND backend_start = %s::timestamptz AND state LIKE 'idle in transaction%%'"""


class _Open(NamedTuple):
    """A group that has begun: what was answered, the number of its transaction, and where the open segment begins."""

    begin: Begin
    transaction: int
    segment_position: int


class _Session(NamedTuple):
    """The writer's connection, and by what its backend is known to others."""

    connection: Connection[TupleRow]
    pid: int
    started: str


class GroupWriter:
    """The writer's connection. One thread begins and puts; others may only :meth:`close` it or give up what it began."""

    def __init__(
        self,
        address: Address,
        watch: Watch,
        segment_bytes: int,
        view: Callable[[], View],
        show: Callable[[View], None],
    ) -> None:
        """``view`` tells what is known, ``show`` takes what is newer; nothing is connected before it is needed."""
        self._address = address
        self._watch = watch
        self._segment_bytes = segment_bytes
        self._view = view
        self._show = show
        self._guard = threading.RLock()
        self._session: _Session | None = None
        self._ghost: _Session | None = None
        """A session that was lost in the middle of a group: it may still hold the lock."""
        self._open: _Open | None = None
        self.stopped: str | None = None
        self.syncs = Histogram(SECONDS)
        """How long each COMMIT of a group took."""

    def begin(self, feeds: Collection[str]) -> Begin:
        """Lock the journal's end and return what a group for ``feeds`` is judged on; see the contract."""
        with self._guard:
            self.abandon()
            if self.stopped is not None:
                raise WriterStopped(f"no append is taken: {self.stopped}")
            try:
                begun = self._begin_once(feeds)
            except StoreUnavailable as error:
                # A connection that was kept may have died since the last group; nothing has been asked of it yet.
                if self._session is not None or not isinstance(error.__cause__, psycopg.OperationalError):
                    raise
                begun = self._begin_once(feeds)
            return begun

    def _begin_once(self, feeds: Collection[str]) -> Begin:
        try:
            with self._used() as connection:
                connection.execute("BEGIN", prepare=False)
                row = fetch_one(connection, _LOCK)
                view = self._caught_up(connection, row)
        except BaseException:
            self._rollback()
            raise
        self._show(view)
        try:
            known = {feed: view.tail(feed) for feed in feeds}
        except JournalCorrupt:
            self._rollback()
            raise
        tails = {feed: tail for feed, tail in known.items() if tail is not None}
        begin = Begin(row[0], row[3], row[4], tails)
        self._open = _Open(begin, int(row[5]), row[2])
        return begin

    def _caught_up(self, connection: Connection[TupleRow], row: tuple[Any, ...]) -> View:
        """The view as of the locked end. Under the lock it is exact: what it says of a feed is what the feed is."""
        known = self._view()
        if row[6] is None or row[6] > LOG_TABLES.written_as:
            raise self._stop(
                "its tables in PostgreSQL were changed by a newer Headrace; restart with that version"
            )
        if row[0] < known.end:
            raise self._stop(
                f"the journal in PostgreSQL ends at {row[0]:#x}, below {known.end:#x}, which was acknowledged: an older "
                "state was put back, or a failover lost commits"
            )
        return known if row[:2] == known.moment else load_moved(connection, known)

    def _stop(self, reason: str) -> WriterStopped:
        self.stopped = reason
        logger.error("the writer has stopped for good", reason=reason)
        return WriterStopped(f"no append is taken: {reason}", hint="See the log of the server.")

    def abandon(self, begin: Begin | None = None) -> None:
        """Give up the group that has begun (None: whichever it is), if it is still open."""
        with self._guard:
            if self._open is not None and begin in (None, self._open.begin):
                self._rollback()

    def put(self, begin: Begin, group: Group) -> None:
        """Write the group and commit it; see the contract."""
        with self._guard:
            at = self._open
            if at is None or at.begin is not begin:
                raise StoreUnavailable(f"the journal's end {begin.end:#x} is no longer locked for this group")
            if not group.frames:
                self._rollback()
                return
            size = sum(len(frame) for _, frame in group.frames)
            try:
                with self._used() as connection:
                    self._write(connection, at, group, size)
            except BaseException:
                self._rollback()
                raise
            self._commit(at, group)
            known = self._view()
            self._show(
                View(
                    begin.end + size,
                    known.oldest,
                    known.dropped,
                    {**known.tails, **group.tails},
                    known.damaged,
                    known.missing,
                )
            )

    def roll(self) -> None:
        """Begin a new segment at the journal's end, if the open one holds a frame; see the contract."""
        with self._guard:
            begin = self.begin(())
            at = self._open
            if at is None or at.segment_position == begin.end:
                self._rollback()
                return
            try:
                with self._used() as connection:
                    self._begin_segment(connection, at)
                    connection.execute("UPDATE headrace_log.journal SET segment_position = end_position")
                    connection.execute("COMMIT", prepare=False)
                self._open = None
            except BaseException:
                self._rollback()
                raise

    def _begin_segment(self, connection: Connection[TupleRow], at: _Open) -> None:
        known, begin = self._view(), at.begin
        known.raise_if_damaged()
        state = JournalState(
            global_ts=begin.global_ts,
            next_region_id=begin.next_region_id,
            dropped_lsn=str(known.dropped),
            feeds=dict(known.tails),
        )
        data = state.encode()
        connection.execute(
            "INSERT INTO headrace_log.segment VALUES (%s, %s, %s, %s)",
            (begin.end, begin.global_ts, data, google_crc32c.value(data)),
        )

    def _write(self, connection: Connection[TupleRow], at: _Open, group: Group, size: int) -> None:
        end, segment = at.begin.end, at.segment_position
        # With a feed's state unknown no segment can say what it continues from, so the open one grows until it is mended.
        if end > segment and end + size > segment + self._segment_bytes and not self._view().damages:
            segment = end
            self._begin_segment(connection, at)
        with connection.cursor() as cursor, cursor.copy(_COPY) as copy:
            copy.set_types(_COPY_TYPES)
            for header, frame in group.frames:
                copy.write_row((
                    header.position, len(frame), header.region_id, header.count, header.first_sequence_id,
                    header.last_global_ts, frame,
                ))  # fmt: skip
        tails = list(group.tails.values())
        states = [encode_tail(tail) for tail in tails]
        with connection.pipeline():
            connection.execute(
                _FEEDS,
                (
                    [tail.region_id for tail in tails],
                    [tail.name for tail in tails],
                    [data for data, _ in states],
                    [crc for _, crc in states],
                ),
            )
            connection.execute(_JOURNAL, (end + size, segment, group.global_ts, group.next_region_id))

    def _commit(self, at: _Open, group: Group) -> None:
        """Return once the group is known to be durable; StoreUnavailable if it is not, or if that can't be told."""
        self._open = None
        try:
            with self.syncs.timed(), self._used() as connection:
                if connection.execute("COMMIT", prepare=False).statusmessage == "COMMIT":
                    return
                reason = "the transaction was rolled back"
        except StoreUnavailable as error:
            reason = error.detail
        self._drop(in_group=True)
        logger.warning(
            "the outcome of a commit is not known; its place is read back",
            position=at.begin.end,
            reason=reason,
        )
        if not self._read_back(at, group.frames[0][1][:HEADER_SIZE]):
            raise StoreUnavailable(f"the group was not written: {reason}")
        logger.info("the commit had landed", position=at.begin.end)

    def _read_back(self, at: _Open, first_bytes: bytes) -> bool:
        """Tell whether the group's first frame stands where it was to go.

        Asked under the lock that the lost transaction held, so that it has ended one way or the other by then.
        """
        deadline = time.monotonic() + READ_BACK_S_MAX
        backoff = Backoff(first_s=0.05, delay_s_max=1.0)
        pause = threading.Event()
        while True:
            try:
                with self._used() as connection:
                    connection.execute("BEGIN", prepare=False)
                    connection.execute(_LOCK)
                    values = (at.transaction & 0xFFFFFFFF, HEADER_SIZE, first_bytes, at.begin.end)
                    row = connection.execute(_LANDED, values).fetchone()
                    connection.execute("ROLLBACK", prepare=False)
                    return row is not None and bool(row[0])
            except HeadraceError as error:
                self._drop()
                if time.monotonic() >= deadline:
                    raise StoreUnavailable(
                        f"the connection was lost while the append was being committed, and PostgreSQL can't be asked: "
                        f"{error.detail}",
                        hint="Send the same append again, with its expected offsets: if it is stored, that is recognised.",
                        side_effects="possible",
                    ) from error
            pause.wait(backoff.next_delay())

    # -- the connection -----------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _used(self) -> Any:
        """The connection, made anew if there is none; its errors are ours, and one that broke is dropped."""
        connection = self._connected()
        try:
            with self._watch.within(connection, CALL_S_MAX):
                yield connection
        except psycopg.Error as error:
            if connection.closed:
                self._drop(in_group=True)
            raise unavailable(error) from error

    def _connected(self) -> Connection[TupleRow]:
        if self._session is None:
            connection = connect_again(self._address)
            try:
                with self._watch.within(connection, CALL_S_MAX):
                    pid, started = fetch_one(
                        connection,
                        "SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()",
                    )
                    if self._ghost is not None:
                        connection.execute(_END_SESSION, self._ghost[1:])
                        self._ghost = None
            except BaseException as error:
                connection.close()
                if isinstance(error, psycopg.Error):
                    raise unavailable(error) from error
                raise
            self._session = _Session(connection, pid, started)
        return self._session.connection

    def _rollback(self) -> None:
        self._open = None
        if self._session is None:
            return
        connection = self._session.connection
        try:
            with self._watch.within(connection, CALL_S_MAX):
                connection.execute("ROLLBACK", prepare=False)
        except psycopg.Error as error:
            logger.warning(
                "a group could not be rolled back; its connection is dropped", reason=one_line(error)
            )
            self._drop(in_group=True)

    def _drop(self, *, in_group: bool = False) -> None:
        if self._session is not None:
            if in_group:
                self._ghost = self._session
            self._session.connection.close()
            self._session = None

    def close(self) -> None:
        """Give up what is open and close the connection."""
        with self._guard:
            self.abandon()
            self._drop()
