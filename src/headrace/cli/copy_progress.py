"""How commands show that rows are being copied: a bar on a terminal, else a line now and then; always on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from headrace.publisher.copies import CopyStanding

LINE_EVERY_S: Final = 10.0
"""How often a line is printed where nobody watches."""


@contextmanager
def copy_progress() -> Iterator[Callable[[CopyStanding], None]]:
    """Give what is told of each copy's standing from time to time."""
    if sys.stderr.isatty():
        with _bars() as tell:
            yield tell
    else:
        yield _lines()


def describe(copy: CopyStanding) -> str:
    """Return a line about a copy: table, state, rows, and what it waits for."""
    total = f" of about {copy.rows_estimated:,}" if copy.rows_estimated and not copy.condition else ""
    left = f", {copy.rows_left:,} locked ones left" if copy.rows_left else ""
    where = f" where {copy.condition}" if copy.condition else ""
    rate = f", at most {copy.rows_per_second:,} rows/s" if copy.rows_per_second else ""
    detail = f": {copy.detail}" if copy.detail else ""
    return (
        f"{copy.table}{where}: copy {copy.number} {copy.state}, {copy.rows:,} rows{total}{left}{rate}{detail}"
    )


def _lines() -> Callable[[CopyStanding], None]:
    told: dict[int, float] = {}

    def tell(copy: CopyStanding) -> None:
        now = time.monotonic()
        if now - told.get(copy.number, -LINE_EVERY_S) >= LINE_EVERY_S:
            told[copy.number] = now
            print(describe(copy), file=sys.stderr, flush=True)

    return tell


@contextmanager
def _bars() -> Iterator[Callable[[CopyStanding], None]]:
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows per second, once that is known."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} rows/s")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        Rate(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    tasks: dict[int, TaskID] = {}
    with Progress(*columns, console=Console(stderr=True)) as bars:

        def tell(copy: CopyStanding) -> None:
            total = None if copy.condition else copy.rows_estimated
            if copy.state.is_over or (total is not None and copy.rows > total):
                total = copy.rows
            if copy.number not in tasks:
                tasks[copy.number] = bars.add_task(escape(copy.table), total=total, detail="")
            detail = f"{copy.rows_left:,} rows locked" if copy.rows_left else ""
            bars.update(tasks[copy.number], completed=copy.rows, total=total, detail=detail)

        yield tell
