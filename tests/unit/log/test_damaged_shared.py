"""A damaged frame hides whose it was: what is then still known of producers, and what is said not to be known."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.errors import JournalCorrupt, OffsetMismatch
from headrace.log.replay import Replay
from headrace.log.tail import FeedTail, JournalState, decode_state
from headrace.wire.frame import Frame
from tests.bench import Bench, expecting
from tests.fault.journals import flip, headers, opened
from tests.unit.log.court import FEED, Court


def replayed(court: Court, *damaged: int) -> FeedTail:
    """The feed's tail after a replay of all frames, of which those with these numbers (from 0) have a damaged payload."""
    replay = Replay(JournalState())
    for number, frame in enumerate(court.frames):
        if number in damaged:
            replay.apply_damaged(frame.header)
        else:
            replay.apply(Frame(court.raw[number]))
    return replay.state.feeds[FEED]


@pytest.fixture
def shared() -> Court:
    """a of agent-1, b of agent-2, c of agent-1: frames 2, 3 and 4."""
    made = Court()
    made.register(shared=True)
    made.register("agent-2", shared=True)
    for value, producer in (("a", "agent-1"), ("b", "agent-2"), ("c", "agent-1")):
        made.append(value, producer=producer, source=value.encode())
    return made


def test_nothing_damaged_everything_known(shared: Court) -> None:
    tail = replayed(shared)
    assert tail == shared.tail()
    for agent, first in (("agent-1", 3), ("agent-2", 2)):
        place = tail.last_frame(agent)
        assert place is not None
        assert place.first_sequence_id == first
    assert tail.last_frame("stranger") is None


def test_nobodys_last_frame_moves_on_a_shared_feed(shared: Court) -> None:
    tail = replayed(shared, 4)
    assert (tail.next_sequence_id, tail.newest_lsn) == (4, shared.tail().newest_lsn)
    assert tail.damaged_sequence_id == 3
    assert {name: place.first_sequence_id for name, place in tail.producers.items()} == {
        "agent-1": 1,
        "agent-2": 2,
    }


@pytest.mark.parametrize("agent", ["agent-1", "agent-2"])
def test_last_frame_that_may_be_the_damaged_one_is_not_told(shared: Court, agent: str) -> None:
    with pytest.raises(JournalCorrupt, match="sequence id 3 is damaged") as refusal:
        replayed(shared, 4).last_frame(agent)
    assert refusal.value.members == {"change-feed-id": FEED, "sequence-id": 3}


def test_who_has_appended_since_is_certain(shared: Court) -> None:
    tail = replayed(shared, 3)
    place = tail.last_frame("agent-1")
    assert place is not None
    assert (place.first_sequence_id, place.source_position) == (3, "Yw==")
    with pytest.raises(JournalCorrupt):
        tail.last_frame("agent-2")


def test_producer_that_is_not_known_to_have_appended_can_not_be_told_either() -> None:
    court = Court()
    court.register(shared=True)
    court.register("agent-2", shared=True)
    court.append("a")
    with pytest.raises(JournalCorrupt):
        replayed(court, 2).last_frame("agent-2")
    assert replayed(court).last_frame("agent-2") is None


def test_control_frame_makes_everything_certain_again(shared: Court) -> None:
    """It carries the whole tail, as it was known when the damaged frame was whole."""
    shared.register("agent-3", shared=True)
    assert replayed(shared, 2, 3, 4) == shared.tail()


def test_owners_damaged_frame_is_known_by_its_header_but_not_its_source_position() -> None:
    court = Court()
    court.register()
    court.append("a", source=b"1")
    court.append("b", source=b"2")
    tail = replayed(court, 2)
    place = tail.producers["agent-1"]
    assert (place.first_sequence_id, place.digest) == (2, court.tail().producers["agent-1"].digest)
    with pytest.raises(JournalCorrupt):
        tail.last_frame("agent-1")
    assert tail.damaged_sequence_id == 2


def test_state_with_damage_outlives_a_segment(shared: Court) -> None:
    tail = replayed(shared, 4)
    state = JournalState(feeds={FEED: tail})
    assert decode_state(state.encode()).feeds[FEED] == tail


def test_states_of_older_journals_are_owned_and_optional() -> None:
    old = msgspec.to_builtins(FeedTail("f", 1, "t", "inc", "agent-1", "i", 1))
    for member in ("shared", "instances", "damaged-sequence-id"):
        del old[member]
    del old["settings"]["expected-offset"]
    tail = msgspec.convert(old, FeedTail)
    assert (tail.shared, tail.instances, tail.settings.expected_offset) == (False, {}, "optional")


def test_retry_over_a_damaged_frame_of_a_shared_feed(tmp_path: Path) -> None:
    """It is neither taken for a repeat nor for a mismatch, and others go on."""
    with opened(tmp_path, segment_bytes=1 << 20) as bench:
        fill_shared(bench)
        damaged = headers(bench)[-1]
    flip(tmp_path, damaged.position + 120)
    with opened(tmp_path, segment_bytes=1 << 20) as bench:
        assert bench.store.not_writable() is None
        for producer in ("agent-1", "agent-2"):
            with pytest.raises(JournalCorrupt):
                bench.send(expecting(FEED, 3, "c", producer=producer))
        with pytest.raises(JournalCorrupt):
            bench.tail(FEED).last_frame("agent-2")
        assert bench.send(expecting(FEED, 2, "b", producer="agent-2")).duplicate
        assert bench.send(expecting(FEED, 4, "d", producer="agent-2")).first_sequence_id == 4
        with pytest.raises(OffsetMismatch):
            bench.send(expecting(FEED, 4, "d"))
    with opened(tmp_path, segment_bytes=1 << 20) as bench:
        assert bench.tail(FEED).last_frame("agent-2") is not None
        with pytest.raises(JournalCorrupt):
            bench.tail(FEED).last_frame("agent-1")


def fill_shared(bench: Bench) -> None:
    for producer in ("agent-1", "agent-2"):
        bench.register(FEED, producer, shared=True)
    for value, producer in (("a", "agent-1"), ("b", "agent-2"), ("c", "agent-1")):
        bench.append(FEED, value, producer=producer)
