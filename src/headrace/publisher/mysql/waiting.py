"""How the feeds of a MariaDB or MySQL source stand, for ``agent status``. In the caller's transaction."""

from __future__ import annotations

from typing import Final

from headrace.publisher.mysql.connection import Source, fetch
from headrace.publisher.mysql.ownership import read_owner
from headrace.publisher.outbox.mysql import check_format
from headrace.publisher.standing import FeedStanding

_FEEDS: Final = """
SELECT feed FROM headrace_owner UNION SELECT DISTINCT change_feed_id FROM headrace_outbox ORDER BY 1"""
_WAITING: Final = """
SELECT COUNT(*), MIN(ROUND(UNIX_TIMESTAMP(created_at) * 1000)) FROM headrace_outbox
WHERE change_feed_id = %s AND NOT processed AND (sequence_id IS NULL OR sequence_id >= %s)"""


def feeds(connection: Source) -> list[str]:
    """Return the feeds that the outbox knows, by name."""
    check_format(connection)
    return [row[0] for row in fetch(connection, _FEEDS)]


def standing(connection: Source, feed: str) -> FeedStanding:
    """Return how ``feed`` stands."""
    check_format(connection)
    owner = read_owner(connection, feed)
    waiting, oldest = fetch(connection, _WAITING, (feed, owner.processed_next if owner else 0))[0]
    return FeedStanding(
        feed=feed,
        agent_id=owner.agent_id if owner else "",
        epoch=owner.epoch if owner else 0,
        incarnation=owner.incarnation if owner else None,
        next_sequence_id=owner.next_sequence_id if owner else 0,
        processed_next=owner.processed_next if owner else 0,
        waiting_rows=waiting,
        oldest_waiting_ms=None if oldest is None else int(oldest),
        alarm=owner.alarm if owner else None,
    )
