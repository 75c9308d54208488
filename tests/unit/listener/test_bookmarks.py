"""Bookmark stores: what was stored comes back, also after a kill; a newer or foreign file is refused untouched."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import DataFolderLocked, FormatTooNew, SourceUnavailable
from headrace.listener import SqliteBookmarks
from tests.waiting import wait_until

PLACE = Bookmark("incarnation-1", 7, Lsn(5, 1, 7))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bookmarks.db"


def test_bookmarks_are_kept_by_listener_and_feed(path: Path) -> None:
    with closing(SqliteBookmarks(path)) as store:
        assert store.load("l", "f") is None
        store.store("l", "f", PLACE)
        store.store("l", "g", Bookmark("i", 0))
        store.store("m", "f", Bookmark("i", 9))
    with closing(SqliteBookmarks(path)) as again:
        assert again.load("l", "f") == PLACE
        assert again.load("l", "g") == Bookmark("i", 0, None)
        again.store("l", "f", Bookmark("i", 8, Lsn(6, 1, 8)))
        assert again.load("l", "f") == Bookmark("i", 8, Lsn(6, 1, 8))


def test_stored_is_stored_when_the_process_is_killed(path: Path) -> None:
    program = (
        "import sys, os, signal\n"
        "from headrace.listener import SqliteBookmarks\nfrom headrace.entries.bookmark import Bookmark\n"
        f"store = SqliteBookmarks({str(path)!r})\nstore.store('l', 'f', Bookmark('i', 41))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    with closing(SqliteBookmarks(path)) as store:
        assert store.load("l", "f") == Bookmark("i", 41)


def test_one_process_at_a_time(path: Path, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    program = (
        "import sys, pathlib\nfrom headrace.listener import SqliteBookmarks\n"
        f"store = SqliteBookmarks({str(path)!r})\npathlib.Path({str(ready)!r}).touch()\nsys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as other:
        wait_until(ready.exists)
        with pytest.raises(DataFolderLocked, match="another process holds"):
            SqliteBookmarks(path)
        other.communicate()
    SqliteBookmarks(path).close()


def test_newer_file_is_refused_untouched(path: Path) -> None:
    with closing(SqliteBookmarks(path)) as store:
        store.store("l", "f", PLACE)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE format SET written_as = 9, readable_from = 9")
    before = path.read_bytes()
    with pytest.raises(FormatTooNew, match="format version 9"):
        SqliteBookmarks(path)
    assert path.read_bytes() == before


def test_file_that_is_something_else(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be looked at" * 100)
    with pytest.raises(SourceUnavailable, match="not a bookmark file"):
        SqliteBookmarks(path)
    with pytest.raises(SourceUnavailable):
        SqliteBookmarks(path.parent / "missing" / "folder.db")
