"""Batches end where transactions end, never skip, and stop at another history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import BeyondHead, FeedRecreated, SequenceNotAvailable
from headrace.pipeline.source.ends import Limits
from headrace.pipeline.source.offset import Asked, Offset, Place, from_json, to_json
from headrace.pipeline.source.planner import ANYTHING, FeedPlanner, Known, Planner, Range, split
from headrace.pipeline.source.pushdown import Bounds
from headrace.pipeline.source.starts import read_moment
from headrace.wire.documents import rfc3339
from tests.unit.pipeline.feeds import TS, StoredFeed

F1 = ("f::1",)
OLDEST = Asked(F1, "oldest")
HEAD = Asked(F1, "head")
EVERYTHING = Limits(None, None)


def planner_of(*feeds: StoredFeed, known: Known = ANYTHING) -> Planner:
    """A planner of a query of these feeds."""
    return Planner({feed.name: FeedPlanner(feed, feed.name, known=known) for feed in feeds})


def after(
    planner: Planner, start: Offset | Asked, entries: int = 1_000_000, bytes_max: int = 1 << 29
) -> Offset:
    """Where the next batch ends."""
    return planner.next_end(start, Limits(entries, bytes_max))


def at(feed: StoredFeed, sequence_id: int) -> Offset:
    """A place in a query of one feed."""
    place = Place(incarnation=feed.incarnation, sequence_id=sequence_id, lsn=feed.lsn(sequence_id))
    return Offset({feed.name: place})


def place(offset: Offset | Asked) -> Place:
    """The place of a query of one feed."""
    assert isinstance(offset, Offset)
    (found,) = offset.feeds.values()
    return found


def ends(feed: StoredFeed, start: Offset | Asked, limit: int) -> list[int]:
    """The sequence ids at which all batches from ``start`` on end."""
    planner = planner_of(feed)
    found = []
    while (end := after(planner, start, limit)) is not start:
        assert place(end).lsn == feed.lsn(place(end).sequence_id)
        found.append(place(end).sequence_id)
        start = end
    return found


def test_batches_end_at_appends_where_there_are_no_transactions() -> None:
    feed = StoredFeed()
    for count in (3, 3, 3, 1):
        feed.add(count)
    assert ends(feed, OLDEST, 100) == [10]
    assert ends(feed, OLDEST, 4) == [3, 6, 10]
    assert ends(feed, OLDEST, 6) == [6, 10]


def test_a_transaction_of_several_appends_is_whole() -> None:
    feed = StoredFeed()
    feed.add(2, tx="a")
    feed.add(2, tx="b", last=False)
    feed.add(2, tx="b")
    feed.add(1, tx="c")
    assert ends(feed, OLDEST, 5) == [2, 7]
    assert ends(feed, OLDEST, 4) == [2, 6, 7]


def test_a_transaction_larger_than_the_limit_makes_the_batch_larger() -> None:
    feed = StoredFeed()
    feed.add(1)
    for part in range(6):
        feed.add(2, tx="big", last=part == 5)
    feed.add(1)
    assert ends(feed, OLDEST, 2) == [1, 13, 14]


def test_a_transaction_larger_than_any_batch_is_cut() -> None:
    feed = StoredFeed()
    for part in range(20):
        feed.add(1, tx="huge", last=part == 19)
    assert ends(feed, OLDEST, 2) == [2, 4, 20]


def test_the_rest_of_a_transaction_is_waited_for() -> None:
    feed = StoredFeed()
    feed.add(2)
    feed.add(2, tx="a", last=False)
    planner = planner_of(feed)
    end = after(planner, OLDEST)
    assert place(end).sequence_id == 2
    assert after(planner, end) is end
    feed.add(1, tx="a")
    assert place(after(planner, end)).sequence_id == 5


def test_what_holds_no_end_is_not_read_again_while_the_rest_is_waited_for() -> None:
    feed = StoredFeed()
    feed.add(1)
    planner = planner_of(feed)
    start = after(planner, OLDEST, 10_000)
    for _ in range(20):
        feed.add(10, tx="big", last=False)
    assert after(planner, start, 10_000) is start
    before = len(feed.asked)
    for _ in range(10):
        assert after(planner, start, 10_000) is start
    assert len(feed.asked) == before
    feed.add(10, tx="big")
    assert place(after(planner, start, 10_000)).sequence_id == 211
    assert len(feed.asked) == before + 1


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.sampled_from(["", "a", "b"]), st.booleans()), min_size=1, max_size=12
    ),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_batches_cover_everything_once(
    appends: list[tuple[int, str, bool]], limit: int, frames_max: int
) -> None:
    feed = StoredFeed(frames_max=frames_max)
    for count, tx, last in appends:
        feed.add(count, tx=tx, last=last)
    feed.add(1)
    found = ends(feed, OLDEST, limit)
    assert found == sorted(set(found))
    assert found[-1] == feed.next_id - 1


@pytest.mark.parametrize("start", [OLDEST, HEAD], ids=["oldest", "head"])
def test_a_start_in_words_is_stored_by_a_batch_of_nothing(start: Asked) -> None:
    feed = StoredFeed(first_id=63)
    planner = planner_of(feed)
    end = after(planner, start)
    assert place(end) == Place(incarnation="first-life", sequence_id=62, began_after=62)
    assert planner.ranges(start, end, 10) == []
    assert after(planner, end) is end
    feed.add(2)
    assert planner.ranges(end, after(planner, end), 10) == [
        Range("f::1", "first-life", 63, 64, "", feed.lsn(64))
    ]


def test_head_is_where_the_feed_ended() -> None:
    feed = StoredFeed()
    feed.add(5)
    planner = planner_of(feed)
    end = after(planner, HEAD)
    assert (place(end).sequence_id, place(end).lsn, place(end).began_after) == (5, feed.lsn(5), 5)
    assert planner.ranges(HEAD, end, 10) == []
    feed.add(2)
    assert planner.ranges(end, after(planner, end), 10) == [
        Range("f::1", "first-life", 6, 7, feed.lsn(5), feed.lsn(7)),
    ]


def test_the_first_batch_keeps_where_oldest_was() -> None:
    feed = StoredFeed(first_id=63)
    feed.add(4)
    stored = from_json(to_json(after(planner_of(feed), OLDEST)), F1)
    assert isinstance(stored, Offset)
    # A restart plans the same batch although the feed's oldest may be another one by then.
    later = planner_of(StoredFeed(first_id=65))
    assert later.ranges(OLDEST, stored, 10)[0].first == 63


def test_a_feed_that_began_later_than_the_query_says_so_in_the_batch() -> None:
    feed = StoredFeed(first_id=63)
    feed.add(2)
    planner = planner_of(feed)
    start = Offset({"f::1": Place(incarnation="first-life", sequence_id=0)})
    end = after(planner, start)
    assert place(end).began_after == 62
    assert planner.ranges(start, end, 10)[0].first == 63
    assert place(after(planner, end)).began_after == 62  # nothing new: the very same offset


def test_the_end_of_a_drain_does_not_move() -> None:
    feed = StoredFeed()
    feed.add(3)
    planner = planner_of(feed)
    planner.stop_at_head()
    feed.add(3)
    end = after(planner, OLDEST)
    assert place(end).sequence_id == 3
    assert after(planner, end) is end


def test_another_history_is_refused() -> None:
    feed = StoredFeed()
    feed.add(3)
    end = after(planner_of(feed), OLDEST)
    with pytest.raises(FeedRecreated, match="second-life"):
        after(planner_of(feed.reborn()), end)
    with pytest.raises(FeedRecreated, match="second-life"):
        after(planner_of(feed.reborn(), known=Known("first-life")), OLDEST)


def test_an_old_copy_of_the_same_history_is_refused() -> None:
    feed = StoredFeed()
    feed.add(3)
    feed.add(2)
    end = after(planner_of(feed), OLDEST)
    shorter = StoredFeed()
    shorter.add(3)
    with pytest.raises(FeedRecreated, match="an old copy was put back"):
        after(planner_of(shorter), end)
    shorter.add(1)
    shorter.add(1)  # as long again, but not the same entries
    assert shorter.lsn(5) != feed.lsn(5)
    with pytest.raises(FeedRecreated, match="an old copy was put back"):
        after(planner_of(shorter), end)
    with pytest.raises(FeedRecreated, match="an old copy was put back"):
        after(planner_of(shorter, known=Known(lsn=feed.lsn(5))), Asked(F1, "6"))


def test_a_start_above_the_head_is_refused() -> None:
    feed = StoredFeed()
    feed.add(3)
    assert place(after(planner_of(feed), Asked(F1, "4"))).sequence_id == 3
    with pytest.raises(BeyondHead):
        after(planner_of(feed), Asked(F1, "9"))


def test_retention_that_passed_the_query_is_named_with_the_ways_on() -> None:
    feed = StoredFeed()
    for _ in range(9):
        feed.add(1)
    start = at(feed, 2)
    feed.drop_before(6)
    with pytest.raises(
        SequenceNotAvailable, match=r"read f::1 up to 2.*Entries 3 to 5 are missing.*archive"
    ) as gone:
        after(planner_of(feed), start)
    assert "another checkpoint folder" in gone.value.detail
    assert place(after(planner_of(feed), at(feed, 5))).sequence_id == 9


def test_a_batch_stays_within_its_bytes() -> None:
    feed = StoredFeed()
    for _ in range(200):
        feed.add(1)
    planner = planner_of(feed)
    # Already the first one: what is looked at for its end tells how large entries are.
    first = after(planner, OLDEST, bytes_max=10_000)
    assert 10 < place(first).sequence_id < 60
    assert place(after(planner, first, bytes_max=1)).sequence_id == place(first).sequence_id + 1
    assert place(planner.next_end(first, EVERYTHING)).sequence_id == 200


def test_larger_entries_than_the_last_ones_are_noticed() -> None:
    feed = StoredFeed()
    for number in range(200):
        feed.append(Change(value=b"x" * (10 if number < 100 else 10_000), key=b"k"))
    first = after(planner_of(feed), OLDEST, bytes_max=40_000)
    # By the size of the first ones all 200 would fit; the last ones are looked at and it is fewer.
    assert place(first).sequence_id < 100


def test_several_feeds_end_each_for_itself() -> None:
    small, large = StoredFeed(name="a"), StoredFeed(name="b")
    small.add(3)
    for _ in range(20):
        large.add(5)
    start = Asked(("a", "b"), "oldest")
    planner = planner_of(small, large)
    first = after(planner, start, 40)
    # What the small one leaves of its half is the large one's.
    assert {name: found.sequence_id for name, found in first.feeds.items()} == {"a": 3, "b": 35}
    assert [(part.feed, part.first, part.last) for part in planner.ranges(start, first, 20)] == [
        ("a", 1, 3),
        ("b", 1, 17),
        ("b", 18, 35),
    ]
    second = after(planner, first, 40)
    assert {name: found.sequence_id for name, found in second.feeds.items()} == {"a": 3, "b": 75}
    assert [(part.feed, part.first, part.last) for part in planner.ranges(first, second, 99)] == [
        ("b", 36, 75)
    ]
    assert second.feeds["a"].began_after is None
    assert after(planner, last := after(planner, second)) is last
    newest = planner.newest()
    assert newest is not None
    assert {name: found.sequence_id for name, found in newest.feeds.items()} == {"a": 3, "b": 100}


def test_every_feed_moves_on_however_small_the_limit() -> None:
    feeds = [StoredFeed(name=name) for name in "abc"]
    for feed in feeds:
        feed.add(1)
        feed.add(1)
    end = after(planner_of(*feeds), Asked(("a", "b", "c"), "oldest"), 1)
    assert [found.sequence_id for found in end.feeds.values()] == [1, 1, 1]


def moment_of(feed: StoredFeed, sequence_id: int) -> str:
    """The time of an entry as options write it."""
    return rfc3339(Lsn.parse(feed.lsn(sequence_id)).committed_at_ms)


def spread() -> StoredFeed:
    """Nine entries: 1 to 3 in one millisecond (two appends), 4 to 6 in the next, 7 to 9 a second later."""
    feed = StoredFeed()
    for ms, count in ((0, 2), (0, 1), (1, 3), (1001, 3)):
        feed.append(*[Change(value=b"{}", key=b"k")] * count, global_ts=TS + (ms << 18) + feed.next_id)
    return feed


def test_a_start_is_found_by_lsn_and_by_time() -> None:
    feed = spread()

    def begins(start: str) -> int | None:
        return place(after(planner_of(feed), Asked(F1, start))).began_after

    assert [begins(feed.lsn(number)) for number in (1, 2, 3, 6, 9)] == [0, 1, 2, 5, 8]
    between = Lsn.parse(feed.lsn(3))
    assert begins(str(between._replace(raft_index=between.raft_index + 5))) == 3
    assert begins(str(Lsn.parse(feed.lsn(9))._replace(raft_index=99))) == 9
    assert [begins(moment_of(feed, number)) for number in (3, 4, 9)] == [0, 3, 6]
    assert begins("2035-01-01T00:00:00Z") == 9
    assert begins(moment_of(feed, 3).replace("Z", "001Z")) == 3  # a microsecond later
    assert begins("3") == 2


def whole(
    feed: StoredFeed, start: str, end: str, bounds: Bounds | None = None, entries: int = 100
) -> list[tuple[int, int]]:
    """The partitions of a batch read."""
    moments = read_moment(start, "start"), read_moment(end, "end")
    return [(part.first, part.last) for part in planner_of(feed).whole(*moments, bounds or Bounds(), entries)]


def test_a_batch_read_covers_what_is_asked_for() -> None:
    feed = spread()
    assert whole(feed, "oldest", "head") == [(1, 9)]
    assert whole(feed, "oldest", "99", entries=5) == [(1, 4), (5, 9)]
    assert whole(feed, "4", "7") == [(4, 7)]
    assert whole(feed, feed.lsn(2), feed.lsn(5)) == [(2, 5)]
    assert whole(feed, moment_of(feed, 4), moment_of(feed, 4)) == [(4, 6)]
    assert whole(feed, "7", "6") == []


def test_a_batch_read_leaves_out_what_no_filter_can_want() -> None:
    feed = spread()
    stamp = Lsn.parse(feed.lsn(4)).committed_at_ms * 1000
    assert whole(feed, "oldest", "head", Bounds(first=3, last=5)) == [(3, 5)]
    assert whole(feed, "4", "head", Bounds(first=3)) == [(4, 9)]
    assert whole(feed, "oldest", "head", Bounds(lsn_first=feed.lsn(2), lsn_last=feed.lsn(8))) == [(2, 8)]
    assert whole(feed, "oldest", "head", Bounds(us_first=stamp, us_last=stamp)) == [(4, 6)]
    assert whole(feed, "oldest", "head", Bounds(us_first=stamp + 1)) == [(7, 9)]
    assert whole(feed, "oldest", "head", Bounds(feeds=frozenset({"another"}))) == []
    assert whole(feed, "oldest", "head", Bounds(first=5, last=4)) == []


def test_a_range_is_split_evenly() -> None:
    whole = Range("f", "i", 11, 20, "before", "last")
    assert split(whole, 100) == [whole]
    assert split(whole, 4) == [
        Range("f", "i", 11, 13, "before", ""),
        Range("f", "i", 14, 16, "", ""),
        Range("f", "i", 17, 20, "", "last"),
    ]
    assert split(whole._replace(last=10), 4) == []


@given(st.integers(1, 1000), st.integers(0, 200), st.integers(1, 60))
def test_parts_join_without_gaps(first: int, count: int, size: int) -> None:
    parts = split(Range("f", "i", first, first + count - 1), size)
    covered = [number for part in parts for number in range(part.first, part.last + 1)]
    assert covered == list(range(first, first + count))
    assert all(part.last - part.first + 1 <= size for part in parts)
