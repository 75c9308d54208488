"""A source and the one thread that uses it, so that a database that waits never holds the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from headrace.errors import SourceUnavailable
from headrace.publisher.source import Source

T = TypeVar("T")


class SourceThread:
    """Runs calls on a source, one at a time, in their order. Use: :meth:`open`, :meth:`run` …, :meth:`close`."""

    def __init__(self, opener: Callable[[], Source]) -> None:
        """``opener`` opens the source; it is called in the thread, at first and at each :meth:`reopen`."""
        self._opener = opener
        self._source: Source | None = None
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="headrace-source")
        self.generation = 0
        """Grows whenever the source was opened anew: who holds a place in it must compare it again."""

    @property
    def is_open(self) -> bool:
        """Whether the source is open; it isn't after a :meth:`reopen` that failed."""
        return self._source is not None

    async def open(self) -> None:
        """Open the source; raises what the opener raises."""
        await self._submit(self._open)

    async def reopen(self) -> None:
        """Close the source and open it anew; raises what the opener raises, and is then to be called again."""
        await self._submit(self._close)
        await self._submit(self._open)

    async def run(self, call: Callable[[Source], T], *, generation: int | None = None) -> T:
        """Return ``call(source)``. SourceUnavailable while the source is closed, or if ``generation`` is given and over."""
        return await self._submit(lambda: call(self._opened(generation)))

    async def close(self) -> None:
        """Wait for the call that runs, close the source, end the thread."""
        await self._submit(self._close)
        self._pool.shutdown()

    def _opened(self, generation: int | None) -> Source:
        if self._source is None:
            raise SourceUnavailable("the source is closed")
        if generation not in (None, self.generation):
            raise SourceUnavailable("the source was opened anew", hint="It is compared with the feed anew.")
        return self._source

    def _open(self) -> None:
        self._source = self._opener()
        self.generation += 1

    def _close(self) -> None:
        if self._source is not None:
            self._source.close()
            self._source = None

    async def _submit(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)
