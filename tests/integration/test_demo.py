"""``headrace demo`` with Spark: real processes, two SIGKILLs, a mistake undone, and zeros for every reader and table."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from headrace.cli.demo.application import ACCOUNTS

RUN_S_MAX = 840
"""It has Spark twice, and processes that wait for each other: four minutes on a machine that does much else."""


@pytest.mark.timeout(RUN_S_MAX + 60)
def test_demo_finds_nothing_missing_doubled_misplaced_or_torn() -> None:
    words = [sys.executable, "-m", "headrace.cli.app", "demo", "--seconds", "6", "--seed", "7", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S_MAX, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    document = json.loads(done.stdout)
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


def test_demo_in_a_folder_that_exists_is_refused(tmp_path: object) -> None:
    words = [sys.executable, "-m", "headrace.cli.app", "demo", "--no-spark", "--keep", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "code: usage" in done.stderr
    assert "Traceback" not in done.stderr
