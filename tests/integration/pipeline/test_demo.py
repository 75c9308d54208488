"""``headrace demo`` with Spark: real processes, two SIGKILLs, a mistake undone, and zeros for every reader and table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cli import demo as command
from headrace.cli.demo import tables
from headrace.cli.demo.application import ACCOUNTS
from tests.agents import run_here
from tests.scale import SOAK, sized

RUN_S_MAX = 840
"""It has Spark twice, and processes that wait for each other: four minutes on a machine that does much else."""

WORDS = ("demo", "--seconds", sized("4", soak="6"), "--seed", "7", "--json")


@pytest.fixture
def demo(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """The demo's exit code, and what it printed: with a Java of its own in a soak, else with that of all tests here."""
    if SOAK:
        words = [sys.executable, "-m", "headrace.cli.app", *WORDS]
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
        return done.returncode, done.stdout, done.stderr
    request.getfixturevalue("shared_spark")
    spark: SparkSession = request.getfixturevalue("spark")
    monkeypatch.setattr(tables, "open_session", lambda settings: spark)
    monkeypatch.setattr(command, "configure_logs", lambda **_: None)  # its level would stay with this process
    return run_here(WORDS)


@pytest.mark.timeout(RUN_S_MAX + 60)
def test_demo_finds_nothing_missing_doubled_misplaced_or_torn(demo: tuple[int, str, str]) -> None:
    code, out, errors = demo
    assert code == 0, f"{out}\n{errors}"
    document = json.loads(out)
    assert document["faultless"] is True
    assert document["commits"] > 100
    counts = document["counts"]
    assert {(count["reader"], count["table"]) for count in counts} == {
        (reader, table)
        for reader in ("feed", "listener", "spark", "restored")
        for table in ("accounts", "transfers", "notes")
    }
    assert document["restored"]["spoilt-rows"] == ACCOUNTS
    for count in counts:
        assert count["rows"] > 0, count
        assert [count[name] for name in ("missing", "duplicated", "out-of-order", "torn")] == [0, 0, 0, 0], (
            count
        )


def test_demo_in_a_folder_that_exists_is_refused(tmp_path: Path) -> None:
    code, _, errors = run_here(["demo", "--no-spark", "--keep", str(tmp_path)])
    assert code == 2
    assert "code: usage" in errors
    assert "Traceback" not in errors
