"""The metadata database of the files store: SQLite beside the journal. See ``contract`` for what the methods promise."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any, Final

from headrace.errors import JournalCorrupt, StoreUnavailable
from headrace.log.metadata.contract import ALARMS_MAX, AlarmRow, ListenerRow, Metadata, SubscriberRow
from headrace.wire.versions import METADATA, check_readable

METADATA_NAME: Final = "metadata.sqlite3"
"""Its file in the data folder."""


def check_format(path: Path) -> None:
    """Raise FormatTooNew if the database at ``path`` can't be read by this version; changes nothing.

    Asked before the journal is opened, because opening a journal may repair it. What is no database passes here:
    :class:`SqliteMetadata` says so.
    """
    if not path.exists():
        return
    # Without a write-ahead log beside it the file alone is read, so that not even SQLite's own files are made.
    live = path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?{'mode=ro' if live else 'immutable=1'}"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
        try:
            rows = database.execute("SELECT readable_from FROM format").fetchall()
        except sqlite3.Error:
            return
    for (readable_from,) in rows:
        check_readable(str(path), readable_from, METADATA)


class SqliteMetadata(Metadata):
    """An open metadata database; one process owns it (the data folder's lock says so)."""

    def __init__(self, path: Path) -> None:
        """Open or make the database; FormatTooNew before anything is changed, JournalCorrupt if it is damaged."""
        self._guard = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._open(path)
        except sqlite3.DatabaseError as error:
            self._database.close()
            raise JournalCorrupt(
                f"{path}: not a usable metadata database: {error}",
                hint="Move it away: bookmarks of listeners and alarms are lost, the journal is not touched.",
            ) from None
        except BaseException:
            self._database.close()
            raise

    def _open(self, path: Path) -> None:
        made = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'format'"
        if self._database.execute(made).fetchone():
            for (readable_from,) in self._database.execute("SELECT readable_from FROM format").fetchall():
                check_readable(str(path), readable_from, METADATA)
        ((verdict,),) = self._database.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        script = resources.files("headrace.log.metadata").joinpath("sqlite.sql").read_text(encoding="utf-8")
        self._database.executescript(script)
        self._database.execute(
            "INSERT INTO format SELECT ?, ? WHERE NOT EXISTS (SELECT 1 FROM format)", METADATA
        )

    def close(self) -> None:
        with self._guard:
            self._database.close()

    @contextlib.contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """The database for one caller at a time; what it can't do (a full disk) is StoreUnavailable."""
        with self._guard:
            try:
                yield self._database
            except sqlite3.Error as error:
                raise StoreUnavailable(f"the metadata database can't be used: {error}") from error

    def register_listener(self, listener_id: str, feed: str, hold: bool, now_ms: int) -> None:
        self._write(
            "INSERT INTO listener (listener_id, feed, hold, seen_at_ms) VALUES (?, ?, ?, ?)"
            " ON CONFLICT (listener_id, feed) DO UPDATE SET hold = excluded.hold, seen_at_ms = excluded.seen_at_ms",
            (listener_id, feed, int(hold), now_ms),
        )

    def listener(self, listener_id: str, feed: str) -> ListenerRow | None:
        rows = self._listeners("listener_id = ? AND feed = ?", (listener_id, feed))
        return rows[0] if rows else None

    def listeners(self, feed: str) -> list[ListenerRow]:
        return self._listeners("feed = ? ORDER BY listener_id", (feed,))

    def _listeners(self, where: str, values: Iterable[Any]) -> list[ListenerRow]:
        columns = "listener_id, feed, hold, incarnation, sequence_id, lsn, seen_at_ms"
        rows = self._rows(f"SELECT {columns} FROM listener WHERE {where}", values)  # noqa: S608  # constants only
        return [ListenerRow(row[0], row[1], bool(row[2]), *row[3:]) for row in rows]

    def put_position(  # noqa: PLR0917  # the columns of one row
        self, listener_id: str, feed: str, incarnation: str, sequence_id: int, lsn: str | None, now_ms: int
    ) -> None:
        self._write(
            "UPDATE listener SET incarnation = ?, sequence_id = ?, lsn = ?, seen_at_ms = ?"
            " WHERE listener_id = ? AND feed = ?",
            (incarnation, sequence_id, lsn, now_ms, listener_id, feed),
        )

    def seen(self, listeners: Iterable[tuple[str, str]], now_ms: int) -> None:
        with self._use() as database, database:
            database.execute("BEGIN")
            database.executemany(
                "UPDATE listener SET seen_at_ms = ? WHERE listener_id = ? AND feed = ?",
                [(now_ms, listener_id, feed) for listener_id, feed in listeners],
            )

    def begin_subscriber(self, subject: str, subscriber_id: str, lsn: str, now_ms: int) -> SubscriberRow:
        with self._use() as database:
            row = database.execute(
                "INSERT INTO subscriber (subject, subscriber_id, lsn, seen_at_ms) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (subject, subscriber_id) DO UPDATE SET seen_at_ms = excluded.seen_at_ms"
                " RETURNING subject, subscriber_id, lsn, seen_at_ms",
                (subject, subscriber_id, lsn, now_ms),
            ).fetchone()
        return SubscriberRow(*row)

    def move_subscribers(self, places: Iterable[tuple[str, str, str]], now_ms: int) -> None:
        with self._use() as database, database:
            database.execute("BEGIN")
            database.executemany(
                "UPDATE subscriber SET lsn = max(lsn, ?), seen_at_ms = ? WHERE subject = ? AND subscriber_id = ?",
                [(lsn, now_ms, subject, subscriber_id) for subject, subscriber_id, lsn in places],
            )

    def subscribers(self) -> list[SubscriberRow]:
        columns = "subject, subscriber_id, lsn, seen_at_ms"
        return [SubscriberRow(*row) for row in self._rows(f"SELECT {columns} FROM subscriber ORDER BY 1, 2")]  # noqa: S608  # constants only

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        """Raise an alarm and return its id; one that stands for the same (code, feed, agent) is brought up to date."""
        with self._use() as database:
            row = database.execute(
                "INSERT INTO alarm (code, feed, agent_id, detail, raised_at_ms) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (code, feed, agent_id) WHERE cleared_at_ms IS NULL"
                " DO UPDATE SET detail = excluded.detail RETURNING alarm_id",
                (code, feed, agent_id, detail, now_ms),
            ).fetchone()
        return int(row[0])

    def clear_alarms(self, code: str, *, agent_id: str, now_ms: int) -> None:
        self._write(
            "UPDATE alarm SET cleared_at_ms = ? WHERE code = ? AND agent_id = ? AND cleared_at_ms IS NULL",
            (now_ms, code, agent_id),
        )

    def alarms(self) -> list[AlarmRow]:
        rows = self._rows(
            "SELECT alarm_id, code, feed, agent_id, detail, raised_at_ms, cleared_at_ms FROM alarm"
            " ORDER BY cleared_at_ms IS NOT NULL, raised_at_ms DESC, alarm_id DESC LIMIT ?",
            (ALARMS_MAX,),
        )
        return [AlarmRow(*row) for row in rows]

    def _write(self, statement: str, values: Iterable[Any]) -> None:
        with self._use() as database:
            database.execute(statement, tuple(values))

    def _rows(self, statement: str, values: Iterable[Any] = ()) -> list[Any]:
        with self._use() as database:
            return database.execute(statement, tuple(values)).fetchall()
