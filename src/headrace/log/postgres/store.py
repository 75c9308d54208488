"""A journal in PostgreSQL, shared by every server that is given its address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import ClassVar

import psycopg
from psycopg.rows import TupleRow

from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError
from headrace.log.contract import Begin, Group, SegmentView, T
from headrace.log.postgres import frames
from headrace.log.postgres.connection import Address, connect, refused, unavailable, warn_of_lost_crashes
from headrace.log.postgres.group import GroupWriter
from headrace.log.postgres.listening import Listening
from headrace.log.postgres.pool import Pool, Watch, connect_again
from headrace.log.postgres.retention import forget_before, remove_dropped, segment_views, share_holding
from headrace.log.postgres.schema import open_tables
from headrace.log.postgres.view import FeedDamage, View, load_moved, load_view
from headrace.log.tail import FeedTail
from headrace.runtime.logs import get_logger
from headrace.wire.frame import Frame
from headrace.wire.segment import FramePlace

logger = get_logger("log")


class PostgresStore:
    """The log's tables in one database: see ``group`` for writing, ``view`` and ``listening`` for what is visible.

    At most :data:`~headrace.log.postgres.pool.CONNECTIONS_MAX` + 2 connections, plus one while segments are dropped.
    """

    several_servers: ClassVar[bool] = True

    def __init__(self, address: Address, *, segment_bytes: int) -> None:
        """Open the log at ``address``; its tables are made if they aren't there.

        Raises DsnInvalid, StoreForbidden, StoreUnsafe, FormatTooNew, JournalLoss, JournalCorrupt, StoreUnavailable; nothing
        was changed then.
        """
        self._address = address
        self._callbacks: list[Callable[[], None]] = []
        self._tell_damage: Callable[[str, str], None] | None = None
        self._told: Mapping[str, FeedDamage] = {}
        self._guard = threading.RLock()
        self._holding = threading.Lock()
        """Of many that begin to hold at once one takes a connection more."""
        with connect(address) as connection:
            warn_of_lost_crashes(connection)
            open_tables(connection)
            try:
                self._view = load_view(connection)
            except psycopg.Error as error:
                raise refused(error) from error
        self._watch = Watch()
        self.pool = Pool(address, self._watch)
        self._writer = GroupWriter(address, self._watch, segment_bytes, lambda: self._view, self._show)
        self.syncs = self._writer.syncs
        self._listening = Listening(
            address,
            self._watch,
            look=lambda connection: self._show(load_moved(connection, self._view)),
            is_known=lambda end, oldest: (end, oldest) <= self._view.moment,
            poll=self._poll,
        )
        self._listening.start()

    # -- what is visible ----------------------------------------------------------------------------------------------

    def _show(self, view: View) -> None:
        """Take a view if it is newer than what is known, and wake who waits for that.

        One at a time, callbacks included: who finds the view moved already knows that everybody has been told.
        """
        with self._guard:
            if view.moment <= self._view.moment:
                return
            moved = view.end > self._view.end
            self._view = view
            for callback in self._callbacks if moved else ():
                try:
                    callback()
                except Exception:  # the entries are visible, whatever becomes of who waits for them
                    logger.exception("a callback failed")
        self._tell_of_damage()

    def on_damaged(self, tell: Callable[[str, str], None]) -> None:
        """Call ``tell(feed, what)`` for each feed whose row is damaged, now and from whichever thread meets one later.

        ``feed`` is empty where nobody can say which one it was.
        """
        with self._guard:
            self._tell_damage, self._told = tell, {}
        self._tell_of_damage()

    def _tell_of_damage(self) -> None:
        """Outside of the guard: an alarm is written to the same database."""
        with self._guard:
            told, self._told = self._told, self._view.damages
            new = {feed: damage for feed, damage in self._told.items() if feed not in told}
        for feed, damage in new.items():
            logger.error("a feed's state is damaged; the feed is stopped", reason=str(damage))
            if self._tell_damage is not None:
                self._tell_damage(feed, str(damage))

    def refresh(self) -> None:
        """Ask PostgreSQL where the journal ends now, and show it."""
        self._show(self.pool.run(lambda connection: load_moved(connection, self._view)))

    def _poll(self) -> None:
        try:
            self.refresh()
        except HeadraceError as error:
            logger.debug("the journal can't be looked at", detail=error.detail)

    def tail(self, feed: str) -> FeedTail | None:
        """Return the durable tail of ``feed``; None if there is no such feed, JournalCorrupt if its row is damaged."""
        return self._view.tail(feed)

    def tails(self) -> Sequence[FeedTail]:
        """Return the durable tails of all feeds, by region id."""
        return sorted(self._view.tails.values(), key=lambda tail: tail.region_id)

    def end(self) -> int:
        """Return the visible end."""
        return self._view.end

    def oldest_position(self) -> int:
        """Return the position of the oldest retained frame (the end if there is none)."""
        return self._view.oldest

    def dropped_lsn(self) -> Lsn:
        """Return the newest LSN that was dropped; ZERO if none ever was."""
        return self._view.dropped

    def on_moved(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` whenever the visible end has moved: from the writer's thread, the listening one, or any."""
        self._callbacks.append(callback)

    def not_writable(self) -> str | None:
        """Return why no append can be taken until a restart, or None."""
        return self._writer.stopped

    def has_clear_room(self) -> bool:
        """Return True: the database sees to its disk."""
        return True

    def index_bytes(self) -> int:
        """Return 0: the database finds frames."""
        return 0

    def check_room(self, size: int) -> None:
        """Raise nothing: the database sees to its disk."""

    def unreachable(self) -> str | None:
        """Return why PostgreSQL can't be used at this moment, or None."""
        down = self._listening.down
        return f"PostgreSQL is away: {down}" if down is not None else None

    # -- writing ------------------------------------------------------------------------------------------------------

    def begin(self, feeds: Collection[str]) -> Begin:
        """Lock the journal's end against every other server, and return what a group for ``feeds`` is judged on."""
        return self._writer.begin(feeds)

    def put(self, begin: Begin, group: Group) -> None:
        """Commit the group, then show it. A commit whose answer was lost is looked up before anybody hears of it."""
        self._writer.put(begin, group)

    def abandon(self, begin: Begin) -> None:
        """Give up a group: the journal's end is free again."""
        self._writer.abandon(begin)

    def roll(self) -> None:
        """Seal the open segment if it holds a frame, and begin the next one."""
        self._writer.roll()

    def drop_before(self, position: int, *, look: Callable[[], int] | None = None) -> int:
        """Drop whole segments that end at or below ``position``; from any thread, because appends go on meanwhile."""
        try:
            with connect_again(self._address) as connection:
                with self._watch.within(connection):
                    forget_before(connection, position, look)
                    self._show(load_moved(connection, self._view))
                removed: int | None = None
                while True:
                    with self._watch.within(connection):
                        removed = remove_dropped(connection, removed)
                    if removed is None:
                        break
        except psycopg.Error as error:
            raise unavailable(error) from error
        return self._view.oldest

    def without_drops(self, work: Callable[[], T]) -> T:
        """Return ``work()``, done while no server of the database can drop anything."""

        def locked(connection: psycopg.Connection[TupleRow]) -> T:
            with connection.transaction():
                share_holding(connection)
                return work()

        with self._holding:
            return self.pool.run(locked)

    # -- reading ------------------------------------------------------------------------------------------------------

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> Sequence[FramePlace]:
        """Return the frames of a feed that overlap sequence ids ``first`` … ``last``, oldest first."""
        oldest = self._view.oldest
        found = self.pool.run(
            lambda connection: frames.find_places(connection, region_id, first, last, frames_max, oldest)
        )
        if not found or found[0].first_sequence_id > first:
            self.refresh()  # another server may have dropped them: whoever finds a hole must know
        return found

    def read(self, places: Sequence[FramePlace]) -> Sequence[Frame]:
        """Return whole verified frames; JournalCorrupt (naming position, feed, range) if one is damaged."""
        if not places:
            return []
        rows = self.pool.run(lambda connection: frames.read_frames(connection, places))
        found = []
        for place in places:
            row = rows.get(place.position)
            if row is None:
                self.refresh()
                frames.raise_if_dropped(self._view, place.position)
                frames.raise_missing(place.position)
            found.append(frames.verify(row))
        return found

    def walk(self, position: int, *, bytes_max: int) -> Sequence[Frame]:
        """Return the frames of all feeds from ``position`` on in journal order, up to ``bytes_max`` or one frame."""
        view = self._view
        if position >= view.end:
            return []
        frames.raise_if_dropped(view, position)
        rows = self.pool.run(lambda connection: frames.walk_frames(connection, position, bytes_max, view.end))
        if not rows or rows[0][3] != position:
            self.refresh()
            frames.raise_if_dropped(self._view, position)
            frames.raise_missing(position)
        return frames.verify_joined(rows, position)

    def seek(self, global_ts: int) -> int:
        """Return the position of the first retained frame with an entry at ``global_ts`` or later; the end if none."""
        view = self._view
        return self.pool.run(lambda connection: frames.seek(connection, view, global_ts))

    def segments(self) -> Sequence[SegmentView]:
        """Return the journal's segments, oldest first."""
        return self.pool.run(segment_views)

    def close(self) -> None:
        """Let go of every connection."""
        self._listening.close()
        self._writer.close()
        self.pool.close()
        self._watch.close()
