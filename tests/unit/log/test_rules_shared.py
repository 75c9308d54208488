"""Shared feeds: several producers beside each other, each with its own instance and epoch, ordered by expected offsets."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.errors import (
    Fenced,
    HeadraceError,
    InvalidRequest,
    NotRegistered,
    OffsetMismatch,
    TooLarge,
)
from headrace.log.contract import Begin
from headrace.log.requests import NEXT, Appended, Request
from headrace.log.rules import StoredEntry, Terms, admission, judge, judging
from headrace.log.tail import FeedTail, ProducerPlace
from tests.bench import append, expecting, register
from tests.unit.log.court import FEED, Court


@pytest.fixture
def court() -> Court:
    """A shared feed with the producers agent-1 and agent-2, and nothing in it."""
    made = Court()
    made.register(shared=True)
    made.register("agent-2", shared=True)
    return made


def test_it_has_no_owner_and_an_epoch_for_each_producer(court: Court) -> None:
    tail = court.tail()
    assert (tail.shared, tail.owner, tail.instance, tail.epoch) == (True, "", "", 0)
    assert tail.agents == {"agent-1": 1, "agent-2": 1}
    assert [tail.epoch_of(agent) for agent in ("agent-1", "agent-2", "stranger")] == [1, 1, 0]


def test_producers_append_beside_each_other(court: Court) -> None:
    places = [
        court.append(str(number), producer=producer, epoch=1).first_sequence_id
        for number, producer in enumerate(["agent-1", "agent-2", "agent-1", "agent-2"])
    ]
    assert places == [1, 2, 3, 4]
    assert set(court.tail().producers) == {"agent-1", "agent-2"}
    assert [frame.header.epoch for frame in court.frames[2:]] == [1, 1, 1, 1]


def test_same_instance_keeps_its_epoch_and_writes_nothing(court: Court) -> None:
    frames = len(court.frames)
    assert court.register("agent-2", shared=True).epoch_of("agent-2") == 1
    assert len(court.frames) == frames


def test_new_instance_fences_its_twin_and_nobody_else(court: Court) -> None:
    assert court.register("agent-2", "restarted", shared=True).epoch_of("agent-2") == 2
    with pytest.raises(Fenced) as refusal:
        court.append("late", producer="agent-2", epoch=1)
    assert refusal.value.members["epoch"] == 2
    assert "owner" not in refusal.value.members
    assert court.append("a", producer="agent-2", epoch=2).first_sequence_id == 1
    assert court.append("b", producer="agent-1", epoch=1).first_sequence_id == 2
    assert court.register("agent-2", "again", shared=True).epoch_of("agent-2") == 3


def test_twin_that_registers_in_the_same_group_fences_what_follows(court: Court) -> None:
    before, joined, after, other = court.ask(
        append(FEED, "a", producer="agent-2", epoch=1),
        register(FEED, "agent-2", "twin", shared=True),
        append(FEED, "b", producer="agent-2", epoch=1),
        append(FEED, "c", epoch=1),
    )
    assert isinstance(before, Appended)
    assert isinstance(joined, FeedTail)
    assert isinstance(after, Fenced)
    assert isinstance(other, Appended)


def test_epoch_that_this_producer_never_got(court: Court) -> None:
    court.register("agent-2", "twin", shared=True)
    with pytest.raises(NotRegistered) as refusal:
        court.append("a", epoch=2)
    assert refusal.value.members["epoch"] == 1
    with pytest.raises(NotRegistered):
        court.append("a", producer="stranger")


@pytest.mark.parametrize("shared", [True, False])
def test_feed_is_owned_or_shared_for_life(court: Court, shared: bool) -> None:
    court.register(feed="other", shared=not shared)
    for agent in ("agent-1", "agent-2"):
        for takeover in (False, not shared):
            with pytest.raises(InvalidRequest) as refusal:
                court.register(agent, feed="other", shared=shared, takeover=takeover)
            assert refusal.value.members == {"member": "shared"}
    assert court.tail("other").shared is not shared


def test_there_is_nothing_to_take_over(court: Court) -> None:
    for feed in (FEED, "new"):
        with pytest.raises(InvalidRequest) as refusal:
            court.register("agent-3", feed=feed, shared=True, takeover=True)
        assert refusal.value.members == {"member": "takeover"}
    assert "new" not in court.tails


@pytest.mark.parametrize(("ids", "index"), [((1,), 0), ((9,), 0), ((NEXT, 2), 1)])
def test_sequence_ids_are_refused_and_nobody_is_quarantined(
    court: Court, ids: tuple[int, ...], index: int
) -> None:
    court.append("a")
    with pytest.raises(InvalidRequest) as refusal:
        court.append(*"bc"[: len(ids)], sequence_ids=ids)
    assert refusal.value.members.items() >= {"member": "sequence-id", "index": index}.items()
    assert not court.tail().quarantines
    assert court.append("b", sequence_ids=(NEXT,)).first_sequence_id == 2


def test_two_producers_at_the_tail_exactly_one_wins(court: Court) -> None:
    first, second = court.ask(expecting(FEED, 1, "a"), expecting(FEED, 1, "a", producer="agent-2"))
    assert isinstance(first, Appended)
    assert isinstance(second, OffsetMismatch), "equal bytes of another producer are not its own"
    assert second.members["actual-next"] == 2
    again, other = court.ask(expecting(FEED, 1, "a"), expecting(FEED, 2, "b", producer="agent-2"))
    assert isinstance(again, Appended)
    assert again.duplicate
    assert isinstance(other, Appended)


def test_repeat_among_other_producers_entries(court: Court) -> None:
    for number in range(6):
        court.append(f"v{number}", producer=f"agent-{number % 2 + 1}")
    assert court.send(expecting(FEED, 3, "v2")).duplicate
    with pytest.raises(OffsetMismatch):
        court.send(expecting(FEED, 3, "v2", "v3"))
    assert court.send(expecting(FEED, 4, "v3", producer="agent-2")).duplicate


def test_last_frame_of_each_producer_is_known_after_retention(court: Court) -> None:
    for number in range(6):
        court.append(f"v{number}", producer=f"agent-{number % 2 + 1}")
    court.drop(6)
    assert court.send(expecting(FEED, 5, "v4")).duplicate
    assert court.send(expecting(FEED, 6, "v5", producer="agent-2")).duplicate
    with pytest.raises(OffsetMismatch) as refusal:
        court.send(expecting(FEED, 3, "v2"))
    assert refusal.value.members["side-effects"] == "possible"


def test_repeat_of_a_restarted_producer(court: Court) -> None:
    court.append("a", "b", epoch=1)
    court.register("agent-1", "restarted", shared=True)
    assert court.send(expecting(FEED, 1, "a", "b", epoch=2)).duplicate
    with pytest.raises(Fenced) as refusal:
        court.send(expecting(FEED, 1, "a", "b", epoch=1))
    assert refusal.value.members["side-effects"] == "possible", "it did stand there"


def test_agents_of_a_feed_are_bounded(court: Court, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "AGENTS_MAX", 2)
    outcomes = court.ask(
        register(FEED, "agent-3", shared=True), register(FEED, "agent-2", "new", shared=True)
    )
    assert isinstance(outcomes[0], TooLarge)
    assert not isinstance(outcomes[1], HeadraceError)


def test_producers_are_copied_once_a_group_and_never_changed_under_who_holds_them(court: Court) -> None:
    """A feed may have thousands of producers, so no append may copy them all. What is answered or stored stays as it is."""
    court.append("a")
    before = court.tail()
    begin = Begin(court.end, court.global_ts, court.next_region_id, {FEED: before})
    seen: list[dict[str, ProducerPlace]] = []

    def look(tail: FeedTail, first: int, last: int, wanted: Sequence[bytes]) -> list[StoredEntry]:
        """What each mismatch below is compared with: a way to see the tail that it was judged on."""
        seen.append(tail.producers)
        return []

    def places(first: int) -> list[Request]:
        asked: list[Request] = []
        for number in range(first, first + 4):
            asked += [expecting(FEED, number, str(number)), expecting(FEED, 1, "x")]
        return asked

    asked = [expecting(FEED, 1, "x"), *places(2), register(FEED, "agent-3", shared=True), *places(6)]
    made = judge(asked, begin, Terms(court.wall_ms), look)
    assert [id(producers) for producers in seen] == [
        id(before.producers), *[id(seen[1])] * 4, *[id(seen[5])] * 4,
    ]  # fmt: skip
    assert len({id(producers) for producers in seen}) == 3
    registered = made.outcomes[9]
    assert isinstance(registered, FeedTail)
    kept = {tail.producers["agent-1"].first_sequence_id for tail in (before, registered)}
    assert kept == {1, 5}
    assert made.group.tails[FEED].producers["agent-1"].first_sequence_id == 9


def test_an_append_that_makes_too_large_a_frame_moves_no_producer(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "FRAME_BYTES_MAX", 2000)
    first, second = court.ask(append(FEED, "a"), append(FEED, "b" * 3000))
    assert isinstance(first, Appended)
    assert isinstance(second, TooLarge)
    assert court.tail().producers["agent-1"].first_sequence_id == 1
