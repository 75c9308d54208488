"""A bar on stderr for work over many bytes; nothing where nobody watches, or where it is over at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Give what is told ``(done, total)`` in bytes from time to time; None where no bar is shown."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar = bars.add_task(what, total=None)

        def tell(done: int, total: int) -> None:
            bars.update(bar, completed=done, total=total)

        yield tell
