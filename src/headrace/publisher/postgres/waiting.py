"""How much of the outbox is not delivered yet, for commands and for ``agent status``. In the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from headrace.publisher.postgres.connection import Source, fetch_one
from headrace.publisher.postgres.ownership import PostgresOwner, read_owner

_FIRST_OPEN: Final = """
SELECT least(
    %(looked)s::bigint + 1,
    (SELECT min(id) FROM headrace.headrace_outbox WHERE tx = ANY(%(late)s::xid8[]) AND change_feed_id = %(feed)s),
    (SELECT min(id) FROM headrace.headrace_outbox
     WHERE tx >= %(from)s::xid8 AND tx < %(to)s::xid8 AND change_feed_id = %(feed)s),
    (SELECT min(first_id) FROM headrace.headrace_mark
     WHERE feed = %(feed)s AND history = %(history)s AND first_sequence_id + rows > %(processed)s
        AND first_sequence_id >= (
            SELECT first_sequence_id FROM headrace.headrace_mark
            WHERE feed = %(feed)s AND history = %(history)s AND first_sequence_id <= %(processed)s
            ORDER BY first_sequence_id DESC LIMIT 1)))"""
_OPEN: Final = """
SELECT count(*), min(o.created_at) FROM headrace.headrace_outbox AS o
WHERE o.change_feed_id = %(feed)s AND o.id >= %(floor)s
    AND (%(attached)s::integer[] IS NULL OR o.attached = ANY(%(attached)s))
    AND NOT EXISTS (
        SELECT FROM headrace.headrace_mark AS m
        WHERE m.feed = o.change_feed_id AND m.tx = o.tx AND m.last_id >= %(floor)s AND o.id BETWEEN m.first_id AND m.last_id
            AND (m.history < %(history)s OR m.first_sequence_id + m.rows <= %(processed)s))"""


class Waiting(NamedTuple):
    """Committed rows of a feed that are not known to be in it, and when the oldest was written (UTC milliseconds)."""

    rows: int
    oldest_at_ms: int | None


def waiting_of(connection: Source, feed: str, attached: Collection[int] | None = None) -> Waiting:
    """Return what waits of ``feed``; only the rows of these attachments if they are given."""
    owner = read_owner(connection, feed)
    names = _names(feed, owner)
    floor = fetch_one(connection, _FIRST_OPEN, names)[0]
    chosen = None if attached is None else list(attached)
    # Both sides are read once: here the nested loops that we make the planner take would be wrong.
    connection.execute("SET LOCAL enable_hashjoin = on; SET LOCAL enable_nestloop = off")
    rows, oldest = fetch_one(connection, _OPEN, {**names, "floor": floor, "attached": chosen})
    connection.execute("SET LOCAL enable_hashjoin = off; SET LOCAL enable_nestloop = on")
    return Waiting(rows, None if oldest is None else round(oldest.timestamp() * 1000))


def waiting_rows(connection: Source, feed: str, attached: Collection[int]) -> int:
    """Return how many rows of these attachments are not known to be in the feed."""
    return waiting_of(connection, feed, attached).rows


def _names(feed: str, owner: PostgresOwner | None) -> dict[str, object]:
    return {
        "feed": feed,
        "looked": 0 if owner is None else owner.looked_id,
        "late": [] if owner is None else [str(xid) for xid in owner.late],
        "from": "0" if owner is None else str(owner.open_from),
        "to": "0" if owner is None else str(owner.open_to),
        "history": 0 if owner is None else owner.history,
        "processed": 0 if owner is None else owner.processed_next,
    }
