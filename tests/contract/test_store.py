"""What every store promises (``log/contract.py``): group writes, reads, walks, drops and reopening."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import SequenceNotAvailable, StoreUnavailable
from headrace.log.contract import Begin, Group, Store
from headrace.log.history import frames_of_range, lsn_at
from headrace.log.rules import Terms, judge
from headrace.wire.frame import FIRST_POSITION, FrameKind
from headrace.wire.segment import FramePlace
from tests.bench import Bench, append, expecting, register
from tests.stores import SMALL_SEGMENT, Opener, fill
from tests.waiting import wait_until

FEEDS = ["a", "b::c", "d"]
ALL = 1 << 30


@pytest.fixture
def bench(opener: Opener, tmp_path: Path) -> Iterator[Bench]:
    store = opener(tmp_path, SMALL_SEGMENT)
    yield Bench(store)
    store.close()


def all_places(store: Store, region_id: int) -> list[FramePlace]:
    return list(store.places(region_id, 0, ALL, frames_max=ALL))


def test_empty_journal(bench: Bench) -> None:
    store = bench.store
    assert store.begin({"a"}) == Begin(FIRST_POSITION, 0, 1, {})
    assert (store.end(), store.oldest_position()) == (FIRST_POSITION, FIRST_POSITION)
    assert store.tail("a") is None
    assert list(store.tails()) == []
    assert list(store.walk(FIRST_POSITION, bytes_max=ALL)) == []
    assert all_places(store, 1) == []
    assert list(store.read([])) == []
    assert store.not_writable() is None


def test_begin_gives_the_tails_asked_for(bench: Bench) -> None:
    made = {feed: bench.register(feed) for feed in FEEDS}
    begin = bench.store.begin({"a", "d", "nowhere"})
    assert begin.tails == {"a": made["a"], "d": made["d"]}
    assert (begin.end, begin.next_region_id) == (bench.store.end(), 4)


def test_put_takes_a_group_only_at_the_end_it_was_judged_at(bench: Bench) -> None:
    bench.register("a")
    stale = bench.store.begin({"a"})
    verdict = judge([append("a", "x")], stale, Terms(bench.clock.ms), lambda *_: [])
    bench.append("a", "y")
    before = (bench.store.end(), bench.tail("a"), bench.store.begin({"a"}))
    with pytest.raises(StoreUnavailable):
        bench.store.put(stale, verdict.group)
    assert (bench.store.end(), bench.tail("a"), bench.store.begin({"a"})) == before
    assert bench.values("a") == {1: b"y"}
    assert bench.append("a", "z").first_sequence_id == 2


def test_group_without_frames_moves_nothing(bench: Bench) -> None:
    bench.register("a")
    begin, end = bench.store.begin({"a"}), bench.store.end()
    bench.store.put(begin, Group(global_ts=begin.global_ts, next_region_id=begin.next_region_id))
    assert (bench.store.end(), bench.store.begin({"a"})) == (end, begin)


def test_all_of_a_group_becomes_visible_together(bench: Bench) -> None:
    seen: list[tuple[int, list[int], int]] = []

    def look() -> None:
        heads = [tail.head for tail in bench.store.tails()]
        seen.append((bench.store.end(), heads, len(bench.walked())))

    bench.ask(*[register(feed) for feed in FEEDS])
    bench.store.on_moved(look)
    bench.ask(*[append(feed, "1", "2") for feed in FEEDS])
    bench.ask(append("a", "3"), expecting("a", 9, "refused"))
    assert [(heads, walked) for _, heads, walked in seen] == [([2, 2, 2], 6), ([3, 2, 2], 7)]
    assert [end for end, *_ in seen] == sorted({end for end, *_ in seen})


def test_callback_that_fails_hurts_no_append(bench: Bench) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    called: list[int] = []
    bench.store.on_moved(fail)
    bench.store.on_moved(lambda: called.append(1))
    bench.register("a")
    assert bench.append("a", "x").first_sequence_id == 1
    assert called == [1, 1]


def test_entries_are_read_back_in_order(bench: Bench) -> None:
    wanted = fill(bench, FEEDS, 60)
    for feed in FEEDS:
        assert bench.values(feed) == wanted[feed]
        head = bench.tail(feed).head
        for first in range(1, head + 1, 3):
            assert bench.values(feed, first, head) == {n: v for n, v in wanted[feed].items() if n >= first}


def test_walk_is_lsn_order_over_all_feeds(bench: Bench) -> None:
    wanted = fill(bench, FEEDS, 60)
    for bytes_max in (1, 500, ALL):
        walked = bench.walked(bytes_max=bytes_max)
        assert [lsn for lsn, _ in walked] == sorted({lsn for lsn, _ in walked})
        for tail in bench.store.tails():
            assert [n for lsn, n in walked if lsn.region_id == tail.region_id] == list(wanted[tail.name])


def test_walk_keeps_its_bounds(bench: Bench) -> None:
    fill(bench, FEEDS, 40)
    position, whole = FIRST_POSITION, []
    while position < bench.store.end():
        (one,) = bench.store.walk(position, bytes_max=1)
        several = bench.store.walk(position, bytes_max=2 * one.header.size)
        assert several[0].header == one.header
        assert len(several) == 1 or sum(frame.header.size for frame in several) <= 2 * one.header.size
        whole.append(one.header)
        position = one.header.end
    assert position == bench.store.end()
    assert list(bench.store.walk(position, bytes_max=ALL)) == []
    assert sum(header.count for header in whole if header.kind == FrameKind.ENTRIES) == len(bench.walked())


def test_places_are_the_frames_that_overlap(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    for tail in bench.store.tails():
        frames = all_places(bench.store, tail.region_id)
        assert sum(place.count for place in frames) == tail.head
        for first in range(tail.head + 2):
            for last in (first, first + 1, first + 7, ALL):
                wanted = [
                    p for p in frames if p.first_sequence_id <= last and p.first_sequence_id + p.count > first
                ]
                for frames_max in (1, 3, ALL):
                    found = bench.store.places(tail.region_id, first, last, frames_max=frames_max)
                    assert list(found) == wanted[:frames_max]
    assert all_places(bench.store, 77) == []


def test_read_gives_the_frames_of_places(bench: Bench) -> None:
    fill(bench, FEEDS, 40)
    for tail in bench.store.tails():
        places = all_places(bench.store, tail.region_id)
        for place, frame in zip(places, bench.store.read(places), strict=True):
            header = frame.header
            assert place == (
                tail.region_id,
                header.count,
                header.first_sequence_id,
                header.position,
                header.size,
            )


def test_reopening_changes_nothing(opener: Opener, tmp_path: Path) -> None:
    store = opener(tmp_path, SMALL_SEGMENT)
    bench = Bench(store)
    wanted = fill(bench, FEEDS, 50)
    bench.register("a", instance="twin")
    bench.register("d", "agent-2", takeover=True)
    bench.ask(append("b::c", "again", sequence_ids=(1,)))
    before = _everything(store)
    store.close()
    again = opener(tmp_path, SMALL_SEGMENT)
    assert _everything(again) == before
    bench = Bench(again, bench.clock)
    assert {feed: bench.values(feed) for feed in FEEDS} == wanted
    assert bench.append("a", "next").first_sequence_id == max(wanted["a"]) + 1
    assert [lsn for lsn, _ in bench.walked()] == sorted(lsn for lsn, _ in bench.walked())
    again.close()


def _everything(store: Store) -> tuple[object, ...]:
    frames, position = [], store.oldest_position()
    while position < store.end():
        for frame in store.walk(position, bytes_max=ALL):
            frames.append((frame.header, bytes(frame.area), bytes(frame.body), bytes(frame.lengths_bytes)))
            position = frame.header.end
    places = [all_places(store, tail.region_id) for tail in store.tails()]
    return list(store.tails()), store.end(), store.oldest_position(), store.begin(FEEDS), frames, places


def test_small_segments_and_large_ones_hold_the_same(opener: Opener, tmp_path: Path) -> None:
    """What a sealed index finds is what the open one finds."""
    stores = [opener(tmp_path / str(size), size) for size in (SMALL_SEGMENT, ALL)]
    for store in stores:
        fill(Bench(store), FEEDS, 60)
    assert _everything(stores[0]) == _everything(stores[1])
    for store in stores:
        store.close()


def test_append_larger_than_a_segment(bench: Bench) -> None:
    bench.register("a")
    for number in range(3):
        bench.append("a", b"x" * 3 * SMALL_SEGMENT, b"small")
        bench.append("a", str(number))
    assert [len(value) for value in bench.values("a").values()] == [3 * SMALL_SEGMENT, 5, 1] * 3


# -- retention --------------------------------------------------------------------------------------------------------


def middle(bench: Bench) -> int:
    """A position in the middle of the journal, where no segment need begin."""
    return (bench.store.oldest_position() + bench.store.end()) // 2


def test_drop_before_drops_whole_segments_only(bench: Bench) -> None:
    wanted = fill(bench, FEEDS, 80)
    walked, end, asked = bench.walked(), bench.store.end(), middle(bench)
    oldest = bench.store.drop_before(asked)
    assert FIRST_POSITION < oldest <= asked
    assert (bench.store.oldest_position(), bench.store.end()) == (oldest, end)
    left = bench.walked()
    assert 0 < len(left) < len(walked)
    assert walked[-len(left) :] == left
    for feed in FEEDS:
        tail = bench.tail(feed)
        assert 0 < tail.dropped_sequence_id < tail.oldest == tail.dropped_sequence_id + 1
        assert bench.values(feed) == {n: v for n, v in wanted[feed].items() if n >= tail.oldest}
    assert bench.store.drop_before(FIRST_POSITION) == oldest, "what is dropped stays dropped"


def test_dropped_places_are_never_silently_skipped(bench: Bench) -> None:
    fill(bench, FEEDS, 80)
    old = {feed: all_places(bench.store, bench.tail(feed).region_id)[0] for feed in FEEDS}
    bench.store.drop_before(middle(bench))
    for feed in FEEDS:
        tail = bench.tail(feed)
        for first in (1, tail.dropped_sequence_id):
            for last in (first, tail.head):
                with pytest.raises(SequenceNotAvailable) as refusal:
                    frames_of_range(bench.store, tail, first, last, entries_max=9, bytes_max=ALL)
                assert refusal.value.members == {"oldest": tail.oldest, "head": tail.head}
        with pytest.raises(SequenceNotAvailable):
            bench.store.read([old[feed]])
    with pytest.raises(SequenceNotAvailable):
        bench.store.walk(FIRST_POSITION, bytes_max=ALL)


def test_drop_keeps_what_a_retry_and_a_restart_need(opener: Opener, tmp_path: Path) -> None:
    store = opener(tmp_path, SMALL_SEGMENT)
    bench = Bench(store)
    bench.register("quiet")
    last = bench.append("quiet", "one", "two", source=b"p7")
    fill(bench, ["busy"], 80)
    newest = bench.tail("quiet").newest
    store.drop_before(store.end())
    for _ in ("open", "opened again"):
        tail = bench.tail("quiet")
        assert (tail.dropped_sequence_id, tail.oldest, tail.head, tail.next_sequence_id) == (2, 3, 2, 3)
        assert (tail.dropped_lsn, tail.newest) == (str(newest), newest)
        assert lsn_at(bench.store, tail, 2) == newest
        assert lsn_at(bench.store, tail, 1) is None
        assert bench.values("quiet") == {}
        again = bench.send(expecting("quiet", 1, "one", "two"))
        assert (again.duplicate, again.first_lsn, again.last_lsn) == (True, last.first_lsn, last.last_lsn)
        assert tail.producers["agent-1"].source_position == "cDc="
        before = _everything(bench.store)
        bench.store.close()
        bench = Bench(opener(tmp_path, SMALL_SEGMENT), bench.clock)
        assert _everything(bench.store) == before
    assert bench.append("quiet", "three").first_sequence_id == 3
    assert bench.values("quiet") == {3: b"three"}
    bench.store.close()


def test_lsn_at_every_place(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    bench.store.drop_before(middle(bench))
    lsns = {(lsn.region_id, number): lsn for lsn, number in bench.walked()}
    for tail in bench.store.tails():
        for number in range(tail.head + 3):
            wanted = lsns.get((tail.region_id, number))
            if number == tail.dropped_sequence_id:
                assert str(lsn_at(bench.store, tail, number)) == tail.dropped_lsn
            else:
                assert lsn_at(bench.store, tail, number) == wanted


def test_the_open_end_is_never_dropped(bench: Bench) -> None:
    fill(bench, FEEDS, 80)
    oldest = bench.store.drop_before(ALL)
    assert oldest <= bench.store.end()
    assert bench.append("a", "x").first_sequence_id == bench.tail("a").head
    assert bench.walked()[-1][1] == bench.tail("a").head


def test_seek_finds_the_first_frame_of_a_time_or_later(bench: Bench) -> None:
    """Control frames have no entry, so it does not matter on which side of one it ends."""
    fill(bench, FEEDS, 60)
    frames = list(bench.store.walk(bench.store.oldest_position(), bytes_max=ALL))
    while frames[-1].header.end < bench.store.end():
        frames += bench.store.walk(frames[-1].header.end, bytes_max=ALL)
    entries = [frame.header for frame in frames if frame.header.kind == FrameKind.ENTRIES]
    for header, before in zip(entries, [None, *entries], strict=False):
        for wanted in (header.global_ts, header.last_global_ts):
            found = bench.store.seek(wanted)
            assert (0 if before is None else before.end) <= found <= header.position
    assert entries[-1].end <= bench.store.seek(entries[-1].last_global_ts + 1) <= bench.store.end()
    assert bench.store.oldest_position() <= bench.store.seek(0) <= entries[0].position
    assert bench.store.seek(1 << 63) == bench.store.end()


def test_seek_is_not_led_astray_by_values_that_look_like_headers(bench: Bench) -> None:
    """A value may hold whole headers, with checksums that fit, of frames said to stand just there."""
    bench.register("a")
    wanted = bench.append("a", "before")
    place = bench.store.end()
    header = bench.store.walk(bench.store.oldest_position(), bytes_max=ALL)[-1].header
    forged = b"".join(
        header._replace(position=place + at, global_ts=1, body_size=1 << 20).encode()
        for at in range(150, 4000, 96)
    )
    for offset in range(0, 96, 7):
        bench.append("a", b"x" * offset + forged)
    later = bench.append("a", "after")
    for one in (wanted, later):
        at = bench.store.seek(one.first_lsn.global_ts)
        frame = bench.store.walk(at, bytes_max=1)[0]
        assert frame.header.first_sequence_id == one.first_sequence_id


def test_segments_tell_what_retention_needs(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    segments = list(bench.store.segments())
    assert len(segments) > 3
    assert [one.is_open for one in segments] == [False] * (len(segments) - 1) + [True]
    assert segments[0].first_position == bench.store.oldest_position()
    assert segments[-1].end == bench.store.end()
    assert all(one.size >= one.end - one.first_position > 0 for one in segments)
    for one, after in pairwise(segments):
        assert one.end == after.first_position
        assert bench.store.seek(one.newest_global_ts + 1) == after.first_position
        assert one.newest_global_ts < after.newest_global_ts


def test_newest_dropped_lsn_is_known(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    assert bench.store.dropped_lsn() == ZERO
    place = bench.store.segments()[2].first_position
    bench.store.drop_before(place)
    first = bench.store.walk(place, bytes_max=1)[0]
    assert ZERO < bench.store.dropped_lsn() < first.header.lsn(0)
    assert bench.store.dropped_lsn() == max(Lsn.parse(bench.tail(feed).dropped_lsn) for feed in FEEDS)


# -- groups that are given up, and what others do ---------------------------------------------------------------------


def test_abandoned_group_writes_nothing_and_the_next_one_goes_on(bench: Bench) -> None:
    bench.register("a")
    before = bench.store.begin({"a"})
    verdict = judge([append("a", "x")], before, Terms(bench.clock.ms), lambda *_: [])
    bench.store.abandon(before)
    bench.store.abandon(before)
    assert bench.store.begin({"a"}) == before
    assert bench.append("a", "y").first_sequence_id == 1
    with pytest.raises(StoreUnavailable):
        bench.store.put(before, verdict.group)
    bench.store.abandon(before)
    assert bench.values("a") == {1: b"y"}


def test_a_group_that_was_put_is_no_longer_there_to_be_abandoned(bench: Bench) -> None:
    bench.register("a")
    begin = bench.store.begin({"a"})
    verdict = judge([append("a", "x")], begin, Terms(bench.clock.ms), lambda *_: [])
    bench.store.put(begin, verdict.group)
    bench.store.abandon(begin)
    assert bench.values("a") == {1: b"x"}


def test_refresh_shows_what_is_there(bench: Bench) -> None:
    fill(bench, FEEDS, 20)
    before = (bench.store.end(), list(bench.store.tails()), bench.store.oldest_position())
    bench.store.refresh()
    assert (bench.store.end(), list(bench.store.tails()), bench.store.oldest_position()) == before
    wait_until(lambda: bench.store.unreachable() is None)
