"""How the feeds of a PostgreSQL source stand, and who keeps the database from removing old row versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.publisher.postgres.connection import Source, transaction
from headrace.publisher.postgres.ownership import read_owner
from headrace.publisher.postgres.waiting import waiting_of
from headrace.publisher.standing import FeedStanding, Holder

HOLDER_AGE_S: Final = 1
"""Younger transactions are not worth a line."""

HOLDERS_MAX: Final = 10
"""Most that are shown, oldest first."""

_FEEDS: Final = """
SELECT feed FROM headrace.headrace_owner UNION SELECT feed FROM headrace.headrace_attached WHERE state = 'live' ORDER BY 1"""
_HOLDERS: Final = """
SELECT * FROM (
    SELECT 'session ' || pid, format('role %%s, application %%s, %%s', usename, coalesce(nullif(application_name, ''), '-'),
            coalesce(state, 'not to be seen')),
        extract(epoch FROM clock_timestamp() - xact_start)::bigint, greatest(age(backend_xmin), age(backend_xid))
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
        AND backend_type <> 'walsender' AND (datname = current_database() OR datname IS NULL)
        AND clock_timestamp() - coalesce(xact_start, backend_start) >= make_interval(secs => %(age)s)
    UNION ALL
    SELECT 'prepared transaction ' || gid, format('owner %%s', owner),
        extract(epoch FROM clock_timestamp() - prepared)::bigint, age(transaction)
    FROM pg_prepared_xacts WHERE database = current_database()
    UNION ALL
    SELECT 'replication slot ' || slot_name, CASE WHEN active THEN 'in use' ELSE 'not in use' END, NULL, age(xmin)
    FROM pg_replication_slots WHERE xmin IS NOT NULL
    UNION ALL
    SELECT 'standby ' || coalesce(nullif(application_name, ''), pid::text), 'hot_standby_feedback', NULL, age(backend_xmin)
    FROM pg_stat_replication WHERE backend_xmin IS NOT NULL
) AS holder ORDER BY 4 DESC LIMIT %(holders)s"""


def standing(connection: Source, feeds: Sequence[str] | None = None) -> list[FeedStanding]:
    """Return how ``feeds`` (all that the outbox knows, if none are named) stand; in one snapshot."""
    found = []
    with transaction(connection, repeatable_read=True):
        for feed in feeds or [row[0] for row in connection.execute(_FEEDS)]:
            owner = read_owner(connection, feed)
            waiting = waiting_of(connection, feed)
            found.append(
                FeedStanding(
                    feed=feed,
                    agent_id=owner.agent_id if owner else "",
                    epoch=owner.epoch if owner else 0,
                    incarnation=owner.incarnation if owner else None,
                    next_sequence_id=owner.next_sequence_id if owner else 0,
                    processed_next=owner.processed_next if owner else 0,
                    waiting_rows=waiting.rows,
                    oldest_waiting_ms=waiting.oldest_at_ms,
                    alarm=owner.alarm if owner else None,
                )
            )
    return found


def holders(connection: Source) -> list[Holder]:
    """Return what holds the horizon: below it no dead row is removed, so tables that change often grow and slow down."""
    with transaction(connection):
        names = {"age": HOLDER_AGE_S, "holders": HOLDERS_MAX}
        return [Holder(*row) for row in connection.execute(_HOLDERS, names)]
