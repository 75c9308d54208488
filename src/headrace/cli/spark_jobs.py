"""What the commands have in common that run Spark: what must be installed, their options, how they are stopped, what they
tell.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import msgspec
from cyclopts import Parameter

from headrace.errors import SetupMissing, Usage
from headrace.runtime.logs import get_logger

if TYPE_CHECKING:
    from headrace.pipeline.session import SessionSettings
    from headrace.pipeline.supervision import Restart

log = get_logger("pipeline")


class Progressing(Protocol):
    """What every job tells of its progress: see the jobs' own."""

    @property
    def batches(self) -> int:
        """How many batches this process has done."""

    @property
    def lag(self) -> int | None:
        """Entries."""

    @property
    def lag_seconds(self) -> float | None:
        """Seconds."""


P = TypeVar("P", bound=Progressing)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """Where Spark runs, and what it may use.

    Parameters
    ----------
    master
        Spark's master: local[2], or spark://HOST:PORT of a cluster.
    memory
        Memory of Spark's driver; with a local master, of everything.
    executor_memory
        Memory of each executor of a cluster.
    cores_max
        Cores of a cluster that the job takes at most (default: all).
    conf
        A setting of Spark's own, NAME=VALUE; may be given several times.
    """

    master: str = "local[*]"
    memory: str = "2g"
    executor_memory: str = "1g"
    cores_max: int | None = None
    conf: Annotated[tuple[str, ...], Parameter(negative=())] = ()

    def session(
        self, name: str, log_file: Path, *, checkpoint: str, kafka: bool = False, short_lived: bool = False
    ) -> SessionSettings:
        """Return the settings of the job ``name``'s session; Usage if a setting can't be read."""
        from headrace.pipeline.session import SessionSettings

        if self.cores_max is not None and self.cores_max < 1:
            raise Usage("--cores-max must be at least 1")
        more = {}
        for text in self.conf:
            key, sign, value = text.partition("=")
            if not sign or not key.startswith("spark."):
                raise Usage(f"--conf {text!r} is not NAME=VALUE with a name of Spark's")
            more[key] = value
        return SessionSettings(
            log_file=log_file,
            name=name,
            master=self.master,
            memory=self.memory,
            executor_memory=self.executor_memory,
            cores_max=self.cores_max,
            checkpoint=checkpoint,
            kafka=kafka,
            short_lived=short_lived,
            more=more,
        )


def check_installed() -> None:
    """Raise SetupMissing if a package is not there that Spark jobs need."""
    for package in ("pyspark", "delta", "pyarrow", "numpy"):
        if find_spec(package) is None:
            raise SetupMissing(f"the package {package} is not installed")


def tell(line: str) -> None:
    """Tell a person who watches; nothing where nobody does."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


def show(line: str) -> None:
    """Rewrite the line that a person watches; nothing where nobody does."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def progress_teller(line: Callable[[P], str], *, as_json: bool) -> Callable[[P], None]:
    """Return what tells a job's progress on stderr, to be called about once a second.

    ``as_json``: a JSON line for each batch that has ended since the line before, in the form of a log line whose event is
    ``progress``. Else ``line`` is rewritten on a terminal, and where nobody watches nothing is told.
    """
    return _ProgressLines() if as_json else lambda now: show(line(now))


def lag_text(now: Progressing) -> str:
    """Return how far a job is behind, for a person."""
    if now.lag is None:
        return "server away"
    seconds = "" if not now.lag_seconds else f", {now.lag_seconds:.0f} s"
    return f"{now.lag} behind{seconds}"


class _ProgressLines:
    """Writes progress for machines."""

    def __init__(self) -> None:
        self._batches = 0

    def __call__(self, now: Progressing) -> None:
        if now.batches == self._batches:
            return
        self._batches = now.batches
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        told = {"event": "progress", "room": "pipeline", "timestamp": at, **msgspec.to_builtins(now)}
        print(msgspec.json.encode(told).decode(), file=sys.stderr, flush=True)


def tell_restart(restart: Restart) -> None:
    """Log that a job's query failed and is started again: give it to ``supervise``."""
    if sys.stderr.isatty():
        print(file=sys.stderr)  # below the line that is rewritten
    log.warning(
        "the query failed and is started again",
        code=restart.error.code,
        detail=restart.error.detail,
        restart=restart.number,
        delay_s=round(restart.delay_s, 1),
    )


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Give an event that SIGINT or SIGTERM sets; the job then stops at a place from which it goes on."""
    stop = threading.Event()

    def on_signal(number: int, frame: Any) -> None:
        stop.set()

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if sys.stderr.isatty():
            print(file=sys.stderr)
