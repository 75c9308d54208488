"""Reading frames: found by indexed columns, verified by their own checksums at each read."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.errors import JournalCorrupt, SequenceNotAvailable
from headrace.log.postgres.view import View
from headrace.wire.frame import HEADER_SIZE, Frame
from headrace.wire.segment import FramePlace

BIGINT_MAX: Final = (1 << 63) - 1

_PLACE: Final = "region_id, count, first_sequence_id, position, size"

_PLACES: Final = f"""
SELECT {_PLACE} FROM headrace_log.frame
WHERE count > 0 AND region_id = %(region)s AND first_sequence_id <= %(last)s AND first_sequence_id + count > %(first)s
    AND position >= %(oldest)s
    AND first_sequence_id >= coalesce((SELECT max(first_sequence_id) FROM headrace_log.frame
        WHERE count > 0 AND region_id = %(region)s AND first_sequence_id <= %(first)s), 0)
ORDER BY first_sequence_id LIMIT %(frames_max)s"""  # noqa: S608  # constants only

_READ: Final = f"SELECT {_PLACE}, data FROM headrace_log.frame WHERE position = ANY (%s)"  # noqa: S608  # constants only

# Positions count bytes, so that the frames which fit are those that end within them.
_WALK: Final = f"""
SELECT {_PLACE}, data FROM headrace_log.frame
WHERE position >= %(position)s AND position < least(%(position)s::bigint + %(bytes_max)s::bigint, %(end)s::bigint)
    AND (position + size <= %(position)s::bigint + %(bytes_max)s::bigint OR position = %(position)s)
ORDER BY position"""  # noqa: S608  # constants only

_CLOCK: Final = """
SELECT position, last_global_ts FROM headrace_log.frame WHERE position >= %s AND position < %s ORDER BY position LIMIT 1"""


def find_places(  # noqa: PLR0917  # what :meth:`Store.places` is asked for, and the view's beginning
    connection: Connection[TupleRow], region_id: int, first: int, last: int, frames_max: int, oldest: int
) -> list[FramePlace]:
    """Return the frames of a feed that overlap sequence ids ``first`` … ``last``, oldest first; none below ``oldest``."""
    values = {
        "oldest": oldest,
        "region": region_id,
        "first": min(first, BIGINT_MAX),
        "last": min(last, BIGINT_MAX),
        "frames_max": frames_max,
    }
    return [FramePlace(*row) for row in connection.execute(_PLACES, values, binary=True)]


def read_frames(connection: Connection[TupleRow], places: Iterable[FramePlace]) -> dict[int, tuple[Any, ...]]:
    """Return the rows at ``places`` by position, unverified; what is not there is left out."""
    rows = connection.execute(_READ, ([place.position for place in places],), binary=True)
    return {row[3]: row for row in rows}


def walk_frames(
    connection: Connection[TupleRow], position: int, bytes_max: int, end: int
) -> list[tuple[Any, ...]]:
    """Return the rows from ``position`` on that fit into ``bytes_max``, at least one if there is one; unverified."""
    values = {"position": position, "bytes_max": min(bytes_max, 1 << 62), "end": end}
    return connection.execute(_WALK, values, binary=True).fetchall()


def verify(row: Sequence[Any]) -> Frame:
    """Return the frame in a row; JournalCorrupt, naming it, if a byte or a column of it is not what was written."""
    place, data = FramePlace(*row[:5]), row[5]
    where = (
        f"headrace_log.frame, position {place.position:#x} (region {place.region_id}, sequence ids "
        f"{place.first_sequence_id} to {place.first_sequence_id + place.count - 1})"
    )
    try:
        frame = Frame(data, where=where)
    except JournalCorrupt as error:
        raise JournalCorrupt(error.detail, position=place.position) from None
    header = frame.header
    said = (header.region_id, header.count, header.first_sequence_id, header.position, header.size)
    if said != place or len(data) != place.size or data[:HEADER_SIZE] != data[-HEADER_SIZE:]:
        raise JournalCorrupt(
            f"{where}: the row's columns are not those of its frame", position=place.position
        )
    return frame


def verify_joined(rows: Sequence[Sequence[Any]], position: int) -> list[Frame]:
    """Return the frames of rows that join on to each other from ``position`` on, up to the first damaged or missing one.

    JournalCorrupt if that is the first.
    """
    frames: list[Frame] = []
    for row in rows:
        try:
            if row[3] != position:
                raise_missing(position)
            frames.append(verify(row))
        except JournalCorrupt:
            if not frames:
                raise
            break
        position = frames[-1].header.end
    return frames


def raise_missing(position: int) -> NoReturn:
    """Say that a frame which must be there is not."""
    raise JournalCorrupt(
        f"headrace_log.frame: there is no frame at position {position:#x}", position=position
    )


def raise_if_dropped(view: View, position: int) -> None:
    """Raise SequenceNotAvailable if ``position`` lies below what is retained."""
    if position < view.oldest:
        raise SequenceNotAvailable(
            f"the journal's oldest retained position is {view.oldest:#x}, {position:#x} was dropped"
        )


def seek(connection: Connection[TupleRow], view: View, global_ts: int) -> int:
    """Return the position of the first frame with an entry at ``global_ts`` or later; the end if there is none.

    By bisection over positions, since clock and positions grow together: some thirty looks at the primary key.
    """

    def clock_from(position: int) -> int:
        row = connection.execute(_CLOCK, (position, view.end)).fetchone()
        return row[1] if row is not None else global_ts

    at = bisect_left(range(view.oldest, view.end), global_ts, key=clock_from) + view.oldest
    row = connection.execute(_CLOCK, (at, view.end)).fetchone()
    return row[0] if row is not None else view.end
