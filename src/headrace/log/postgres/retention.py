"""Dropping whole segments: under an advisory lock, because every server of the database may think of it at once."""

from __future__ import annotations

from typing import Final

import google_crc32c
import msgspec
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt
from headrace.log.contract import SegmentView
from headrace.log.postgres.connection import fetch_one
from headrace.log.postgres.view import View, encode_tail, load_view
from headrace.log.tail import FeedTail, JournalState, decode_state

DROPPING_LOCK: Final = 0x4865_6164_7261_6366
"""Advisory lock, per database: who drops segments."""

_OLDEST: Final = """
SELECT first_position, state, crc FROM headrace_log.segment ORDER BY first_position LIMIT 2"""

_SEGMENTS: Final = """
SELECT s.first_position, s.global_ts, j.end_position, j.global_ts
FROM headrace_log.segment AS s, headrace_log.journal AS j ORDER BY s.first_position"""

_FORGET: Final = """
UPDATE headrace_log.feed AS f SET tail = given.tail, crc = given.crc
FROM unnest(%b::bigint[], %b::bytea[], %b::bigint[]) AS given (region_id, tail, crc)
WHERE f.region_id = given.region_id"""

_DROPPED: Final = """
UPDATE headrace_log.journal SET oldest_position = %s, dropped_lsn = %s
RETURNING pg_notify('headrace_log', end_position || ':' || oldest_position)"""


def drop_oldest(connection: Connection[TupleRow], position: int) -> bool:
    """Drop the oldest segment, if it is sealed and ends at or below ``position``; tells whether one was dropped.

    One transaction. The rows go first and the journal's end is locked last, so that appends hardly wait.
    """
    with connection.transaction():
        connection.execute("SET LOCAL statement_timeout = 0")
        if not fetch_one(connection, "SELECT pg_try_advisory_xact_lock(%s)", (DROPPING_LOCK,))[0]:
            return False  # another server is at it; waiting for it would keep this one's appends waiting
        segments = connection.execute(_OLDEST).fetchall()
        if len(segments) < 2 or segments[1][0] > position:
            return False
        (gone, _, _), (oldest, state, crc) = segments
        if google_crc32c.value(state) != crc:
            raise JournalCorrupt(
                f"headrace_log.segment: the state at position {oldest:#x} fails its checksum"
            )
        then = decode_state(state)
        connection.execute("DELETE FROM headrace_log.frame WHERE position < %s", (oldest,))
        connection.execute("DELETE FROM headrace_log.segment WHERE first_position = %s", (gone,))
        connection.execute("SELECT 1 FROM headrace_log.journal FOR UPDATE")
        # A statement of its own: what was committed while the lock was waited for must be seen.
        tails = _forgetting(load_view(connection), then)
        states = [encode_tail(tail) for tail in tails]
        connection.execute(
            _FORGET,
            ([tail.region_id for tail in tails], [data for data, _ in states], [crc for _, crc in states]),
        )
        dropped = max((Lsn.parse(tail.newest_lsn) for tail in then.feeds.values()), default=ZERO)
        connection.execute(_DROPPED, (oldest, str(dropped)))
    return True


def _forgetting(now: View, then: JournalState) -> list[FeedTail]:
    """What the oldest segment continues from is what was dropped before it."""
    return [
        msgspec.structs.replace(
            tail, dropped_sequence_id=old.next_sequence_id - 1, dropped_lsn=old.newest_lsn
        )
        for name, tail in now.tails.items()
        if (old := then.feeds.get(name)) is not None
        and old.first_sequence_id
        and old.incarnation == tail.incarnation
    ]


def segment_views(connection: Connection[TupleRow]) -> list[SegmentView]:
    """Return the journal's segments, oldest first; their size is that of their frames."""
    rows = connection.execute(_SEGMENTS).fetchall()
    following = [*((row[0], row[1]) for row in rows[1:]), *((row[2], row[3]) for row in rows[-1:])]
    return [
        SegmentView(row[0], end, end - row[0], clock, at == len(rows) - 1)
        for at, (row, (end, clock)) in enumerate(zip(rows, following, strict=True))
    ]
