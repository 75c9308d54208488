"""Bookmarks in PostgreSQL, beside the consumer's own tables: the bookmark commits in the consumer's own transaction.

::

    store = PostgresBookmarks("postgresql://app@db/app")
    async with Listener(url, "vmapi::vm", "tcns", store) as listener:
        async for batch in listener.batches():
            with app.transaction():  # a psycopg connection to the same database
                for change in batch.changes:
                    apply(app, change)
                batch.move_in(app)

So each entry takes effect exactly once, whenever the consumer is killed: either effect and bookmark are there, or neither.
Two listeners under one id can't both do it: who claims a bookmark fences the one before, whose transaction then fails.
"""

from __future__ import annotations

import re
import threading
import uuid
from collections.abc import Callable
from importlib.resources import files
from typing import Any, Final, LiteralString, TypeVar, cast

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import BookmarkMoved, SetupMissing, SourceUnavailable
from headrace.listener.parking import ParkedEntry, ParkedMax, check_parked, encode_parked
from headrace.listener.storing import lasting
from headrace.runtime.typed_json import decode_json
from headrace.wire.versions import BOOKMARK_TABLES, check_readable

try:
    import psycopg
except ImportError:
    raise SetupMissing(
        "bookmarks in PostgreSQL need its driver", hint="Run `pip install 'headrace[postgres]'`."
    ) from None

T = TypeVar("T")

CONNECT_S_MAX: Final = 10
FILTERED_READABLE_FROM: Final = 2
"""Once there is a filter: a program that does not know the table would go on without it."""
LOCK_MS_MAX: Final = 30000
"""How long a claim waits for an open transaction of the listener before."""

_SETTINGS: Final = f"""
SET application_name = 'headrace listener'; SET synchronous_commit = on; SET lock_timeout = {LOCK_MS_MAX}"""


def _blocks() -> dict[str, LiteralString]:
    text = (files("headrace.listener") / "postgres.sql").read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- name: (\w+)\n", text, flags=re.MULTILINE)
    # Our own file, so as good as a literal: nothing of a user's gets into it.
    return {name: cast(LiteralString, sql.strip()) for name, sql in zip(parts[::2], parts[1::2], strict=True)}


_SQL: Final = _blocks()


class PostgresBookmarks:
    """Bookmarks in the schema ``headrace_listener`` of the database that ``dsn`` names, made if it isn't there."""

    def __init__(self, dsn: str) -> None:
        """Connect. FormatTooNew before anything is changed; SourceUnavailable without the address in it."""
        self._dsn = dsn
        self._holder = uuid.uuid4()
        self._connection: psycopg.Connection[Any] | None = None
        self._turn = threading.RLock()
        """One call at a time: a connection that is closed under a call would leave that waiting for ever."""
        self._run(_prepare)

    def load(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark that was committed last; None if there is none. SourceUnavailable."""
        return _bookmark_of(self._run(lambda db: db.execute(_SQL["load"], (listener_id, feed)).fetchone()))

    def claim(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark, and fence who claimed it before; waits for a transaction of theirs that is under way."""
        place = (listener_id, feed, self._holder)
        return _bookmark_of(self._run(lambda db: db.execute(_SQL["claim"], place).fetchone()))

    def store(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        """Keep ``bookmark`` in a transaction of its own. BookmarkMoved, SourceUnavailable."""

        def body(db: psycopg.Connection[Any]) -> None:
            with db.transaction():
                self.move_in(db, listener_id, feed, bookmark)

        self._run(body)

    def move_in(
        self, connection: psycopg.Connection[Any], listener_id: str, feed: str, bookmark: Bookmark
    ) -> None:
        """Move the bookmark in the transaction that is open on ``connection``, the consumer's own: both or neither.

        BookmarkMoved: another listener has claimed it, and this transaction must not be committed. Raises psycopg's errors
        as they are: the transaction is the caller's.
        """
        moved = None
        for name, names in self._steps(listener_id, feed, bookmark):
            done = connection.execute(_SQL[name], names)
            moved = done.rowcount if name == "move" else moved
        self._check_moved(moved, listener_id, feed)

    async def move_in_async(
        self, connection: psycopg.AsyncConnection[Any], listener_id: str, feed: str, bookmark: Bookmark
    ) -> None:
        """Do what :meth:`move_in` does on psycopg's asynchronous connection."""
        moved = None
        for name, names in self._steps(listener_id, feed, bookmark):
            done = await connection.execute(_SQL[name], names)
            moved = done.rowcount if name == "move" else moved
        self._check_moved(moved, listener_id, feed)

    def filter_of(self, listener_id: str, feed: str) -> str | None:
        """Return the filter that the bookmark is made with; None if there is none. SourceUnavailable."""

        def body(db: psycopg.Connection[Any]) -> Any:
            if not _one(db.execute(_SQL["filter_exists"]).fetchone()):
                return None
            return _one(db.execute(_SQL["filter_of"], (listener_id, feed)).fetchone())

        return cast("str | None", self._run(body))

    def set_filter(self, listener_id: str, feed: str, stored: str | None) -> None:
        """Keep the filter in a transaction of its own. BookmarkMoved, SourceUnavailable."""

        def body(db: psycopg.Connection[Any]) -> None:
            with db.transaction():
                db.execute(_SQL["durable"])
                self._check_held(db, listener_id, feed)
                if not _one(db.execute(_SQL["filter_exists"]).fetchone()):
                    db.execute(_SQL["one_at_a_time"])
                    db.execute(_SQL["filter"])
                if stored is None:
                    db.execute(_SQL["unfilter"], (listener_id, feed))
                    return
                db.execute(_SQL["keep_out"], (BOOKMARK_TABLES.written_as, FILTERED_READABLE_FROM))
                db.execute(_SQL["set_filter"], (listener_id, feed, stored))

        self._run(body)

    def park(
        self,
        listener_id: str,
        feed: str,
        entry: ParkedEntry,
        bookmark: Bookmark | None,
        parked_max: ParkedMax,
    ) -> None:
        """Keep ``entry`` and ``bookmark`` in one transaction. ParkedTooMany, BookmarkMoved, SourceUnavailable."""

        def body(db: psycopg.Connection[Any]) -> None:
            with db.transaction():
                self._check_held(db, listener_id, feed)
                place = (listener_id, feed, entry.sequence_id)
                db.execute(_SQL["park"], (*place, encode_parked(entry)))
                for count, size in db.execute(_SQL["count"], place[:2]).fetchall():
                    check_parked(count, int(size), parked_max, entry)
                if bookmark is not None:
                    self.move_in(db, listener_id, feed, bookmark)

        self._run(body)

    def parked(self, listener_id: str, feed: str) -> list[ParkedEntry]:
        """Return what is parked, in the order of sequence ids. SourceUnavailable."""
        rows = self._run(lambda db: db.execute(_SQL["list"], (listener_id, feed)).fetchall())
        return [decode_json(bytes(parked), ParkedEntry) for (parked,) in rows]

    def unpark(self, listener_id: str, feed: str, sequence_id: int) -> bool:
        """Forget what is parked under ``sequence_id``; False if nothing is. BookmarkMoved, SourceUnavailable."""

        def body(db: psycopg.Connection[Any]) -> bool:
            with db.transaction():
                self._check_held(db, listener_id, feed)
                return db.execute(_SQL["unpark"], (listener_id, feed, sequence_id)).rowcount > 0

        return self._run(body)

    def close(self) -> None:
        """Close the connection; does nothing the second time."""
        with self._turn:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _steps(self, listener_id: str, feed: str, bookmark: Bookmark) -> list[tuple[str, Any]]:
        lsn = None if bookmark.lsn is None else str(bookmark.lsn)
        place = (listener_id, feed)
        values = (bookmark.incarnation, bookmark.sequence_id, lsn, bookmark.snapshot_id, *place, self._holder)
        void = [("void", (*place, bookmark.sequence_id))] if bookmark.snapshot_id is not None else []
        return [("durable", None), ("move", values), *void]

    def _check_held(self, db: psycopg.Connection[Any], listener_id: str, feed: str) -> None:
        held = db.execute(_SQL["hold"], (listener_id, feed, self._holder)).rowcount
        self._check_moved(held, listener_id, feed)

    def _check_moved(self, rows: int | None, listener_id: str, feed: str) -> None:
        if rows != 1:
            raise BookmarkMoved(f"another listener {listener_id} of {feed} has claimed the bookmark")

    def _run(self, body: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Run ``body``, once more on a new connection if the old one is lost: every body may run twice."""
        try:
            with self._turn:
                try:
                    return body(self._connected())
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    if self._connection is None or not self._connection.broken:
                        raise
                    self.close()
                    return body(self._connected())
        except psycopg.Error as error:
            text = " ".join((error.diag.message_primary or str(error)).split())
            failed = SourceUnavailable(
                f"bookmarks in PostgreSQL: {text}",
                hint="Check the database, address and rights; then start again: the last committed bookmark stands.",
            )
            away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
            raise (failed if away else lasting(failed)) from None

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None:
            self._connection = psycopg.connect(
                self._dsn, autocommit=True, connect_timeout=CONNECT_S_MAX, prepare_threshold=None
            )
            self._connection.execute(_SETTINGS)  # no parameters: plain text may hold several statements
        return self._connection


def _prepare(db: psycopg.Connection[Any]) -> None:
    """Make what is not there yet. One at a time: CREATE … IF NOT EXISTS is not safe against itself."""
    if not _one(db.execute(_SQL["exists"]).fetchone()):
        with db.transaction():
            db.execute(_SQL["one_at_a_time"])
            for name in ("schema", "format", "bookmark", "parked"):
                db.execute(_SQL[name])
            db.execute(_SQL["note_format"], BOOKMARK_TABLES)
    readable_from = _one(db.execute(_SQL["readable_from"]).fetchone())
    check_readable("the schema headrace_listener", readable_from, BOOKMARK_TABLES)


def _one(row: tuple[Any, ...] | None) -> Any:
    return row[0] if row is not None else None


def _bookmark_of(row: tuple[Any, ...] | None) -> Bookmark | None:
    if row is None or row[0] is None:
        return None
    incarnation, sequence_id, lsn, snapshot_id = row
    return Bookmark(incarnation, sequence_id, None if lsn is None else Lsn.parse(lsn), snapshot_id)
