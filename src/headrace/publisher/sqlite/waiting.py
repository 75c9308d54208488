"""How the feeds of a SQLite source stand, for ``agent status``. In the caller's transaction."""

from __future__ import annotations

import sqlite3
from typing import Final

from headrace.publisher.outbox.sqlite import check_format
from headrace.publisher.sqlite.ownership import read_owner
from headrace.publisher.standing import FeedStanding

_FEEDS: Final = """
SELECT feed FROM headrace_owner UNION SELECT feed FROM headrace_attached WHERE state = 'live' ORDER BY 1"""
_OPEN: Final = "SELECT count(*), min(created_at) FROM headrace_outbox WHERE id > ? AND change_feed_id = ?"


def feeds(connection: sqlite3.Connection) -> list[str]:
    """Return the feeds that the outbox knows, by name."""
    check_format(connection)
    return [row[0] for row in connection.execute(_FEEDS)]


def standing(connection: sqlite3.Connection, feed: str) -> FeedStanding:
    """Return how ``feed`` stands."""
    check_format(connection)
    owner = read_owner(connection, feed)
    waiting, oldest = connection.execute(_OPEN, (owner.done_id if owner else 0, feed)).fetchone()
    return FeedStanding(
        feed=feed,
        agent_id=owner.agent_id if owner else "",
        epoch=owner.epoch if owner else 0,
        incarnation=owner.incarnation if owner else None,
        next_sequence_id=owner.next_sequence_id if owner else 0,
        processed_next=owner.processed_next if owner else 0,
        waiting_rows=waiting,
        oldest_waiting_ms=oldest,
        alarm=owner.alarm if owner else None,
    )
