"""Charts of lag: what is drawn stands where it should, gaps stay gaps, and the table beside it is short."""

from __future__ import annotations

import math

from headrace.server.console.chart import (
    BOTTOM,
    GAP_MS,
    HEIGHT,
    LEFT,
    POINTS_MAX,
    RIGHT,
    ROWS_MAX,
    SPAN_MS_MIN,
    TOP,
    WIDTH,
    draw,
)
from headrace.server.retention.history import Point

NOW = 1_700_000_000_000


def test_nothing_known_draws_nothing() -> None:
    for points in ([], [Point(NOW, math.nan, math.nan)]):
        drawn = draw(points, NOW)
        assert (drawn.line, drawn.area, drawn.last, drawn.rows) == ("", "", None, [])


def test_the_newest_stands_at_the_right_and_the_peak_below_the_top() -> None:
    drawn = draw([Point(NOW - SPAN_MS_MIN, 0, 0), Point(NOW - 1000, 20, 1), Point(NOW, 10, 1)], NOW)
    assert drawn.line.startswith(f"M{LEFT} {HEIGHT - BOTTOM}")
    middle = HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) / 2
    assert drawn.last is not None
    assert list(drawn.last) == [WIDTH - RIGHT, middle]
    assert [tick.text for tick in drawn.up] == ["0", "10", "20"]
    assert [tick.text for tick in drawn.across] == ["5 min ago", "2 min ago", "now"]
    assert drawn.peak == 20


def test_a_gap_breaks_the_line() -> None:
    near = [Point(NOW - GAP_MS * 3 + at * 1000, 1, 0) for at in range(3)]
    assert draw([*near, Point(NOW, 1, 0)], NOW).line.count("M") == 2
    assert draw(near, NOW).line.count("M") == 1


def test_an_hour_is_thinned_and_keeps_its_peak() -> None:
    points = [Point(NOW - (360 - at) * 10_000, 900_000 if at == 177 else 3, 0) for at in range(360)]
    drawn = draw(points, NOW)
    assert drawn.line.count("L") < POINTS_MAX
    assert f" {TOP + (HEIGHT - TOP - BOTTOM) / 10:g}" in drawn.line, "900,000 of an axis to 1,000,000"
    assert [tick.text for tick in drawn.up] == ["0", "500 k", "1 M"]
    assert len(drawn.rows) <= ROWS_MAX
    assert drawn.rows[0] == points[-1]
