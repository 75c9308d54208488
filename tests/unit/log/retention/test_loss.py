"""Time to loss at its edges: rates of zero, age against cap, who holds against who does not, what is lost already."""

from __future__ import annotations

import math

import pytest

from headrace.log.retention.loss import ACTIVE_MS, Loss, LossState, Rates, duration, time_to_loss
from headrace.log.retention.plan import Consumer, plan_retention
from tests.retention import HOUR_MS, NOW_MS, SIZE, consumer, segments, terms

JOURNAL = segments(40, 30, 20, 10, 0)
"""Five segments, ten hours of writing each; the journal ends at 5 * SIZE."""
HOUR_S = 3600.0


def loss(
    who: Consumer, rates: Rates | None = None, needed_hours: float | None = None, **given: float
) -> Loss:
    needed_ms = None if needed_hours is None else NOW_MS - round(needed_hours * HOUR_MS)
    return time_to_loss(who, needed_ms, JOURNAL, rates or Rates(), terms(**given))


def test_nothing_to_lose() -> None:
    assert loss(consumer(5 * SIZE)) == Loss(LossState.UP_TO_DATE, math.inf)
    assert loss(consumer(0, lost=True)) == Loss(LossState.LOST, 0.0)
    unknown = loss(consumer(None))
    assert unknown.state is LossState.UNKNOWN
    assert math.isnan(unknown.seconds)


@pytest.mark.parametrize("written", [0.0, 1.0], ids=["quiet", "busy"])
def test_who_stands_still_loses_its_place_when_its_segment_is_old(written: float) -> None:
    for index, hours in enumerate((8, 18, 28, 38, 48)):
        for position in (index * SIZE, (index + 1) * SIZE - 1):
            found = loss(consumer(position), Rates(0, written / HOUR_S))
            assert found == Loss(LossState.BY_AGE, hours * HOUR_S)


def test_the_estimate_for_who_stands_still_is_the_plan() -> None:
    for position in (0, SIZE, 3 * SIZE):
        found = loss(consumer(position))
        for late_s, goes in ((-1, False), (0, True)):
            then = terms(now_ms=NOW_MS + round((found.seconds + late_s) * 1000))
            assert bool(plan_retention(JOURNAL, [consumer(position)], then).losing) is goes


def test_what_is_due_already_is_zero_not_negative() -> None:
    assert loss(consumer(0), later_hours=9) == Loss(LossState.BY_AGE, 0.0)


def test_reading_as_fast_as_it_was_written_is_never_too_late() -> None:
    pace = 5 * SIZE / 50 / HOUR_S
    assert loss(consumer(0), Rates(pace, pace), needed_hours=50) == Loss(LossState.NEVER, math.inf)


def test_reading_more_slowly_is_met_inside_the_backlog() -> None:
    """4,000 bytes written over 40 h, read at half that pace: the frontier, 8 h behind, gains half an hour an hour."""
    pace = 4 * SIZE / 40 / HOUR_S
    found = loss(consumer(SIZE - 1), Rates(pace / 2, pace), needed_hours=40)
    assert found.state is LossState.BY_AGE
    assert found.seconds == pytest.approx(16 * HOUR_S, rel=0.01)


def test_a_backlog_that_is_read_in_time_can_still_be_followed_by_too_much() -> None:
    """Fast enough for what was written so far, too slow for what is being written now."""
    pace = 5 * SIZE / 50 / HOUR_S
    found = loss(consumer(0), Rates(2 * pace, 4 * pace), needed_hours=50)
    assert found.state is LossState.BY_AGE
    through_s = (8 + 50) * HOUR_S
    assert found.seconds == pytest.approx((4 * pace * through_s - 5 * SIZE) / (2 * pace))
    assert loss(consumer(0), Rates(2 * pace, 2 * pace), needed_hours=50).state is LossState.NEVER


def test_more_reading_never_means_less_time() -> None:
    pace = 5 * SIZE / 50 / HOUR_S
    for written in (0.0, 0.5, 1, 3):
        seconds = [
            loss(consumer(0), Rates(part / 10 * pace, written * pace), needed_hours=50).seconds
            for part in range(40)
        ]
        assert seconds == sorted(seconds)


def test_more_writing_never_means_more_time() -> None:
    pace = 5 * SIZE / 50 / HOUR_S
    for consumed in (0.0, 0.5, 1, 3):
        seconds = [
            loss(
                consumer(0), Rates(consumed * pace, part / 10 * pace), needed_hours=50, bytes_max=20 * SIZE
            ).seconds
            for part in range(40)
        ]
        assert seconds == sorted(seconds, reverse=True)


def test_the_cap_comes_before_age_if_it_is_nearer() -> None:
    """1,000 bytes are left below the cap, and 500 bytes an hour come in."""
    rates = Rates(0, 500 / HOUR_S)
    assert loss(consumer(0), rates, bytes_max=6 * SIZE) == Loss(LossState.BY_BYTE_CAP, 2 * HOUR_S)
    assert loss(consumer(0), rates, bytes_max=60 * SIZE) == Loss(LossState.BY_AGE, 8 * HOUR_S)
    assert loss(consumer(0), Rates(250 / HOUR_S, 500 / HOUR_S), bytes_max=6 * SIZE).seconds == 4 * HOUR_S


def test_over_the_cap_is_now() -> None:
    found = loss(consumer(0), bytes_max=4 * SIZE)
    assert found == Loss(LossState.BY_BYTE_CAP, 0.0)
    assert plan_retention(JOURNAL, [consumer(0)], terms(bytes_max=4 * SIZE)).losing
    assert loss(consumer(SIZE), bytes_max=4 * SIZE - 1).state is LossState.BY_BYTE_CAP
    assert loss(consumer(SIZE), bytes_max=4 * SIZE).state is LossState.BY_AGE, "the cap itself may be filled"
    assert not plan_retention(JOURNAL, [consumer(SIZE)], terms(bytes_max=4 * SIZE)).losing
    assert loss(consumer(4 * SIZE), bytes_max=1).state is LossState.BY_AGE, "the open segment can't go"


def test_who_holds_loses_by_the_cap_alone() -> None:
    holder = consumer(0, hold_hours=24)
    assert loss(holder) == Loss(LossState.HELD, math.inf)
    assert loss(holder, Rates(0, 500 / HOUR_S), bytes_max=6 * SIZE) == Loss(LossState.BY_BYTE_CAP, 2 * HOUR_S)
    assert loss(holder, Rates(0, 500 / HOUR_S)).state is LossState.HELD, "in more than ten years"
    assert loss(holder, Rates(9, 9), bytes_max=6 * SIZE).state is LossState.HELD


def test_who_holds_but_is_away_loses_when_it_expires() -> None:
    away = consumer(0, hold_hours=20, seen_at_ms=NOW_MS - ACTIVE_MS - 1)
    assert loss(away) == Loss(LossState.BY_EXPIRY, 20 * HOUR_S)
    assert loss(away, bytes_max=6 * SIZE, rates=Rates(0, 500 / HOUR_S)).state is LossState.BY_BYTE_CAP
    young = consumer(4 * SIZE, hold_hours=20, seen_at_ms=NOW_MS - ACTIVE_MS - 1)
    assert loss(young) == Loss(LossState.BY_AGE, 48 * HOUR_S), "age is the later of the two"
    assert loss(consumer(0, hold_hours=0)) == Loss(LossState.BY_AGE, 8 * HOUR_S), "expired: it holds no more"


def test_it_is_said_in_words() -> None:
    assert loss(consumer(0), later_hours=4.83).describe() == "loses its place in 3 h 10 min"
    assert loss(consumer(0), bytes_max=6 * SIZE, rates=Rates(0, 500 / HOUR_S)).describe() == (
        "loses its place in 2 h (byte cap)"
    )
    assert loss(consumer(0, lost=True)).describe() == "has lost its place"
    assert loss(consumer(0, hold_hours=1)).describe() == "held"
    assert loss(consumer(5 * SIZE)).describe() == "up to date"


def test_durations() -> None:
    known = {
        0: "0 s",
        45.9: "45 s",
        60: "1 min",
        61: "1 min 1 s",
        11_400: "3 h 10 min",
        187_200: "2 d 4 h",
        86_400: "1 d",
    }
    assert {seconds: duration(seconds) for seconds in known} == known
