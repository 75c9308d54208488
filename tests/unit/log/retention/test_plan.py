"""The retention plan: what goes, what stays, why, and who loses by it (design §4, rule 6)."""

from __future__ import annotations

from headrace.log.retention.plan import (
    RESTART_GRACE_MS,
    Fate,
    Plan,
    RetentionSettings,
    Terms,
    plan_retention,
    should_roll,
)
from tests.retention import HOUR_MS, NOW_MS, SIZE, consumer, segments, terms

AGES = (72, 60, 50, 24, 0)
"""Hours since each segment's newest frame; three are older than 48 h, the last is open."""


def fates(plan: Plan) -> list[Fate]:
    return [one.fate for one in plan.fates]


def test_old_segments_go_young_ones_and_the_open_one_stay() -> None:
    plan = plan_retention(segments(*AGES), [], terms())
    assert fates(plan) == [Fate.AGED, Fate.AGED, Fate.AGED, Fate.YOUNG, Fate.OPEN]
    assert (plan.position, plan.bytes_before, plan.bytes_after) == (3 * SIZE, 5 * SIZE, 2 * SIZE)
    assert plan.losing == ()


def test_a_segment_is_old_from_the_very_millisecond() -> None:
    for late_ms, fate in ((-1, Fate.YOUNG), (0, Fate.AGED)):
        plan = plan_retention(segments(48, 0), [], terms(now_ms=NOW_MS + late_ms))
        assert fates(plan)[0] is fate


def test_the_open_segment_never_goes() -> None:
    plan = plan_retention(segments(1000), [], terms(bytes_max=1))
    assert (fates(plan), plan.position) == ([Fate.OPEN], 0)


def test_a_holder_keeps_what_it_has_not_read() -> None:
    for position, kept in ((0, 0), (SIZE - 1, 0), (SIZE, 1), (2 * SIZE + 500, 2), (5 * SIZE, 3)):
        plan = plan_retention(segments(*AGES), [consumer(position, hold_hours=1)], terms())
        assert plan.position == kept * SIZE, position
        assert fates(plan)[kept:3] == [Fate.HELD] * (3 - kept)
        assert plan.losing == ()


def test_the_slowest_holder_decides() -> None:
    crowd = [consumer(SIZE * n, hold_hours=1, name=str(n)) for n in (3, 1, 2)]
    plan = plan_retention(segments(*AGES), crowd, terms())
    assert plan.position == SIZE
    assert [[one.name for one in fate.holders] for fate in plan.fates[1:3]] == [["1"], ["1", "2"]]


def test_who_does_not_hold_falls_out_and_is_named() -> None:
    plan = plan_retention(segments(*AGES), [consumer(10), consumer(4 * SIZE, name="near")], terms())
    assert plan.position == 3 * SIZE
    assert [(one.consumer.name, one.fate) for one in plan.losing] == [("c", Fate.AGED)]


def test_who_has_expired_holds_nothing() -> None:
    gone = consumer(0, hold_hours=0)
    assert plan_retention(segments(*AGES), [gone], terms()).position == 3 * SIZE
    assert plan_retention(segments(*AGES), [gone], terms(now_ms=NOW_MS - 1)).position == 0


def test_who_has_lost_its_place_holds_nothing() -> None:
    plan = plan_retention(segments(*AGES), [consumer(0, hold_hours=1, lost=True)], terms())
    assert plan.position == 3 * SIZE
    assert plan.losing == (), "a place is lost once"


def test_the_byte_cap_wins_over_holders_and_names_them() -> None:
    near = consumer(3 * SIZE, hold_hours=1, name="near")
    plan = plan_retention(
        segments(1, 1, 1, 1, 0), [consumer(0, hold_hours=1), near], terms(bytes_max=3 * SIZE)
    )
    assert fates(plan) == [Fate.BYTE_CAP, Fate.BYTE_CAP, Fate.YOUNG, Fate.YOUNG, Fate.OPEN]
    assert plan.bytes_after == 3 * SIZE
    assert [(one.consumer.name, one.fate) for one in plan.losing] == [("c", Fate.BYTE_CAP)]


def test_the_byte_cap_takes_no_more_than_it_must() -> None:
    for bytes_max, gone in ((5 * SIZE, 0), (5 * SIZE - 1, 1), (4 * SIZE, 1), (SIZE, 4), (1, 4)):
        plan = plan_retention(
            segments(1, 1, 1, 1, 0), [consumer(0, hold_hours=1)], terms(bytes_max=bytes_max)
        )
        assert plan.position == gone * SIZE


def test_what_age_takes_counts_first() -> None:
    """Nobody loses to the cap what is dropped for its age anyway."""
    plan = plan_retention(segments(*AGES), [], terms(bytes_max=SIZE))
    assert fates(plan) == [Fate.AGED, Fate.AGED, Fate.AGED, Fate.BYTE_CAP, Fate.OPEN]


def test_it_says_when_the_rest_goes() -> None:
    held_long = consumer(4 * SIZE - 1, hold_hours=30)
    plan = plan_retention(segments(50, 47, 40, 39, 0), [held_long, consumer(0, hold_hours=0.5)], terms())
    hours = [(one.goes_at_ms - NOW_MS) / HOUR_MS for one in plan.fates if one.goes_at_ms is not None]
    assert hours == [0.5, 1, 8, 30]
    assert plan.fates[-1].goes_at_ms is None


def test_crowded_from_seven_tenths_on() -> None:
    plan = plan_retention(segments(1, 0), [], terms())
    assert plan.crowded(terms(bytes_max=2857))
    assert not plan.crowded(terms(bytes_max=2858))


def test_nobody_expires_right_after_a_start() -> None:
    long_ago = NOW_MS - 100 * HOUR_MS
    assert terms(started_ms=NOW_MS).expires_at(long_ago) == NOW_MS + RESTART_GRACE_MS
    assert terms(started_ms=NOW_MS, expiry_ms=5).expires_at(long_ago) == NOW_MS + 5
    assert terms(started_ms=long_ago).expires_at(NOW_MS) == NOW_MS + 24 * HOUR_MS


def test_a_quiet_log_is_rolled_and_a_small_cap_too() -> None:
    (open_segment,) = segments(0)
    eighth_ms = 6 * HOUR_MS
    assert not should_roll(open_segment._replace(end=0), 0, terms(bytes_max=1)), "it is empty"
    assert not should_roll(open_segment, NOW_MS - eighth_ms + 1, terms())
    assert should_roll(open_segment, NOW_MS - eighth_ms, terms())
    assert should_roll(open_segment, NOW_MS, terms(bytes_max=8 * SIZE - 1))
    assert not should_roll(open_segment, NOW_MS, terms(bytes_max=8 * SIZE))


def test_settings_become_terms() -> None:
    settings = RetentionSettings(retention_s=60, subscriber_expiry_s=1.5).for_volume(400)
    assert settings.terms(7, 3) == Terms(7, 60_000, 1_500, 100, 3)
    assert RetentionSettings().for_volume(1 << 50).terms(0, 0).bytes_max == 20 << 30
    assert RetentionSettings(bytes_max=5).for_volume(1 << 50).bytes_max == 5
