"""The Java client of RFC-010, made from the RFC's proto at test time: its code by protoc, its program by a compiler in Java.

``program = compiled(folder)``, then ``with Running(program, folder, server.grpc_address, entries=5) as client:``. Its jars
(``java_jars.txt``: group, artifact, version, bytes, SHA-256) are fetched once, beside those of Spark. The generator is a
Python package of the lock, and its version is that of protobuf-java.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple

from headrace.pipeline.jars import Jar, fetch, jars_folder
from headrace.pipeline.java import Java, find_java
from tests.waiting import wait_until

HERE: Final = Path(__file__).parent
COMPILE_S_MAX: Final = 120.0
WAIT_S_MAX: Final = 60.0
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Neither process lives long enough for the second compiler to pay."""


class Program(NamedTuple):
    """What runs the client: a Java, and where the classes are."""

    java: Java
    classpath: str


def java_jars() -> list[Jar]:
    """gRPC, protobuf, and a compiler for a Java that has none, in the versions that were tried together."""
    lines = (line.split() for line in (HERE / "java_jars.txt").read_text(encoding="utf-8").splitlines())
    return [
        Jar(group, artifact, version, int(size), digest) for group, artifact, version, size, digest in lines
    ]


def compiled(folder: Path) -> Program:
    """Make the client in ``folder``, of nothing but the RFC's proto and its own source."""
    java, kept = find_java(), jars_folder() / "grpc-java"
    fetch(kept, java, java_jars(), say=lambda _: None)
    compiler = kept / next(jar.file for jar in java_jars() if jar.artifact == "ecj")
    jars = ":".join(str(kept / jar.file) for jar in java_jars())
    sources, classes = folder / "java", folder / "classes"
    sources.mkdir()
    _run(_protoc(), f"-I{HERE}", f"--java_out={sources}", "rfc010.proto")
    generated = [str(path) for path in sources.rglob("*.java")]
    own = str(HERE / "RfcClient.java")
    words = ["-17", "-proc:none", "-nowarn", "-cp", jars, "-d", str(classes), *generated, own]
    _run(str(java.java), *QUICK, "-jar", str(compiler), *words)
    return Program(java, f"{classes}:{jars}")


class Running:
    """One run of the client as a process: what it says, line by line. It is killed at the end if it still runs."""

    def __init__(
        self, program: Program, folder: Path, address: str, *, entries: int, start: str = "", hint: int = 1000
    ) -> None:
        """``start``: its first ``start_lsn``. It ends by itself after so many ``entries``. ``hint``: entries of a batch."""
        self._out, self._err = folder / "java.out", folder / "java.err"
        words = [str(program.java.java), *QUICK, "-cp", program.classpath, "RfcClient", address, start]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [*words, str(entries), str(hint)], stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()

    def said(self, *events: str) -> list[dict[str, str]]:
        """What it has said so far: all, or only these ``events``."""
        whole = self._out.read_bytes().rpartition(b"\n")[0]
        lines = [json.loads(line) for line in whole.splitlines()]
        return [line for line in lines if not events or line["event"] in events]

    def wait_said(self, event: str, count: int = 1) -> None:
        """Wait until it has said something of this kind so many times."""
        wait_until(
            lambda: len(self.said(event)) >= count or self._process.poll() is not None,
            WAIT_S_MAX,
            what=f"the client to say {event!r}",
        )
        assert len(self.said(event)) >= count, self._failure()

    def wait_end(self) -> None:
        """Wait until it has ended by itself, well."""
        wait_until(lambda: self._process.poll() is not None, WAIT_S_MAX, what="the client to end")
        assert self._process.returncode == 0, self._failure()

    def _failure(self) -> str:
        return f"{self.said()[-3:]}\n{self._err.read_text(encoding='utf-8', errors='replace')}"


def _protoc() -> str:
    found = shutil.which("protoc", path=str(Path(sys.executable).parent))
    assert found is not None, "there is no protoc beside this Python; run: make setup"
    return found


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=False)
    assert done.returncode == 0, f"{words[0]} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
