"""Plant faults in a copy of the checkout, one at a time, and see which test finds each: does the suite still notice them?

``python -m tests.mutants.run [NN ...] [--against PATHS] [--json FILE] [--unchanged]``

A mutant is a patch beside this file, and its paragraph in ``found.toml``: what is broken, and which tests find it. Of each
one (or of those with the numbers NN) its tests run with ``-x``, in their order, until one fails. Fails if one is found by no
test, or if a patch does not apply any more: then its change is to be planted anew in what the code has become.

``--against`` runs these paths, separated by commas, instead of what is listed: which faults would they find by themselves?
``--unchanged`` runs all that is listed over the code without a fault first: a test that fails anyway finds nothing.
``--json`` writes what found each.

The copy is what git knows of the checkout, as it lies there. The tests run in it, with its ``src`` first, and PYTHONPATH
puts that before the installed one in whatever they start, so that all of it runs the fault. They run in forks of this
process, which has imported what is not ours: that is most of what pytest takes to start. Nothing of a changed file's
bytecode stays: a patch can leave size and second of a file as they were.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

HERE: Final = Path(__file__).parent
CHECKOUT: Final = HERE.parent.parent
TIMEOUT_S: Final = 600
OURS: Final = frozenset(
    {"headrace", "pyspark_headrace", "pyspark_headrace_tables", "pyspark_headrace_wal", "tests"}
)
"""What is imported anew in each fork."""
READY: Final = (
    "cryptography", "fsspec", "google.protobuf", "google_crc32c", "grpc.aio", "hypothesis.stateful", "jwt", "msgspec",
    "numpy", "psycopg", "pyarrow.compute", "starlette.applications", "structlog", "uvicorn",
)  # fmt: skip
"""What is imported before the forks."""
_CHECKED_OUT: Final = frozenset({CHECKOUT, CHECKOUT / "src"})
_FOUND: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
_CHANGED: Final = re.compile(r"^\+\+\+ b/(\S+)$", re.MULTILINE)


class Mutant(NamedTuple):
    """A fault to plant: its patch, what it breaks, and the tests that find it (files or node ids)."""

    patch: Path
    title: str
    found_by: tuple[str, ...]

    @property
    def number(self) -> str:
        """The two digits that its patch begins with."""
        return self.patch.name[:2]


class Outcome(NamedTuple):
    """What became of a mutant: the test that found it, or ``""`` and the last lines of what ran."""

    mutant: Mutant
    found_by: str
    seconds: float
    said: str


def mutants() -> list[Mutant]:
    """Return all that ``found.toml`` has, in order."""
    listed = tomllib.loads((HERE / "found.toml").read_text())["mutant"]
    return [Mutant(HERE / one["patch"], one["title"], tuple(one["found_by"])) for one in listed]


def applies(patch: Path, checkout: Path = CHECKOUT) -> bool:
    """Tell whether a patch fits what lies in ``checkout``."""
    command = ["git", "apply", "--check", str(patch)]
    return subprocess.run(command, cwd=checkout, capture_output=True, check=False).returncode == 0


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="tests.mutants.run", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("numbers", nargs="*", metavar="NN", help="those of the mutants; all if none is given")
    parser.add_argument("--against", default="", help="paths of tests, separated by commas, to run instead")
    parser.add_argument("--json", type=Path, help="where to write what found each")
    parser.add_argument(
        "--unchanged", action="store_true", help="run the tests over the code as it is, first"
    )
    asked = parser.parse_args(words)
    chosen = [one for one in mutants() if not asked.numbers or one.number in asked.numbers]
    if asked.against:
        chosen = [one._replace(found_by=tuple(asked.against.split(","))) for one in chosen]
    outcomes = []
    for name in READY:
        importlib.import_module(name)
    with _copied() as copy:
        if asked.unchanged:
            found, said = _ran(copy, sorted({test for one in chosen for test in one.found_by}))
            if found:
                _say(f"fails without any fault: {found}\n{said}")
                return 1
        for mutant in chosen:
            outcome = _planted(copy, mutant)
            outcomes.append(outcome)
            _say(f"{mutant.patch.stem}: {outcome.found_by or 'NOT FOUND'} ({outcome.seconds:.0f} s)")
            if not outcome.found_by:
                _say(f"  {mutant.title}\n{outcome.said}")
    if asked.json is not None:
        told = {one.mutant.patch.stem: {"found-by": one.found_by, "s": one.seconds} for one in outcomes}
        asked.json.write_text(json.dumps(told, indent=1) + "\n")
    missed = sum(not one.found_by for one in outcomes)
    _say(f"{len(outcomes)} faults planted, {missed} not found")
    return 1 if missed or not outcomes else 0


@contextlib.contextmanager
def _copied() -> Iterator[Path]:
    """Copy what git knows of the checkout, with the changes that were not committed, and let go of it afterwards."""
    with tempfile.TemporaryDirectory(prefix="headrace-mutants-") as folder:
        copy = Path(folder)
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        known = subprocess.run(listing, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
        names = [name for name in known.split("\0") if (CHECKOUT / name).is_file()]
        for name in names:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, copy / name)
        for inside in {Path(name).parent / "__pycache__" for name in names}:
            if (
                CHECKOUT / inside
            ).is_dir():  # good for the copies too: they have the times of their originals
                shutil.copytree(CHECKOUT / inside, copy / inside)
        (copy / ".venv").symlink_to(CHECKOUT / ".venv")
        command = [sys.executable, "-c", "import headrace; print(headrace.__file__)"]
        found = subprocess.run(
            command, cwd=copy, env=_environment(copy), capture_output=True, text=True, check=True
        )
        assert Path(found.stdout.strip()).is_relative_to(copy), f"what would run is {found.stdout}"
        yield copy


def _environment(copy: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(copy / "src"), "PYTHONDONTWRITEBYTECODE": ""}


def _planted(copy: Path, mutant: Mutant) -> Outcome:
    """Apply a patch, run its tests, and take it back."""
    begun = time.monotonic()
    if not applies(mutant.patch, copy):
        return Outcome(mutant, "", 0.0, "  its patch does not apply")
    with _changed(copy, mutant.patch):
        found, said = "", ""
        for test in mutant.found_by:
            found, said = _ran(copy, [test])
            if found:
                break
    return Outcome(mutant, found, round(time.monotonic() - begun, 1), said)


@contextlib.contextmanager
def _changed(copy: Path, patch: Path) -> Iterator[None]:
    files = [copy / name for name in _CHANGED.findall(patch.read_text())]
    subprocess.run(["git", "apply", str(patch)], cwd=copy, check=True)
    try:
        _forget(files)
        yield
    finally:
        subprocess.run(["git", "apply", "--reverse", str(patch)], cwd=copy, check=True)
        _forget(files)


def _forget(files: Sequence[Path]) -> None:
    for file in files:
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            compiled.unlink()


def _ran(copy: Path, tests: Sequence[str]) -> tuple[str, str]:
    """Run tests until the first that fails; return it, if there is one, and the last that was said."""
    said = copy / "mutant-said.txt"
    process = multiprocessing.get_context("fork").Process(target=_become_pytest, args=(copy, tests, said))
    process.start()
    process.join(TIMEOUT_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        return f"{tests[0]} (no end within {TIMEOUT_S} s)", ""
    text = said.read_text(errors="replace")
    last = "\n".join(text.splitlines()[-12:])
    if process.exitcode == 0:
        return "", last
    found = _FOUND.search(text)
    return (found[1] if found else f"{' '.join(tests)} (exit code {process.exitcode})"), last


def _become_pytest(copy: Path, tests: Sequence[str], said: Path) -> None:
    """Run tests in this process, which has imported nothing yet of what a fault can be in."""
    os.chdir(copy)
    os.environ.update(_environment(copy))
    with said.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    for name in [name for name in sys.modules if name.partition(".")[0] in OURS and name != "__main__"]:
        del sys.modules[name]
    sys.path[:] = [
        str(copy / "src"),
        *(path for path in sys.path if Path(path or ".").resolve() not in _CHECKED_OUT),
    ]
    sys.dont_write_bytecode = False
    ready = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # hypothesis, which asserts nothing of ours
    sys.exit(pytest.main([*ready, "-q", "-x", "-p", "no:cacheprovider", "--timeout", "120", *tests]))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
