"""Dropping whole segments: first the journal forgets them, in one short transaction, then their rows are removed bit by bit.

Every server of the database may think of it at once, and somebody may begin to hold at another one meanwhile. So who begins
to hold shares :data:`HOLDING_LOCK`, from its first look until its row is committed, and who forgets takes it alone, from the
last look at those rows to COMMIT. Rows below the oldest position are served by nobody; removing them locks nothing that an
append needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import google_crc32c
import msgspec
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt
from headrace.log.contract import SegmentView
from headrace.log.postgres.connection import fetch_one
from headrace.log.postgres.frames import BIGINT_MAX
from headrace.log.postgres.view import View, encode_tail, load_view
from headrace.log.tail import FeedTail, JournalState, decode_state

REMOVING_LOCK: Final = 0x4865_6164_7261_6366
"""Advisory lock, per database: who removes the rows of what was dropped."""
HOLDING_LOCK: Final = 0x4865_6164_7261_6367
"""Advisory lock, per database: shared by who begins to hold, taken alone by who drops."""
REMOVED_BYTES_MAX: Final = 4 << 20
"""Bytes of frames (or one frame, if that is larger) whose rows one transaction removes: well below a second's work."""

_OLDEST: Final = """
SELECT first_position, state, crc FROM headrace_log.segment
WHERE first_position <= %s AND first_position > (SELECT min(first_position) FROM headrace_log.segment)
ORDER BY first_position DESC LIMIT 1"""

_LEFT: Final = """
SELECT coalesce(%s, (SELECT min(position) FROM headrace_log.frame), oldest_position), oldest_position
FROM headrace_log.journal"""

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


def share_holding(connection: Connection[TupleRow]) -> None:
    """Take the lock of who begins to hold, to the end of the transaction: until then nothing is dropped by any server."""
    connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (HOLDING_LOCK,))


def forget_before(connection: Connection[TupleRow], position: int, look: Callable[[], int] | None) -> None:
    """Let the journal begin at the last segment that begins at or below ``position``, in one transaction.

    ``look``, if given, is asked while nobody can begin to hold; what it answers bounds ``position`` further. The journal's
    end is locked last, so that appends hardly wait. JournalCorrupt if the state that the journal would begin with is
    damaged, or that of any feed: nothing is dropped then.
    """
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (HOLDING_LOCK,))
        if look is not None:
            position = min(position, look())
        row = connection.execute(_OLDEST, (min(position, BIGINT_MAX),)).fetchone()
        if row is not None:
            _begin_at(connection, *row)


def _begin_at(connection: Connection[TupleRow], oldest: int, state: bytes, crc: int) -> None:
    if google_crc32c.value(state) != crc:
        raise JournalCorrupt(f"headrace_log.segment: the state at position {oldest:#x} fails its checksum")
    then = decode_state(state)
    connection.execute("DELETE FROM headrace_log.segment WHERE first_position < %s", (oldest,))
    connection.execute("SELECT 1 FROM headrace_log.journal FOR UPDATE")
    # A statement of its own: what was committed while the lock was waited for must be seen.
    view = load_view(connection)
    view.raise_if_damaged()  # nobody can say who holds what of these feeds
    tails = _forgetting(view, then)
    states = [encode_tail(tail) for tail in tails]
    connection.execute(
        _FORGET,
        ([tail.region_id for tail in tails], [data for data, _ in states], [crc for _, crc in states]),
    )
    dropped = max((Lsn.parse(tail.newest_lsn) for tail in then.feeds.values()), default=ZERO)
    connection.execute(_DROPPED, (oldest, str(dropped)))


def remove_dropped(connection: Connection[TupleRow], position: int | None) -> int | None:
    """Remove some rows of what was dropped, oldest first, in one transaction; returns from where to go on, None at the end.

    ``position``: what an earlier call returned; None to look for the oldest row. (Not each time: what was removed stands in
    the way of that look until no transaction can see it any more.)
    """
    with connection.transaction():
        if not fetch_one(connection, "SELECT pg_try_advisory_xact_lock(%s)", (REMOVING_LOCK,))[0]:
            return None  # another server is at it
        first, oldest = fetch_one(connection, _LEFT, (position,))
        if first >= oldest:
            return None
        end = min(oldest, first + REMOVED_BYTES_MAX)
        connection.execute(
            "DELETE FROM headrace_log.frame WHERE position >= %s AND position < %s", (first, end)
        )
        return int(end)


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
