"""Every error of the tree is met by some test: by its class or by its code."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.errors import every_error

TESTS = Path(__file__).parents[1]


def test_every_error_is_named_by_a_test() -> None:
    own = {Path(__file__), TESTS / "tidy" / "rules.py"}
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py") if path not in own]
    words = {word for text in texts for word in re.findall(r"[\w-]+", text)}
    kinds = [kind for kind in every_error() if kind.__module__.startswith("headrace.errors")]
    unmet = [kind.__name__ for kind in kinds if kind.__name__ not in words and kind.code not in words]
    assert not unmet, f"no test names {unmet}"
