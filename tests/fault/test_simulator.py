"""Hundreds of lives of a journal on a disk that fails and crashes: see ``simulator``. The first seed is printed.

``HEADRACE_TEST_SEED=1234`` begins there instead of at random; ``python -m tests.fault.simulator SEED`` runs one by hand.
"""

from __future__ import annotations

import re
import sys
from collections import Counter

import pytest

from tests.fault.simulator import Simulation, simulate
from tests.scale import SCALE, SEED, scaled, sized

SEEDS = sized(60, soak=350)
"""Of each part, of which a soak has more; every run begins elsewhere, so runs add up."""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MEETS = {
    "appended", "duplicate", "offset-mismatch", "sequence-gap", "duplicate-entry", "quarantined", "fenced",
    "not-registered", "feed-recreated", "feed-owned", "stream-failed", "expected-offset-required", "invalid-request",
    "Register", "Release", "Configure", "no answer", "disk full", "asked again after a crash", "repair skip", "repair cut",
    "repair of copies",
}  # fmt: skip


@pytest.mark.timeout(300 * max(1.0, SCALE))
@pytest.mark.parametrize("part", range(3))
def test_nothing_acknowledged_or_seen_is_ever_lost(part: int) -> None:
    first = SEED + part * scaled(SEEDS)
    sys.stdout.write(f"seeds from {first} on\n")
    recoveries = sum(simulate(seed).recoveries for seed in range(first, first + scaled(SEEDS)))
    assert recoveries > scaled(SEEDS), "a seed that crashes nothing tests nothing"


def test_its_stories_have_everything_in_them() -> None:
    met: Counter[str] = Counter()
    for seed in range(300):
        met += simulate(seed).met
        if met.keys() >= MEETS:
            break
    assert met.keys() >= MEETS, MEETS - met.keys()


@pytest.mark.parametrize("seed", [4711, 131])
def test_a_seed_tells_the_same_story_each_time(seed: int) -> None:
    """But for the incarnations that a repair makes, which are never the same."""
    stories = []
    for _ in range(2):
        told = Simulation(seed)
        told.run()
        sizes = {path: len(data) for path, data in told.disk.contents().items()}
        stories.append(([UUID.sub("", line) for line in told.story], sizes, told.disk.steps))
    assert stories[0] == stories[1]
