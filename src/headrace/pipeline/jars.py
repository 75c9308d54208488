"""The jars that Spark needs beside its own: named, versioned, checksummed; fetched once, never at a job's start.

``headrace pipeline setup`` fetches them through the Ivy that pyspark brings; sessions only check that they are there. To
use them on a machine without network, copy the folder there and point ``HEADRACE_JARS`` at it.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from headrace.errors import SetupMissing
from headrace.pipeline.java import Java, cache_folder
from headrace.pipeline.spark_home import pyspark_folder

FETCH_TIMEOUT_S: Final = 900.0
"""Most time for all downloads: 19 MB over a slow line."""


class Jar(NamedTuple):
    """One jar. ``size`` in bytes; ``sha256`` in hex."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The jar's file name."""
        return f"{self.artifact}-{self.version}.jar"


DELTA: Final = (
    Jar(
        "io.delta",
        "delta-spark_4.2_2.13",
        "4.4.0",
        9_515_916,
        "27d4fd8b1f879535c573ed1c718177d6a27f24d3e626ba02e216369725721ead",
    ),
    Jar(
        "io.delta",
        "delta-storage",
        "4.4.0",
        113_863,
        "c46735481fa8e326b0957be02b4420cbcab4b325bb08009b7f2045a95133f1cc",
    ),
)
"""Delta Lake for Spark 4.2. What else its descriptor names is in pyspark already, or not needed for tables."""

KAFKA: Final = (
    Jar(
        "org.apache.spark",
        "spark-sql-kafka-0-10_2.13",
        "4.2.0",
        494_879,
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705",
    ),
    # The connector's own version of this one, 4.2.0, can't be had; 4.0.0 was run with it, reading and writing.
    Jar(
        "org.apache.spark",
        "spark-token-provider-kafka-0-10_2.13",
        "4.0.0",
        64_975,
        "f2be3b76f9e6cbe63379d4e4e0dc14f59dbf056ae2ad16ff15ac108004c86767",
    ),
    Jar(
        "org.apache.kafka",
        "kafka-clients",
        "3.9.2",
        9_220_052,
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ),
    Jar(
        "org.apache.commons",
        "commons-pool2",
        "2.12.1",
        152_289,
        "5273c8bc8c0dca2211175c0d27efbd7228efae99689aac001a8e1ef8e872e9ef",
    ),
)
"""Spark's Kafka connector and what it needs."""

ALL: Final = DELTA + KAFKA


def jars_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the jars are kept: ``HEADRACE_JARS``, else ``~/.cache/headrace/jars``."""
    named = environment.get("HEADRACE_JARS")
    return Path(named).absolute() if named else cache_folder(environment) / "jars"


def missing(folder: Path, jars: Sequence[Jar] = ALL) -> list[Jar]:
    """Return the jars that are not in ``folder``, or not with the size and checksum that they must have."""
    return [jar for jar in jars if not _fits(folder / jar.file, jar)]


def require(folder: Path, jars: Sequence[Jar]) -> list[Path]:
    """Return the paths of ``jars``; SetupMissing, naming the first that is absent or damaged, if one is."""
    absent = missing(folder, jars)
    if absent:
        raise SetupMissing(
            f"{absent[0].file} is not in {folder}, or is damaged",
            hint="Run `headrace pipeline setup` (it downloads 19 MB once), or copy the folder from a machine that has it "
            "and set HEADRACE_JARS.",
        )
    return [folder / jar.file for jar in jars]


def fetch(folder: Path, java: Java, jars: Sequence[Jar] = ALL, *, say: Callable[[str], None]) -> list[Jar]:
    """Put the jars that are missing into ``folder`` and return them. ``say`` gets a line for each step, with sizes.

    A jar gets its name only once its checksum fits. SetupMissing, with what Ivy said, if one can't be had.
    """
    absent = missing(folder, jars)
    if not absent:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    say(f"fetching {len(absent)} jars, {_megabytes(sum(jar.size for jar in absent))}, into {folder}")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as scratch:
        said = _run_ivy(java, Path(scratch), absent)
        for jar in absent:
            draft = Path(scratch) / jar.file
            if not _fits(draft, jar):
                raise _not_had(jar, draft, said)
            draft.replace(folder / jar.file)
            say(f"{jar.file} ({_megabytes(jar.size)}), checksum fits")
    return absent


def _run_ivy(java: Java, scratch: Path, jars: Sequence[Jar]) -> str:
    wanted = scratch / "ivy.xml"
    lines = [
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" conf="default->master" '
        'transitive="false"/>'
        for jar in jars
    ]
    wanted.write_text(
        '<ivy-module version="2.0"><info organisation="headrace" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{"".join(lines)}</dependencies>'
        "</ivy-module>",
        encoding="utf-8",
    )
    words = [
        str(java.java), *java.options, "-jar", str(_ivy()), "-m2compatible", "-ivy", str(wanted),
        "-cache", str(scratch / "cache"), "-confs", "default",
        "-retrieve", str(scratch / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=FETCH_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise SetupMissing(f"the jars did not arrive within {FETCH_TIMEOUT_S:g} s") from None
    return done.stdout + done.stderr


def _ivy() -> Path:
    home = pyspark_folder()
    jars = sorted((home / "jars").glob("ivy-*.jar")) if home else []
    if not jars:
        raise SetupMissing("pyspark is not installed", hint="Run `pip install 'headrace[spark]'`.")
    return jars[-1]


def _not_had(jar: Jar, draft: Path, said: str) -> SetupMissing:
    if draft.exists():
        return SetupMissing(
            f"{jar.file}: what was downloaded is not what it must be: {draft.stat().st_size} bytes, SHA-256 "
            f"{_sha256(draft)}, not {jar.size} bytes, {jar.sha256}",
            hint="A proxy or mirror may have changed it; nothing was kept.",
        )
    reasons = [
        line.strip() for line in said.splitlines() if re.search(r"(?i)error|exception|not found|failed", line)
    ]
    return SetupMissing(
        f"{jar.file} can't be fetched. {' | '.join(reasons[:3]) or said.strip()[-300:]}",
        hint="Check the network. Where downloads go through a private certificate authority, Java must know it: set "
        "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=FILE. Without network: copy the folder from a machine that has it "
        "and set HEADRACE_JARS.",
    )


def _fits(path: Path, jar: Jar) -> bool:
    return path.is_file() and path.stat().st_size == jar.size and _sha256(path) == jar.sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
