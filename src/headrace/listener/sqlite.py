"""Bookmarks in a SQLite file, the default store. ``docs/formats/bookmarks.md`` describes its tables.

One process at a time may hold a file: two listeners that move one bookmark would each skip what the other has read.
"""

from __future__ import annotations

import sqlite3
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
        """Open the file. FormatTooNew before anything is changed; DataFolderLocked if another process holds it."""
        self._path = Path(path)
        try:
            self._database = sqlite3.connect(
                self._path, check_same_thread=False, isolation_level=None, timeout=1.0
            )
        except sqlite3.Error as error:
            raise SourceUnavailable(f"{path}: can't be opened: {error}", hint="Check the path.") from None
        try:
            self._open()
        except sqlite3.OperationalError as error:
            self._database.close()
            if "locked" in str(error):
                raise DataFolderLocked(
                    f"{path}: another process holds these bookmarks",
                    hint="Stop the other listener, or give this one its own --bookmark file.",
                ) from None
            raise SourceUnavailable(
                f"{path}: can't be used: {error}", hint="Check path and rights."
            ) from None
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise SourceUnavailable(
                f"{path}: not a bookmark file: {error}", hint="Choose another file."
            ) from None
        except BaseException:
            self._database.close()
            raise

    def _open(self) -> None:
        found = self._database.execute("SELECT count(*) FROM sqlite_master WHERE name = 'format'").fetchone()[
            0
        ]
        if found:
            for (readable_from,) in self._database.execute("SELECT readable_from FROM format").fetchall():
                check_readable(str(self._path), readable_from, BOOKMARKS)
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode = WAL").fetchone()
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("BEGIN EXCLUSIVE")
        for statement in _TABLES:
            self._database.execute(statement)
        if not found:
            self._database.execute("INSERT INTO format VALUES (?, ?)", BOOKMARKS)
        self._database.execute("COMMIT")

    def load(self, listener_id: str, feed: str) -> Bookmark | None:
        """Return the bookmark that was stored last; None if there is none."""
        row = self._database.execute(_LOAD, (listener_id, feed)).fetchone()
        return (
            None if row is None else Bookmark(row[0], row[1], None if row[2] is None else Lsn.parse(row[2]))
        )

    def store(self, listener_id: str, feed: str, bookmark: Bookmark) -> None:
        """Keep ``bookmark``; durable when this returns."""
        lsn = None if bookmark.lsn is None else str(bookmark.lsn)
        self._database.execute(_STORE, (listener_id, feed, bookmark.incarnation, bookmark.sequence_id, lsn))

    def close(self) -> None:
        """Close the file; does nothing the second time."""
        self._database.close()
