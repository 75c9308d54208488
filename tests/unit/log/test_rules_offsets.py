"""Conditional append by expected offset, and repeats of appends that succeeded (KAFKA-2260, design rule 3)."""

from __future__ import annotations

import pytest

from headrace.entries.entry import Change
from headrace.entries.lsn import lsn_of
from headrace.errors import HeadraceError, InvalidRequest, JournalCorrupt, OffsetMismatch
from headrace.log.requests import NEXT, Append, Appended
from headrace.log.rules import StoredEntry
from headrace.wire.entry import digest, encode_half
from tests.bench import append, expecting
from tests.unit.log.court import FEED, Court


@pytest.fixture
def court() -> Court:
    """A feed with a, b, c in one frame and d, e in another, all of agent-1."""
    made = Court()
    made.register()
    made.append("a", "b", "c")
    made.append("d", "e")
    return made


def refused(court: Court, request: Append) -> OffsetMismatch:
    """Judge an append that must be refused, and written nowhere."""
    frames, tail = len(court.frames), court.tail()
    with pytest.raises(OffsetMismatch) as refusal:
        court.send(request)
    assert (len(court.frames), court.tail()) == (frames, tail)
    return refusal.value


def duplicate(court: Court, request: Append) -> Appended:
    """Judge an append that must be recognised, and written nowhere."""
    frames, tail = len(court.frames), court.tail()
    appended = court.send(request)
    assert appended.duplicate
    assert (len(court.frames), court.tail()) == (frames, tail)
    return appended


@pytest.mark.parametrize(
    "offsets",
    [(), (NEXT, NEXT), (6, NEXT), (NEXT, 7), (6, 7)],
    ids=["absent", "next", "first", "second", "both"],
)
def test_append_where_the_log_is(court: Court, offsets: tuple[int, ...]) -> None:
    appended = court.append("f", "g", expected_offsets=offsets)
    assert (appended.first_sequence_id, appended.last_sequence_id, appended.duplicate) == (6, 7, False)
    assert court.tail().next_sequence_id == 8


@pytest.mark.parametrize(
    ("offsets", "index", "expected"),
    [
        ((7, 8), 0, 7),
        ((6, 8), 1, 8),
        ((NEXT, 6), 1, 6),
        ((NEXT, 9), 1, 9),
        ((6, 6), 1, 6),
        ((5, 6), 0, 5),
        ((0, NEXT), 0, 0),
    ],
)
def test_one_mismatch_refuses_the_whole_batch(
    court: Court, offsets: tuple[int, int], index: int, expected: int
) -> None:
    refusal = refused(court, append(FEED, "f", "g", expected_offsets=offsets))
    assert refusal.members["index"] == index
    assert refusal.members["expected"] == expected
    assert refusal.members["actual-next"] == 6
    assert refusal.members["side-effects"] == "none"


def test_retry_can_help_only_ahead_of_the_log(court: Court) -> None:
    """Entries before it may still come; what already stands there never changes."""
    assert refused(court, expecting(FEED, 7, "f")).members["retryable"] is True
    assert refused(court, expecting(FEED, 5, "x")).members["retryable"] is False
    assert refused(court, append(FEED, "f", "g", expected_offsets=(7, 7))).members["retryable"] is False


def test_mismatch_is_no_quarantine(court: Court) -> None:
    refused(court, expecting(FEED, 3, "x"))
    assert court.append("f").first_sequence_id == 6


@pytest.mark.parametrize("offset", [-2, -(1 << 40)])
def test_negative_places_are_malformed(court: Court, offset: int) -> None:
    with pytest.raises(InvalidRequest, match="expected-offset"):
        court.append("f", expected_offsets=(offset,))


def test_places_must_be_as_many_as_entries(court: Court) -> None:
    with pytest.raises(InvalidRequest, match="1 places for 2 entries"):
        court.append("f", "g", expected_offsets=(6,))


def test_append_without_entries_is_malformed(court: Court) -> None:
    with pytest.raises(InvalidRequest, match="entries"):
        court.append()


# -- repeats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "values"),
    [
        (4, ("d", "e")),
        (1, ("a", "b", "c")),
        (1, ("a", "b", "c", "d", "e")),
        (2, ("b",)),
        (2, ("b", "c", "d")),
        (5, ("e",)),
    ],
    ids=["last frame", "older frame", "both frames", "inside one", "across two", "end"],
)
def test_repeat_answers_the_original_places_whatever_the_boundaries(
    court: Court, first: int, values: tuple[str, ...]
) -> None:
    repeated = duplicate(court, expecting(FEED, first, *values))
    last = first + len(values) - 1
    assert (repeated.first_sequence_id, repeated.last_sequence_id) == (first, last)
    entries = {
        sequence_id: frame.header.lsn(sequence_id - frame.header.first_sequence_id)
        for frame in court.frames[1:]
        for sequence_id in range(frame.header.first_sequence_id, frame.header.last_sequence_id + 1)
    }
    assert (repeated.first_lsn, repeated.last_lsn) == (entries[first], entries[last])
    assert repeated.incarnation == court.tail().incarnation


@pytest.mark.parametrize("offsets", [(4, NEXT), (NEXT, 5), (4, 5)])
def test_repeat_may_name_any_of_its_places(court: Court, offsets: tuple[int, int]) -> None:
    assert duplicate(court, append(FEED, "d", "e", expected_offsets=offsets)).first_sequence_id == 4


@pytest.mark.parametrize(
    ("first", "values", "side_effects"),
    [
        (5, ("e", "f"), "possible"),
        (4, ("d", "e", "f"), "possible"),
        (4, ("d", "x"), "possible"),
        (1, ("x", "b", "c"), "possible"),
        (3, ("d",), "none"),
        (4, ("e", "d"), "none"),
        (5, ("x", "f"), "none"),
        (1, ("x",), "none"),
    ],
    ids=[
        "partly stored",
        "last frame and more",
        "different end",
        "different beginning",
        "shifted",
        "swapped",
        "different and more",
        "different",
    ],
)
def test_partly_stored_or_different_is_a_mismatch(
    court: Court, first: int, values: tuple[str, ...], side_effects: str
) -> None:
    """It left nothing only if not one of its entries stands at its place."""
    refusal = refused(court, expecting(FEED, first, *values))
    assert (refusal.members["index"], refusal.members["expected"]) == (0, first)
    assert refusal.members["side-effects"] == side_effects


def test_what_another_producer_appended_is_no_side_effect() -> None:
    court = Court()
    for agent in ("agent-1", "agent-2"):
        court.register(agent, shared=True)
    court.append("a", "b", producer="agent-2")
    assert refused(court, expecting(FEED, 1, "a", "b")).members["side-effects"] == "none"
    assert refused(court, expecting(FEED, 2, "b", "c")).members["side-effects"] == "none"
    own = expecting(FEED, 2, "b", "c", producer="agent-2")
    assert refused(court, own).members["side-effects"] == "possible"


@pytest.mark.parametrize(
    ("offsets", "side_effects"), [((4, 4), "possible"), ((6, 6), "none"), ((6, 9), "none")]
)
def test_offsets_that_contradict_each_other_are_no_repeat(
    court: Court, offsets: tuple[int, int], side_effects: str
) -> None:
    refusal = refused(court, append(FEED, "d", "e", expected_offsets=offsets))
    assert refusal.members["side-effects"] == side_effects


def test_damage_in_a_part_of_what_is_named_leaves_it_open(
    court: Court, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where all of it could be stored nothing can be said; where it can't be, it is a mismatch all the same."""

    def damaged(*_: object) -> list[StoredEntry]:
        raise JournalCorrupt("a frame is damaged")

    monkeypatch.setattr(court, "history", damaged)
    with pytest.raises(JournalCorrupt):
        court.send(expecting(FEED, 2, "b", "c"))
    assert refused(court, expecting(FEED, 5, "e", "f")).members["side-effects"] == "possible"


def test_repeat_of_another_producer_is_a_mismatch(court: Court) -> None:
    court.register("agent-2", takeover=True)
    refused(court, expecting(FEED, 4, "d", "e", producer="agent-2"))
    court.append("f", producer="agent-2")
    refused(court, expecting(FEED, 5, "e", "f", producer="agent-2"))
    assert duplicate(court, expecting(FEED, 6, "f", producer="agent-2")).first_sequence_id == 6


def test_repeat_by_a_producer_that_came_back(court: Court) -> None:
    court.register("agent-2", takeover=True)
    court.append("f", producer="agent-2")
    court.register("agent-1", takeover=True)
    assert duplicate(court, expecting(FEED, 4, "d", "e")).last_sequence_id == 5
    refused(court, expecting(FEED, 5, "e", "f"))


def test_repeat_in_the_group_of_its_original(court: Court) -> None:
    one, other, both, partly, different = court.ask(
        expecting(FEED, 6, "f", "g"),
        expecting(FEED, 6, "f", "g"),
        expecting(FEED, 5, "e", "f", "g"),
        expecting(FEED, 7, "g", "h"),
        expecting(FEED, 6, "g"),
    )
    assert isinstance(one, Appended)
    assert isinstance(other, Appended)
    assert isinstance(both, Appended)
    assert (one.duplicate, other.duplicate, both.duplicate) == (False, True, True)
    assert (one.first_lsn, one.last_lsn) == (other.first_lsn, other.last_lsn)
    assert (both.first_sequence_id, both.last_lsn) == (5, one.last_lsn)
    assert isinstance(partly, OffsetMismatch)
    assert isinstance(different, OffsetMismatch)
    assert court.tail().next_sequence_id == 8


def test_repeat_of_what_is_not_the_last_of_its_group(court: Court) -> None:
    one, other, repeat = court.ask(expecting(FEED, 6, "f"), expecting(FEED, 7, "g"), expecting(FEED, 6, "f"))
    assert isinstance(one, Appended)
    assert isinstance(other, Appended)
    assert isinstance(repeat, Appended)
    assert (repeat.duplicate, repeat.first_lsn) == (True, one.first_lsn)


def test_pipelined_appends_of_one_group_follow_each_other(court: Court) -> None:
    outcomes = court.ask(*[expecting(FEED, 6 + n, f"v{n}") for n in range(5)])
    assert [outcome.first_sequence_id for outcome in outcomes if isinstance(outcome, Appended)] == [
        6,
        7,
        8,
        9,
        10,
    ]
    lsns = [outcome.first_lsn for outcome in outcomes if isinstance(outcome, Appended)]
    assert lsns == sorted(set(lsns))


def test_what_follows_a_refused_append_is_refused(court: Court) -> None:
    outcomes = court.ask(expecting(FEED, 7, "g"), expecting(FEED, 8, "h"), expecting(FEED, 6, "f"))
    assert [isinstance(outcome, HeadraceError) for outcome in outcomes] == [True, True, False]


def test_keyless_entries_are_recognised(court: Court) -> None:
    """Their key is the sequence id, which the server stamps; the producer's half has none."""
    halves = [encode_half(Change(b"{}")), encode_half(Change(b""))]
    court.send(Append(FEED, "agent-1", halves, digest(halves)))
    again = Append(FEED, "agent-1", halves[1:], digest(halves[1:]), expected_offsets=(7,))
    assert duplicate(court, again).first_sequence_id == 7


# -- below what is retained -------------------------------------------------------------------------------------------


def test_last_frame_is_recognised_after_retention_dropped_it(court: Court) -> None:
    lsns = [lsn_of(court.frames[2].header.global_ts, 1, 4, index) for index in (0, 1)]
    court.drop(5)
    repeated = duplicate(court, expecting(FEED, 4, "d", "e"))
    assert [repeated.first_lsn, repeated.last_lsn] == lsns


@pytest.mark.parametrize(
    ("first", "values"), [(1, ("a", "b", "c")), (5, ("e",)), (4, ("d", "x")), (3, ("c", "d", "e"))]
)
def test_dropped_places_without_a_digest_may_have_side_effects(
    court: Court, first: int, values: tuple[str, ...]
) -> None:
    court.drop(5)
    assert refused(court, expecting(FEED, first, *values)).members["side-effects"] == "possible"


def test_range_that_begins_below_the_oldest_may_have_side_effects(court: Court) -> None:
    court.drop(3)
    assert refused(court, expecting(FEED, 3, "c", "d")).members["side-effects"] == "possible"
    assert refused(court, expecting(FEED, 4, "x")).members["side-effects"] == "none"
    assert duplicate(court, expecting(FEED, 5, "e")).first_sequence_id == 5


def test_places_below_a_feeds_beginning_had_no_side_effects() -> None:
    court = Court()
    court.register()
    assert refused(court, expecting(FEED, 0, "x", "y")).members["side-effects"] == "none"
    court.append("a", sequence_ids=(63,))
    assert refused(court, expecting(FEED, 5, "x")).members["side-effects"] == "none"
    assert refused(court, expecting(FEED, 62, "x", "y")).members["side-effects"] == "none"
    assert refused(court, expecting(FEED, 62, "x", "a")).members["side-effects"] == "possible"
