"""Tails, states and control frames as stored documents; what of them is unknown or broken."""

from __future__ import annotations

import pytest

from headrace.entries.lsn import ZERO
from headrace.errors import JournalCorrupt
from headrace.log.control import Control, ControlKind, decode_control
from headrace.log.replay import Replay
from headrace.log.tail import FeedTail, JournalState, ProducerPlace, Quarantine, decode_state
from headrace.wire.frame import FrameHeader, FrameKind

TAIL = FeedTail(
    "f", 7, "acme", "inc", "a2", "i", 3, 64, "1.7.63", 60, 61, "1.7.61",
    {"a1": Quarantine("a1", 62, 5)}, {"a1": 2, "a2": 3}, {"a1": ProducerPlace(62, 2, "ab", 9, "cDc=")},
)  # fmt: skip


def test_bounds_of_a_tail() -> None:
    assert (TAIL.head, TAIL.oldest, str(TAIL.newest)) == (63, 62, "0000000000000001.0000000007.0000000063")
    fresh = FeedTail("f", 7, "acme", "inc", "a", "i", 1)
    assert (fresh.head, fresh.oldest, fresh.newest) == (0, 1, ZERO)
    begun = FeedTail("f", 7, "acme", "inc", "a", "i", 1, next_sequence_id=64, first_sequence_id=63)
    assert (begun.head, begun.oldest) == (63, 63)


def test_quarantine_shown_is_the_owners_first() -> None:
    assert TAIL.quarantine == Quarantine("a1", 62, 5), "of an earlier owner, if the present one has none"
    assert FeedTail("f", 7, "t", "i", "a", "i", 1).quarantine is None


def test_documents_round_trip() -> None:
    state = JournalState(9, 8, "1.7.61", {"f": TAIL})
    assert decode_state(state.encode()) == state
    control = Control(ControlKind.TAKEN_OVER, TAIL)
    assert decode_control(control.encode()) == control


def test_later_kinds_and_members_are_passed_over() -> None:
    body = Control("of-a-later-version", TAIL).encode().replace(b'"tenant"', b'"new-member":1,"tenant"', 1)
    assert decode_control(body) == Control("of-a-later-version", TAIL)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"feeds":{"f":{}}}', b'{"kind":1,"feeds":[]}', b'{"feeds":{"\xff":1}}']
)
def test_broken_documents_are_corruption(data: bytes) -> None:
    with pytest.raises(JournalCorrupt):
        decode_control(data)
    with pytest.raises(JournalCorrupt):
        decode_state(data)


def header(kind: FrameKind, first: int, region_id: int = 7) -> FrameHeader:
    return FrameHeader(kind, 0x100, first, 99, 3, bytes(16), region_id, 2, 0, 0, 0)


def test_replay_over_damaged_payloads_keeps_the_places() -> None:
    replay = Replay(JournalState(feeds={"f": TAIL}))
    replay.apply_damaged(header(FrameKind.ENTRIES, 64))
    tail = replay.state.feeds["f"]
    assert (tail.next_sequence_id, tail.producers["a2"].first_sequence_id) == (66, 64)
    assert replay.state.global_ts == 99


def test_replay_refuses_what_does_not_join() -> None:
    replay = Replay(JournalState(feeds={"f": TAIL}))
    with pytest.raises(JournalCorrupt, match="where 64 is next"):
        replay.apply_damaged(header(FrameKind.ENTRIES, 65))
    with pytest.raises(JournalCorrupt, match="region 8"):
        replay.apply_damaged(header(FrameKind.ENTRIES, 64, region_id=8))
    with pytest.raises(JournalCorrupt, match="control frame"):
        replay.apply_damaged(header(FrameKind.CONTROL, 64))
    replay.gaps_allowed = True
    replay.apply_damaged(header(FrameKind.ENTRIES, 70))
    assert replay.state.feeds["f"].next_sequence_id == 72
