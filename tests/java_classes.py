"""How Java starts in tests: with options for a short life, and with Spark's classes from an archive, already parsed.

A run without the archive is as right, and slower: most of what the start of a Spark costs is reading its classes. Java
passes over an archive that doesn't fit its own version or the jars.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import MutableMapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

QUICK: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:ReservedCodeCacheSize=256m",
    "-XX:InitialRAMPercentage=6.25",
)
"""Options of a Java that won't live long: nothing is spent on becoming quick later, nor on threads for garbage.

With the first option alone it has 48 MiB for compiled code, which a session of many tests fills: then code is thrown away
and compiled anew. A heap that begins at a sixteenth of the memory, and at no more than ``-Xmx``, is swept less often.
"""

OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""The variable from which Spark takes options for its Java."""


def archive() -> Path:
    """Where the classes of this Spark are, or would be: ``tests.java_archive`` makes it."""
    return Path(sys.prefix) / f"spark-{version('pyspark')}.jsa"


def quick_options() -> str:
    """Return what makes a Spark's Java start quickly, and leave its files where this run's go, in one line."""
    folder = f"-Djava.io.tmpdir={tempfile.gettempdir()}"
    shared = (f"-XX:SharedArchiveFile={archive()}",) if archive().is_file() else ()
    return " ".join((*QUICK, folder, *shared))


def start_quickly(environment: MutableMapping[str, str]) -> None:
    """Have every Spark that is started with ``environment`` start quickly, unless that says already how Spark starts."""
    environment.setdefault(OPTIONS, quick_options())
