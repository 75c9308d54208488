"""Whether the metadata database beside a journal is whole: what ``headrace log verify`` asks. Changes nothing."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import NamedTuple

from headrace.log.metadata.rows import TABLES, RowDamage, damage_of
from headrace.log.metadata.sqlite_schema import (
    BROKEN,
    check_versions,
    has_content,
    is_of_older_format,
    lenient_text,
    read_only,
    shown,
    structure_problems,
    upgrade,
)


class MetadataCheck(NamedTuple):
    """What is wrong with a metadata database: as such, in words with its file, and row by row."""

    structure: list[str]
    rows: list[RowDamage]

    @property
    def problems(self) -> list[str]:
        """All of it in words."""
        return [*self.structure, *(damage.detail for damage in self.rows)]


def check_metadata(path: Path) -> MetadataCheck:
    """Return what is wrong with the database at ``path``; nothing if it isn't there.

    That is SQLite's own check of pages and indexes, the statements that made the tables, and each row's checksum. Raises
    FormatTooNew.
    """
    if not path.exists():
        return MetadataCheck([], [])
    try:
        with contextlib.closing(read_only(path)) as database:
            return _check(database, path)
    except BROKEN as error:
        if not has_content(path.with_name(f"{path.name}-journal")):
            return MetadataCheck([f"{path}: {error}"], [])
    return _check_copy(path)


def _check_copy(path: Path) -> MetadataCheck:
    """A crash left a transaction to be taken back, and only who may write can do that: it is done in a copy."""
    with tempfile.TemporaryDirectory(prefix="headrace-verify-") as folder:
        for name in (path.name, f"{path.name}-journal"):
            shutil.copyfile(path.with_name(name), Path(folder) / name)
        copy = Path(folder) / path.name
        try:
            with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as database:
                return _check(database, path)
        except BROKEN as error:
            return MetadataCheck([f"{path}: {error}"], [])


def _check(database: sqlite3.Connection, path: Path) -> MetadataCheck:
    database.text_factory = lenient_text
    check_versions(database, path)
    if is_of_older_format(database):
        with contextlib.closing(_upgraded_copy(database)) as copy:
            return _found(copy, path)
    return _found(database, path)


def _found(database: sqlite3.Connection, path: Path) -> MetadataCheck:
    return MetadataCheck(
        [f"{path}: {shown(text)}" for text in structure_problems(database)], _damaged_rows(database, path)
    )


def _upgraded_copy(database: sqlite3.Connection) -> sqlite3.Connection:
    """What this version adds at the first start is not there yet: the rest is checked as a server would see it."""
    copy = sqlite3.connect(":memory:", isolation_level=None)
    try:
        database.backup(copy)
        copy.text_factory = lenient_text
        upgrade(copy)
    except BaseException:
        copy.close()
        raise
    return copy


def _damaged_rows(database: sqlite3.Connection, path: Path) -> list[RowDamage]:
    """Return the rows that fail their checksum. Raises sqlite3.Error."""
    found: list[RowDamage] = []
    for table in TABLES:
        query = f"SELECT {', '.join(table.columns)}, crc FROM {table.name} NOT INDEXED"  # noqa: S608  # constants only
        where = f"{path}: table {table.name}"
        rows = database.execute(query).fetchall()
        found += [damage_of(where, table, stored) for stored in rows if table.whole(stored) is None]
    return found
