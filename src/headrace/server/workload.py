"""Long computations aside, short ones at once: so that one large post or answer does not hold up every other request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

ENTRIES_IN_LOOP_MAX: Final = 500
"""Entries that are decoded, encoded or rendered on the event loop: at 20 to 30 µs each, some 10 ms."""


async def run_sized(entries: int, work: Callable[P, T], *given: P.args, **named: P.kwargs) -> T:
    """Return ``work(...)``, done in a worker thread if it is about more than a few hundred ``entries``."""
    if entries <= ENTRIES_IN_LOOP_MAX:
        return work(*given, **named)
    return await asyncio.to_thread(work, *given, **named)
