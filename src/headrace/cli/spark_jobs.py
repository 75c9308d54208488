"""What the commands have in common that run Spark: what must be installed, how they are stopped, what they tell."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from headrace.errors import SetupMissing


def check_installed() -> None:
    """Raise SetupMissing if a package is not there that Spark jobs need."""
    for package in ("pyspark", "delta", "pyarrow", "numpy"):
        if find_spec(package) is None:
            raise SetupMissing(f"the package {package} is not installed")


def tell(line: str) -> None:
    """Tell a person who watches; nothing where nobody does."""
    if sys.stderr.isatty():
        print(line, file=sys.stderr, flush=True)


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
