"""What a server knows of the shared journal: a frozen value, moved forward from committed rows only.

PostgreSQL shows a commit to others only after its record was flushed (with ``synchronous_commit`` on), so whatever a query
finds is durable: a view may lag behind the journal, but never runs ahead of what a crash would leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import google_crc32c
import msgspec
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt
from headrace.log.tail import FeedTail

_JOURNAL: Final = "j.end_position, j.oldest_position, j.dropped_lsn, f.region_id, f.name, f.tail, f.crc"

_ALL: Final = f"SELECT {_JOURNAL} FROM headrace_log.journal AS j LEFT JOIN headrace_log.feed AS f ON true"  # noqa: S608  # constants only

# One statement, so that end and tails are of one moment. Every group writes a frame for each tail that it moves.
_MOVED: Final = f"""
SELECT {_JOURNAL} FROM headrace_log.journal AS j LEFT JOIN headrace_log.feed AS f ON f.region_id = ANY (
    ARRAY(SELECT DISTINCT region_id FROM headrace_log.frame WHERE position >= %s))"""  # noqa: S608  # constants only


@dataclass(frozen=True, slots=True)
class View:
    """The journal as of one moment. ``damaged``: what is wrong with the state of feeds whose row fails its checksum."""

    end: int
    oldest: int
    dropped: Lsn = ZERO
    tails: Mapping[str, FeedTail] = field(default_factory=dict)
    damaged: Mapping[str, str] = field(default_factory=dict)

    @property
    def moment(self) -> tuple[int, int]:
        """What only ever grows: of two views the one with the greater moment is the newer one."""
        return self.end, self.oldest

    def tail(self, feed: str) -> FeedTail | None:
        """Return a feed's tail, None if there is no such feed; JournalCorrupt if its row is damaged."""
        if feed in self.damaged:
            raise JournalCorrupt(self.damaged[feed], change_feed_id=feed)
        return self.tails.get(feed)


def encode_tail(tail: FeedTail) -> tuple[bytes, int]:
    """Return a tail's bytes and their checksum, as they stand in a row."""
    data = msgspec.json.encode(tail)
    return data, google_crc32c.value(data)


def load_view(connection: Connection[TupleRow]) -> View:
    """Read the whole of it."""
    return _merged(None, connection.execute(_ALL, binary=True).fetchall())


def load_moved(connection: Connection[TupleRow], known: View) -> View:
    """Read what has changed since ``known``; returns ``known`` itself if nothing has."""
    rows = connection.execute(_MOVED, (known.end,), binary=True).fetchall()
    if rows and rows[0][1] != known.oldest:
        return load_view(connection)  # retention has changed what every tail says of its beginning
    return _merged(known, rows)


def _merged(known: View | None, rows: list[tuple[Any, ...]]) -> View:
    if not rows:
        raise JournalCorrupt("headrace_log.journal has no row: these are not the tables of a log")
    end, oldest, dropped = rows[0][:3]
    if known is not None and (end, oldest) == known.moment:
        return known
    tails = dict(known.tails) if known is not None else {}
    damaged = dict(known.damaged) if known is not None else {}
    for *_, region_id, name, data, crc in rows:
        if name is None:
            continue
        tail = _decode(region_id, name, data, crc)
        if tail is not None:
            tails[name] = tail
            damaged.pop(name, None)
        else:
            tails.pop(name, None)
            damaged[name] = (
                f"headrace_log.feed: the state of the feed {name} (region {region_id}) fails its checksum"
            )
    return View(end, oldest, Lsn.parse(dropped), tails, damaged)


def _decode(region_id: int, name: str, data: bytes, crc: int) -> FeedTail | None:
    if google_crc32c.value(data) != crc:
        return None
    try:
        tail = msgspec.json.decode(data, type=FeedTail)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return tail if (tail.region_id, tail.name) == (region_id, name) else None
