"""A consumer's lag as a line: points in, the numbers of an SVG out. Pure; ``templates/parts.html`` draws it.

A chart is never alone: the same points stand beside it as a table, and its description says them in words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace.server.retention.history import SAMPLE_EVERY_S, Point

WIDTH: Final = 560
HEIGHT: Final = 132
LEFT: Final = 52
RIGHT: Final = 6
TOP: Final = 8
BOTTOM: Final = 22
"""The drawing's size and its margins, in its own units: the axis labels stand in them."""
SPAN_MS_MIN: Final = 300_000.0
"""The least that the time axis spans, so that a server that has just begun shows no wild line."""
GAP_MS: Final = 6 * SAMPLE_EVERY_S * 1000
"""Where nothing was known for so long, the line is broken."""
ROWS_MAX: Final = 13
"""Rows of the table beside it: one for about every five minutes of an hour."""
POINTS_MAX: Final = 180
"""Points that are drawn; of those that fall together the highest is."""


class Tick(NamedTuple):
    """A label of an axis and where it stands."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """What is drawn. ``line`` and ``area``: SVG path data, empty where there is nothing yet. ``last``: the newest point, in
    the drawing. ``rows``: a few points, newest first. ``peak``: the most entries.
    """

    line: str
    area: str
    last: tuple[float, float] | None
    across: list[Tick]
    up: list[Tick]
    rows: list[Point]
    peak: float

    @property
    def base(self) -> float:
        """Where zero stands."""
        return float(HEIGHT - BOTTOM)


def draw(points: Sequence[Point], now_ms: int) -> Chart:
    """Return the chart of ``points``, oldest first, as seen at ``now_ms``."""
    known = [one for one in points if not math.isnan(one.entries)]
    if not known:
        return Chart("", "", None, [], [], [], 0)
    span = max(SPAN_MS_MIN, now_ms - known[0].at_ms)
    peak = max(one.entries for one in known)
    top = _round_up(peak)

    def x_of(at_ms: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (1 - (now_ms - at_ms) / span), 1)

    def y_of(entries: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * entries / top, 1)

    lines, areas = [], []
    for run in _runs(_thinned(known)):
        corners = [(x_of(one.at_ms), y_of(one.entries)) for one in run]
        path = "L".join(f"{x:g} {y:g}" for x, y in corners)
        lines.append(f"M{path}")
        areas.append(f"M{corners[0][0]:g} {HEIGHT - BOTTOM}L{path}L{corners[-1][0]:g} {HEIGHT - BOTTOM}Z")
    step = max(1, math.ceil(len(known) / ROWS_MAX))
    return Chart(
        "".join(lines),
        "".join(areas),
        (x_of(known[-1].at_ms), y_of(known[-1].entries)),
        [Tick(x_of(now_ms - span * part), _before(span * part)) for part in (1, 0.5, 0)],
        [Tick(y_of(value), _short(value)) for value in (0, top / 2, top)],
        known[::-step],
        peak,
    )


def _thinned(points: Sequence[Point]) -> list[Point]:
    size = max(1, math.ceil(len(points) / POINTS_MAX))
    groups = (points[at : at + size] for at in range(0, len(points), size))
    return [max(group, key=lambda one: one.entries) for group in groups]


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    runs: list[list[Point]] = []
    for one in points:
        if runs and one.at_ms - runs[-1][-1].at_ms <= GAP_MS:
            runs[-1].append(one)
        else:
            runs.append([one])
    return runs


def _round_up(value: float) -> float:
    """The next of 2, 4, 10, 20, 40, 100 … that is not below ``value``: half of it is a whole number."""
    if value <= 2:
        return 2
    size = 10 ** math.floor(math.log10(value))
    return float(next(size * one for one in (1, 2, 4, 10) if size * one >= value))


def _before(ms: float) -> str:
    minutes = round(ms / 60_000)
    return f"{minutes} min ago" if minutes else "now"


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g}"
