"""Connections to the application's database file, and its errors as ours. Every transaction here is short."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from headrace.errors import DsnInvalid, PlatformUnsupported, SourceUnavailable
from headrace.publisher.sqlite.values import decode_text
from headrace.runtime.dsn import Dsn

BUSY_TIMEOUT_MS: Final = 5_000
"""How long one statement waits for the application's write lock before the caller backs off and tries again."""

LOCK_POLL_S: Final = 0.001
"""How often the write lock is asked for while another connection has it."""

SQLITE_OLDEST: Final = (3, 37, 0)
"""The oldest library that tells STRICT and WITHOUT ROWID tables apart (``PRAGMA table_list``)."""


def path_of(dsn: Dsn) -> Path:
    """Return the database file that ``sqlite:///relative`` or ``sqlite:////absolute`` names; DsnInvalid otherwise."""
    if not dsn.rest.startswith("/") or not dsn.rest[1:] or ":memory:" in dsn.rest:
        raise DsnInvalid("a SQLite DSN names a file")
    return Path(dsn.rest[1:])


def connect(
    path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS, any_thread: bool = False
) -> sqlite3.Connection:
    """Open the database at ``path``, which must exist, in autocommit mode: transactions are begun by name only.

    ``any_thread``: threads may use it in turns, never two at once.
    Raises DsnInvalid (no such file, or no SQLite database), SourceUnavailable, PlatformUnsupported.
    """
    if sqlite3.sqlite_version_info < SQLITE_OLDEST:
        needed = ".".join(str(part) for part in SQLITE_OLDEST)
        raise PlatformUnsupported(
            f"this Python has SQLite {sqlite3.sqlite_version}; {needed} or newer is needed",
            hint="Use a Python with a newer SQLite library.",
        )
    if not path.is_file():
        raise DsnInvalid(
            f"there is no database file {path.name}", hint="Nothing was made. Check the DSN's path."
        )
    with sqlite_errors(path.name):
        connection = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?mode=rw",
            uri=True,
            timeout=busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=not any_thread,
        )
        try:
            connection.text_factory = decode_text
            # A row may be posted only once it is durable: in the application's WAL mode with synchronous=NORMAL a power
            # failure takes back its last commits. FULL here syncs everything committed before our marks along with them.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except BaseException:
            connection.close()
            raise
    return connection


def journal_mode(connection: sqlite3.Connection) -> str:
    """Return the database's journal mode, such as ``wal`` or ``delete``."""
    return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


@contextmanager
def immediate(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the database's write lock for the body; commits at its end, rolls back if it raises.

    Raises SourceUnavailable if the lock is not to be had within the connection's time-out.
    """
    with sqlite_errors():
        _take_write_lock(connection)
        try:
            yield
            connection.execute("COMMIT")
        finally:
            if connection.in_transaction:  # the body raised, or COMMIT found readers in the way
                connection.execute("ROLLBACK")


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read one state of the database throughout the body."""
    with sqlite_errors():
        connection.execute("BEGIN")
        try:
            yield
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")


def _take_write_lock(connection: sqlite3.Connection) -> None:
    """BEGIN IMMEDIATE, asked for every millisecond.

    SQLite's own wait polls ten times a second before long, and so hardly ever meets the gaps that a busy application leaves.
    """
    timeout_ms = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    deadline = time.monotonic() + timeout_ms / 1000
    connection.execute("PRAGMA busy_timeout = 0").close()
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() >= deadline:
                    raise
                time.sleep(LOCK_POLL_S)
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {timeout_ms}").close()


@contextmanager
def sqlite_errors(name: str = "the database") -> Iterator[None]:
    """Turn the driver's errors into ours: locked, full or unreadable can pass, a file of another kind can't."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "not a database" in text or "malformed" in text:
            raise DsnInvalid(
                f"{name}: {text}", hint="Check that the DSN names a sound SQLite database."
            ) from error
        hint = None
        if "locked" in text or "busy" in text:
            hint = "Another connection holds the write lock; end its transaction."
        raise SourceUnavailable(f"{name}: {text}", hint=hint) from error


def quote_name(name: str) -> str:
    """Return ``name`` as a SQL identifier, whatever characters it has."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return ``text`` as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"
