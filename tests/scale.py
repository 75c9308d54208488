"""How much a run does: the short sizes of ``make test``, or the long ones of ``make soak``.

A seeded or sized test takes its rounds from :func:`scaled` or :func:`sized`, so that one code serves both. A test that only
a soak can afford is marked ``@pytest.mark.soak(sibling="test_name")``: its sibling, in the same file, does the same with
less. ``HEADRACE_TEST_SCALE`` (a float) multiplies seeded rounds; ``HEADRACE_TEST_SEED`` repeats a run's seeds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from random import Random, SystemRandom
from typing import Final, TypeVar

SOAK: Final = "HEADRACE_SOAK" in os.environ
"""Whether this run is a soak."""

SOAK_SCALE: Final = 20.0
"""How many times as many seeded rounds a soak makes."""

SCALE: Final = float(os.environ.get("HEADRACE_TEST_SCALE", SOAK_SCALE if SOAK else 1))

SEED: Final = int(os.environ.setdefault("HEADRACE_TEST_SEED", str(SystemRandom().randrange(1 << 32))))
"""Where the run's seeds begin: another place for each run, told in its header, the same for all its processes."""

_Size = TypeVar("_Size")


def scaled(rounds: int) -> int:
    """Return ``rounds`` times the scale, at least 1."""
    return max(1, round(rounds * SCALE))


def sized(short: _Size, *, soak: _Size) -> _Size:
    """Return ``short`` in a run of the tests, ``soak`` in a soak: rows, batches, kills, seconds."""
    return soak if SOAK else short


def chosen(cases: Iterable[_Size], count: int = 1, *, of: str = "") -> list[_Size]:
    """Return ``count`` of the cases in their order, as the run's seed has it; all of them in a soak.

    For cases each of which is dear, and independent of the others. ``of``: names what chooses, so that others choose
    otherwise.
    """
    every = list(cases)
    if SOAK or count >= len(every):
        return every
    return [every[at] for at in sorted(Random(f"{SEED} {of}").sample(range(len(every)), count))]
