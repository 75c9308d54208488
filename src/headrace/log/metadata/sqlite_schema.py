"""The tables of the SQLite metadata database: made, brought up to this version, and checked against what was made."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from importlib import resources
from pathlib import Path
from typing import Any, Final

from headrace.log.metadata.rows import ADDED, FORMAT, TABLES, Table
from headrace.wire.versions import METADATA, FormatVersion, check_readable

PROBLEMS_MAX: Final = 100
"""Problems that are named of one database; the first is reason enough to move it away."""
BROKEN: Final = (sqlite3.Error, UnicodeDecodeError)
"""What a damaged database raises; the second where its message would quote damaged text."""
_OLD: Final = "before_upgrade_"
_OLDER: Final = (
    FormatVersion(2, 2),
    FormatVersion(3, 2),
    FormatVersion(4, 2),
    FormatVersion(5, 2),
    FormatVersion(6, 2),
)
"""What older formats with checksums say of themselves; they have not the tables that later ones ``ADDED``."""


def read_only(path: Path) -> sqlite3.Connection:
    """Open a database that may belong to a running server, or to nobody, without making a file beside it."""
    # Where nothing stands beside it the file alone is read, so that not even SQLite's own files are made.
    live = any(has_content(path.with_name(f"{path.name}{suffix}")) for suffix in ("-wal", "-journal"))
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{'mode=ro' if live else 'immutable=1'}", uri=True, isolation_level=None
    )


def has_content(path: Path) -> bool:
    """Return whether the file is there and not empty."""
    return path.exists() and path.stat().st_size > 0


def lenient_text(data: bytes) -> str:
    """Decode a column's text: damaged bytes come as surrogates, which no checksum fits, and not as an error."""
    return data.decode("utf-8", "surrogateescape")


def open_tables(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new database, bring older ones up to this version, and check that they are as they were made.

    Raises FormatTooNew before anything is changed, sqlite3.DatabaseError if the database as such is damaged.
    """
    check_versions(database, path)
    ((pages,),) = database.execute("PRAGMA page_count").fetchall()
    if pages <= 1 and not _schema(database):
        database.execute("BEGIN IMMEDIATE")
        with database:
            _make_tables(database)
            _insert(database, FORMAT, [METADATA])
    elif is_of_older_format(database):
        upgrade(database)
    for problem in structure_problems(database):
        raise sqlite3.DatabaseError(problem)


def _make_tables(database: sqlite3.Connection) -> None:
    """What ``executescript`` would do, but within the transaction that is open."""
    script = resources.files("headrace.log.metadata").joinpath("sqlite.sql").read_text(encoding="utf-8")
    for statement in script.split(";"):
        database.execute(statement)


def check_versions(database: sqlite3.Connection, path: Path) -> None:
    """Raise FormatTooNew if the database is of a format that this version can't read; one without a format passes."""
    made = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'format'"
    if database.execute(made).fetchone() is not None:
        for (readable_from,) in database.execute("SELECT readable_from FROM format").fetchall():
            if isinstance(readable_from, int):  # else it is damaged, which is found later
                check_readable(str(path), readable_from, METADATA)


def upgrade(database: sqlite3.Connection) -> None:
    """Bring a database of an older format up to this one: give rows of format 1 their checksums, and make what is new.

    Raises sqlite3.DatabaseError, before anything is changed, if it is damaged as such.
    """
    if not _is_of_format_1(database):
        for problem in structure_problems(database, _format_of(database) or METADATA):
            raise sqlite3.DatabaseError(problem)
        database.execute("BEGIN IMMEDIATE")
        with database:
            _make_tables(database)
            database.execute("DELETE FROM format")
            _insert(database, FORMAT, [METADATA])
        return
    ((verdict,),) = database.execute("PRAGMA integrity_check(1)").fetchall()
    if verdict != "ok":
        raise sqlite3.DatabaseError(verdict)
    database.execute("BEGIN IMMEDIATE")
    with database:
        database.execute("DROP INDEX IF EXISTS alarm_standing")
        old = [table for table in (*TABLES, FORMAT) if _columns(database, table)]
        for table in old:
            database.execute(f"ALTER TABLE {table.name} RENAME TO {_OLD}{table.name}")
        _make_tables(database)
        for table in old:
            rows = database.execute(f"SELECT {', '.join(table.columns)} FROM {_OLD}{table.name}").fetchall()  # noqa: S608  # constants only
            _insert(database, table, rows if table is not FORMAT else [METADATA])
            database.execute(f"DROP TABLE {_OLD}{table.name}")


def is_of_older_format(database: sqlite3.Connection) -> bool:
    """Return whether :func:`upgrade` is to be called before anything is read."""
    if _is_of_format_1(database):
        return True
    if not _columns(database, FORMAT):
        return False
    return _format_of(database) in _OLDER


def _format_of(database: sqlite3.Connection) -> FormatVersion | None:
    """What the database says that it is; None if that is not what was written."""
    rows = database.execute(f"SELECT {', '.join(FORMAT.columns)}, crc FROM format").fetchall()  # noqa: S608  # constants only
    return FORMAT.whole(rows[0]) if len(rows) == 1 else None


def _is_of_format_1(database: sqlite3.Connection) -> bool:
    """Return whether the database says so, and none of its tables has checksums: a column's name may be damaged, too."""
    columns = [_columns(database, table) for table in (*TABLES, FORMAT)]
    if not columns[-1] or any("crc" in names for names in columns):
        return False
    return set(database.execute("SELECT written_as FROM format").fetchall()) <= {(1,)}


def _columns(database: sqlite3.Connection, table: Table[Any]) -> list[str]:
    return [row[1] for row in database.execute(f"PRAGMA table_info({table.name})")]


def _insert(database: sqlite3.Connection, table: Table[Any], rows: list[Any]) -> None:
    marks = ", ".join("?" * (len(table.columns) + 1))
    database.executemany(
        f"INSERT INTO {table.name} ({', '.join(table.columns)}, crc) VALUES ({marks})",  # noqa: S608  # constants only
        [table.stamped(row) for row in rows],
    )


def structure_problems(database: sqlite3.Connection, of: FormatVersion = METADATA) -> list[str]:
    """Return what is wrong with the database, of the format ``of``, as such: pages, indexes, the statements that made it.

    Not with its rows: each of them has its own checksum. Raises sqlite3.Error where it can't even be looked at.
    """
    verdicts = database.execute(f"PRAGMA integrity_check({PROBLEMS_MAX})").fetchall()
    problems = [text for (text,) in verdicts if text != "ok"]
    written = _format_of(database)
    if written is None:
        return [*problems, "the row of the table format is not what was written"]
    if written.written_as > of.written_as:
        return problems  # a later version may have added to the tables
    with contextlib.closing(sqlite3.connect(":memory:")) as fresh:
        _make_tables(fresh)
        for version, tables in ADDED.items():
            for table in tables if version > of.written_as else ():
                fresh.execute(f"DROP TABLE {table.name}")
        wanted, found = _schema(fresh), _schema(database)
    names = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    return [*problems, *(f"the schema of {shown(name)} is not what was made" for name in names)]


def shown(text: str) -> str:
    """Return text that may hold surrogates as text that can be printed."""
    return text.encode("utf-8", "backslashreplace").decode()


def _schema(database: sqlite3.Connection) -> dict[str, tuple[str, ...]]:
    """Name -> type, table, statement; without comments, and with single spaces. Damage makes bytes of a text."""
    rows = database.execute("SELECT name, type, tbl_name, coalesce(sql, '') FROM sqlite_master").fetchall()
    return {
        str(name): (*map(str, parts), " ".join(re.sub(r"--[^\n]*", " ", str(sql)).split()))
        for name, *parts, sql in rows
    }
