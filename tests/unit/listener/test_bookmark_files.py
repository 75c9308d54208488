"""Bookmark files that are not ours to change, that can't be written, or that an earlier Headrace wrote."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import FormatTooNew, SourceUnavailable
from headrace.listener import SqliteBookmarks

GOLDEN = Path(__file__).parents[2] / "golden" / "formats" / "1" / "bookmarks.db"


def run(program: str) -> subprocess.CompletedProcess[str]:
    begin = "import os, resource, signal, sqlite3\nfrom headrace.entries.bookmark import Bookmark\n"
    begin += "from headrace.errors import SourceUnavailable\nfrom headrace.listener import SqliteBookmarks\n"
    return subprocess.run(
        [sys.executable, "-c", begin + program], capture_output=True, text=True, check=False
    )


def test_golden_file_is_read_and_written_on(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    shutil.copy(GOLDEN, path)
    with closing(SqliteBookmarks(path)) as store:
        assert store.load("tcns", "vmapi::vm") == Bookmark(
            "0b9d2a6e-6a3c-4a53-9f0e-2f1f3c5d7e91", 63, Lsn(0x0687EFC2C98C0000, 1, 63)
        )
        assert store.load("tcns", "cnapi::server") == Bookmark("5f0c7d1e-1b7a-4a55-8d3b-9a7c2e4f6b80", 0)
        store.store("tcns", "vmapi::vm", Bookmark("i", 64))
    with closing(SqliteBookmarks(path)) as store:
        assert store.load("tcns", "vmapi::vm") == Bookmark("i", 64)


def test_newer_file_that_a_crash_left_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    SqliteBookmarks(path).close()
    program = f"""
database = sqlite3.connect({str(path)!r})
database.execute("UPDATE format SET written_as = 9, readable_from = 9")
database.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run(program).returncode == -9
    wal = path.with_name(path.name + "-wal")
    before = path.read_bytes(), wal.read_bytes()
    assert before[1], "the newer number stands in the WAL alone"
    with pytest.raises(FormatTooNew):
        SqliteBookmarks(path)
    assert (path.read_bytes(), wal.read_bytes()) == before


def test_database_of_another_program_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE format (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(SourceUnavailable, match="tables of another program"):
        SqliteBookmarks(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["app.db"]


def test_full_disk_is_an_error_and_the_bookmark_before_stands(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    program = f"""
store = SqliteBookmarks({str(path)!r})
store.store("l", "f", Bookmark("i", 1))
size = os.path.getsize({str(path)!r} + "-wal")
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
try:
    store.store("l", "f", Bookmark("i", 2))
except SourceUnavailable as error:
    print("refused:", error.detail)
assert store.load("l", "f") == Bookmark("i", 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = run(program)
    assert ended.returncode == -9, ended.stderr
    with closing(SqliteBookmarks(path)) as store:
        assert store.load("l", "f") == Bookmark("i", 1)
