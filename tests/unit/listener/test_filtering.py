"""What a bookmark was made with is kept and compared, and it moves past what a filter took away: in time, and seldom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.entries.bookmark import Bookmark
from headrace.errors import FilterDiffers, InvalidRequest
from headrace.listener import EntryFilter, FileBookmarks, Shard, shard_id
from headrace.listener.filtering import check_filter, claim
from headrace.listener.passing import Passing
from headrace.wire.filters import EVERYTHING

PLACE = ("l", "f")
NICS = EntryFilter(frozenset({"nics"}))
MORE = EntryFilter(frozenset({"nics", "alias"}))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileBookmarks]:
    with closing(FileBookmarks(tmp_path / "bookmarks")) as opened:
        yield opened


def test_filter_is_kept_from_the_first_claim_on(store: FileBookmarks) -> None:
    assert claim(store, *PLACE, MORE, change=False) is None
    assert claim(store, *PLACE, NICS, change=False) is None, "nothing was read yet: no entry can be missing"
    store.store(*PLACE, Bookmark("i", 5))
    assert claim(store, *PLACE, NICS, change=False) == Bookmark("i", 5)


@pytest.mark.parametrize(
    "asked", [MORE, EVERYTHING, EntryFilter(key=b"k")], ids=["more", "everything", "a key"]
)
def test_bookmark_of_another_filter_is_refused_until_the_user_says_so(
    store: FileBookmarks, asked: EntryFilter
) -> None:
    claim(store, *PLACE, NICS, change=False)
    store.store(*PLACE, Bookmark("i", 5))
    with pytest.raises(FilterDiffers, match=r'bookmark 5 of l was made with \{"changed":"nics"\}'):
        claim(store, *PLACE, asked, change=False)
    assert store.filter_of(*PLACE) == NICS.stored()
    assert claim(store, *PLACE, asked, change=True) == Bookmark("i", 5)
    check_filter(store, *PLACE, asked)
    with pytest.raises(FilterDiffers):
        check_filter(store, *PLACE, NICS)


def test_bookmark_of_before_there_were_filters_was_made_with_none(store: FileBookmarks) -> None:
    store.store(*PLACE, Bookmark("i", 5))
    check_filter(store, *PLACE, EVERYTHING)
    with pytest.raises(FilterDiffers, match="made with no filter"):
        check_filter(store, *PLACE, NICS)


def test_unfiltered_listener_writes_nothing_of_filters(store: FileBookmarks, tmp_path: Path) -> None:
    claim(store, *PLACE, EVERYTHING, change=False)
    assert not (tmp_path / "bookmarks").exists()


def test_each_part_is_a_listener_of_its_own() -> None:
    assert shard_id("tcns", None) == "tcns"
    assert shard_id("tcns", Shard(2, 8)) == "tcns.2-of-8"
    with pytest.raises(InvalidRequest):
        shard_id("t" * 198, Shard(2, 8))


class Kept:
    """A bookmark, and every place that it was moved to."""

    def __init__(self, bookmark: Bookmark | None) -> None:
        self.bookmark = bookmark
        self.moves: list[int] = []

    async def load(self) -> Bookmark | None:
        return self.bookmark

    async def move(self, place: Bookmark) -> None:
        self.bookmark = place
        self.moves.append(place.sequence_id)


async def test_bookmark_moves_past_what_was_taken_away_but_not_for_every_answer() -> None:
    kept = Kept(Bookmark("i", 3))
    passing = Passing(kept.load, kept.move, seconds_min=3600)
    assert passing.due_in_s() is None
    for number in (10, 20):
        passing.note(Bookmark("i", number))
        assert passing.due_in_s() == 0
    await passing.settle()
    assert kept.moves == [20]
    assert passing.due_in_s() is None
    passing.note(Bookmark("i", 30))
    assert (passing.due_in_s() or 0) > 3000
    await passing.settle()
    await passing.settle()
    assert kept.moves == [20, 30], "nothing is left to settle"


async def test_bookmark_never_moves_past_what_the_consumer_has_not_done_with() -> None:
    kept = Kept(Bookmark("i", 3))
    passing = Passing(kept.load, kept.move, seconds_min=3600)
    passing.give(7)
    passing.note(Bookmark("i", 20))
    await passing.settle()
    assert kept.moves == []
    assert (passing.due_in_s() or 0) > 3000, "asked again later"
    kept.bookmark = Bookmark("i", 7)  # in a transaction of the consumer's, of which nobody was told
    await passing.settle()
    assert kept.moves == [20]
    passing.note(Bookmark("i", 30))
    passing.give(35)
    kept.bookmark = Bookmark("i", 35)
    await passing.settle()
    assert kept.moves == [20], "what was passed before it is below it"


async def test_bookmark_of_another_history_or_none_is_left_alone() -> None:
    for bookmark in (None, Bookmark("other", 50)):
        kept = Kept(bookmark)
        passing = Passing(kept.load, kept.move)
        passing.note(Bookmark("i", 20))
        await passing.settle()
        assert kept.moves == []
