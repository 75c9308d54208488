"""Look at every row of a log in PostgreSQL and say what is damaged: ``headrace log verify`` and ``dump`` with ``--store``.

Nothing is written, and all is read as of one moment, so servers may be at work. PostgreSQL answers for its own files
(``pg_amcheck``, data checksums); what is looked at here is whether the rows say what Headrace wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import google_crc32c
import psycopg
from psycopg import Connection, IsolationLevel
from psycopg.rows import TupleRow

from headrace.errors import FeedNotFound, JournalCorrupt, StoreUnavailable
from headrace.log.control import decode_control
from headrace.log.damage import Damage, DamageKind, Verdict
from headrace.log.postgres.connection import Address, connect, fetch_one, refused
from headrace.log.postgres.frames import verify
from headrace.log.postgres.schema import check_format
from headrace.log.postgres.view import load_view
from headrace.log.tail import decode_state
from headrace.wire.frame import HEADER_SIZE, Frame, FrameHeader, FrameKind, parse_header

READ_BYTES: Final = 8 << 20
"""Frames that are read at a time, and one more: bounds the memory that a look takes."""

_COLUMNS: Final = "region_id, count, first_sequence_id, position, size, data, last_global_ts"
_FROM: Final = f"""
SELECT {_COLUMNS} FROM headrace_log.frame
WHERE position >= %(position)s AND position < %(position)s::bigint + {READ_BYTES}
    AND (position + size <= %(position)s::bigint + {READ_BYTES} OR position = %(position)s)
ORDER BY position"""  # noqa: S608  # constants only
_NEXT: Final = "SELECT min(position) FROM headrace_log.frame WHERE position > %s"
_OF_FEED: Final = f"""
SELECT {_COLUMNS} FROM headrace_log.frame
WHERE count > 0 AND region_id = %s AND first_sequence_id + count > %s ORDER BY first_sequence_id LIMIT 1"""  # noqa: S608  # constants only

_FRAME: Final = Path("headrace_log.frame")
_FEED: Final = Path("headrace_log.feed")
_JOURNAL: Final = Path("headrace_log.journal")
_SEGMENT: Final = Path("headrace_log.segment")


@contextmanager
def looking(address: Address) -> Iterator[Connection[TupleRow]]:
    """A connection that sees the log as of one moment, and can't change it.

    Raises StoreUnavailable (also where there is no log), FormatTooNew, StoreForbidden, DsnInvalid, StoreUnsafe.
    """
    with connect(address) as connection:
        connection.isolation_level, connection.read_only = IsolationLevel.REPEATABLE_READ, True
        try:
            with connection.transaction():
                if fetch_one(connection, "SELECT to_regclass('headrace_log.format')")[0] is None:
                    raise StoreUnavailable(
                        f"{address}: there is no log in this database",
                        hint="Check the address given with --store.",
                    )
                check_format(connection)
                # Who prints what it reads may wait long for a person.
                connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
                yield connection
        except psycopg.Error as error:
            raise refused(error) from error


def examine_tables(
    connection: Connection[TupleRow],
    place: str,
    *,
    feed: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Verdict:
    """Look at the journal's tables; with ``feed`` frames of other feeds are passed over."""
    found = Verdict(place)
    _Looking(connection, found, feed, progress).all()
    return found


class _Looking:
    """One pass over all tables."""

    def __init__(
        self,
        connection: Connection[TupleRow],
        found: Verdict,
        feed: str | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.connection, self.found, self.feed, self.progress = connection, found, feed, progress

    def all(self) -> None:
        journal = self.connection.execute(
            "SELECT end_position, oldest_position, global_ts FROM headrace_log.journal"
        ).fetchall()
        self.feeds()
        self.segments()
        if len(journal) != 1:
            self.damage(DamageKind.TABLES, _JOURNAL, f"it has {len(journal)} rows instead of one")
            return
        end, oldest, clock = journal[0]
        self.found.end_position = end
        self.frames(oldest, end)
        newest = fetch_one(
            self.connection,
            "SELECT coalesce(max(position + size), %s), coalesce(max(last_global_ts), 0) FROM headrace_log.frame",
            (end,),
        )
        if newest[0] > end or newest[1] > clock:
            self.damage(DamageKind.TABLES, _JOURNAL, f"it ends at {end:#x}, below the newest frame")

    def feeds(self) -> None:
        rows = self.connection.execute("SELECT region_id, name FROM headrace_log.feed").fetchall()
        self.found.names |= dict(rows)
        try:
            damaged = load_view(self.connection).damages
        except JournalCorrupt:
            return  # without the journal's row there is no view; that is said elsewhere
        for name, damage in damaged.items():
            self.found.damages.append(Damage(DamageKind.FEED, _FEED, 0, str(damage), feed=name or None))

    def segments(self) -> None:
        rows = self.connection.execute(
            "SELECT first_position, state, crc FROM headrace_log.segment ORDER BY first_position"
        ).fetchall()
        self.found.segments = len(rows)
        for position, state, crc in rows:
            try:
                if google_crc32c.value(state) != crc:
                    raise JournalCorrupt("it fails its checksum")
                decode_state(state)
            except JournalCorrupt as error:
                self.damage(
                    DamageKind.START,
                    _SEGMENT,
                    f"the state at position {position:#x}: {error.detail}",
                    position,
                )

    def frames(self, oldest: int, end: int) -> None:
        """Each frame must begin where the one before it ended, from the oldest position to the journal's end."""
        position = oldest
        while position < end:
            rows = self.connection.execute(_FROM, {"position": position}, binary=True).fetchall()
            for row in rows:
                if row[3] > position:
                    self.missing(position, row[3])
                position = max(position, row[3] + len(row[5]))
                self.frame(row)
            if not rows:
                (later,) = fetch_one(self.connection, _NEXT, (position,))
                stop = later if later is not None else end
                self.missing(position, stop, is_end=later is None)
                position = stop
            if self.progress is not None:
                self.progress(position - oldest, end - oldest)

    def missing(self, position: int, stop: int, *, is_end: bool = False) -> None:
        detail = f"there is no frame from position {position:#x} to {stop:#x}"
        kind = DamageKind.END if is_end else DamageKind.GAP
        self.damage(kind, _FRAME, detail, position, stop)

    def frame(self, row: Sequence[Any]) -> None:
        names, region_id = self.found.names, row[0]
        if self.feed is not None and names.get(region_id) not in {None, self.feed}:
            return
        header = parse_header(row[5]) or parse_header(row[5][-HEADER_SIZE:])
        try:
            frame = _verified(row)
            if frame.header.kind == FrameKind.CONTROL:
                decode_control(frame.body)
        except JournalCorrupt as error:
            self.found.damages.append(
                Damage(
                    _kind_of(header), _FRAME, row[3], error.detail, row[3], row[3] + len(row[5]), header,
                    names.get(region_id),
                )
            )  # fmt: skip
            return
        self.found.frames += 1
        self.found.entries += frame.header.count if frame.header.kind == FrameKind.ENTRIES else 0
        self.found.bytes += frame.header.size

    def damage(self, kind: DamageKind, table: Path, detail: str, position: int = 0, end: int = 0) -> None:
        self.found.damages.append(Damage(kind, table, position, f"{table}: {detail}", position, end))


def _kind_of(header: FrameHeader | None) -> DamageKind:
    if header is None:
        return DamageKind.HOLE
    return DamageKind.CONTROL if header.kind == FrameKind.CONTROL else DamageKind.PAYLOAD


def _verified(row: Sequence[Any]) -> Frame:
    """The frame of a row, all columns compared; JournalCorrupt."""
    frame = verify(row)
    if frame.header.last_global_ts != row[6]:
        raise JournalCorrupt(
            f"headrace_log.frame, position {row[3]:#x}: the row's last_global_ts is not that of its frame",
            position=row[3],
        )
    return frame


def frames_of_feed(connection: Connection[TupleRow], feed: str, first: int) -> Iterator[Frame]:
    """Yield the frames of ``feed`` that hold sequence ids from ``first`` on, oldest first.

    Raises FeedNotFound, and JournalCorrupt at the first frame that is damaged or missing.
    """
    row = connection.execute("SELECT region_id FROM headrace_log.feed WHERE name = %s", (feed,)).fetchone()
    if row is None:
        raise FeedNotFound(f"there is no feed {feed} in this database", change_feed_id=feed)
    view = load_view(connection)
    tail = view.tails.get(feed)
    wanted = max(first, tail.oldest) if tail is not None else first
    while tail is None or wanted <= tail.head:
        found = connection.execute(_OF_FEED, (row[0], wanted), binary=True).fetchone()
        if found is None and tail is None:
            view.raise_if_damaged()  # nobody can say whether this was all
        begins = found[2] if found is not None else tail.next_sequence_id if tail is not None else wanted
        if found is None or (begins > wanted and tail is not None):
            raise JournalCorrupt(
                f"headrace_log.frame: the sequence ids {wanted} to {begins - 1} of the feed {feed} are missing",
                sequence_id=wanted,
            )
        frame = _verified(found)
        yield frame
        wanted = frame.header.last_sequence_id + 1
