"""A home for Spark whose Python processes import PySpark from where it is installed. Called by sessions and the set-up.

Spark puts ``python/lib/pyspark.zip`` of its home in front of the path of every Python that it starts: planners, look-ups of
sources, streaming sources and the daemon. A zip holds no bytecode, so each of them would compile PySpark anew, a second of
processor time. The home made here is a folder of links that has no such zip.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from headrace.pipeline.java import cache_folder

LINKED: Final = ("bin", "conf", "jars", "sbin")
"""What Spark itself needs of its home; ``python`` is left out."""

MASTERS: Final = ("local", "spark:")
"""Beginnings of the masters that may have it. YARN sends the zip to its containers and refuses a home without one."""


def spark_home(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the home, made if it is not there yet; None where the cache can't be written, which only costs time.

    One for each installed PySpark, under the cache: its path is part of what an archive of Java's classes is checked by.
    """
    installed = pyspark_folder()
    if installed is None:
        return None
    digest = hashlib.sha256(os.fsencode(installed)).hexdigest()[:12]
    home = cache_folder(environment) / f"spark-{version('pyspark')}-{digest}"
    if not home.is_dir():
        try:
            _make(home, installed)
        except OSError:
            return home if home.is_dir() else None  # somebody else was faster, or there is no room for it
    return home


def pyspark_folder() -> Path | None:
    """Return the folder of the installed PySpark, which is a home of Spark itself; None if there is none."""
    found = find_spec("pyspark")
    return Path(found.origin).parent if found is not None and found.origin else None


def _make(home: Path, installed: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
    try:
        for name in LINKED:
            if (installed / name).is_dir():
                (draft / name).symlink_to(installed / name)
        draft.chmod(0o755)
        draft.rename(home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
