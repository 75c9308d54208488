"""The metadata database of the PostgreSQL store: tables beside the journal's. See ``contract`` for what the methods promise.

A row is changed by reading it under its lock, so that its checksum is compared before it is written anew. Everything is safe
to repeat: the pool may do it a second time when it finds a connection dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.log.metadata.contract import (
    ALARMS_MAX,
    AlarmRow,
    ListenerRow,
    Metadata,
    RowDamage,
    SubscriberRow,
)
from headrace.log.metadata.damages import Damages
from headrace.log.metadata.postgres_schema import lacks_checksums, shown, upgrade
from headrace.log.metadata.rows import ALARM, LISTENER, SUBSCRIBER, TABLES, Key, Table, damage_of
from headrace.log.postgres.pool import Pool

R = TypeVar("R", bound=tuple[Any, ...])
T = TypeVar("T")
Session = Connection[TupleRow]


class PostgresMetadata(Metadata):
    """The metadata tables, by connections of the store's pool: it is closed with the store."""

    def __init__(self, pool: Pool) -> None:
        """Use ``pool``; the tables were made with the store's. Those of format 1 get their checksums here.

        Raises StoreUnavailable, and StoreForbidden if that takes rights which the role lacks.
        """
        self._pool = pool
        self.damages = Damages(shown)
        pool.run(upgrade)
        self.check()

    def close(self) -> None:
        """The pool is the store's, which closes it."""

    def check(self) -> list[RowDamage]:
        def work(connection: Session) -> None:
            for table in TABLES:
                stored = _stored(connection, table)
                self.damages.sift(table, stored)
                self.damages.all_read(table, stored)

        self._run(work)
        return self.damages.standing()

    def forget_damaged(self) -> list[RowDamage]:
        removed = self._run(remove_damaged)
        self.check()
        return removed

    def register_listener(self, listener_id: str, feed: str, hold: bool, now_ms: int) -> None:
        new = ListenerRow(listener_id, feed, hold, None, None, None, now_ms)

        def work(connection: Session) -> None:
            with connection.transaction():
                row = self.damages.checked(LISTENER, _locked(connection, LISTENER, new)) or new
                self._put(connection, LISTENER, [row._replace(hold=hold, seen_at_ms=now_ms)])

        self._run(work)

    def listener(self, listener_id: str, feed: str) -> ListenerRow | None:
        if "\0" in listener_id:  # what PostgreSQL can't store was never registered
            return None
        rows = self._rows(LISTENER, "WHERE listener_id = %s AND feed = %s", (listener_id, feed))
        if not rows:
            self.damages.raise_if_damaged(LISTENER, (listener_id, feed))
        return rows[0] if rows else None

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
                row = self.damages.checked(SUBSCRIBER, _locked(connection, SUBSCRIBER, new))
                if row is not None:
                    row = row._replace(seen_at_ms=now_ms)
                    self._put(connection, SUBSCRIBER, [row])
                return row

        found = self._run(work)
        if found is None:
            self.damages.raise_if_damaged(SUBSCRIBER, (subject, subscriber_id))
        return found or new

    def move_subscribers(self, places: Iterable[tuple[str, str, str]], now_ms: int) -> None:
        given = {(subject, subscriber_id): lsn for subject, subscriber_id, lsn in places}

        def moved(row: SubscriberRow) -> SubscriberRow:
            return row._replace(lsn=max(row.lsn, given[row.subject, row.subscriber_id]), seen_at_ms=now_ms)

        self._move(SUBSCRIBER, given, moved)

    def subscribers(self) -> list[SubscriberRow]:
        return self._rows(SUBSCRIBER, "ORDER BY subject, subscriber_id")

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        detail = detail.replace("\0", "")

        def work(connection: Session) -> int:
            with connection.transaction():
                stored = connection.execute(
                    "INSERT INTO headrace_log.alarm AS known (code, feed, agent_id, detail, raised_at_ms, crc)"  # noqa: S608  # names of ours
                    " VALUES (%s, %s, %s, %s, %s, 0)"
                    " ON CONFLICT (code, feed, agent_id) WHERE cleared_at_ms IS NULL DO UPDATE SET crc = known.crc"
                    f" RETURNING {_columns(ALARM, 'known.')}",
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

        def work(connection: Session) -> None:
            with connection.transaction():
                rows = self.damages.sift(ALARM, _stored(connection, ALARM, where, (code, agent_id, feed)))
                self._put(connection, ALARM, [row._replace(cleared_at_ms=now_ms) for row in rows])

        self._run(work)

    def alarms(self) -> list[AlarmRow]:
        where = "ORDER BY cleared_at_ms IS NOT NULL, raised_at_ms DESC, alarm_id DESC LIMIT %s"
        return self._rows(ALARM, where, (ALARMS_MAX,))

    def _rows(self, table: Table[R], where: str, values: Sequence[Any] = ()) -> list[R]:
        return self._run(
            lambda connection: self.damages.sift(table, _stored(connection, table, where, values))
        )

    def _move(self, table: Table[R], keys: Iterable[Key], moved: Callable[[R], R]) -> None:
        """Change the rows with these keys that are whole; one transaction for all."""
        # Another server may write the same rows: each in one order, else the two could wait for each other.
        given = sorted(keys)
        names = table.columns[: table.keys]
        where = (
            f"JOIN unnest({', '.join(['%s::text[]'] * table.keys)}) AS given ({', '.join(names)})"
            f" USING ({', '.join(names)}) ORDER BY {', '.join(names)} FOR UPDATE OF known"
        )
        values = [[key[at] for key in given] for at in range(table.keys)]

        def work(connection: Session) -> None:
            with connection.transaction():
                rows = self.damages.sift(table, _stored(connection, table, where, values))
                self._put(connection, table, [moved(row) for row in rows])

        self._run(work)

    def _put(self, connection: Session, table: Table[R], rows: Sequence[R]) -> None:
        """Write whole rows, with their checksums, over those with their keys."""
        if not rows:
            return
        keys, rest = table.columns[: table.keys], (*table.columns[table.keys :], "crc")
        connection.cursor().executemany(
            f"UPDATE headrace_log.{table.name} SET {', '.join(f'{column} = %s' for column in rest)}"  # noqa: S608  # names of ours
            f" WHERE {' AND '.join(f'{column} = %s' for column in keys)}",
            [(*table.stamped(row)[table.keys :], *table.key_of(row)) for row in rows],
        )
        for row in rows:
            self.damages.mended(table, table.key_of(row))

    def _run(self, work: Callable[[Session], T]) -> T:
        try:
            return self._pool.run(work)
        finally:
            self.damages.tell()


def _columns(table: Table[Any], prefix: str = "") -> str:
    return ", ".join(f"{prefix}{column}" for column in (*table.columns, "crc"))


def _stored(
    connection: Session, table: Table[Any], where: str = "", values: Sequence[Any] = ()
) -> list[tuple[Any, ...]]:
    """Rows as they are stored, with their checksums."""
    query = f"SELECT {_columns(table, 'known.')} FROM headrace_log.{table.name} AS known {where}"  # noqa: S608  # names of ours
    return connection.execute(query, values).fetchall()


def _locked(connection: Session, table: Table[R], new: R) -> tuple[Any, ...]:
    """The stored row with the key of ``new``, which is put there if there is none; locked either way."""
    keys = ", ".join(table.columns[: table.keys])
    return connection.execute(
        f"INSERT INTO headrace_log.{table.name} AS known ({_columns(table)})"  # noqa: S608  # names of ours
        f" VALUES ({', '.join(['%s'] * (len(table.columns) + 1))})"
        f" ON CONFLICT ({keys}) DO UPDATE SET crc = known.crc RETURNING {_columns(table, 'known.')}",
        table.stamped(new),
    ).fetchall()[0]


def damaged_rows(connection: Session) -> list[RowDamage]:
    """Return the rows that fail their checksum; none where they have no checksums yet."""
    if lacks_checksums(connection):
        return []
    return [
        damage_of(shown(table.name), table, stored)
        for table in TABLES
        for stored in _stored(connection, table)
        if table.whole(stored) is None
    ]


def remove_damaged(connection: Session) -> list[RowDamage]:
    """Remove the rows that fail their checksum, in one transaction, and return them."""
    removed: list[RowDamage] = []
    with connection.transaction():
        if lacks_checksums(connection):
            return removed
        for table in TABLES:
            query = f"SELECT ctid::text, {_columns(table)} FROM {shown(table.name)} FOR UPDATE"  # noqa: S608  # names of ours
            rows = connection.execute(query).fetchall()
            gone = {row[0]: row[1:] for row in rows if table.whole(row[1:]) is None}
            removed += [damage_of(shown(table.name), table, stored) for stored in gone.values()]
            delete = f"DELETE FROM {shown(table.name)} WHERE ctid = ANY (%s::text[]::tid[])"  # noqa: S608  # names of ours
            connection.execute(delete, (list(gone),))
    return removed
