"""Backoff: doubling up to a bound, with jitter, and back to the start on progress."""

from __future__ import annotations

import random

from headrace.runtime.backoff import Backoff


def test_waits_double_up_to_the_bound() -> None:
    backoff = Backoff(first_s=0.1, delay_s_max=5.0, rng=random.Random(1))
    for ceiling in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0):
        assert ceiling / 2 <= backoff.next_delay() <= ceiling
    assert backoff.failures == 8


def test_bound_holds_for_ever() -> None:
    backoff = Backoff(failures=10_000)
    assert 7.5 <= backoff.next_delay() <= 15.0


def test_jitter_keeps_many_from_knocking_together() -> None:
    rng = random.Random(2)
    assert len({Backoff(rng=rng).next_delay() for _ in range(50)}) == 50


def test_progress_resets() -> None:
    backoff = Backoff(failures=9)
    backoff.reset()
    assert backoff.next_delay() <= 0.1
