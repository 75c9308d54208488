"""The bench harness compares within a round, and lets every arm go first as often as last."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.support.harness import Bench, Figures, arguments, cpu_seconds, publish


def measured(factors: dict[str, list[float]]) -> tuple[Bench, list[str]]:
    bench = Bench("b", tuple(factors), {"clients": 4})
    asked: list[str] = []

    def measure(arm: str) -> Figures:
        asked.append(arm)
        return {"tps": factors[arm][asked.count(arm) - 1]}

    bench.run(measure, len(factors["bare"]))
    return bench, asked


def test_ratio_is_the_median_of_the_rounds_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    bench, asked = measured({"bare": [100, 10, 1000], "ours": [80, 9, 700]})
    assert asked == ["bare", "ours", "ours", "bare", "bare", "ours"]
    assert bench.ratio("ours", "tps") == [0.8, 0.9, 0.7]
    assert bench.median("ours", "tps") == 80
    publish([bench], ["tps"], tmp_path / "figures.json")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cpu ")
    assert lines[1] == "b: clients 4"
    assert lines[4].split() == ["ours", "80.0", "80.0%", "(70.0%", "..", "90.0%)"]
    document = json.loads(lines[-1])
    assert document == json.loads((tmp_path / "figures.json").read_text())
    assert document["benches"][0]["ratios"] == {"tps": {"bare": 1.0, "ours": 0.8}}
    assert document["machine"]["cores"] > 0


def test_a_limit_of_nothing_has_no_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    bench, _ = measured({"bare": [0, 0], "ours": [80, 9]})
    publish([bench], ["tps"], None)
    lines = capsys.readouterr().out.splitlines()
    assert lines[4].split() == ["ours", "44.5000", "-"]
    assert json.loads(lines[-1])["benches"][0]["ratios"] == {"tps": {}}


def test_processor_time_counts_children() -> None:
    before = cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    assert before < cpu_seconds(os.getpid()) < before + 60


def test_options_of_every_bench() -> None:
    given = arguments("what", seconds=20, rounds=5).parse_args(["--rounds", "3"])
    assert (given.seconds, given.rounds, given.json) == (20, 3, None)
