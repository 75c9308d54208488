"""The metadata database of the PostgreSQL store: tables beside the journal's. See ``contract`` for what the methods promise.

Every statement is safe to repeat: the pool may send it a second time when it finds a connection dead.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.log.metadata.contract import ALARMS_MAX, AlarmRow, ListenerRow, Metadata, SubscriberRow
from headrace.log.postgres.pool import Pool

_LISTENER = "listener_id, feed, hold, incarnation, sequence_id, lsn, seen_at_ms"
_SUBSCRIBER = "subject, subscriber_id, lsn, seen_at_ms"


class PostgresMetadata(Metadata):
    """The metadata tables, by connections of the store's pool: it is closed with the store."""

    def __init__(self, pool: Pool) -> None:
        """Use ``pool``; the tables were made with the store's."""
        self._pool = pool

    def close(self) -> None:
        """The pool is the store's, which closes it."""

    def register_listener(self, listener_id: str, feed: str, hold: bool, now_ms: int) -> None:
        self._rows(
            "INSERT INTO headrace_log.listener (listener_id, feed, hold, seen_at_ms) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (listener_id, feed) DO UPDATE SET hold = excluded.hold, seen_at_ms = excluded.seen_at_ms",
            (listener_id, feed, hold, now_ms),
        )

    def listener(self, listener_id: str, feed: str) -> ListenerRow | None:
        if "\0" in listener_id:  # what PostgreSQL can't store was never registered
            return None
        rows = self._listeners("listener_id = %s AND feed = %s", (listener_id, feed))
        return rows[0] if rows else None

    def listeners(self, feed: str) -> list[ListenerRow]:
        return self._listeners("feed = %s ORDER BY listener_id", (feed,))

    def _listeners(self, where: str, values: tuple[Any, ...]) -> list[ListenerRow]:
        rows = self._rows(f"SELECT {_LISTENER} FROM headrace_log.listener WHERE {where}", values)  # noqa: S608  # constants only
        return [ListenerRow(*row) for row in rows]

    def put_position(  # noqa: PLR0917  # the columns of one row
        self, listener_id: str, feed: str, incarnation: str, sequence_id: int, lsn: str | None, now_ms: int
    ) -> None:
        self._rows(
            "UPDATE headrace_log.listener SET incarnation = %s, sequence_id = %s, lsn = %s, seen_at_ms = %s"
            " WHERE listener_id = %s AND feed = %s",
            (incarnation, sequence_id, lsn, now_ms, listener_id, feed),
        )

    def seen(self, listeners: Iterable[tuple[str, str]], now_ms: int) -> None:
        # Another server may write the same rows: each in one order, else the two could wait for each other.
        pairs = sorted(listeners)
        self._rows(
            "UPDATE headrace_log.listener AS l SET seen_at_ms = greatest(l.seen_at_ms, %s) FROM ("
            " SELECT o.listener_id, o.feed FROM headrace_log.listener AS o"
            " JOIN unnest(%s::text[], %s::text[]) AS given (listener_id, feed) USING (listener_id, feed)"
            " ORDER BY 1, 2 FOR UPDATE OF o) AS held"
            " WHERE (l.listener_id, l.feed) = (held.listener_id, held.feed)",
            (now_ms, [pair[0] for pair in pairs], [pair[1] for pair in pairs]),
        )

    def begin_subscriber(self, subject: str, subscriber_id: str, lsn: str, now_ms: int) -> SubscriberRow:
        (row,) = self._rows(
            "INSERT INTO headrace_log.subscriber AS known (subject, subscriber_id, lsn, seen_at_ms)"  # noqa: S608  # constants only
            " VALUES (%s, %s, %s, %s) ON CONFLICT (subject, subscriber_id)"
            f" DO UPDATE SET seen_at_ms = excluded.seen_at_ms RETURNING {_SUBSCRIBER}",
            (subject, subscriber_id, lsn, now_ms),
        )
        return SubscriberRow(*row)

    def move_subscribers(self, places: Iterable[tuple[str, str, str]], now_ms: int) -> None:
        moved = sorted(places)
        self._rows(
            "UPDATE headrace_log.subscriber AS s SET lsn = greatest(s.lsn, held.given_lsn), seen_at_ms = %s FROM ("
            " SELECT o.subject, o.subscriber_id, given.lsn AS given_lsn FROM headrace_log.subscriber AS o"
            " JOIN unnest(%s::text[], %s::text[], %s::text[]) AS given (subject, subscriber_id, lsn)"
            " USING (subject, subscriber_id) ORDER BY 1, 2 FOR UPDATE OF o) AS held"
            " WHERE (s.subject, s.subscriber_id) = (held.subject, held.subscriber_id)",
            (now_ms, *([place[at] for place in moved] for at in range(3))),
        )

    def subscribers(self) -> list[SubscriberRow]:
        rows = self._rows(f"SELECT {_SUBSCRIBER} FROM headrace_log.subscriber ORDER BY 1, 2")  # noqa: S608  # constants only
        return [SubscriberRow(*row) for row in rows]

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        (row,) = self._rows(
            "INSERT INTO headrace_log.alarm (code, feed, agent_id, detail, raised_at_ms) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT (code, feed, agent_id) WHERE cleared_at_ms IS NULL"
            " DO UPDATE SET detail = excluded.detail RETURNING alarm_id",
            (code, feed, agent_id, detail.replace("\0", ""), now_ms),
        )
        return int(row[0])

    def clear_alarms(self, code: str, *, agent_id: str, now_ms: int) -> None:
        self._rows(
            "UPDATE headrace_log.alarm SET cleared_at_ms = %s WHERE code = %s AND agent_id = %s AND cleared_at_ms IS NULL",
            (now_ms, code, agent_id),
        )

    def alarms(self) -> list[AlarmRow]:
        rows = self._rows(
            "SELECT alarm_id, code, feed, agent_id, detail, raised_at_ms, cleared_at_ms FROM headrace_log.alarm"
            " ORDER BY cleared_at_ms IS NOT NULL, raised_at_ms DESC, alarm_id DESC LIMIT %s",
            (ALARMS_MAX,),
        )
        return [AlarmRow(*row) for row in rows]

    def _rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        def work(connection: Any) -> list[tuple[Any, ...]]:
            done = connection.execute(statement, values)
            return done.fetchall() if done.description else []

        return self._pool.run(work)
