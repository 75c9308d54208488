"""How commands show work over many bytes: percent, MB/s and the time left; a bar on a terminal, else a line now and then.

Always on stderr. Nothing is shown of what is over at once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

LINE_EVERY_S: Final = 10.0
"""How often a line is printed where nobody watches."""

Tell = Callable[[int, int], None]
"""Told (done, total) in bytes."""


@contextmanager
def rate_progress(what: str) -> Iterator[Tell]:
    """Give what is told how many of how many bytes are done, as often as one likes."""
    if sys.stderr.isatty():
        with _bar(what) as tell:
            yield tell
    else:
        yield _lines(what)


def describe(what: str, done: int, total: int, seconds: float) -> str:
    """Return a line: how far it is, how fast, and how long it will still take."""
    rate = done / seconds if seconds else 0.0
    percent = 100 * done // total if total else 100
    left = f", {(total - done) / rate:,.0f} s left" if rate else ""
    return f"{what}: {percent} % of {total / 1e6:,.0f} MB, {rate / 1e6:,.0f} MB/s{left}"


def _lines(what: str) -> Tell:
    began = told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= LINE_EVERY_S:
            told = now
            print(describe(what, done, total, now - began), file=sys.stderr, flush=True)

    return tell


@contextmanager
def _bar(what: str) -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import DownloadColumn as AmountColumn
    from rich.progress import TransferSpeedColumn as SpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        AmountColumn(),
        SpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(what, total=None)

        def tell(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=total)

        yield tell
