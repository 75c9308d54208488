"""How much the seeded and generated tests do: ``HEADRACE_TEST_SCALE`` (a float, default 1) multiplies their rounds."""

from __future__ import annotations

import os

SCALE = float(os.environ.get("HEADRACE_TEST_SCALE", "1"))


def scaled(rounds: int) -> int:
    """Return ``rounds`` times the scale, at least 1."""
    return max(1, round(rounds * SCALE))
