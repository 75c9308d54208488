"""Every generation of every bookmark store is opened, read exactly, and written on."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headrace.entries.bookmark import Bookmark
from headrace.listener import BookmarkStore, Change, FileBookmarks, Seen, SqliteBookmarks
from headrace.listener.postgres import PostgresBookmarks
from headrace.wire.documents import EntryOut
from tests.golden.bookmarks import FILTER, HYDRATED, PARKED, PLACE
from tests.golden.make import kept
from tests.postgres import Database

FEED = "vmapi::vm"


def check(store: BookmarkStore, *, filtered: bool) -> None:
    """All of the generation is there, and can be gone on with; ``filtered``: it knows filters already."""
    assert store.claim("tcns.2-of-8", FEED) == (PLACE if filtered else None)
    assert store.filter_of("tcns.2-of-8", FEED) == (FILTER if filtered else None)
    assert store.filter_of("my-service", FEED) is None
    store.set_filter("tcns.2-of-8", FEED, '{"shard":"3/8"}')
    assert store.filter_of("tcns.2-of-8", FEED) == '{"shard":"3/8"}'
    assert store.claim("my-service", FEED) == PLACE
    assert store.claim("new-service", FEED) == HYDRATED
    assert store.parked("my-service", FEED) == PARKED
    assert store.unpark("my-service", FEED, 48)
    store.store("my-service", FEED, Bookmark("inc", 51))
    assert store.load("my-service", FEED) == Bookmark("inc", 51)
    assert [entry.sequence_id for entry in store.parked("my-service", FEED)] == [50]


@pytest.mark.parametrize("golden", kept("bookmarks.db"), ids=lambda path: path.parent.name)
def test_sqlite(golden: Path, tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.db"
    shutil.copy(golden, path)
    with closing(sqlite3.connect(path)) as database:
        ((written_as, readable_from),) = database.execute("SELECT * FROM format").fetchall()
        assert (written_as, readable_from) == {"1": (1, 1), "2": (2, 2), "3": (3, 3)}[golden.parent.name]
    with closing(SqliteBookmarks(path)) as store:
        if written_as > 1:
            check(store, filtered=written_as > 2)
        else:
            place = store.load("my-service", FEED) or store.load("tcns", FEED)
            assert place is not None
            assert store.parked("tcns", FEED) == []


def test_older_program_reads_a_file_without_parked_entries_and_filters(tmp_path: Path) -> None:
    path = tmp_path / "b.db"
    with closing(SqliteBookmarks(path)) as store:
        store.store("l", "f", PLACE)
    assert readable_from(path) == 1
    with closing(SqliteBookmarks(path)) as store:
        store.set_filter("l", "f", FILTER)
    assert readable_from(path) == 3


def readable_from(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        (found,) = database.execute("SELECT readable_from FROM format").fetchone()
        return int(found)


def test_older_program_reads_text_and_tables_without_filters(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "b.ndjson"
    with closing(FileBookmarks(path)) as text, closing(PostgresBookmarks(database.dsn)) as tables:
        for store in (text, tables):
            store.claim("l", "f")
            store.store("l", "f", PLACE)
        assert b'"readable-from":1' in path.read_bytes()
        assert database.sql("SELECT readable_from FROM headrace_listener.format") == [(1,)]
        for store in (text, tables):
            store.set_filter("l", "f", FILTER)
        assert b'"readable-from":2' in path.read_bytes()
        assert database.sql("SELECT readable_from FROM headrace_listener.format") == [(2,)]


@pytest.mark.parametrize("golden", kept("bookmarks.ndjson"), ids=lambda path: path.parent.name)
def test_file(golden: Path, tmp_path: Path) -> None:
    path = tmp_path / "bookmarks.ndjson"
    shutil.copy(golden, path)
    with closing(FileBookmarks(path)) as store:
        check(store, filtered=golden.parent.name != "1")


@pytest.mark.parametrize("golden", kept("bookmarks-postgres.sql"), ids=lambda path: path.parent.name)
def test_postgres(golden: Path, database: Database) -> None:
    with database.connect() as restored:
        restored.execute(golden.read_bytes())
    with closing(PostgresBookmarks(database.dsn)) as store:
        check(store, filtered=golden.parent.name != "1")


@pytest.mark.parametrize("golden", kept("seen.json"), ids=lambda path: path.parent.name)
def test_seen(golden: Path) -> None:
    seen = Seen.decode(golden.read_bytes())
    assert [number for number in range(1, 7) if not seen.is_new(change(number, "inc"))] == [1, 2, 3, 5]
    assert not seen.is_new(change(1, "inc-2"))
    seen.note(change(4, "inc"))
    assert b'"inc":[[1,5]]' in seen.encode()


def change(number: int, incarnation: str) -> Change:
    return Change(incarnation, EntryOut(sequence_id=number, lsn="1.1.1", committed_at=""))
