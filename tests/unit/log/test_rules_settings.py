"""A feed's settings, and what ``expected-offset: optional | required | ignored`` makes of an append."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import (
    DuplicateEntry,
    ExpectedOffsetRequired,
    FeedNotFound,
    Fenced,
    HeadraceError,
    OffsetMismatch,
    refusal_of,
)
from headrace.log.control import decode_control
from headrace.log.requests import NEXT, Appended, Configure, Outcome, Request, places_from
from headrace.log.tail import FeedSettings
from headrace.wire.frame import FrameKind
from tests.bench import append, expecting, register
from tests.unit.log.court import FEED, Court


@pytest.fixture
def court() -> Court:
    """A feed with a and b."""
    made = Court()
    made.register()
    made.append("a", "b")
    return made


def configure(court: Court, **settings: Any) -> FeedSettings:
    court.one(Configure(FEED, **settings))
    return court.tail().settings


def refusal(outcome: Outcome | HeadraceError) -> HeadraceError:
    assert isinstance(outcome, HeadraceError)
    return outcome


def test_settings_are_a_control_frame(court: Court) -> None:
    assert court.tail().settings == FeedSettings("uuid", "full", "optional")
    assert configure(court, expected_offset="required") == FeedSettings("uuid", "full", "required")
    assert configure(court, key_field="id", changes="delta") == FeedSettings("id", "delta", "required")
    frame = court.frames[-1]
    assert frame.header.kind == FrameKind.CONTROL
    said = decode_control(frame.body)
    assert (said.kind, said.feed) == ("configured", court.tail())


def test_same_settings_again_write_nothing(court: Court) -> None:
    configure(court, expected_offset="required")
    frames = len(court.frames)
    configure(court, expected_offset="required")
    configure(court)
    assert len(court.frames) == frames


def test_settings_of_an_unknown_feed(court: Court) -> None:
    with pytest.raises(FeedNotFound):
        court.one(Configure("nowhere", changes="delta"))


def test_settings_hold_within_their_group(court: Court) -> None:
    before, _, after = court.ask(
        append(FEED, "c"), Configure(FEED, expected_offset="required"), append(FEED, "d")
    )
    assert isinstance(before, Appended)
    assert isinstance(after, ExpectedOffsetRequired)


def test_settings_outlive_registrations(court: Court) -> None:
    configure(court, expected_offset="required")
    court.register("agent-2", takeover=True)
    assert court.tail().settings.expected_offset == "required"


@pytest.mark.parametrize(
    ("offsets", "ids", "index", "side_effects"),
    [
        ((), (), 0, "possible"),
        ((NEXT, NEXT), (), 0, "possible"),
        ((2, NEXT), (), 1, "possible"),
        ((3, NEXT), (), 1, "none"),
        ((NEXT, 4), (), 0, "none"),
        ((3, NEXT), (3, NEXT), 1, "none"),
    ],
)
def test_required_asks_for_each_entrys_place(
    court: Court, offsets: tuple[int, ...], ids: tuple[int, ...], index: int, side_effects: str
) -> None:
    """It may have been taken before the feed was set so; it is not looked for."""
    configure(court, expected_offset="required")
    with pytest.raises(ExpectedOffsetRequired) as refused:
        court.append("c", "d", expected_offsets=offsets, sequence_ids=ids)
    assert refused.value.members == {
        "index": index,
        "actual-next": 3,
        "retryable": False,
        "side-effects": side_effects,
    }
    assert court.tail().next_sequence_id == 3


@pytest.mark.parametrize(
    "places",
    [
        {"expected_offsets": (3, 4)},
        {"expected_offsets": places_from(3, 2)},
        {"sequence_ids": (3, 4)},
        {"expected_offsets": (3, NEXT), "sequence_ids": (NEXT, 4)},
    ],
    ids=["offsets", "a range", "sequence ids", "each its own way"],
)
def test_required_takes_named_places(court: Court, places: dict[str, Any]) -> None:
    configure(court, expected_offset="required")
    assert court.append("c", "d", **places).first_sequence_id == 3


def test_required_knows_repeats_and_mismatches(court: Court) -> None:
    configure(court, expected_offset="required")
    assert court.append("a", "b", expected_offsets=places_from(1, 2)).duplicate
    with pytest.raises(OffsetMismatch):
        court.append("x", expected_offsets=(2,))


def test_required_is_judged_after_who_may_append(court: Court) -> None:
    configure(court, expected_offset="required")
    court.register(instance="twin")
    with pytest.raises(Fenced):
        court.append("c", epoch=1)


@pytest.mark.parametrize("offset", [1, 2, 3, 99, NEXT])
def test_ignored_compares_nothing(court: Court, offset: int) -> None:
    configure(court, expected_offset="ignored")
    appended = court.append("a", expected_offsets=(offset,))
    assert (appended.first_sequence_id, appended.duplicate) == (3, False)


def test_ignored_still_judges_sequence_ids(court: Court) -> None:
    configure(court, expected_offset="ignored")
    with pytest.raises(DuplicateEntry):
        court.append("b", sequence_ids=(2,))


# -- what refusals carry ----------------------------------------------------------------------------------------------


def all_refusals(court: Court) -> dict[str, HeadraceError]:
    """One of each refusal that an append can get from the rules, by its code."""
    court.register(feed="fenced")
    court.register(feed="required")
    asked: list[Request] = [
        expecting(FEED, 9, "x"),
        append(FEED, "x", sequence_ids=(9,)),
        append(FEED, "x", incarnation="other"),
        append(FEED, "x", producer="stranger"),
        append(FEED, "x", sequence_ids=(2,)),
        append(FEED, "x"),
        register("fenced", instance="twin"),
        append("fenced", "x", epoch=1),
        Configure("required", expected_offset="required"),
        append("required", "x"),
    ]
    outcomes = court.ask(*asked)
    return {outcome.code: outcome for outcome in outcomes if isinstance(outcome, HeadraceError)}


def test_every_refusal_says_what_may_be_thought_of_it(court: Court) -> None:
    refusals = all_refusals(court)
    assert set(refusals) == {
        "offset-mismatch", "sequence-gap", "feed-recreated", "not-registered", "duplicate-entry", "quarantined",
        "fenced", "expected-offset-required",
    }  # fmt: skip
    for error in refusals.values():
        told = refusal_of(error)
        assert isinstance(error.members["actual-next"], int)
        assert told.actual_next == error.members["actual-next"]
        assert told.retryable is error.members["retryable"]
        assert told.side_effects == error.members["side-effects"]


def test_refusals_in_one_shape(court: Court) -> None:
    refusals = {code: refusal_of(error) for code, error in all_refusals(court).items()}
    mismatch, gap = refusals["offset-mismatch"], refusals["sequence-gap"]
    assert (mismatch.index, mismatch.expected, mismatch.actual_next) == (0, 9, 3)
    assert (gap.index, gap.expected, gap.actual_next) == (0, 9, 3), "the place that the entry named"
    assert (mismatch.retryable, gap.retryable) == (True, True), "what comes before may still come"
    assert (mismatch.side_effects, gap.side_effects) == ("none", "none")
    duplicate = refusals["duplicate-entry"]
    assert (duplicate.index, duplicate.expected, duplicate.side_effects) == (0, 2, "possible")
    assert refusals["expected-offset-required"].index == 0
    for code in ("fenced", "quarantined", "not-registered", "feed-recreated"):
        assert (refusals[code].index, refusals[code].retryable) == (None, False)


@pytest.mark.parametrize(
    ("offsets", "side_effects"), [((), "possible"), ((2,), "possible"), ((3,), "none"), ((8,), "none")]
)
def test_fenced_append_may_stand_there_unless_its_place_lies_beyond(
    court: Court, offsets: tuple[int, ...], side_effects: str
) -> None:
    """An older try of it may have been stored before the takeover; that is not looked up for who may not append."""
    court.register("agent-2", takeover=True)
    (outcome,) = court.ask(append(FEED, "x", expected_offsets=offsets))
    assert refusal_of(refusal(outcome)).side_effects == side_effects
