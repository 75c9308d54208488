"""When a place was passed: an interval always holds the true time, however few points are left of a long history."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import MetadataCorrupt
from headrace.wire.passages import (
    POINTS_MAX,
    Point,
    decode_points,
    encode_points,
    extended,
    passage,
    returned,
)

MOVES = st.lists(
    st.tuples(st.integers(1, 1000), st.integers(0, 100_000), st.booleans()), min_size=1, max_size=200
)


@given(MOVES, st.integers(3, 12), st.integers(1, 20))
def test_an_interval_holds_the_true_time_and_the_points_are_bounded(
    moves: list[tuple[int, int, bool]], points_max: int, at_once: int
) -> None:
    truth: list[Point] = []
    place = at_ms = 0
    for steps, waited, skipped in moves:
        place, at_ms = place + steps, at_ms + waited
        truth.append(Point(place, at_ms, skipped))
    points: list[Point] = []
    for begin in range(0, len(truth), at_once):
        points = extended(points, truth[begin : begin + at_once], points_max)
        points = decode_points(encode_points(points))
        assert len(points) <= points_max
    for before, one in zip([None, *truth], truth, strict=False):
        found = passage(points, one.place)
        assert found is not None
        assert found.by_ms >= one.at_ms
        if before is not None and found.after_ms is not None:
            assert found.after_ms <= one.at_ms
        assert found.skipped or not one.skipped, "what may have been skipped is never told as delivered"
        assert found.skipped or before is not None, "nobody knows what lies behind the first point"
    assert passage(points, place + 1) is None


def test_of_a_long_history_intervals_grow_with_their_age_alone() -> None:
    second, points = 1_000, [Point(0, 0, True)]
    seconds = 200_000
    for number in range(1, seconds + 1):
        points = extended(points, [Point(number, number * second, False)])
    assert len(points) == POINTS_MAX
    now = seconds * second
    for ago in (10, 100, 1_000, 10_000, 100_000):
        found = passage(points, seconds - ago)
        assert found is not None
        assert found.after_ms is not None
        assert found.after_ms < (seconds - ago) * second <= found.by_ms
        assert found.by_ms - found.after_ms <= max(3 * second, (now - found.after_ms) * 0.6), ago
        assert not found.skipped


def test_what_is_further_back_and_a_clock_that_was_set_back_change_nothing() -> None:
    points = extended([], [Point(5, 1_000, False), Point(9, 2_000, False)])
    assert points == [Point(5, 1_000, True), Point(9, 2_000, False)]
    assert extended(points, [Point(9, 3_000, False), Point(2, 4_000, True)]) == points
    assert extended(points, [Point(10, 1, False)])[-1] == Point(10, 2_000, False)


def test_places_may_be_lsns_and_other_bytes_are_refused() -> None:
    points = [Point((1 << 128) - 2, 7, True), Point((1 << 128) - 1, 8, False)]
    data = encode_points(points)
    assert decode_points(data) == points
    for wrong in (data[:-1], data[25:] + data[:25]):
        with pytest.raises(MetadataCorrupt):
            decode_points(wrong)


def test_whoever_goes_back_has_not_passed_what_lies_behind() -> None:
    points = extended([], [Point(5, 1_000, True), Point(9, 2_000, False), Point(12, 3_000, False)])
    back = returned(points, 7)
    assert back == [Point(5, 1_000, True), Point(7, 2_000, False)]
    assert passage(back, 6) == passage(points, 6), "what it keeps it had at the same time"
    assert passage(back, 8) is None
    assert returned(points, 5) == points[:1]
    assert returned(points, 12) == points
    assert returned(points, 2) == [Point(2, 1_000, True)]
    assert extended(back, [Point(8, 4_000, False)])[-1] == Point(8, 4_000, False)
