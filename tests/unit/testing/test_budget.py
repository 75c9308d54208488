"""A run's folders against their budget: who is over it, on this machine and on a slower one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import budget


def test_a_folder_over_its_budget_is_named_and_a_slower_machine_may_take_longer(tmp_path: Path) -> None:
    file = tmp_path / "budget.toml"
    file.write_text('loop_s = 0.1\n[folders]\n"tests/a" = 100\n[files]\n', encoding="utf-8")
    within, over = 100 * budget.SLACK + budget.SLACK_S, 100 * budget.SLACK + budget.SLACK_S + 1
    assert list(budget.over({"tests/a": within, "tests/new": budget.SLACK_S}, 0.05, file)) == []
    (line,) = budget.over({"tests/a": over}, 0.1, file)
    assert line.startswith("tests/a took 191 s")
    assert list(budget.over({"tests/a": over}, 0.2, file)) == []
    assert list(budget.over({"tests/new": budget.SLACK_S + 1}, 0.1, file))


def test_a_run_makes_the_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "FILE", tmp_path / "budget.toml")
    tests = [
        {"test": "tests/a/test_x.py::one", "call": 11.0, "processor_s": 3.0},
        {"test": "tests/a/test_y.py::two", "call": 1.0, "setup": 0.5, "processor_s": 2.0},
        {"test": "tests/b/test_z.py::three[tests/c]", "call": 0.1},
    ]
    times = tmp_path / "times"
    times.write_text("\n".join(map(json.dumps, tests)), encoding="utf-8")
    budget.main(times)
    assert budget.long_files(budget.FILE) == {"tests/a/test_x.py": 11}
    assert list(budget.over({"tests/a": 5.0, "tests/b": 0.0}, 0.0, budget.FILE)) == []
