"""Work that several ask for at the same moment, done once: single flight, and a small bounded memory of what was made.

Thousands of long polls that one append wakes want the same read and the same answer.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

KEPT_MAX: Final = 64
"""Results kept: those who wake together come for a handful of different ones."""
KEPT_BYTES_MAX: Final = 16 << 20
"""Bytes of them; a single result above a quarter of it is not kept at all."""


class Shared(Generic[T]):
    """Results by key. Who asks for what is being made waits for it; an error is told to them, and never kept."""

    def __init__(
        self, size_of: Callable[[T], int], *, kept_max: int = KEPT_MAX, bytes_max: int = KEPT_BYTES_MAX
    ):
        """``size_of`` tells the bytes of a result."""
        self._size_of = size_of
        self._kept_max = kept_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._making: dict[Hashable, asyncio.Task[T]] = {}
        self._kept: OrderedDict[Hashable, T] = OrderedDict()

    async def get(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of ``make()`` for ``key``, which must be the same whoever asks. Raises what it raises."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        task = self._making.get(key)
        if task is None:
            task = self._making[key] = asyncio.create_task(make())
            task.add_done_callback(lambda done: self._made(key, done))
        return await asyncio.shield(task)  # one who gives up does not take it from the others

    def _made(self, key: Hashable, task: asyncio.Task[T]) -> None:
        self._making.pop(key, None)
        if task.cancelled() or task.exception() is not None:
            return
        result = task.result()
        size = self._size_of(result)
        if size > self._bytes_max // 4:
            return
        self._kept[key] = result
        self._bytes += size
        while len(self._kept) > self._kept_max or self._bytes > self._bytes_max:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= self._size_of(oldest)
