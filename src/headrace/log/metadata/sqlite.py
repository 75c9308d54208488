"""The metadata database of the files store: SQLite beside the journal. See ``contract`` for what the methods promise.

Each commit makes its rollback journal void, so what was acknowledged stands in the one file that is checked, and never in a
log beside it whose damaged end SQLite would pass over in silence.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from headrace.errors import JournalCorrupt, StoreUnavailable
from headrace.errors.root import printable
from headrace.log.metadata.contract import (
    ALARMS_MAX,
    AlarmRow,
    HydrationRow,
    ListenerRow,
    Metadata,
    RowDamage,
    SnapshotRow,
    SubscriberRow,
)
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.owners import ANYBODY, Claimant, check_room, owner_after
from headrace.log.metadata.rows import (
    ALARM,
    HYDRATION,
    LISTENER,
    OWNER,
    SCHEMA,
    SCHEMA_MARK,
    SNAPSHOT,
    SUBSCRIBER,
    TABLES,
    Key,
    Table,
    snapshot_of,
)
from headrace.log.metadata.sqlite_progress import SqliteProgress
from headrace.log.metadata.sqlite_reports import SqliteReports
from headrace.log.metadata.sqlite_rows import known_row, put_rows, stored_rows, write_rows
from headrace.log.metadata.sqlite_schema import BROKEN, check_versions, lenient_text, open_tables, read_only
from headrace.log.metadata.sqlite_schemas import SqliteSchemas
from headrace.log.metadata.sqlite_slots import SqliteSlots

R = TypeVar("R", bound=tuple[Any, ...])

METADATA_NAME: Final = "metadata.sqlite3"
"""Its file in the data folder."""
ALARM_ID_MAX: Final = 1 << 62
"""Numbers of alarms are given below it: one above is what damage made of another."""
JOURNAL_BYTES_MAX: Final = 1 << 20
"""What may stay of a rollback journal for the next one: a file that keeps its size syncs faster than a new one."""
_OF_FEED: Final = "SELECT count(*) FROM listener WHERE feed = ?"
_OF_SUBJECT: Final = "SELECT count(*) FROM listener_owner WHERE feed = ? AND subject = ?"
_LONG_GONE: Final = """
WHERE seen_at_ms < ? AND NOT EXISTS (
    SELECT 1 FROM hydration AS lease
    WHERE lease.listener_id = listener.listener_id AND lease.feed = listener.feed AND lease.expires_at_ms >= ?)
ORDER BY seen_at_ms LIMIT ?"""
_PASSING: Final = frozenset(
    {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
)
"""What keeps a database from being opened without being damage of it."""


def check_format(path: Path) -> None:
    """Raise FormatTooNew if the database at ``path`` can't be read by this version; changes nothing.

    Asked before the journal is opened, because opening a journal may repair it. What is no database passes here:
    :class:`SqliteMetadata` says so.
    """
    if path.exists():
        with contextlib.closing(read_only(path)) as database, contextlib.suppress(*BROKEN):
            check_versions(database, path)


class SqliteMetadata(Metadata):
    """An open metadata database; one process owns it (the data folder's lock says so)."""

    def __init__(self, path: Path) -> None:
        """Open or make the database; FormatTooNew before anything is changed, JournalCorrupt if it is damaged as such.

        StoreUnavailable on a full disk, or while another process is at it. A damaged row keeps nobody from opening it:
        :attr:`damages` knows it.
        """
        self.damages = Damages(lambda table: f"{path}: table {table}")
        self.schemas = SqliteSchemas(self._use, self._change, self.damages)
        self.progress = SqliteProgress(self._use, self._change, self.damages)
        self.reports = SqliteReports(self._use, self._change, self.damages)
        self.slots = SqliteSlots(self._use, self._change, self.damages)
        self._guard = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.text_factory = lenient_text
        try:
            open_tables(self._database, path)
            self._database.execute("PRAGMA journal_mode = PERSIST")
            self._database.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES_MAX}")
            self._database.execute("PRAGMA synchronous = FULL")
            self.check()
        except BROKEN as error:
            self._database.close()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING:
                raise StoreUnavailable(f"{path}: the metadata database can't be opened: {error}") from error
            raise JournalCorrupt(
                f"{path}: not a usable metadata database: {error}",
                hint="Move it away: docs/howto/damaged-log.md says what is lost then. The journal is not touched.",
            ) from None
        except BaseException:
            self._database.close()
            raise

    def close(self) -> None:
        with self._guard:
            self._database.close()

    @contextlib.contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """The database for one caller at a time; what it can't do (a full disk) is StoreUnavailable."""
        try:
            with self._guard:
                try:
                    yield self._database
                except BROKEN as error:
                    raise StoreUnavailable(f"the metadata database can't be used: {error}") from error
        finally:
            self.damages.tell()

    @contextlib.contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        """The same within one transaction."""
        with self._use() as database:
            database.execute("BEGIN IMMEDIATE")
            with database:
                yield database

    def check(self, tables: Sequence[Table[Any]] = TABLES) -> list[RowDamage]:
        with self._use() as database:
            for table in tables:
                stored = stored_rows(database, table)
                self.damages.sift(table, stored)
                self.damages.all_read(table, stored)
        return self.damages.standing()

    def forget_damaged(self) -> list[RowDamage]:
        removed = self.check()
        with self._change() as database:
            for table in TABLES:
                rows = self.damages.sift(table, stored_rows(database, table))
                database.execute(f"DELETE FROM {table.name}")  # noqa: S608  # a name of ours
                write_rows(database, table, rows)  # all of it, because a damaged key can't be asked for
            if any(damage.table == SCHEMA.name for damage in removed):
                database.execute(f"DELETE FROM {SCHEMA_MARK.name}")  # noqa: S608  # a name of ours
        self.check()
        return removed

    def register_listener(
        self, listener_id: str, feed: str, hold: bool, now_ms: int, who: Claimant = ANYBODY
    ) -> None:
        key = (listener_id, feed)
        with self._change() as database:
            owner = self._known(database, OWNER, key, raises=not who.may_take_over)
            owner = owner_after(owner, who, *key)
            known = self._known(database, LISTENER, key, raises=False)
            if known is None:
                ((of_feed,),) = database.execute(_OF_FEED, (feed,)).fetchall()
                ((of_subject,),) = database.execute(_OF_SUBJECT, (feed, who.subject)).fetchall()
                check_room(of_feed, of_subject, who, feed)
            row = known or ListenerRow(*key, hold, None, None, None, now_ms)
            self._put(database, LISTENER, [row._replace(hold=hold, seen_at_ms=now_ms)])
            self._put(database, OWNER, [owner] if owner is not None else [])

    def owner(self, listener_id: str, feed: str) -> str | None:
        with self._use() as database:
            row = self._known(database, OWNER, (listener_id, feed))
        return None if row is None else row.subject

    def forget_listeners(self, seen_before_ms: int, rows_max: int) -> list[ListenerRow]:
        with self._change() as database:
            stored = stored_rows(database, LISTENER, _LONG_GONE, (seen_before_ms, seen_before_ms, rows_max))
            rows = self.damages.sift(LISTENER, stored)
            keys = [LISTENER.key_of(row) for row in rows]
            for table in (LISTENER, HYDRATION, OWNER):
                delete = f"DELETE FROM {table.name} WHERE listener_id = ? AND feed = ?"  # noqa: S608  # names of ours
                database.executemany(delete, keys)
        return rows

    def listener(self, listener_id: str, feed: str) -> ListenerRow | None:
        with self._use() as database:
            return self._known(database, LISTENER, (listener_id, feed))

    def listeners(self, feed: str) -> list[ListenerRow]:
        return self._rows(LISTENER, "WHERE feed = ? ORDER BY listener_id", (feed,))

    def put_position(  # noqa: PLR0917  # the columns of one row
        self, listener_id: str, feed: str, incarnation: str, sequence_id: int, lsn: str | None, now_ms: int
    ) -> None:
        with self._change() as database:
            row = self._known(database, LISTENER, (listener_id, feed))
            if row is not None:
                moved = ListenerRow(listener_id, feed, row.hold, incarnation, sequence_id, lsn, now_ms)
                self._put(database, LISTENER, [moved])

    def seen(self, listeners: Iterable[tuple[str, str]], now_ms: int) -> None:
        with self._change() as database:
            rows = [self._known(database, LISTENER, key, raises=False) for key in listeners]
            self._put(
                database, LISTENER, [row._replace(seen_at_ms=now_ms) for row in rows if row is not None]
            )

    def begin_subscriber(self, subject: str, subscriber_id: str, lsn: str, now_ms: int) -> SubscriberRow:
        with self._change() as database:
            known = self._known(database, SUBSCRIBER, (subject, subscriber_id))
            row = known or SubscriberRow(subject, subscriber_id, lsn, now_ms)
            row = row._replace(seen_at_ms=now_ms)
            self._put(database, SUBSCRIBER, [row])
        return row

    def move_subscribers(self, places: Iterable[tuple[str, str, str]], now_ms: int) -> list[SubscriberRow]:
        moved: list[SubscriberRow] = []
        with self._change() as database:
            for *key, lsn in places:
                row = self._known(database, SUBSCRIBER, tuple(key), raises=False)
                if row is not None:
                    moved.append(row._replace(lsn=max(row.lsn, lsn), seen_at_ms=now_ms))
            self._put(database, SUBSCRIBER, moved)
        return moved

    def subscribers(self) -> list[SubscriberRow]:
        return self._rows(SUBSCRIBER, "ORDER BY subject, subscriber_id")

    def least_place(self, seen_after_ms: int) -> str | None:
        query = "SELECT min(lsn) FROM subscriber WHERE seen_at_ms > ?"
        with self._use() as database:
            ((least,),) = database.execute(query, (seen_after_ms,)).fetchall()
        return least if least is None else str(least)

    def forget_subscribers(self, seen_before_ms: int, rows_max: int) -> list[SubscriberRow]:
        with self._change() as database:
            where, values = "WHERE seen_at_ms < ? ORDER BY seen_at_ms LIMIT ?", (seen_before_ms, rows_max)
            rows = self.damages.sift(SUBSCRIBER, stored_rows(database, SUBSCRIBER, where, values))
            keys = [SUBSCRIBER.key_of(row) for row in rows]
            database.executemany("DELETE FROM subscriber WHERE subject = ? AND subscriber_id = ?", keys)
        return rows

    def change_hydration(
        self, listener_id: str, feed: str, change: Callable[[HydrationRow | None], HydrationRow]
    ) -> HydrationRow:
        with self._change() as database:
            row = change(self._known(database, HYDRATION, (listener_id, feed), raises=False))
            self._put(database, HYDRATION, [row])
        return row

    def end_hydration(self, listener_id: str, feed: str) -> None:
        with self._change() as database:
            database.execute("DELETE FROM hydration WHERE listener_id = ? AND feed = ?", (listener_id, feed))
        self.damages.mended(HYDRATION, (listener_id, feed))
        self.damages.tell()

    def hydration(self, listener_id: str, feed: str) -> HydrationRow | None:
        with self._use() as database:
            return self._known(database, HYDRATION, (listener_id, feed))

    def hydrations(self, feed: str) -> list[HydrationRow]:
        return self._rows(HYDRATION, "WHERE feed = ? ORDER BY listener_id", (feed,))

    def keep_snapshot(self, row: SnapshotRow) -> SnapshotRow:
        with self._change() as database:
            stands = snapshot_of(self._known(database, SNAPSHOT, (row.feed,), raises=False), row)
            self._put(database, SNAPSHOT, [stands])
        return stands

    def snapshot(self, feed: str) -> SnapshotRow | None:
        with self._use() as database:
            return self._known(database, SNAPSHOT, (feed,))

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        detail = printable(detail)
        with self._change() as database:
            where = "WHERE code = ? AND feed = ? AND agent_id = ? AND cleared_at_ms IS NULL"
            standing = stored_rows(database, ALARM, where, (code, feed, agent_id))
            known = self.damages.checked(ALARM, standing[0]) if standing else None
            if known is not None:
                row = known._replace(detail=detail)
            elif standing:  # damaged: all of it is said again
                row = AlarmRow(standing[0][0], code, feed, agent_id, detail, now_ms, None)
            else:
                query = "SELECT coalesce(max(alarm_id), 0) FROM alarm WHERE alarm_id < ?"
                ((newest,),) = database.execute(query, (ALARM_ID_MAX,)).fetchall()
                row = AlarmRow(newest + 1, code, feed, agent_id, detail, now_ms, None)
            self._put(database, ALARM, [row])
        return row.alarm_id

    def clear_alarms(self, code: str, *, agent_id: str, now_ms: int, feed: str | None = None) -> None:
        with self._change() as database:
            where = "WHERE code = ? AND agent_id = ? AND feed = coalesce(?, feed) AND cleared_at_ms IS NULL"
            rows = self.damages.sift(ALARM, stored_rows(database, ALARM, where, (code, agent_id, feed)))
            self._put(database, ALARM, [row._replace(cleared_at_ms=now_ms) for row in rows])
            # By number: the newest row stays, so that no number is given twice.
            where = "WHERE cleared_at_ms IS NOT NULL ORDER BY alarm_id DESC LIMIT -1 OFFSET ?"
            old = self.damages.sift(ALARM, stored_rows(database, ALARM, where, (ALARMS_MAX,)))
            database.executemany("DELETE FROM alarm WHERE alarm_id = ?", [(row.alarm_id,) for row in old])

    def alarms(self) -> list[AlarmRow]:
        where = "ORDER BY cleared_at_ms IS NOT NULL, raised_at_ms DESC, alarm_id DESC LIMIT ?"
        return self._rows(ALARM, where, (ALARMS_MAX,))

    def _rows(self, table: Table[R], where: str, values: Sequence[Any] = ()) -> list[R]:
        with self._use() as database:
            return self.damages.sift(table, stored_rows(database, table, where, values))

    def _known(
        self, database: sqlite3.Connection, table: Table[R], key: Key, *, raises: bool = True
    ) -> R | None:
        return known_row(database, self.damages, table, key, raises=raises)

    def _put(self, database: sqlite3.Connection, table: Table[R], rows: Sequence[R]) -> None:
        put_rows(database, self.damages, table, rows)
