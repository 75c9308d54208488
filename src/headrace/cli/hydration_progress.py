"""How ``headrace listen`` shows that a snapshot is fetched: a bar on a terminal, else lines now and then; on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from headrace.listener import HydrationProgress

LINE_EVERY_S: Final = 1.0
"""How often a line is printed at most, while nothing but the numbers changes."""

Tell = Callable[[HydrationProgress], None]


@contextmanager
def hydration_progress(*, as_json: bool) -> Iterator[Tell]:
    """Give what is told of a snapshot's progress. ``as_json``: each line is a JSON document."""
    if sys.stderr.isatty() and not as_json:
        with _bar() as tell:
            yield tell
    else:
        yield _lines(_document if as_json else describe)


def describe(progress: HydrationProgress) -> str:
    """Return a line for people."""
    if progress.state == "being-made":
        return f"snapshot: the publisher is making it, {progress.rows:,} rows so far"
    total = f" of {progress.bytes_total:,}" if progress.bytes_total is not None else ""
    return (
        f"snapshot {progress.snapshot_id} at sequence id {progress.sequence_id}: {progress.state}, "
        f"{progress.rows:,} rows, {progress.bytes_done:,}{total} bytes"
    )


def _document(progress: HydrationProgress) -> str:
    given = {
        "hydration": progress.state,
        "rows": progress.rows,
        "bytes": progress.bytes_done,
        "bytes-total": progress.bytes_total,
        "sequence-id": progress.sequence_id,
        "snapshot-id": progress.snapshot_id,
    }
    return json.dumps({name: value for name, value in given.items() if value is not None})


def _lines(render: Callable[[HydrationProgress], str]) -> Tell:
    told_at, told_state = float("-inf"), ""

    def tell(progress: HydrationProgress) -> None:
        nonlocal told_at, told_state
        now = time.monotonic()
        if progress.state != told_state or now - told_at >= LINE_EVERY_S:
            told_at, told_state = now, progress.state
            print(render(progress), file=sys.stderr, flush=True)

    return tell


@contextmanager
def _bar() -> Iterator[Tell]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        bar: TaskID | None = None

        def tell(progress: HydrationProgress) -> None:
            nonlocal bar
            if bar is None:
                bar = bars.add_task("snapshot", total=None)
            what = "made" if progress.state == "being-made" else f"at {progress.sequence_id}"
            bars.update(
                bar,
                description=f"snapshot {what}, {progress.rows:,} rows",
                completed=progress.bytes_done,
                total=progress.bytes_total,
            )
            if progress.state == "applied":
                bars.remove_task(bar)
                bar = None

        yield tell
