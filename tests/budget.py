"""What a whole run may take of the processor, folder by folder, and which files are long: ``tests/budget.toml``.

``HEADRACE_TEST_BUDGET=1`` has a whole run held to it: growth is to be noticed in the change that brings it. A budget is in
processor seconds of the machine that it was measured on; the file also has what a loop takes there, which tells a slower
machine apart. Made anew of a whole run: ``HEADRACE_TEST_TIMES=FILE make test``, then ``python -m tests.budget FILE``.
"""

from __future__ import annotations

import json
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("budget.toml")
CHECKED: Final = "HEADRACE_TEST_BUDGET"
"""A run with this in its environment fails if a folder is over its budget."""

SLACK: Final = 1.5
SLACK_S: Final = 40.0
"""Added to each: the first folder that needs a Spark, a Java or a database is charged with its start."""

LONG_S: Final = 10.0
"""Files that take this long or longer begin first, the longest one in front: no worker is left alone at the end."""

_ROUNDS: Final = 400_000


def loop_s() -> float:
    """Return the processor seconds that a fixed loop takes here and now: the least of five."""
    return min(_loop_once() for _ in range(5))


def _loop_once() -> float:
    began, found = time.process_time(), {}
    for number in range(_ROUNDS):
        found[number & 1023] = str(number)
    return time.process_time() - began


def over(took: Mapping[str, float], loop: float, file: Path = FILE) -> Iterator[str]:
    """Yield a line for each folder that took more than its budget. ``loop``: of :func:`loop_s`, the greatest of the run."""
    document = tomllib.loads(file.read_text(encoding="utf-8"))
    speed = max(1.0, loop / document["loop_s"])
    for folder, seconds in sorted(took.items()):
        most = document["folders"].get(folder, 0) * SLACK * speed + SLACK_S
        if seconds > most:
            yield f"{folder} took {seconds:.0f} s of the processor; {most:.0f} s are the most that its budget allows"


def long_files(file: Path = FILE) -> dict[str, float]:
    """Return the files that take long, with their seconds."""
    return dict(tomllib.loads(file.read_text(encoding="utf-8"))["files"]) if file.exists() else {}


def main(times: Path) -> None:
    """Write the budget of what a run took."""
    took: defaultdict[str, float] = defaultdict(float)
    files: defaultdict[str, float] = defaultdict(float)
    for line in times.read_text(encoding="utf-8").splitlines():
        test = json.loads(line)
        path = test["test"].partition("::")[0]
        took[str(Path(path).parent)] += test.get("processor_s", 0.0)
        files[path] += sum(test.get(phase, 0.0) for phase in ("setup", "call", "teardown"))
    lines = [f'"{folder}" = {seconds:.0f}' for folder, seconds in sorted(took.items()) if round(seconds)]
    lines += ["", f"# Seconds of each file that takes {LONG_S:g} or more: these begin first.", "[files]"]
    lines += [f'"{path}" = {seconds:.0f}' for path, seconds in sorted(files.items()) if seconds >= LONG_S]
    FILE.write_text(
        "# Processor seconds of a whole run, by folder, and of the loop of tests/budget.py on the same machine.\n"
        f"loop_s = {loop_s():.3f}\n\n[folders]\n" + "\n".join(lines) + "\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
