"""Every bookmark store keeps the same promises: places, parked entries, both in one step, one mover at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from msgspec import Raw

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import BookmarkMoved, DataFolderLocked, ParkedTooMany
from headrace.listener import BookmarkStore, ParkedEntry, open_bookmarks
from headrace.listener.parking import ParkedMax
from tests.postgres import Database

Open = Callable[[], BookmarkStore]
PLACE = Bookmark("incarnation-1", 7, Lsn(5, 1, 7))


@pytest.fixture(params=["sqlite", "file", "postgresql"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("database")
        return database.dsn
    return f"{request.param}:///{tmp_path / 'bookmarks'}"


@pytest.fixture
def store(address: str) -> Iterator[BookmarkStore]:
    with closing(open_bookmarks(address)) as opened:
        opened.claim("l", "f")
        yield opened


def parked(number: int, key: str = "text:a", *, held: bool = False, reason: str = "no") -> ParkedEntry:
    return ParkedEntry(
        sequence_id=number, incarnation="incarnation-1", key=key, held=held, reason=reason,
        attempts=0 if held else 5, parked_at="2026-11-22T00:00:00.000Z",
        entry=Raw(b'{"sequence-id":%d,"lsn":"1.1.1","committed-at":"t","changes":{"n":1.10}}' % number),
    )  # fmt: skip


def ids(store: BookmarkStore) -> list[int]:
    return [entry.sequence_id for entry in store.parked("l", "f")]


def test_bookmarks_are_kept_by_listener_and_feed(store: BookmarkStore, address: str) -> None:
    assert store.load("l", "f") is None
    store.claim("l", "g")
    store.claim("m", "f")
    store.store("l", "f", PLACE)
    store.store("l", "g", Bookmark("i", 0))
    store.store("m", "f", Bookmark("i", 9, None, "snapshot-1"))
    store.close()
    with closing(open_bookmarks(address)) as again:
        assert again.load("l", "f") == PLACE
        assert again.claim("l", "g") == Bookmark("i", 0)
        assert again.claim("m", "f") == Bookmark("i", 9, None, "snapshot-1")
        again.store("m", "f", Bookmark("i", 10, Lsn(6, 1, 10)))
        assert again.load("m", "f") == Bookmark("i", 10, Lsn(6, 1, 10))


def test_what_is_parked_comes_back_in_order_and_byte_for_byte(store: BookmarkStore, address: str) -> None:
    for entry in (parked(9), parked(8, held=True), parked(12, "text:b")):
        store.park("l", "f", entry, Bookmark("i", entry.sequence_id), ParkedMax(3))
    assert store.load("l", "f") == Bookmark("i", 12)
    store.close()
    with closing(open_bookmarks(address)) as again:
        again.claim("l", "f")
        assert again.parked("l", "f") == [parked(8, held=True), parked(9), parked(12, "text:b")]
        assert again.parked("l", "g") == []
        assert again.unpark("l", "f", 9)
        assert not again.unpark("l", "f", 9)
        assert ids(again) == [8, 12]


def test_parking_again_takes_the_place_of_what_was_parked(store: BookmarkStore) -> None:
    store.park("l", "f", parked(9, held=True), PLACE, ParkedMax(1))
    store.park("l", "f", parked(9, reason="still no"), None, ParkedMax(1))
    assert store.parked("l", "f") == [parked(9, reason="still no")]
    assert store.load("l", "f") == PLACE, "no bookmark was given, so it stands"


def test_one_too_many_changes_nothing(store: BookmarkStore) -> None:
    store.store("l", "f", PLACE)
    store.park("l", "f", parked(8), Bookmark("i", 8), ParkedMax(1))
    with pytest.raises(ParkedTooMany, match="entry 9 of text:b"):
        store.park("l", "f", parked(9, "text:b"), Bookmark("i", 9), ParkedMax(1))
    assert ids(store) == [8]
    assert store.load("l", "f") == Bookmark("i", 8)


def test_too_many_bytes_change_nothing(store: BookmarkStore) -> None:
    """Two entries of about 10,000 bytes, where 15,000 may be parked, and many that are small."""
    bounds = ParkedMax(9, 15_000)
    store.park("l", "f", parked(8, reason="x" * 10_000), Bookmark("i", 8), bounds)
    with pytest.raises(ParkedTooMany, match=r"entry 9 of text:a the parked ones would take 2[0-9]{4} bytes"):
        store.park("l", "f", parked(9, reason="x" * 10_000), Bookmark("i", 9), bounds)
    assert ids(store) == [8]
    assert store.load("l", "f") == Bookmark("i", 8)
    store.park("l", "f", parked(9), Bookmark("i", 9), bounds)
    store.park("l", "f", parked(8, reason="y" * 10_000), None, bounds)
    assert ids(store) == [8, 9], "an entry in another's place counts once"


def test_place_from_a_snapshot_voids_what_is_parked_up_to_it(store: BookmarkStore) -> None:
    for number in (8, 9, 10):
        store.park("l", "f", parked(number), Bookmark("i", number), ParkedMax(9))
    store.store("l", "f", Bookmark("i", 11, Lsn(1, 1, 11)))
    assert ids(store) == [8, 9, 10]
    store.store("l", "f", Bookmark("i", 9, None, "snapshot-1"))
    assert ids(store) == [10]


def test_filter_is_kept_beside_the_bookmark_and_no_bookmark_takes_it_away(
    store: BookmarkStore, address: str
) -> None:
    assert store.filter_of("l", "f") is None
    store.set_filter("l", "f", None)
    assert store.filter_of("l", "f") is None
    store.set_filter("l", "f", '{"key":"a"}')
    store.set_filter("l", "f", '{"shard":"2/8"}')
    store.store("l", "f", PLACE)
    store.store("l", "f", Bookmark("i", 9, None, "snapshot-1"))
    store.park("l", "f", parked(10), Bookmark("i", 10), ParkedMax(9))
    store.close()
    with closing(open_bookmarks(address)) as again:
        assert again.claim("l", "f") == Bookmark("i", 10)
        assert again.filter_of("l", "f") == '{"shard":"2/8"}'
        assert again.filter_of("l", "g") is None
        assert again.filter_of("m", "f") is None
        again.set_filter("l", "f", None)
        assert again.filter_of("l", "f") is None
        assert again.load("l", "f") == Bookmark("i", 10)
        assert ids(again) == [10]


def test_filter_that_is_stored_is_stored_when_the_process_is_killed(
    store: BookmarkStore, address: str
) -> None:
    store.close()
    program = f"""
import os, signal
from headrace.listener import open_bookmarks
store = open_bookmarks({address!r})
store.claim("l", "f")
store.set_filter("l", "f", "filter-1")
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    with closing(open_bookmarks(address)) as again:
        assert again.filter_of("l", "f") == "filter-1"
        assert again.load("l", "f") is None


def test_only_one_moves_a_bookmark(store: BookmarkStore, address: str) -> None:
    """A file is locked; in PostgreSQL who claims later fences who claimed before."""
    store.store("l", "f", PLACE)
    try:
        other = open_bookmarks(address)
    except DataFolderLocked:
        return
    with closing(other):
        assert other.load("l", "f") == PLACE
        store.store("l", "f", Bookmark("i", 8))
        assert other.claim("l", "f") == Bookmark("i", 8)
        other.store("l", "f", Bookmark("i", 9))
        for late in (
            lambda: store.store("l", "f", Bookmark("i", 10)),
            lambda: store.park("l", "f", parked(10), Bookmark("i", 10), ParkedMax(9)),
            lambda: store.unpark("l", "f", 10),
            lambda: store.set_filter("l", "f", "filter-1"),
        ):
            with pytest.raises(BookmarkMoved):
                late()
        assert other.load("l", "f") == Bookmark("i", 9)
        assert ids(other) == []


def test_stored_is_stored_when_the_process_is_killed(store: BookmarkStore, address: str) -> None:
    store.close()
    program = f"""
import os, signal
from headrace.listener import open_bookmarks
from headrace.entries.bookmark import Bookmark
store = open_bookmarks({address!r})
store.claim("l", "f")
store.store("l", "f", Bookmark("i", 41))
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -9
    with closing(open_bookmarks(address)) as again:
        assert again.load("l", "f") == Bookmark("i", 41)


def test_closing_twice_does_no_harm(store: BookmarkStore) -> None:
    store.close()
    store.close()
