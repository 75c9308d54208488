"""Blocking calls in worker threads, waited for to their end: a thread can't be cancelled, what it uses must outlive it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T]) -> T:
    """Return what ``call`` does in a worker thread. Where the caller is cancelled, it learns so once the call has ended."""
    running = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with suppress(asyncio.CancelledError):  # raised below, however often it comes
                await asyncio.wait({running})
        raise
    finally:
        if running.done() and not running.cancelled():
            running.exception()
