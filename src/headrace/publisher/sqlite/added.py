"""Which feeds have ever had rows of ``Outbox.add``: kept when those rows are swept, for they are in no attached table."""

from __future__ import annotations

import sqlite3
from typing import Final

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS headrace_added_feed (
    feed TEXT PRIMARY KEY                    -- rows of Outbox.add were swept from it
)"""
_HAS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'headrace_added_feed'"
_WAS_ADDED: Final = "SELECT 1 FROM headrace_added_feed WHERE feed = ?"
_ARE_ADDED: Final = """
SELECT 1 FROM headrace_outbox
WHERE id > ? AND id <= ? AND change_feed_id = ? AND attached IS NULL AND control IS NULL AND table_name IS NULL LIMIT 1"""


def was_added(connection: sqlite3.Connection, feed: str) -> bool:
    """Return whether rows of ``Outbox.add`` were swept from ``feed``."""
    if connection.execute(_HAS).fetchone() is None:
        return False
    return connection.execute(_WAS_ADDED, (feed,)).fetchone() is not None


def note_added(connection: sqlite3.Connection, feed: str, above: int, most: int) -> None:
    """Note if there are rows of ``Outbox.add`` among those above ``above`` up to ``most``, just before these are swept.

    In the caller's transaction. The table is made with its first row.
    """
    if was_added(connection, feed) or connection.execute(_ARE_ADDED, (above, most, feed)).fetchone() is None:
        return
    connection.execute(_TABLE)
    connection.execute("INSERT INTO headrace_added_feed (feed) VALUES (?)", (feed,))
