"""Bookmark files that are not ours to change, that can't be written, or that an earlier Headrace wrote."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import BookmarkCorrupt, FormatTooNew, SourceUnavailable
from headrace.listener import FileBookmarks, SqliteBookmarks
from headrace.listener.file import Kept, encode_bookmarks
from headrace.testing.memory import Crash, MemoryDisk, PowerCut
from tests.scale import scaled

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


def test_newer_text_file_is_refused_untouched(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks"
    with closing(FileBookmarks(path)) as store:
        store.store("l", "f", Bookmark("i", 1))
    path.write_bytes(path.read_bytes().replace(b'"readable-from":1', b'"readable-from":9'))
    before = path.read_bytes()
    with pytest.raises(FormatTooNew):
        FileBookmarks(path)
    assert path.read_bytes() == before


def test_every_damaged_byte_of_a_text_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "bookmarks"
    with closing(FileBookmarks(path)) as store:
        store.store("l", "f", Bookmark("i", 1))
        store.store("l", "g", Bookmark("i", 2))
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((BookmarkCorrupt, SourceUnavailable, FormatTooNew)):
            FileBookmarks(path)
    for size in range(1, len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises((BookmarkCorrupt, SourceUnavailable)):
            FileBookmarks(path)


@pytest.mark.parametrize("seed", range(scaled(30)))
def test_power_cut_in_any_step_leaves_the_old_text_file_or_the_new_one(seed: int) -> None:
    rng = random.Random(seed)
    disk, path, stored = MemoryDisk(rng), Path("/bookmarks"), 0
    for number in range(1, 12):
        disk.crash_at = disk.steps + rng.randrange(1, 12)
        try:
            with closing(FileBookmarks(path, disk=disk)) as store:
                found = store.load("l", "f")
                assert (found.sequence_id if found is not None else 0) in {stored, number - 1}, f"seed {seed}"
                stored = found.sequence_id if found is not None else 0
                store.store("l", "f", Bookmark("i", number))
                stored = number
        except PowerCut:
            pass
        disk = disk.crash(Crash.POWER)


def test_text_file_of_the_format_page_is_what_is_written() -> None:
    page = Path(__file__).parents[3] / "docs" / "formats" / "bookmarks.md"
    place = Bookmark("inc", 50, Lsn.parse("0687efa7e7b00000.0000000001.0000000050"))
    text = encode_bookmarks(Kept({("my-service", "vmapi::vm"): place}, {}, {})).decode()
    assert text in page.read_text(encoding="utf-8")
