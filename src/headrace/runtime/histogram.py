"""How often which values came, by upper bound: what Prometheus calls a histogram. Added to where values arise."""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Final

SECONDS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
"""Upper bounds of times: from a sync of a fast disk to a long poll."""
COUNTS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0)
"""Upper bounds of how many there are of something."""


class Histogram:
    """Values counted by upper bound. One thread adds and any may read: a reader may miss the values of this very moment."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Begin empty; ``bounds`` rise, and what is above the last counts as well."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def add_all(self, values: Iterable[int]) -> None:
        """Count many values, of which most are equal: each distinct one costs as much as one alone."""
        for value, times in Counter(values).items():
            self._counts[bisect_left(self._bounds, value)] += times
            self._sum += value * times

    def add_since(self, moments: Sequence[float], now: float) -> None:
        """Count how long ago each of ``moments``, which rise, was. Costs a search a bound, not one a moment."""
        behind = len(moments)
        for index, bound in enumerate(self._bounds):
            first = bisect_left(moments, now - bound)
            self._counts[index] += behind - first
            behind = first
            if not behind:
                break
        self._counts[-1] += behind
        self._sum += now * len(moments) - math.fsum(moments)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count how many seconds the body took, also if it raised."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(time.perf_counter() - began)

    @property
    def sum(self) -> float:
        """The sum of all values."""
        return self._sum

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[float, int]]:
        """Return for each upper bound, infinity at last, how many values were not above it."""
        return list(zip((*self._bounds, math.inf), accumulate(self._counts), strict=True))
