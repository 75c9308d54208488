"""Whether the metadata database beside a journal is whole: what ``headrace log verify`` asks. Reads only."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

PROBLEMS_MAX: Final = 100
"""Problems that are named of one database; the first is reason enough to move it away."""


def metadata_problems(path: Path) -> list[str]:
    """Return what SQLite's own check finds wrong with the database at ``path``; nothing if it isn't there.

    The check covers pages, rows, indexes and types, not the text of a value.
    """
    if not path.exists():
        return []
    # Without a write-ahead log beside it the file alone is read, so that not even SQLite's own files are made.
    live = path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?{'mode=ro' if live else 'immutable=1'}"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as database:
            rows = database.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})").fetchall()
            for (table,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                database.execute(f'SELECT * FROM "{table}"').fetchall()  # noqa: S608  # a name from the catalogue
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [f"{path}: {error}"]
    return [f"{path}: {text}" for (text,) in rows if text != "ok"]
