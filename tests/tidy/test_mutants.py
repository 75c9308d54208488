"""The faults that ``tests/mutants`` plants still fit the code, and the tests that find them are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.run import CHECKOUT, HERE, Mutant, applies, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda one: one.patch.stem)
def test_planted_fault_fits_the_code_and_its_tests_are_there(mutant: Mutant) -> None:
    assert applies(mutant.patch), "plant it anew in what the code has become: python -m tests.mutants.run"
    assert mutant.found_by
    for test in mutant.found_by:
        path, *names = test.partition("[")[0].split("::")
        text = Path(CHECKOUT, path).read_text(encoding="utf-8")
        assert all(re.search(rf"\b{name}\b", text) for name in names), test


def test_each_patch_is_listed_once() -> None:
    listed = [one.patch.name for one in mutants()]
    assert listed == sorted(path.name for path in HERE.glob("*.patch"))
    assert len({one.number for one in mutants()}) == len(listed)
