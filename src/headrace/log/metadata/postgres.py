"""The metadata database of the PostgreSQL store: tables beside the journal's. See ``contract`` for what the methods promise.

A row is changed by reading it under its lock, so that its checksum is compared before it is written anew. Everything is safe
to repeat: the pool may do it a second time when it finds a connection dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

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
from headrace.log.metadata.postgres_progress import PostgresProgress
from headrace.log.metadata.postgres_reports import PostgresReports
from headrace.log.metadata.postgres_rows import Session, columns_of, locked_row, put_rows, stored_rows
from headrace.log.metadata.postgres_schema import lacks_checksums, present_tables, shown, upgrade
from headrace.log.metadata.postgres_schemas import PostgresSchemas
from headrace.log.metadata.postgres_slots import PostgresSlots
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
    damage_of,
    snapshot_of,
)
from headrace.log.postgres.pool import Pool

R = TypeVar("R", bound=tuple[Any, ...])
T = TypeVar("T")

_OF_LISTENER: Final = "WHERE listener_id = %s AND feed = %s"
_COUNTS: Final = """
SELECT (SELECT count(*) FROM headrace_log.listener WHERE feed = %s),
    (SELECT count(*) FROM headrace_log.listener_owner WHERE feed = %s AND subject = %s)"""
_LONG_GONE: Final = """
WHERE seen_at_ms < %s AND NOT EXISTS (
    SELECT 1 FROM headrace_log.hydration AS lease
    WHERE lease.listener_id = known.listener_id AND lease.feed = known.feed AND lease.expires_at_ms >= %s)
ORDER BY seen_at_ms LIMIT %s FOR UPDATE SKIP LOCKED"""


class PostgresMetadata(Metadata):
    """The metadata tables, by connections of the store's pool: it is closed with the store."""

    def __init__(self, pool: Pool) -> None:
        """Use ``pool``; the tables were made with the store's. Those of format 1 get their checksums here.

        Raises StoreUnavailable, and StoreForbidden if that takes rights which the role lacks.
        """
        self._pool = pool
        self.damages = Damages(shown)
        self.schemas = PostgresSchemas(self._run, self.damages)
        self.progress = PostgresProgress(self._run, self.damages)
        self.reports = PostgresReports(self._run, self.damages)
        self.slots = PostgresSlots(self._run, self.damages)
        pool.run(upgrade)
        self.check()

    def close(self) -> None:
        """The pool is the store's, which closes it."""

    def check(self, tables: Sequence[Table[Any]] = TABLES) -> list[RowDamage]:
        def work(connection: Session) -> None:
            for table in tables:
                stored = stored_rows(connection, table)
                self.damages.sift(table, stored)
                self.damages.all_read(table, stored)

        self._run(work)
        return self.damages.standing()

    def forget_damaged(self) -> list[RowDamage]:
        removed = self._run(remove_damaged)
        self.check()
        return removed

    def register_listener(
        self, listener_id: str, feed: str, hold: bool, now_ms: int, who: Claimant = ANYBODY
    ) -> None:
        new = ListenerRow(listener_id, feed, hold, None, None, None, now_ms)
        key = (listener_id, feed)

        def work(connection: Session) -> None:
            with connection.transaction():
                if not stored_rows(connection, LISTENER, _OF_LISTENER, key):
                    ((of_feed, of_subject),) = connection.execute(
                        _COUNTS, (feed, feed, who.subject)
                    ).fetchall()
                    check_room(of_feed, of_subject, who, feed)
                # Who else registers it waits for this row, so that it then sees whose it is.
                row = self.damages.checked(LISTENER, locked_row(connection, LISTENER, new)) or new
                stored = stored_rows(connection, OWNER, _OF_LISTENER, key)
                owner = self.damages.checked(OWNER, stored[0]) if stored else None
                if owner is None and not who.may_take_over:
                    self.damages.raise_if_damaged(OWNER, key)
                owner = owner_after(owner, who, *key)
                self._put(connection, LISTENER, [row._replace(hold=hold, seen_at_ms=now_ms)])
                if owner is not None:
                    locked_row(connection, OWNER, owner)
                    self._put(connection, OWNER, [owner])

        self._run(work)

    def owner(self, listener_id: str, feed: str) -> str | None:
        if "\0" in listener_id:
            return None
        row = self._one(OWNER, (listener_id, feed))
        return None if row is None else row.subject

    def forget_listeners(self, seen_before_ms: int, rows_max: int) -> list[ListenerRow]:
        def work(connection: Session) -> list[ListenerRow]:
            with connection.transaction():
                # One that registers or asks at this moment holds its row's lock: it is passed over.
                stored = stored_rows(
                    connection, LISTENER, _LONG_GONE, (seen_before_ms, seen_before_ms, rows_max)
                )
                rows = self.damages.sift(LISTENER, stored)
                keys = [LISTENER.key_of(row) for row in rows]
                for table in (LISTENER, HYDRATION, OWNER):
                    delete = f"DELETE FROM headrace_log.{table.name} {_OF_LISTENER}"  # noqa: S608  # names of ours
                    connection.cursor().executemany(delete, keys)
                return rows

        return self._run(work)

    def listener(self, listener_id: str, feed: str) -> ListenerRow | None:
        if "\0" in listener_id:  # what PostgreSQL can't store was never registered
            return None
        return self._one(LISTENER, (listener_id, feed))

    def listeners(self, feed: str) -> list[ListenerRow]:
        return self._rows(LISTENER, "WHERE feed = %s ORDER BY listener_id", (feed,))

    def put_position(  # noqa: PLR0917  # the columns of one row
        self, listener_id: str, feed: str, incarnation: str, sequence_id: int, lsn: str | None, now_ms: int
    ) -> None:
        def moved(row: ListenerRow) -> ListenerRow:
            return ListenerRow(listener_id, feed, row.hold, incarnation, sequence_id, lsn, now_ms)

        self._move(LISTENER, [(listener_id, feed)], moved)
        self.damages.raise_if_damaged(LISTENER, (listener_id, feed))

    def seen(self, listeners: Iterable[tuple[str, str]], now_ms: int) -> None:
        self._move(LISTENER, listeners, lambda row: row._replace(seen_at_ms=max(row.seen_at_ms, now_ms)))

    def begin_subscriber(self, subject: str, subscriber_id: str, lsn: str, now_ms: int) -> SubscriberRow:
        new = SubscriberRow(subject, subscriber_id, lsn, now_ms)

        def work(connection: Session) -> SubscriberRow | None:
            with connection.transaction():
                row = self.damages.checked(SUBSCRIBER, locked_row(connection, SUBSCRIBER, new))
                if row is not None:
                    row = row._replace(seen_at_ms=now_ms)
                    self._put(connection, SUBSCRIBER, [row])
                return row

        found = self._run(work)
        if found is None:
            self.damages.raise_if_damaged(SUBSCRIBER, (subject, subscriber_id))
        return found or new

    def move_subscribers(self, places: Iterable[tuple[str, str, str]], now_ms: int) -> list[SubscriberRow]:
        given = {(subject, subscriber_id): lsn for subject, subscriber_id, lsn in places}

        def moved(row: SubscriberRow) -> SubscriberRow:
            return row._replace(lsn=max(row.lsn, given[row.subject, row.subscriber_id]), seen_at_ms=now_ms)

        return self._move(SUBSCRIBER, given, moved)

    def subscribers(self) -> list[SubscriberRow]:
        return self._rows(SUBSCRIBER, "ORDER BY subject, subscriber_id")

    def least_place(self, seen_after_ms: int) -> str | None:
        query = "SELECT min(lsn) FROM headrace_log.subscriber WHERE seen_at_ms > %s"
        ((least,),) = self._run(lambda connection: connection.execute(query, (seen_after_ms,)).fetchall())
        return least if least is None else str(least)

    def forget_subscribers(self, seen_before_ms: int, rows_max: int) -> list[SubscriberRow]:
        # One that comes back at this moment holds its row's lock, or finds no row: it is passed over, or begins anew.
        where = "WHERE seen_at_ms < %s ORDER BY seen_at_ms LIMIT %s FOR UPDATE SKIP LOCKED"
        delete = (
            "DELETE FROM headrace_log.subscriber USING unnest(%s::text[], %s::text[]) AS given (subject, subscriber_id)"
            " WHERE subscriber.subject = given.subject AND subscriber.subscriber_id = given.subscriber_id"
        )

        def work(connection: Session) -> list[SubscriberRow]:
            with connection.transaction():
                stored = stored_rows(connection, SUBSCRIBER, where, (seen_before_ms, rows_max))
                rows = self.damages.sift(SUBSCRIBER, stored)
                connection.execute(
                    delete, ([row.subject for row in rows], [row.subscriber_id for row in rows])
                )
                return rows

        return self._run(work)

    def change_hydration(
        self, listener_id: str, feed: str, change: Callable[[HydrationRow | None], HydrationRow]
    ) -> HydrationRow:
        def work(connection: Session) -> HydrationRow:
            with connection.transaction():
                # Another server may take the same lease: who comes second is to see the first one's row.
                connection.execute("LOCK TABLE headrace_log.hydration IN SHARE ROW EXCLUSIVE MODE")
                stored = stored_rows(
                    connection, HYDRATION, "WHERE listener_id = %s AND feed = %s", (listener_id, feed)
                )
                row = change(self.damages.checked(HYDRATION, stored[0]) if stored else None)
                locked_row(connection, HYDRATION, row)
                self._put(connection, HYDRATION, [row])
                return row

        return self._run(work)

    def end_hydration(self, listener_id: str, feed: str) -> None:
        delete = "DELETE FROM headrace_log.hydration WHERE listener_id = %s AND feed = %s"
        self._run(lambda connection: connection.execute(delete, (listener_id, feed)))
        self.damages.mended(HYDRATION, (listener_id, feed))
        self.damages.tell()

    def hydration(self, listener_id: str, feed: str) -> HydrationRow | None:
        if "\0" in listener_id:
            return None
        return self._one(HYDRATION, (listener_id, feed))

    def hydrations(self, feed: str) -> list[HydrationRow]:
        return self._rows(HYDRATION, "WHERE feed = %s ORDER BY listener_id", (feed,))

    def keep_snapshot(self, row: SnapshotRow) -> SnapshotRow:
        def work(connection: Session) -> SnapshotRow:
            with connection.transaction():
                stands = snapshot_of(
                    self.damages.checked(SNAPSHOT, locked_row(connection, SNAPSHOT, row)), row
                )
                self._put(connection, SNAPSHOT, [stands])
                return stands

        return self._run(work)

    def snapshot(self, feed: str) -> SnapshotRow | None:
        return self._one(SNAPSHOT, (feed,))

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        detail = printable(detail.replace("\0", ""))

        def work(connection: Session) -> int:
            with connection.transaction():
                stored = connection.execute(
                    "INSERT INTO headrace_log.alarm AS known (code, feed, agent_id, detail, raised_at_ms, crc)"  # noqa: S608  # names of ours
                    " VALUES (%s, %s, %s, %s, %s, 0)"
                    " ON CONFLICT (code, feed, agent_id) WHERE cleared_at_ms IS NULL DO UPDATE SET crc = known.crc"
                    f" RETURNING {columns_of(ALARM, 'known.')}",
                    (code, feed, agent_id, detail, now_ms),
                ).fetchall()[0]
                row = ALARM.whole(stored) or AlarmRow(stored[0], code, feed, agent_id, detail, now_ms, None)
                self._put(connection, ALARM, [row._replace(detail=detail)])
                return row.alarm_id

        return self._run(work)

    def clear_alarms(self, code: str, *, agent_id: str, now_ms: int, feed: str | None = None) -> None:
        where = (
            "WHERE code = %s AND agent_id = %s AND feed = coalesce(%s::text, feed) AND cleared_at_ms IS NULL "
            "ORDER BY alarm_id FOR UPDATE"
        )
        surplus = "WHERE cleared_at_ms IS NOT NULL ORDER BY alarm_id DESC OFFSET %s"

        def work(connection: Session) -> None:
            with connection.transaction():
                rows = self.damages.sift(ALARM, stored_rows(connection, ALARM, where, (code, agent_id, feed)))
                self._put(connection, ALARM, [row._replace(cleared_at_ms=now_ms) for row in rows])
                old = self.damages.sift(ALARM, stored_rows(connection, ALARM, surplus, (ALARMS_MAX,)))
                numbers = [row.alarm_id for row in old]
                connection.execute("DELETE FROM headrace_log.alarm WHERE alarm_id = ANY (%s)", (numbers,))

        self._run(work)

    def alarms(self) -> list[AlarmRow]:
        where = "ORDER BY cleared_at_ms IS NOT NULL, raised_at_ms DESC, alarm_id DESC LIMIT %s"
        return self._rows(ALARM, where, (ALARMS_MAX,))

    def _one(self, table: Table[R], key: Key) -> R | None:
        """The row with this key, None if there is none; MetadataCorrupt if it is damaged."""
        where = " AND ".join(f"{column} = %s" for column in table.columns[: table.keys])
        rows = self._rows(table, f"WHERE {where}", key)
        if not rows:
            self.damages.raise_if_damaged(table, key)
        return rows[0] if rows else None

    def _rows(self, table: Table[R], where: str, values: Sequence[Any] = ()) -> list[R]:
        return self._run(
            lambda connection: self.damages.sift(table, stored_rows(connection, table, where, values))
        )

    def _move(self, table: Table[R], keys: Iterable[Key], moved: Callable[[R], R]) -> list[R]:
        """Change the rows with these keys that are whole, and return them as they are then; one transaction for all."""
        # Another server may write the same rows: each in one order, else the two could wait for each other.
        given = sorted(keys)
        names = table.columns[: table.keys]
        where = (
            f"JOIN unnest({', '.join(['%s::text[]'] * table.keys)}) AS given ({', '.join(names)})"
            f" USING ({', '.join(names)}) ORDER BY {', '.join(names)} FOR UPDATE OF known"
        )
        values = [[key[at] for key in given] for at in range(table.keys)]

        def work(connection: Session) -> list[R]:
            with connection.transaction():
                rows = self.damages.sift(table, stored_rows(connection, table, where, values))
                changed = [moved(row) for row in rows]
                self._put(connection, table, changed)
                return changed

        return self._run(work)

    def _put(self, connection: Session, table: Table[R], rows: Sequence[R]) -> None:
        put_rows(connection, self.damages, table, rows)

    def _run(self, work: Callable[[Session], T]) -> T:
        try:
            return self._pool.run(work)
        finally:
            self.damages.tell()


def damaged_rows(connection: Session) -> list[RowDamage]:
    """Return the rows that fail their checksum; none where they have no checksums yet."""
    if lacks_checksums(connection):
        return []
    return [
        damage_of(shown(table.name), table, stored)
        for table in present_tables(connection)
        for stored in stored_rows(connection, table)
        if table.whole(stored) is None
    ]


def remove_damaged(connection: Session) -> list[RowDamage]:
    """Remove the rows that fail their checksum, in one transaction, and return them."""
    removed: list[RowDamage] = []
    with connection.transaction():
        if lacks_checksums(connection):
            return removed
        for table in present_tables(connection):
            query = f"SELECT ctid::text, {columns_of(table)} FROM {shown(table.name)} FOR UPDATE"  # noqa: S608  # names of ours
            rows = connection.execute(query).fetchall()
            gone = {row[0]: row[1:] for row in rows if table.whole(row[1:]) is None}
            removed += [damage_of(shown(table.name), table, stored) for stored in gone.values()]
            delete = f"DELETE FROM {shown(table.name)} WHERE ctid = ANY (%s::text[]::tid[])"  # noqa: S608  # names of ours
            connection.execute(delete, (list(gone),))
            if table is SCHEMA and gone:
                connection.execute(f"DELETE FROM {shown(SCHEMA_MARK.name)}")  # noqa: S608  # a name of ours
    return removed
