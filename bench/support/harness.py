"""What every bench shares: the machine it ran on, rounds that alternate between the arms, medians, a table, and JSON.

A machine's speed changes from minute to minute. So the arms of a bench take turns (A B C, then C B A, ...), and a figure is
compared only with the bare limit of its own round: the ratio is the median of those ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

DURABILITY = "fdatasync before each answer"
"""The mode of every server that takes appends in these benches, unless an arm's name says otherwise."""

Figures = dict[str, float]
"""What one run of one arm measured: figure -> value."""


@dataclass(slots=True)
class Bench:
    """One bench with one set of conditions: each arm's figures, round by round. The first arm is the bare limit."""

    name: str
    arms: Sequence[str]
    conditions: dict[str, Any]
    rounds: list[dict[str, Figures]] = field(default_factory=list)

    def run(self, measure: Callable[[str], Figures], rounds: int) -> None:
        """Measure every arm once a round, in an order that is turned round each time."""
        for number in range(rounds):
            found: dict[str, Figures] = {}
            for arm in self.arms if number % 2 == 0 else reversed(self.arms):
                load = os.getloadavg()[0]
                found[arm] = {**measure(arm), "load-before": load}
                shown = ", ".join(f"{name} {value:,.1f}" for name, value in found[arm].items())
                print(f"{self.name} {number + 1}/{rounds} {arm}: {shown}", file=sys.stderr, flush=True)
            self.rounds.append(found)

    def median(self, arm: str, figure: str) -> float:
        """The median over the rounds of one figure of one arm."""
        return statistics.median(one[arm][figure] for one in self.rounds)

    def ratio(self, arm: str, figure: str) -> list[float]:
        """The figure in relation to that of the first arm in the same round; rounds where that one is 0 have none."""
        first = self.arms[0]
        return [one[arm][figure] / one[first][figure] for one in self.rounds if one[first][figure]]

    def measures(self, figure: str) -> bool:
        """Tell whether every arm has this figure."""
        return all(figure in found for one in self.rounds for found in one.values())

    def lines(self, figure: str) -> list[str]:
        """A table for a person: the median of ``figure`` and its relation to the bare limit, an arm a line."""
        conditions = ", ".join(f"{name} {value}" for name, value in self.conditions.items())
        width = max(map(len, self.arms))
        digits = 1 if self.median(self.arms[0], figure) >= 10 else 4
        found = [f"{self.name}: {conditions}", f"  {'':{width}}  {figure:>16}  ratio (least .. greatest)"]
        for arm in self.arms:
            ratios = self.ratio(arm, figure)
            span = (
                f"{statistics.median(ratios):5.1%} ({min(ratios):.1%} .. {max(ratios):.1%})"
                if ratios
                else "-"
            )
            found.append(f"  {arm:{width}}  {self.median(arm, figure):16,.{digits}f}  {span}")
        return found

    def document(self, figures: Sequence[str]) -> dict[str, Any]:
        """The same and everything measured, for a program; ``figures`` that not every arm has are left out."""
        figures = [figure for figure in figures if self.measures(figure)]
        return {
            "bench": self.name,
            "conditions": self.conditions,
            "bare-limit": self.arms[0],
            "medians": {one: {arm: self.median(arm, one) for arm in self.arms} for one in figures},
            "ratios": {
                one: {arm: statistics.median(found) for arm in self.arms if (found := self.ratio(arm, one))}
                for one in figures
            },
            "rounds": self.rounds,
        }


def arguments(description: str | None, *, seconds: float, rounds: int) -> argparse.ArgumentParser:
    """The options that every bench has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--seconds", type=float, default=seconds, help="length of one run (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=rounds, help="turns of every arm (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, help="write the JSON document to this file too")
    return parser


@contextmanager
def on_cores(cores: Collection[int]) -> Iterator[None]:
    """Let processes that are started within the ``with`` run on these processors only; they keep to them afterwards."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def halves_of_cores() -> tuple[list[int], list[int]]:
    """Split the processors into two machines, as it were; with a single one, both halves are that one."""
    cores = sorted(os.sched_getaffinity(0))
    half = max(1, len(cores) // 2)
    return cores[:half], cores[half:] or cores


def machine() -> dict[str, Any]:
    """What the figures depend on besides the code."""
    cpus = [
        line.partition(":")[2].strip()
        for line in _text("/proc/cpuinfo").splitlines()
        if line.startswith("model name")
    ]
    memory = _text("/proc/meminfo").split()
    return {
        "cpu": cpus[0] if cpus else platform.processor(),
        "cores": os.cpu_count(),
        "memory-gib": round(int(memory[1]) / (1 << 20), 1) if len(memory) > 1 else None,
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _commit(),
        "load": os.getloadavg(),
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def cpu_seconds(pid: int) -> float:
    """Processor time that a process, its children, and the children that they saw end have used so far.

    Other work on the machine makes a run longer, but adds nothing to this: the figure to trust where the machine is busy.
    """
    used = 0
    for process in (pid, *map(int, _text(f"/proc/{pid}/task/{pid}/children").split())):
        # After the name in brackets: state is field 3; utime, stime, cutime and cstime are fields 14 to 17.
        fields = _text(f"/proc/{process}/stat").rpartition(")")[2].split()
        used += sum(map(int, fields[11:15]))
    return used / os.sysconf("SC_CLK_TCK")


def publish(benches: Sequence[Bench], figures: Sequence[str], file: Path | None) -> None:
    """Print the machine, a table for each of ``benches`` and ``figures``, and one JSON document, which ``file`` gets too."""
    host = machine()
    document = {"machine": host, "benches": [bench.document(figures) for bench in benches]}
    print(", ".join(f"{name} {value}" for name, value in host.items() if name != "load"))
    for bench in benches:
        for figure in filter(bench.measures, figures):
            print("\n".join(bench.lines(figure)), end="\n\n")
    text = json.dumps(document, ensure_ascii=False)
    print(text)
    if file is not None:
        file.write_text(text + "\n", encoding="utf-8")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def _commit() -> str:
    words = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
