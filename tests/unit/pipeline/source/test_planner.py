"""Batches end where transactions end, never skip, and stop at another history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import BeyondHead, FeedRecreated
from headrace.pipeline.source.offset import FeedOffset, FeedStart, Place, from_json, to_json
from headrace.pipeline.source.planner import Planner, Range, split
from tests.unit.pipeline.feeds import StoredFeed

OLDEST = FeedStart(feed="f::1", begin="oldest")
HEAD = FeedStart(feed="f::1", begin="head")


def ends(feed: StoredFeed, start: Place, limit: int) -> list[int]:
    """The sequence ids at which all batches from ``start`` on end."""
    planner = Planner(feed, feed.name, entries_max=limit)
    found = []
    while (end := planner.next_end(start)) != start:
        assert isinstance(end, FeedOffset)
        assert end.lsn == feed.lsn(end.sequence_id)
        found.append(end.sequence_id)
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
    planner = Planner(feed, feed.name)
    end = planner.next_end(OLDEST)
    assert isinstance(end, FeedOffset)
    assert end.sequence_id == 2
    assert planner.next_end(end) == end
    feed.add(1, tx="a")
    after = planner.next_end(end)
    assert isinstance(after, FeedOffset)
    assert after.sequence_id == 5


def test_what_holds_no_end_is_not_read_again_while_the_rest_is_waited_for() -> None:
    feed = StoredFeed()
    feed.add(1)
    planner = Planner(feed, feed.name, entries_max=10_000)
    start = planner.next_end(OLDEST)
    for _ in range(20):
        feed.add(10, tx="big", last=False)
    assert planner.next_end(start) == start
    before = len(feed.asked)
    for _ in range(10):
        assert planner.next_end(start) == start
    assert len(feed.asked) == before
    feed.add(10, tx="big")
    end = planner.next_end(start)
    assert isinstance(end, FeedOffset)
    assert end.sequence_id == 211
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


def test_an_empty_feed_has_nothing_to_do() -> None:
    assert Planner(StoredFeed(), "f::1").next_end(OLDEST) == OLDEST


def test_head_is_stored_by_a_batch_of_nothing() -> None:
    feed = StoredFeed()
    feed.add(5)
    planner = Planner(feed, feed.name)
    end = planner.next_end(HEAD)
    assert isinstance(end, FeedOffset)
    assert (end.sequence_id, end.began_after) == (5, 5)
    assert planner.ranges(HEAD, end, 10) == []
    feed.add(2)
    after = planner.next_end(end)
    assert isinstance(after, FeedOffset)
    assert planner.ranges(end, after, 10) == [
        Range("f::1", "first-life", 6, 7, feed.lsn(5), feed.lsn(7)),
    ]


def test_the_first_batch_keeps_where_oldest_was() -> None:
    feed = StoredFeed(first_id=63)
    feed.add(4)
    end = Planner(feed, feed.name).next_end(OLDEST)
    assert isinstance(end, FeedOffset)
    stored = from_json(to_json(end), "f::1")
    assert isinstance(stored, FeedOffset)
    # A restart plans the same batch although the feed's oldest may be another one by then.
    later = Planner(StoredFeed(first_id=65), feed.name)
    assert later.ranges(OLDEST, stored, 10)[0].first == 63


def test_the_end_of_a_drain_does_not_move() -> None:
    feed = StoredFeed()
    feed.add(3)
    planner = Planner(feed, feed.name)
    planner.stop_at_head()
    feed.add(3)
    end = planner.next_end(OLDEST)
    assert isinstance(end, FeedOffset)
    assert end.sequence_id == 3
    assert planner.next_end(end) == end


def test_another_history_is_refused() -> None:
    feed = StoredFeed()
    feed.add(3)
    end = Planner(feed, feed.name).next_end(OLDEST)
    with pytest.raises(FeedRecreated, match="second-life"):
        Planner(feed.reborn(), feed.name).next_end(end)
    with pytest.raises(FeedRecreated, match="second-life"):
        Planner(feed.reborn(), feed.name, incarnation="first-life").next_end(OLDEST)


def test_an_old_copy_of_the_same_history_is_refused() -> None:
    feed = StoredFeed()
    feed.add(3)
    feed.add(2)
    end = Planner(feed, feed.name).next_end(OLDEST)
    shorter = StoredFeed()
    shorter.add(3)
    with pytest.raises(FeedRecreated, match="an old copy was put back"):
        Planner(shorter, feed.name).next_end(end)
    shorter.add(1)
    shorter.add(1)  # as long again, but not the same entries
    assert shorter.lsn(5) != feed.lsn(5)
    with pytest.raises(FeedRecreated, match="an old copy was put back"):
        Planner(shorter, feed.name).next_end(end)


def test_a_start_above_the_head_is_refused() -> None:
    feed = StoredFeed()
    feed.add(3)
    with pytest.raises(BeyondHead):
        Planner(feed, feed.name).next_end(FeedOffset(feed="f::1", incarnation="", sequence_id=9))


def test_a_batch_stays_within_its_bytes() -> None:
    feed = StoredFeed()
    for _ in range(200):
        feed.add(1)
    planner = Planner(feed, feed.name, bytes_max=10_000)
    first = planner.next_end(OLDEST)
    assert isinstance(first, FeedOffset)
    assert first.sequence_id == 200  # nothing is known of the entries' size yet
    second = planner.next_end(FeedOffset(feed="f::1", incarnation="first-life", sequence_id=0))
    assert isinstance(second, FeedOffset)
    assert 10 < second.sequence_id < 60


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


def test_a_batch_read_covers_what_is_asked_for() -> None:
    feed = StoredFeed()
    feed.add(10)
    planner = Planner(feed, feed.name)
    assert [(part.first, part.last) for part in planner.whole(OLDEST, None, 100)] == [(1, 10)]
    assert [(part.first, part.last) for part in planner.whole(OLDEST, 99, 5)] == [(1, 5), (6, 10)]
    start = FeedOffset(feed="f::1", incarnation="", sequence_id=3)
    assert [(part.first, part.last) for part in planner.whole(start, 7, 100)] == [(4, 7)]
