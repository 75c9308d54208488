"""A histogram counts each value once, below every bound that it does not pass, whichever way it was added."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.runtime.exposition import exposed as text_of
from headrace.runtime.histogram import COUNTS, SECONDS, Histogram
from headrace.runtime.metric import Described, Kind, histogram
from tests.samples import exposed

moments = st.lists(st.integers(0, 100_000), max_size=60).map(sorted)


@given(moments, st.integers(0, 10_000))
def test_ages_are_counted_as_one_by_one(milliseconds: list[int], later: int) -> None:
    """In 1024ths of a second, so that differences are exact."""
    now = (max(milliseconds, default=0) + later) / 1024
    rising = [one / 1024 for one in milliseconds]
    together, single = Histogram(SECONDS), Histogram(SECONDS)
    together.add_since(rising, now)
    for moment in rising:
        single.add(now - moment)
    assert together.buckets() == single.buckets()
    assert together.sum == pytest.approx(single.sum)
    assert together.count == len(rising)


@given(st.lists(st.integers(0, 50_000), max_size=60))
def test_many_are_counted_as_one_by_one(values: list[int]) -> None:
    together, single = Histogram(COUNTS), Histogram(COUNTS)
    together.add_all(values)
    for value in values:
        single.add(value)
    assert together.buckets() == single.buckets()
    assert (together.sum, together.count) == (sum(values), len(values))


def test_a_value_at_a_bound_is_below_it_and_what_is_above_all_counts() -> None:
    counted = Histogram((1.0, 5.0))
    for value in (1, 5, 6):
        counted.add(value)
    assert counted.buckets() == [(1.0, 1), (5.0, 2), (math.inf, 3)]
    assert exposed(text_of([histogram("h", "Values.").histograms([((), counted)])]).decode()).samples == {
        'h_bucket{le="1.0"}': 1, 'h_bucket{le="5.0"}': 2, 'h_bucket{le="+Inf"}': 3, "h_sum": 12, "h_count": 3,
    }  # fmt: skip


def test_what_takes_long_is_counted_though_it_raises() -> None:
    counted = Histogram(SECONDS)
    with pytest.raises(KeyError), counted.timed():
        raise KeyError
    assert counted.count == 1


def test_a_counter_is_named_as_one() -> None:
    with pytest.raises(ValueError, match="_total"):
        Described("headrace_things", Kind.COUNTER, "Things.")
    with pytest.raises(ValueError, match="_total"):
        Described("headrace_things_total", Kind.GAUGE, "Things.")
