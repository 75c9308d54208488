"""The latency bench: what was noted of a batch counts for each of its entries, and the steps join without a gap."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.latency import STEPS, WHOLE, Sample, figures_of, read_notes, steps_of

MS = 1_000_000


def noted(file: Path, *notes: tuple[str, int, int, int, int]) -> Path:
    lines = [(step, first, count, begun * MS, ended * MS) for step, first, count, begun, ended in notes]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_steps_of_a_batch_join_without_a_gap(tmp_path: Path) -> None:
    agent = noted(
        tmp_path / "agent", ("mark", 7, 2, 103, 105), ("read", 7, 2, 105, 107), ("post", 7, 2, 107, 115)
    )
    server = noted(tmp_path / "server", ("put", 7, 2, 112, 113), ("take", 7, 2, 110, 114))
    samples = [
        Sample(due=99 * MS, committed=100 * MS, delivered=120 * MS, sequence_id=7),
        Sample(due=99 * MS, committed=102 * MS, delivered=120 * MS, sequence_id=8),
    ]
    found = steps_of(samples, read_notes(agent, server))
    assert tuple(found) == (WHOLE, *STEPS)
    assert {step: figures["max-ms"] for step, figures in found.items()} == {
        "after-commit": 20, "notify": 3, "mark": 4, "post": 3, "durable": 3, "deliver": 7,
    }  # fmt: skip
    assert found["notify"]["p50-ms"] == pytest.approx(2)
    assert sum(found[step]["p50-ms"] for step in STEPS) == pytest.approx(found[WHOLE]["p50-ms"])


def test_stall_counts_from_when_a_commit_was_due() -> None:
    found = figures_of([Sample(0, 500 * MS, 501 * MS, 1), Sample(10 * MS, 500 * MS, 501 * MS, 2)])
    assert (found["max-ms"], found["after-commit-max-ms"], found["commit-max-ms"]) == (501, 1, 500)
