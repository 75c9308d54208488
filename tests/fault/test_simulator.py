"""Thousands of lives of a journal on a disk that fails and crashes: see ``simulator``. The first seed is printed.

``HEADRACE_TEST_SEED=1234`` begins there instead of at random; ``python -m tests.fault.simulator SEED`` runs one by hand.
"""

from __future__ import annotations

import os
import random
import sys

import pytest

from tests.fault.simulator import Simulation, simulate
from tests.scale import SCALE, scaled

SEEDS = 1000


@pytest.mark.timeout(300 * max(1.0, SCALE))
@pytest.mark.parametrize("part", range(3))
def test_nothing_acknowledged_or_seen_is_ever_lost(part: int) -> None:
    given = os.environ.get("HEADRACE_TEST_SEED")
    first = int(given) if given is not None else random.SystemRandom().randrange(1 << 48)
    first += part * scaled(SEEDS)
    sys.stdout.write(f"seeds from {first} on\n")
    recoveries = sum(simulate(seed) for seed in range(first, first + scaled(SEEDS)))
    assert recoveries > scaled(SEEDS), "a seed that crashes nothing tests nothing"


def test_a_seed_tells_the_same_story_each_time() -> None:
    stories = []
    for _ in range(2):
        told = Simulation(4711)
        told.run()
        stories.append((list(told.story), told.disk.contents()))
    assert stories[0] == stories[1]
