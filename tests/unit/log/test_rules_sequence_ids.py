"""The other way to name a place: RFD 5's ``sequence-id``, where a feed begins, and quarantine (design rules 3 and 5)."""

from __future__ import annotations

import pytest

from headrace.errors import DuplicateEntry, InvalidRequest, OffsetMismatch, Quarantined, SequenceGap
from headrace.log.requests import NEXT, Appended, Release
from tests.bench import append, expecting, register
from tests.unit.log.court import FEED, WALL_MS, Court


@pytest.fixture
def empty() -> Court:
    made = Court()
    made.register()
    return made


@pytest.fixture
def court(empty: Court) -> Court:
    """A feed with the entries 63 to 65, as RFD 5's example begins."""
    empty.append("a", "b", "c", sequence_ids=(63, 64, 65))
    return empty


def test_feed_begins_at_1(empty: Court) -> None:
    assert empty.append("a").first_sequence_id == 1
    assert empty.tail().first_sequence_id == empty.tail().oldest == 1


@pytest.mark.parametrize("ids", [(63, 64), (63, NEXT)])
def test_feed_begins_where_its_first_entry_says(empty: Court, ids: tuple[int, int]) -> None:
    assert (empty.tail().head, empty.tail().oldest) == (0, 1)
    appended = empty.append("a", "b", sequence_ids=ids)
    assert (appended.first_sequence_id, appended.last_sequence_id) == (63, 64)
    assert (empty.tail().head, empty.tail().oldest, empty.tail().next_sequence_id) == (64, 63, 65)


def test_only_the_first_entry_ever_may_say_so(court: Court) -> None:
    with pytest.raises(SequenceGap):
        court.append("x", sequence_ids=(100,))


@pytest.mark.parametrize(("ids", "index"), [((NEXT, 63), 1), ((63, 65), 1), ((63, 63), 1), ((63, 62), 1)])
def test_batch_that_begins_a_feed_is_dense(empty: Court, ids: tuple[int, int], index: int) -> None:
    with pytest.raises(SequenceGap) as refusal:
        empty.append("a", "b", sequence_ids=ids)
    assert refusal.value.members["index"] == index
    assert empty.tail().next_sequence_id == 1
    assert empty.tail().first_sequence_id == 0


def test_expected_offset_does_not_say_where_a_feed_begins(empty: Court) -> None:
    with pytest.raises(OffsetMismatch) as refusal:
        empty.append("a", expected_offsets=(63,))
    assert refusal.value.members["actual-next"] == 1


@pytest.mark.parametrize("ids", [(66, 67), (66, NEXT), (NEXT, 67), (NEXT, NEXT)])
def test_next_is_taken(court: Court, ids: tuple[int, int]) -> None:
    assert court.append("d", "e", sequence_ids=ids).first_sequence_id == 66


@pytest.mark.parametrize(
    ("ids", "index", "expected", "received"), [((67, 68), 0, 66, 67), ((66, 68), 1, 67, 68)]
)
def test_beyond_next_is_a_gap(
    court: Court, ids: tuple[int, int], index: int, expected: int, received: int
) -> None:
    frames = len(court.frames)
    with pytest.raises(SequenceGap) as refusal:
        court.append("d", "e", sequence_ids=ids)
    assert (
        refusal.value.members.items() >= {"index": index, "expected": expected, "received": received}.items()
    )
    assert len(court.frames) == frames
    assert court.tail().quarantine is None


def test_next_named_twice_is_a_gap_and_no_duplicate(court: Court) -> None:
    with pytest.raises(SequenceGap) as refusal:
        court.append("d", "e", sequence_ids=(66, 66))
    assert refusal.value.members.items() >= {"index": 1, "expected": 67, "received": 66}.items()
    assert court.tail().quarantine is None


@pytest.mark.parametrize("value", ["c", "other"], ids=["equal bytes", "other bytes"])
@pytest.mark.parametrize("number", [65, 63, 1])
def test_below_next_is_a_duplicate_and_quarantine_whatever_the_bytes(
    court: Court, number: int, value: str
) -> None:
    with pytest.raises(DuplicateEntry) as refusal:
        court.append(value, sequence_ids=(number,))
    assert refusal.value.members.items() >= {"index": 0, "expected": 66, "received": number}.items()
    quarantine = court.tail().quarantine
    assert quarantine is not None
    assert (quarantine.agent_id, quarantine.sequence_id, quarantine.at_ms) == ("agent-1", number, WALL_MS)
    assert court.tail().next_sequence_id == 66


def test_one_duplicate_refuses_the_whole_batch(court: Court) -> None:
    with pytest.raises(DuplicateEntry) as refusal:
        court.append("d", "e", sequence_ids=(66, 65))
    assert refusal.value.members["index"] == 1
    assert court.tail().next_sequence_id == 66


def test_quarantine_is_durable_with_the_group_that_it_was_judged_in(court: Court) -> None:
    """Later appends of the very same group are refused as well."""
    first, second, third = court.ask(
        append(FEED, "d", sequence_ids=(66,)), append(FEED, "d", sequence_ids=(66,)), append(FEED, "e")
    )
    assert isinstance(first, Appended)
    assert isinstance(second, DuplicateEntry)
    assert isinstance(third, Quarantined)


def test_quarantined_publisher_is_refused_until_it_is_released(court: Court) -> None:
    with pytest.raises(DuplicateEntry):
        court.append("c", sequence_ids=(65,))
    for request in (
        append(FEED, "d"),
        expecting(FEED, 63, "a", "b", "c"),
        append(FEED, "c", sequence_ids=(65,)),
    ):
        with pytest.raises(Quarantined) as refusal:
            court.one(request)
        assert refusal.value.members.items() >= {"sequence-id": 65}.items()
        assert refusal.value.http_status == 423
    court.one(Release(FEED, "agent-2"))
    assert court.tail().quarantine is not None
    court.one(Release(FEED, "agent-1"))
    assert court.tail().quarantine is None
    assert court.append("d").first_sequence_id == 66


def test_registering_anew_lifts_no_quarantine(court: Court) -> None:
    with pytest.raises(DuplicateEntry):
        court.append("c", sequence_ids=(65,))
    court.register(instance="another")
    with pytest.raises(Quarantined):
        court.append("d")


def test_takeover_lifts_no_quarantine_either(court: Court) -> None:
    """Both owners are quarantined in turn: each stays so until it is released itself."""
    with pytest.raises(DuplicateEntry):
        court.append("c", sequence_ids=(65,))
    court.register("agent-2", takeover=True)
    assert court.append("d", producer="agent-2").first_sequence_id == 66
    with pytest.raises(DuplicateEntry):
        court.append("d", producer="agent-2", sequence_ids=(66,))
    court.register("agent-1", takeover=True)
    with pytest.raises(Quarantined):
        court.append("e")
    court.one(Release(FEED, "agent-1"))
    assert court.append("e").first_sequence_id == 67
    court.register("agent-2", takeover=True)
    with pytest.raises(Quarantined):
        court.append("f", producer="agent-2")


def test_quarantine_is_of_one_feed(court: Court) -> None:
    court.register(feed="other")
    with pytest.raises(DuplicateEntry):
        court.append("c", sequence_ids=(65,))
    assert court.append("x", feed="other").first_sequence_id == 1


def test_release_without_quarantine_writes_nothing(court: Court) -> None:
    frames = len(court.frames)
    assert court.one(Release(FEED, "agent-1")) == court.tail()
    assert len(court.frames) == frames


@pytest.mark.parametrize("number", [0, -2])
def test_sequence_ids_begin_at_1(court: Court, number: int) -> None:
    with pytest.raises(InvalidRequest, match="sequence-id"):
        court.append("d", sequence_ids=(number,))
    assert court.tail().quarantine is None


def test_both_given_and_agreeing(court: Court) -> None:
    assert court.append("d", sequence_ids=(66,), expected_offsets=(66,)).first_sequence_id == 66


def test_both_given_and_agreeing_below_next_is_a_duplicate(court: Court) -> None:
    """The sequence id decides: a publisher that counts itself must not send a place twice."""
    with pytest.raises(DuplicateEntry):
        court.append("c", sequence_ids=(65,), expected_offsets=(65,))


@pytest.mark.parametrize(("number", "offset"), [(65, 66), (66, 65), (66, 67)])
def test_both_given_must_agree(court: Court, number: int, offset: int) -> None:
    with pytest.raises(InvalidRequest, match="does not agree"):
        court.append("d", sequence_ids=(number,), expected_offsets=(offset,))
    assert court.tail().quarantine is None


def test_both_given_on_an_empty_feed(empty: Court) -> None:
    assert empty.append("a", "b", sequence_ids=(63, NEXT), expected_offsets=(63, 64)).last_sequence_id == 64


def test_places_of_different_entries_must_fit_together(court: Court) -> None:
    with pytest.raises(OffsetMismatch):
        court.append("d", "e", sequence_ids=(66, NEXT), expected_offsets=(NEXT, 68))


def test_registration_in_the_group_of_the_first_append(empty: Court) -> None:
    made, appended = empty.ask(register("new"), append("new", "a", sequence_ids=(5,)))
    assert isinstance(appended, Appended)
    assert appended.first_sequence_id == 5
    assert empty.tail("new").next_sequence_id == 6
    assert made is not appended
