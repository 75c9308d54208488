"""Retention on every store: sealing a quiet segment, finding everyone's place, a feed whose entries are all gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import StoreUnavailable
from headrace.log.contract import Store
from headrace.log.history import (
    bytes_behind,
    first_sequence_at,
    position_after,
    position_past,
    written_at_ms,
)
from headrace.log.metadata.contract import ListenerRow, SubscriberRow
from headrace.log.retention.consumers import listener_consumer, subscriber_consumer
from headrace.log.retention.plan import Terms
from tests.bench import INCARNATION, Bench, expecting
from tests.stores import SMALL_SEGMENT, Opener, fill

FEEDS = ["a", "b::c"]
ALL = 1 << 30
TERMS = Terms(now_ms=1_760_000_000_000, retention_ms=1, expiry_ms=1000, bytes_max=1)


@pytest.fixture
def bench(opener: Opener, tmp_path: Path) -> Iterator[Bench]:
    store = opener(tmp_path, SMALL_SEGMENT)
    yield Bench(store)
    store.close()


def frames(store: Store) -> list[tuple[int, int, int, int]]:
    """(position, region id, first sequence id, next sequence id) of every entries frame, by walking."""
    found = []
    at = store.oldest_position()
    while at < store.end():
        for frame in store.walk(at, bytes_max=ALL):
            header, at = frame.header, frame.header.end
            if header.count:
                found.append(
                    (header.position, header.region_id, header.first_sequence_id, header.last_sequence_id + 1)
                )
    return found


# -- sealing ----------------------------------------------------------------------------------------------------------


def test_roll_seals_a_segment_with_frames_and_changes_nothing_else(bench: Bench) -> None:
    wanted = fill(bench, FEEDS, 10)
    store = bench.store
    before = (store.end(), store.oldest_position(), list(store.tails()), bench.walked())
    *_, was_open = store.segments()
    store.roll()
    *_, sealed, is_open = store.segments()
    assert (sealed.first_position, sealed.end, sealed.is_open) == (
        was_open.first_position,
        store.end(),
        False,
    )
    assert (is_open.first_position, is_open.end, is_open.is_open) == (store.end(), store.end(), True)
    assert (store.end(), store.oldest_position(), list(store.tails()), bench.walked()) == before
    assert {feed: bench.values(feed) for feed in FEEDS} == wanted


def test_roll_of_an_empty_segment_does_nothing(bench: Bench) -> None:
    bench.store.roll()
    assert len(bench.store.segments()) == 1
    fill(bench, FEEDS, 3)
    bench.store.roll()
    count = len(bench.store.segments())
    bench.store.roll()
    assert len(bench.store.segments()) == count


def test_a_rolled_journal_opens_and_goes_on(opener: Opener, tmp_path: Path) -> None:
    bench = Bench(opener(tmp_path, SMALL_SEGMENT))
    wanted = fill(bench, FEEDS, 10)
    bench.store.roll()
    segments = list(bench.store.segments())
    for _ in range(2):
        bench.store.close()
        bench = Bench(opener(tmp_path, SMALL_SEGMENT), bench.clock)
        assert list(bench.store.segments()) == segments
        assert {feed: bench.values(feed) for feed in FEEDS} == wanted
    number = bench.append("a", "more").first_sequence_id
    assert bench.values("a") == wanted["a"] | {number: b"more"}
    bench.store.close()


def test_a_feed_whose_entries_are_all_gone_keeps_its_place(opener: Opener, tmp_path: Path) -> None:
    """Next id, newest LSN, and what a retry is recognised by: over roll, drop, restart and once more."""
    bench = Bench(opener(tmp_path, SMALL_SEGMENT))
    bench.register("a")
    last = bench.append("a", "one", "two", source=b"p7")
    for _ in range(2):
        bench.store.roll()
        assert bench.store.drop_before(bench.store.end()) == bench.store.end()
        tail = bench.tail("a")
        assert (tail.oldest, tail.head, tail.next_sequence_id, tail.dropped_sequence_id) == (3, 2, 3, 2)
        assert bench.store.dropped_lsn() == tail.newest == last.last_lsn
        assert tail.producers["agent-1"].source_position == "cDc="
        again = bench.send(expecting("a", 1, "one", "two"))
        assert (again.duplicate, again.first_lsn, again.last_lsn) == (True, last.first_lsn, last.last_lsn)
        bench.store.close()
        bench = Bench(opener(tmp_path, SMALL_SEGMENT), bench.clock)
    assert bench.append("a", "three").first_sequence_id == 3
    bench.store.close()


# -- places -----------------------------------------------------------------------------------------------------------


def test_every_place_is_found_as_a_walk_finds_it(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    store = bench.store
    store.drop_before(store.segments()[2].first_position)
    found, end = frames(store), store.end()
    for tail in store.tails():
        own = [one for one in found if one[1] == tail.region_id]
        for number in range(tail.dropped_sequence_id, tail.head + 2):
            behind = [one for one in own if one[3] > number + 1]
            assert position_after(store, tail, number, end) == (behind[0][0] if behind else end)
        for position in [
            store.oldest_position(),
            end,
            *(one[0] for one in found),
            *(one[0] + 1 for one in found),
        ]:
            later = [one[2] for one in own if one[0] >= position]
            assert first_sequence_at(store, tail, position) == (later[0] if later else tail.next_sequence_id)


def test_the_place_of_a_subscriber_is_the_next_entry_of_any_feed(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    store = bench.store
    store.drop_before(store.segments()[2].first_position)
    found = frames(store)
    assert position_past(store, ZERO) == found[0][0]
    lsns = [lsn for lsn, _ in bench.walked()]
    last_of = {
        header: lsns[sum(one[3] - one[2] for one in found[: at + 1]) - 1] for at, header in enumerate(found)
    }
    for at, one in enumerate(found):
        after = found[at + 1][0] if at + 1 < len(found) else store.end()
        assert position_past(store, last_of[one]) == after
        if one[3] - one[2] > 1:
            last = last_of[one]
            assert position_past(store, last._replace(raft_index=last.raft_index - 1)) == one[0], (
                "in its middle"
            )
    bench.register("late")
    assert position_past(store, lsns[-1]) == store.end(), "a control frame is nothing to wait for"


def test_who_is_lost_and_who_is_not(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    store = bench.store
    store.drop_before(store.segments()[2].first_position)
    tail, end, oldest = bench.tail("a"), store.end(), store.oldest_position()

    def listener(place: int | None, *, hold: bool = True, incarnation: str = INCARNATION) -> ListenerRow:
        return ListenerRow("l", "a", hold, incarnation, place, None, TERMS.now_ms)

    edge = listener_consumer(store, tail, listener(tail.dropped_sequence_id), end, TERMS)
    assert (edge.lost, edge.position) == (False, position_after(store, tail, tail.dropped_sequence_id, end))
    assert listener_consumer(store, tail, listener(tail.dropped_sequence_id - 1), end, TERMS).lost
    assert listener_consumer(store, tail, listener(tail.head), end, TERMS).position == end
    for nowhere in (listener(None), listener(tail.head, incarnation="another")):
        assert listener_consumer(store, tail, nowhere, end, TERMS).position == edge.position
        free = listener_consumer(store, tail, nowhere._replace(hold=False), end, TERMS)
        assert (free.position, free.hold_until_ms) == (None, None)
    dropped = store.dropped_lsn()
    for place, lost in ((dropped, False), (Lsn(dropped.global_ts, 0, 0), True), (ZERO, True)):
        row = SubscriberRow("anonymous", "s", str(place), TERMS.now_ms)
        assert subscriber_consumer(store, row, TERMS).lost is lost
    assert oldest <= (edge.position or 0)


def test_bytes_behind_are_those_of_the_feed(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    store, tail = bench.store, bench.tail("a")
    places = store.places(tail.region_id, 0, ALL, frames_max=ALL)
    for place in places:
        wanted = sum(one.size for one in places if one.first_sequence_id >= place.first_sequence_id)
        assert bytes_behind(store, tail, place.first_sequence_id - 1) == wanted
    assert bytes_behind(store, tail, tail.head) == 0


def test_when_a_frame_was_written(bench: Bench) -> None:
    bench.register("a")
    bench.clock.ms += 5000
    bench.append("a", "x")
    (at,) = [one[0] for one in frames(bench.store)]
    assert written_at_ms(bench.store, at) == bench.clock.ms
    assert written_at_ms(bench.store, bench.store.end()) is None


def test_the_last_look_bounds_what_is_dropped_and_keeps_out_who_begins_to_hold(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    store, events = bench.store, list[str]()
    second, last = store.segments()[1].first_position, store.segments()[-1].first_position
    looking, held = threading.Event(), threading.Event()

    def look() -> int:
        looking.set()
        assert not held.wait(0.2), "nobody begins to hold now"
        events.append("looked")
        return second

    def hold() -> int:
        held.set()
        events.append("held")
        store.refresh()
        return store.oldest_position()

    with ThreadPoolExecutor(1) as thread:
        dropping = thread.submit(store.drop_before, last, look=look)
        assert looking.wait(30)
        assert store.without_drops(hold) == second
        assert dropping.result(30) == second
    assert events == ["looked", "held"]
    assert store.oldest_position() == second
    assert store.drop_before(second, look=lambda: last) == second, "it never drops more than it was told"


def test_a_last_look_that_fails_drops_nothing(bench: Bench) -> None:
    fill(bench, FEEDS, 60)
    oldest = bench.store.oldest_position()

    def look() -> int:
        raise StoreUnavailable("it can't be told who holds")

    with pytest.raises(StoreUnavailable, match="who holds"):
        bench.store.drop_before(bench.store.end(), look=look)
    assert bench.store.oldest_position() == oldest
    assert bench.store.without_drops(lambda: 7) == 7, "the lock was given back"
    assert bench.store.drop_before(bench.store.end()) > oldest
