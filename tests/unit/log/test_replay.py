"""A replay that is asked only at the end says what one says that is asked after every frame."""

from __future__ import annotations

import random

import pytest

from headrace.errors import JournalCorrupt
from headrace.log.replay import Replay
from headrace.log.tail import FeedTail, JournalState
from headrace.wire.frame import Frame, FrameHeader, FrameKind
from tests.scale import scaled
from tests.unit.log.court import Court


def journal(rng: random.Random) -> Court:
    """Registrations, takeovers and appends of several producers to owned and shared feeds, in random order."""
    court = Court(global_ts=rng.choice((0, (1 << 32) - 2)))
    owners = {"a": "agent-1", "b": "agent-1"}
    for feed in owners:
        court.register(feed=feed)
    for agent in ("agent-1", "agent-2"):
        court.register(agent, feed="s", shared=True)
    for number in range(rng.randint(1, 40)):
        feed = rng.choice("abs")
        if feed != "s" and rng.random() < 0.1:
            owners[feed] = rng.choice(("agent-1", "agent-2"))
            court.register(owners[feed], f"i-{number}", feed=feed, takeover=True)
            continue
        producer = owners.get(feed) or rng.choice(("agent-1", "agent-2"))
        values = [f"{number}-{at}" for at in range(rng.randint(1, 3))]
        court.append(*values, feed=feed, producer=producer, source=rng.choice((b"", str(number).encode())))
    return court


@pytest.mark.parametrize("seed", range(scaled(40)))
def test_asked_late_or_often(seed: int) -> None:
    rng = random.Random(seed)
    court = journal(rng)
    damaged = {
        number for number, frame in enumerate(court.frames) if frame.header.count and rng.random() < 0.1
    }
    late, often = Replay(JournalState()), Replay(JournalState())
    for number, raw in enumerate(court.raw):
        for replay in (late, often):
            if number in damaged:
                kind = (
                    FrameKind.SKIPPED if number % 2 else FrameKind.ENTRIES
                )  # a repair has been there, or not
                replay.apply_damaged(court.frames[number].header._replace(kind=kind))
            else:
                replay.apply(Frame(raw))
        assert often.state.encode()
    assert late.state.encode() == often.state.encode()
    if not damaged:
        assert late.state.feeds == court.tails


def test_a_frame_that_does_not_join_is_refused_and_changes_nothing() -> None:
    court = journal(random.Random(3))
    entries = [raw for frame, raw in zip(court.frames, court.raw, strict=True) if frame.header.count]
    replay = Replay(JournalState())
    for raw in court.raw:
        replay.apply(Frame(raw))
    before = replay.state.encode()
    with pytest.raises(JournalCorrupt, match=r"begins at sequence id 1 .* is next"):
        replay.apply(Frame(entries[0]))
    assert replay.state.encode() == before
    replay.gaps_allowed = True
    replay.apply(Frame(entries[0]))
    region_id = Frame(entries[0]).header.region_id
    tail = next(tail for tail in replay.state.feeds.values() if tail.region_id == region_id)
    assert tail.next_sequence_id == Frame(entries[0]).header.last_sequence_id + 1


def test_entries_of_a_feed_that_was_never_made_are_refused() -> None:
    court = journal(random.Random(4))
    raw = next(
        raw
        for frame, raw in zip(court.frames, court.raw, strict=True)
        if frame.header.kind == FrameKind.ENTRIES
    )
    with pytest.raises(JournalCorrupt, match="never made"):
        Replay(JournalState()).apply(Frame(raw))


@pytest.mark.parametrize(("count", "clock"), [(1, 50), (2, 51), (3, 51)])
def test_the_clock_follows_a_frame_in_which_the_raft_index_wraps(count: int, clock: int) -> None:
    begun = FeedTail("f", 7, "", "i", "a", "a", 1, next_sequence_id=(1 << 32) - 1, first_sequence_id=1)
    replay = Replay(JournalState(global_ts=40, feeds={"f": begun}))
    header = FrameHeader(FrameKind.ENTRIES, 0x100, (1 << 32) - 1, 50, 1, bytes(16), 7, count, 0, 0, 0)
    replay.apply_entries(header, b"")
    assert replay.state.global_ts == clock == header.last_global_ts
