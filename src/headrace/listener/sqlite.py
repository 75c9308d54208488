"""Bookmarks in a SQLite file, the default store. ``docs/formats/bookmarks.md`` describes its tables.

One process at a time may hold a file: two listeners that move one bookmark would each skip what the other has read.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import DataFolderLocked, SourceUnavailable
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
)
_LOAD: Final = "SELECT incarnation, sequence_id, lsn FROM bookmark WHERE listener_id = ? AND feed = ?"
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
        self._database.execute("COMMIT")

    def load(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark that was stored last; None if there is none. SourceUnavailable if it can't be read."""
        try:
            row = self._database.execute(_LOAD, (listener_id, feed)).fetchone()
        except sqlite3.Error as error:
            raise SourceUnavailable(
                f"{self._path}: the bookmark can't be read: {error}", hint="Check its disk."
            ) from None
        return (
            None if row is None else Bookmark(row[0], row[1], None if row[2] is None else Lsn.parse(row[2]))
        )

    def store(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        """Keep ``bookmark``; durable when this returns. SourceUnavailable: the one before it still stands."""
        lsn = None if bookmark.lsn is None else str(bookmark.lsn)
        row = (listener_id, feed, bookmark.incarnation, bookmark.sequence_id, lsn)
        try:
            self._database.execute(_STORE, row)
        except sqlite3.Error as error:
            raise SourceUnavailable(
                f"{self._path}: the bookmark can't be stored: {error}",
                hint="Make room on its disk and start again: what came since the last bookmark comes again.",
            ) from None

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
