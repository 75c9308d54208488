"""What a server knows of the shared journal: a frozen value, moved forward from committed rows only.

PostgreSQL shows a commit to others only after its record was flushed (with ``synchronous_commit`` on), so whatever a query
finds is durable: a view may lag behind the journal, but never runs ahead of what a crash would leave.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import google_crc32c
import msgspec
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt
from headrace.log.control import decode_control
from headrace.log.postgres.connection import fetch_one
from headrace.log.tail import FeedTail, decode_state
from headrace.runtime.typed_json import decode_json
from headrace.wire.frame import Frame, FrameKind

_JOURNAL: Final = (
    "j.end_position, j.oldest_position, j.dropped_lsn, j.next_region_id, f.region_id, f.name, f.tail, f.crc"
)

_ALL: Final = f"SELECT {_JOURNAL} FROM headrace_log.journal AS j LEFT JOIN headrace_log.feed AS f ON true"  # noqa: S608  # constants only

# One statement, so that end and tails are of one moment. Every group writes a frame for each tail that it moves.
_MOVED: Final = f"""
SELECT {_JOURNAL} FROM headrace_log.journal AS j LEFT JOIN headrace_log.feed AS f ON f.region_id = ANY (
    ARRAY(SELECT DISTINCT region_id FROM headrace_log.frame WHERE position >= %s))"""  # noqa: S608  # constants only

_NEWEST_SEGMENT: Final = """
SELECT first_position, state, crc FROM headrace_log.segment ORDER BY first_position DESC LIMIT 1"""

_CONTROLS: Final = """
SELECT position, data FROM headrace_log.frame
WHERE position >= %s AND count = 0 AND region_id = ANY (%s) ORDER BY position"""


class FeedDamage(NamedTuple):
    """What is wrong with a row of ``headrace_log.feed``; ``str()`` names table and key."""

    region_id: int
    what: str

    def __str__(self) -> str:
        return f"headrace_log.feed, region_id {self.region_id}: {self.what}"


@dataclass(frozen=True, slots=True)
class View:
    """The journal as of one moment. ``damaged``: feeds whose row fails its checksum, names another feed, or is gone.

    ``missing``: a row that is gone while nobody can say which feed it was.
    """

    end: int
    oldest: int
    dropped: Lsn = ZERO
    tails: Mapping[str, FeedTail] = field(default_factory=dict)
    damaged: Mapping[str, FeedDamage] = field(default_factory=dict)
    missing: FeedDamage | None = None

    @property
    def moment(self) -> tuple[int, int]:
        """What only ever grows: of two views the one with the greater moment is the newer one."""
        return self.end, self.oldest

    def tail(self, feed: str) -> FeedTail | None:
        """Return a feed's tail, None if there is no such feed; JournalCorrupt if its row is damaged, or may be missing."""
        tail = self.tails.get(feed)
        damage = self.damaged.get(feed) or (self.missing if tail is None else None)
        if damage is not None:
            raise JournalCorrupt(str(damage), change_feed_id=feed)
        return tail

    @property
    def damages(self) -> Mapping[str, FeedDamage]:
        """What is wrong with rows, by the name of the feed; empty for one that nobody can name."""
        return {**self.damaged, "": self.missing} if self.missing is not None else self.damaged

    def raise_if_damaged(self) -> None:
        """Raise JournalCorrupt if the state of any feed is not known."""
        if self.damages:
            raise JournalCorrupt("; ".join(map(str, self.damages.values())))


def encode_tail(tail: FeedTail) -> tuple[bytes, int]:
    """Return a tail's bytes and their checksum, as they stand in a row."""
    data = msgspec.json.encode(tail)
    return data, google_crc32c.value(data)


def load_view(connection: Connection[TupleRow]) -> View:
    """Read the whole of it."""
    rows = connection.execute(_ALL, binary=True).fetchall()
    view = _merged(None, rows)
    absent = {*range(1, rows[0][3])} - {row[4] for row in rows}
    return _with_absent(connection, view, absent) if absent else view


def _with_absent(connection: Connection[TupleRow], view: View, absent: AbstractSet[int]) -> View:
    """Feeds are numbered one after the other: a number without a row is one whose row is gone, if the journal knows it."""
    damaged = dict(view.damaged)
    try:
        names = _names(connection, absent)
    except JournalCorrupt as error:
        what = f"there is no such row, and nobody can say which feed it was: {error.detail}"
        return replace(view, missing=FeedDamage(min(absent), what))
    for region_id, name in names.items():
        damaged[name] = FeedDamage(region_id, f"the row of the feed {name} is gone")
    return replace(view, damaged=damaged)


def _names(connection: Connection[TupleRow], absent: AbstractSet[int]) -> dict[int, str]:
    """Return the names by which the journal knows feeds: from where its newest segment begins, and of those made since."""
    first, state, crc = fetch_one(connection, _NEWEST_SEGMENT)
    if google_crc32c.value(state) != crc:
        raise JournalCorrupt(f"headrace_log.segment: the state at position {first:#x} fails its checksum")
    feeds = list(decode_state(state).feeds.values())
    for position, data in connection.execute(_CONTROLS, (first, list(absent)), binary=True):
        frame = Frame(data, where=f"headrace_log.frame, position {position:#x}")
        if frame.header.kind == FrameKind.CONTROL:
            feeds.append(decode_control(frame.body).feed)
    return {feed.region_id: feed.name for feed in feeds if feed.region_id in absent}


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
        for feed in [feed for feed, damage in damaged.items() if damage.region_id == region_id]:
            del damaged[feed]
        tail = _decode(data, crc)
        if tail is not None and (tail.region_id, tail.name) == (region_id, name):
            tails[name] = tail
            continue
        for feed in {name, *([tail.name] if tail is not None else []), *_of_region(tails, region_id)}:
            tails.pop(feed, None)
            damaged[feed] = FeedDamage(region_id, f"the state of the feed {feed} fails its checksum")
    missing = known.missing if known is not None else None
    return View(end, oldest, Lsn.parse(dropped), tails, damaged, missing)


def _of_region(tails: Mapping[str, FeedTail], region_id: int) -> list[str]:
    return [name for name, tail in tails.items() if tail.region_id == region_id]


def _decode(data: bytes, crc: int) -> FeedTail | None:
    if google_crc32c.value(data) != crc:
        return None
    try:
        return decode_json(data, FeedTail)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
