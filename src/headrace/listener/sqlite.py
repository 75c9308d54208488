"""Bookmarks in a SQLite file, the default store. ``docs/formats/bookmarks.md`` describes its tables.

One process at a time may hold a file: two listeners that move one bookmark would each skip what the other has read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import DataFolderLocked, SourceUnavailable
from headrace.listener.parking import ParkedEntry, ParkedMax, check_parked, encode_parked
from headrace.listener.storing import lasting
from headrace.runtime.typed_json import decode_json
from headrace.wire.versions import BOOKMARKS, check_readable

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS format (written_as INTEGER NOT NULL, readable_from INTEGER NOT NULL)",
    """
CREATE TABLE IF NOT EXISTS bookmark (
    listener_id TEXT NOT NULL,
    feed        TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    sequence_id INTEGER NOT NULL,   -- the last entry that the consumer has done with; 0: none yet
    lsn         TEXT,               -- that entry's LSN; NULL where it is not known
    PRIMARY KEY (listener_id, feed)
) WITHOUT ROWID""",
    """
CREATE TABLE IF NOT EXISTS hydrated (
    listener_id TEXT NOT NULL,
    feed        TEXT NOT NULL,
    snapshot_id TEXT NOT NULL,      -- the publisher's snapshot that the bookmark comes from; no row: from an entry
    PRIMARY KEY (listener_id, feed)
) WITHOUT ROWID""",
    """
CREATE TABLE IF NOT EXISTS parked (
    listener_id TEXT NOT NULL,
    feed        TEXT NOT NULL,
    sequence_id INTEGER NOT NULL,
    parked      BLOB NOT NULL,      -- JSON: the entry, and why it is here
    PRIMARY KEY (listener_id, feed, sequence_id)
)""",
    """
CREATE TABLE IF NOT EXISTS filter (
    listener_id TEXT NOT NULL,
    feed        TEXT NOT NULL,
    filter      TEXT NOT NULL,      -- JSON: what the bookmark's listener asks for; no row: everything
    PRIMARY KEY (listener_id, feed)
) WITHOUT ROWID""",
)
_LOAD: Final = """
SELECT incarnation, sequence_id, lsn, snapshot_id FROM bookmark LEFT JOIN hydrated USING (listener_id, feed)
WHERE listener_id = ? AND feed = ?"""
_UNHYDRATE: Final = "DELETE FROM hydrated WHERE listener_id = ? AND feed = ?"
_PARKED: Final = "SELECT parked FROM parked WHERE listener_id = ? AND feed = ? ORDER BY sequence_id"
_COUNT: Final = "SELECT count(*), sum(length(parked)) FROM parked WHERE listener_id = ? AND feed = ?"
_UNPARK: Final = "DELETE FROM parked WHERE listener_id = ? AND feed = ? AND sequence_id = ?"
_VOID: Final = "DELETE FROM parked WHERE listener_id = ? AND feed = ? AND sequence_id <= ?"
_HYDRATED: Final = "INSERT OR REPLACE INTO hydrated (listener_id, feed, snapshot_id) VALUES (?, ?, ?)"
_PARK: Final = "INSERT OR REPLACE INTO parked (listener_id, feed, sequence_id, parked) VALUES (?, ?, ?, ?)"
_READABLE_FROM: Final = "UPDATE format SET written_as = ?, readable_from = max(readable_from, ?)"
PARKED_READABLE_FROM: Final = 2
"""Once something is parked: a program that does not know the table would deliver later entries of those keys first."""
_FILTER: Final = "SELECT filter FROM filter WHERE listener_id = ? AND feed = ?"
_SET_FILTER: Final = "INSERT OR REPLACE INTO filter (listener_id, feed, filter) VALUES (?, ?, ?)"
_UNFILTER: Final = "DELETE FROM filter WHERE listener_id = ? AND feed = ?"
FILTERED_READABLE_FROM: Final = 3
"""Once there is a filter: a program that does not know the table would go on without it."""
_STORE: Final = """
INSERT INTO bookmark (listener_id, feed, incarnation, sequence_id, lsn) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (listener_id, feed) DO UPDATE
SET incarnation = excluded.incarnation, sequence_id = excluded.sequence_id, lsn = excluded.lsn"""


class SqliteBookmarks:
    """Bookmarks in the file ``path``, made if it isn't there; each store is one fsynced transaction."""

    def __init__(self, path: Path | str) -> None:
        """Open the file.

        FormatTooNew and SourceUnavailable (another program's database, no database at all) before anything is changed;
        DataFolderLocked if another process holds it.
        """
        self._path = Path(path)
        try:
            _look(self._path)
            self._database = sqlite3.connect(
                self._path, check_same_thread=False, isolation_level=None, timeout=1.0
            )
            try:
                self._open()
            except BaseException:
                self._database.close()
                raise
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise DataFolderLocked(
                    f"{path}: another process holds these bookmarks",
                    hint="Stop the other listener, or give this one its own --bookmark file.",
                ) from None
            raise SourceUnavailable(
                f"{path}: can't be used: {error}", hint="Check path and rights."
            ) from None
        except sqlite3.DatabaseError as error:
            raise _foreign(self._path, str(error)) from None

    def _open(self) -> None:
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode = WAL").fetchone()
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("BEGIN EXCLUSIVE")
        for statement in _TABLES:
            self._database.execute(statement)
        if not self._database.execute("SELECT count(*) FROM format").fetchone()[0]:
            self._database.execute("INSERT INTO format VALUES (?, ?)", BOOKMARKS)
        self._database.execute("UPDATE format SET written_as = ?", BOOKMARKS[:1])
        self._database.execute("COMMIT")

    def load(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark that was stored last; None if there is none. SourceUnavailable if it can't be read."""
        with self._errors("the bookmark can't be read", "Check its disk."):
            row = self._database.execute(_LOAD, (listener_id, feed)).fetchone()
        if row is None:
            return None
        incarnation, sequence_id, lsn, snapshot_id = row
        return Bookmark(incarnation, sequence_id, None if lsn is None else Lsn.parse(lsn), snapshot_id)

    def claim(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark: the lock on the file keeps everybody else out anyway."""
        return self.load(listener_id, feed)

    def store(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        """Keep ``bookmark``; durable when this returns. SourceUnavailable: the one before it still stands."""
        with self._writing():
            self._put(listener_id, feed, bookmark)

    def filter_of(self, listener_id: str, feed: str) -> str | None:
        """Return the filter that the bookmark is made with; None if there is none. SourceUnavailable."""
        with self._errors("the filter can't be read", "Check its disk."):
            row = self._database.execute(_FILTER, (listener_id, feed)).fetchone()
        return None if row is None else str(row[0])

    def set_filter(self, listener_id: str, feed: str, stored: str | None) -> None:
        """Keep the filter; durable when this returns. SourceUnavailable: the one before it still stands."""
        with self._writing():
            if stored is None:
                self._database.execute(_UNFILTER, (listener_id, feed))
                return
            self._database.execute(_READABLE_FROM, (BOOKMARKS.written_as, FILTERED_READABLE_FROM))
            self._database.execute(_SET_FILTER, (listener_id, feed, stored))

    def park(
        self,
        listener_id: str,
        feed: str,
        entry: ParkedEntry,
        bookmark: Bookmark | None,
        parked_max: ParkedMax,
    ) -> None:
        """Keep ``entry`` and ``bookmark`` in one transaction. ParkedTooMany, SourceUnavailable."""
        with self._writing():
            place = (listener_id, feed, entry.sequence_id)
            self._database.execute(_READABLE_FROM, (BOOKMARKS.written_as, PARKED_READABLE_FROM))
            self._database.execute(_PARK, (*place, encode_parked(entry)))
            count, size = self._database.execute(_COUNT, place[:2]).fetchone()
            check_parked(count, size, parked_max, entry)
            if bookmark is not None:
                self._put(listener_id, feed, bookmark)

    def parked(self, listener_id: str, feed: str) -> list[ParkedEntry]:
        """Return what is parked, in the order of sequence ids. SourceUnavailable."""
        with self._errors("what is parked can't be read", "Check its disk."):
            rows = self._database.execute(_PARKED, (listener_id, feed)).fetchall()
        return [decode_json(parked, ParkedEntry) for (parked,) in rows]

    def unpark(self, listener_id: str, feed: str, sequence_id: int) -> bool:
        """Forget what is parked under ``sequence_id``; False if nothing is. SourceUnavailable."""
        with self._writing():
            found = self._database.execute(_UNPARK, (listener_id, feed, sequence_id))
        return found.rowcount > 0

    def _put(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        lsn = None if bookmark.lsn is None else str(bookmark.lsn)
        row = (listener_id, feed, bookmark.incarnation, bookmark.sequence_id, lsn)
        self._database.execute(_STORE, row)
        if bookmark.snapshot_id is None:
            self._database.execute(_UNHYDRATE, (listener_id, feed))
        else:
            self._database.execute(_HYDRATED, (listener_id, feed, bookmark.snapshot_id))
            self._database.execute(_VOID, (listener_id, feed, bookmark.sequence_id))

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One transaction: all of it or nothing."""
        hint = "Make room on its disk and start again: what came since the last bookmark comes again."
        with self._errors("the bookmark can't be stored", hint):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self, what: str, hint: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise lasting(SourceUnavailable(f"{self._path}: {what}: {error}", hint=hint)) from None

    def close(self) -> None:
        """Close the file; does nothing the second time."""
        self._database.close()


def _look(path: Path) -> None:
    """Refuse a file that is not for this program, through a connection that changes neither it nor its WAL.

    A plain connection would replay and checkpoint the WAL that a crash left. Without a WAL the file is read as it is.
    """
    if not path.exists() or not path.stat().st_size:
        return
    has_wal = path.with_name(path.name + "-wal").exists()
    address = path.absolute().as_uri() + ("?mode=ro" if has_wal else "?mode=ro&immutable=1")
    with closing(sqlite3.connect(address, uri=True, timeout=1.0)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if not tables:
            return
        if "format" not in tables or "bookmark" not in tables:
            raise _foreign(path, "it has tables of another program")
        for (readable_from,) in database.execute("SELECT readable_from FROM format").fetchall():
            check_readable(str(path), readable_from, BOOKMARKS)


def _foreign(path: Path, reason: str) -> SourceUnavailable:
    return SourceUnavailable(f"{path}: not a bookmark file: {reason}", hint="Choose another file.")
