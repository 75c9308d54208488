"""How fast places move: samples of the journal's end and of every consumer's position over a sliding window. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.log.retention.loss import Rates
from headrace.log.retention.plan import ConsumerKey

WINDOW_S: Final = 600.0
"""Rates are those of the last ten minutes: long enough for consumers that work in batches."""
SAMPLES_MAX: Final = 64
SPAN_S_MIN: Final = 1.0
"""Nothing is said of a rate before it was watched for this long."""


class _Sample(NamedTuple):
    at_s: float
    end: int
    positions: Mapping[ConsumerKey, int]


class RateWindow:
    """The samples of one journal; at most ``SAMPLES_MAX``, whatever the pause between them."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def add(self, at_s: float, end: int, positions: Mapping[ConsumerKey, int]) -> None:
        """Note where everyone is at ``at_s`` (monotonic seconds), unless the newest sample is only seconds old."""
        if self._samples and at_s - self._samples[-1].at_s < WINDOW_S / SAMPLES_MAX:
            return
        self._samples.append(_Sample(at_s, end, positions))
        while len(self._samples) > SAMPLES_MAX or (
            len(self._samples) > 1 and at_s - self._samples[1].at_s >= WINDOW_S
        ):
            self._samples.popleft()

    def rates(self, key: ConsumerKey, position: int, at_s: float, end: int) -> Rates:
        """Return how fast ``key``, now at ``position``, and the journal, now at ``end``, moved; zero where not known."""
        written = next((_rate(one.end, end, at_s - one.at_s) for one in self._samples), 0.0)
        known = ((one.at_s, one.positions[key]) for one in self._samples if key in one.positions)
        then_s, then = next(known, (at_s, position))
        return Rates(_rate(then, position, at_s - then_s), written)


def _rate(before: int, now: int, span_s: float) -> float:
    return max(0, now - before) / span_s if span_s >= SPAN_S_MIN else 0.0
