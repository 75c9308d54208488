"""Checks of what is installed: Python, SQLite, packages, Java and jars for Spark; and of which version the server is."""

from __future__ import annotations

import re
import sqlite3
import sys
import sysconfig
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headrace import __version__
from headrace.cli.doctor.finding import Asked, Finding, fail, ok, warn
from headrace.cli.doctor.reach import alive
from headrace.publisher.sqlite.connection import SQLITE_OLDEST

PYTHON_OLDEST: Final = (3, 11)

_NEEDED: Final = re.compile(r"(?P<name>[\w.-]+)(\[[\w,-]+\])?(?P<bounds>[^;]*)(?:;(?P<marker>.*))?")
_BOUND: Final = re.compile(r"(>=|==|<)([\d.]+)")
_EXTRA: Final = re.compile(r"extra == ['\"]([\w-]+)['\"]")


def check_python(asked: Asked) -> list[Finding]:
    """Python and SQLite are new enough."""
    found = []
    if sys.version_info < PYTHON_OLDEST:
        found.append(fail(f"this is Python {_dotted(sys.version_info[:3])}", "Use Python 3.11 or newer."))
    if sqlite3.sqlite_version_info < SQLITE_OLDEST:
        found.append(
            fail(
                f"this Python has SQLite {sqlite3.sqlite_version}; {_dotted(SQLITE_OLDEST)} or newer is needed",
                "Use a Python that brings a newer SQLite.",
                "platform-unsupported",
            )
        )
    python = _dotted(sys.version_info[:3])
    return found or [ok(f"Headrace {__version__}, Python {python}, SQLite {sqlite3.sqlite_version}")]


def check_bytecode(asked: Asked) -> list[Finding]:
    """What this process has imported is there as bytecode: else every process compiles it anew, at each start."""
    loaded = [module for module in list(sys.modules.values()) if getattr(module, "__cached__", None)]
    compiled = sum(Path(module.__cached__).exists() for module in loaded)
    if compiled == len(loaded):
        return [ok(f"all {compiled} modules that this command loads have bytecode")]
    written = "PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else "it can't be written"
    return [
        warn(
            f"{len(loaded) - compiled} of {len(loaded)} modules have no bytecode, and {written}: each start compiles them "
            "anew, which takes about a second of processor time",
            f"Once, as their owner: {sys.executable} -m compileall -q {sysconfig.get_path('purelib')}",
        )
    ]


def check_packages(asked: Asked) -> list[Finding]:
    """What Headrace needs is installed, and of the extras what has begun to be is whole."""
    found, complete = [], []
    for extra, needs in _extras().items():
        wrong = [problem for name, bounds in needs if (problem := _problem_of(name, bounds)) is not None]
        if not extra or len(wrong) < len(needs):
            command = f"pip install 'headrace[{extra}]'" if extra else "pip install headrace"
            found += [fail(f"{one}", f"{command} mends it.", "setup-missing") for one in wrong]
        if extra and not wrong:
            complete.append(extra)
    said = f"extras installed: {', '.join(sorted(complete)) or 'none'}"
    return found or [ok(f"all packages are there; {said}")]


def check_spark(asked: Asked) -> list[Finding]:
    """With the extra ``spark`` there must be a Java of the right version, and the jars."""
    if find_spec("pyspark") is None:
        return []
    from headrace.pipeline import jars
    from headrace.pipeline.java import find_java

    java = find_java()
    found = [ok(f"Java {java.major} from {java.origin}")]
    folder = jars.jars_folder()
    lacking = jars.missing(folder)
    if lacking:
        names = ", ".join(jar.file for jar in lacking)
        found.append(warn(f"{folder} lacks {names}", "Run `headrace pipeline setup`.", "setup-missing"))
    return found


def check_server_version(asked: Asked) -> list[Finding]:
    """The server is of this version: another one may not know a call, or a format, of ours."""
    answer = alive(asked)
    if answer is None:
        return []
    if answer.version == __version__:
        return [ok(f"the server is Headrace {answer.version} too")]
    return [
        warn(
            f"the server is Headrace {answer.version}, this is {__version__}",
            "docs/reference/compatibility.md says which release reads which format.",
            "format-too-new",
        )
    ]


def _extras() -> dict[str, list[tuple[str, str]]]:
    """What each extra needs (under the empty name: Headrace itself), as names and bounds; not other platforms' needs."""
    found: dict[str, list[tuple[str, str]]] = {"": []}
    for text in requires("headrace") or ():
        match = _NEEDED.match(text)
        if match is None or match["name"] == "headrace":
            continue
        marker = match["marker"] or ""
        extra = _EXTRA.search(marker)
        if marker and extra is None:
            continue
        found.setdefault(extra[1] if extra is not None else "", []).append((match["name"], match["bounds"]))
    found.pop("all", None)  # the others once more
    return found


def _problem_of(name: str, bounds: str) -> str | None:
    try:
        there = version(name)
    except PackageNotFoundError:
        return f"the package {name} is not installed"
    if all(_holds(there, sign, wanted) for sign, wanted in _bounds(bounds)):
        return None
    return f"the package {name} is {there}, and {bounds.strip()} is needed"


def _bounds(text: str) -> Iterator[tuple[str, str]]:
    for match in _BOUND.finditer(text):
        yield match[1], match[2]


def _holds(there: str, sign: str, wanted: str) -> bool:
    ours, theirs = _release(there), _release(wanted)
    if sign == ">=":
        return ours >= theirs
    if sign == "<":
        return ours < theirs
    return ours[: len(theirs)] == theirs


def _release(text: str) -> tuple[int, ...]:
    """The numbers in front: 4.2.0rc1 counts as 4.2.0."""
    leading = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def _dotted(numbers: tuple[object, ...]) -> str:
    return ".".join(str(number) for number in numbers)
