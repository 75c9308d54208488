"""How ``headrace wal backup`` shows that it goes on: a line that is renewed on a terminal, else a log line now and then."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError
from headrace.runtime.logs import get_logger
from headrace.wire.documents import rfc3339

if TYPE_CHECKING:
    from headrace.backup.agent import Agent
    from headrace.backup.standing import Standing

logger = get_logger("backup")

LOG_EVERY_S: Final = 60.0
LINE_EVERY_S: Final = 2.0


async def watch(agent: Agent) -> None:
    """Show how an agent stands, until cancelled; always on stderr."""
    is_watched = sys.stderr.isatty()
    every_s = LINE_EVERY_S if is_watched else LOG_EVERY_S
    before, before_s = agent.standing, time.monotonic()
    try:
        while True:
            await asyncio.sleep(every_s)
            now, now_s = agent.standing, time.monotonic()
            rate = (now.bytes - before.bytes) / (now_s - before_s) / 1e6
            try:
                behind, seconds = await agent.behind()
                lag = f"{behind:,} entries and {seconds:.0f} s behind"
            except HeadraceError:
                lag = "the server does not answer"
            if is_watched:
                print(f"\r\x1b[K{describe(now, rate, lag)}", end="", file=sys.stderr, flush=True)
            else:
                logger.info(
                    "the backup goes on",
                    entries=now.entries,
                    segments=now.segments,
                    gathered=now.gathered,
                    megabytes_per_s=round(rate, 1),
                    last_lsn=str(now.last) if now.last is not None else None,
                    lag=lag,
                    trouble=now.trouble or None,
                )
            before, before_s = now, now_s
    finally:
        if is_watched:
            print(file=sys.stderr)


def describe(now: Standing, rate: float, lag: str) -> str:
    """Return a line about an agent. ``rate``: what it archives, in MB/s; ``lag`` in words."""
    held = f", {now.gathered:,} held" if now.gathered else ""
    window = (
        f"archive from {rfc3339(now.first.committed_at_ms)} to {rfc3339(now.last.committed_at_ms)} (lsn={now.last})"
        if now.first is not None and now.last is not None
        else "archive empty"
    )
    trouble = f"; NOTHING IS ARCHIVED: {now.trouble}" if now.trouble else ""
    return (
        f"{now.entries:,} entries in {now.segments} segments{held}, {rate:.1f} MB/s; {lag}; {window}{trouble}"
    )


def shown_size(size: int) -> str:
    """Return a size in words."""
    return f"{size:,} bytes" if size < 1 << 20 else f"{size / (1 << 20):,.1f} MB"
