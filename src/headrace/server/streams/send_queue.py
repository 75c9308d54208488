"""What was read for one stream and is not sent yet: bounded, and watched for a subscriber that takes nothing.

The reader of a stream fills it (:meth:`SendQueue.put`), the stream's face empties it (:meth:`SendQueue.take`); both run in
one event loop. Everything in it stands in the log as well, so it may be given up at any time.
"""

from __future__ import annotations

import asyncio
from collections import deque

from headrace.entries.lsn import Lsn
from headrace.server.streams.terms import StreamTerms
from headrace.wire.batch import BATCH_ENTRIES_MAX, Batch, join


class SendQueue:
    """The queue of one stream."""

    def __init__(self, terms: StreamTerms, walked: Lsn, batch_entries: int = BATCH_ENTRIES_MAX) -> None:
        """Begin empty; everything up to ``walked`` is behind the stream. ``batch_entries``: most entries of a batch."""
        self.walked = walked
        """Up to here everything that the stream is to carry was taken."""
        self.entries = 0
        self._terms = terms
        self._batch_entries = batch_entries
        self._size = 0
        self._waiting: deque[tuple[Batch | None, Lsn]] = deque()
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._asked = asyncio.Event()
        self._end: BaseException | None = None
        self._rotate = False

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be read for now."""
        return self.entries >= self._terms.queue_entries or self._size >= self._terms.queue_bytes

    def put(self, batches: list[Batch], walked: Lsn) -> None:
        """Add what was read; behind it, everything up to ``walked`` is done with."""
        for number, batch in enumerate(batches, 1):
            self.entries += batch.entries
            self._size += batch.size
            self._waiting.append((batch, walked if number == len(batches) else batch.last_lsn))
        if not batches:
            last = self._waiting.pop()[0] if self._waiting else None
            self._waiting.append((last, walked))
        self._changed.set()

    def fail(self, end: BaseException) -> None:
        """Say that nothing more will come: :meth:`take` raises ``end`` once the queue is empty."""
        self._end = end
        self._changed.set()

    def give_up(self, end: BaseException) -> None:
        """Let go of what waits; the next :meth:`take` raises ``end``."""
        self._waiting.clear()
        self.entries = self._size = 0
        self.fail(end)

    def ask_rotation(self) -> None:
        """Have the next :meth:`take` say that the subscriber should begin a new file."""
        self._rotate = True
        self._changed.set()

    def take_rotation(self) -> bool:
        """Return whether a rotation was asked for since the last call."""
        asked, self._rotate = self._rotate, False
        return asked

    async def take(self, timeout_s: float) -> Batch | None:
        """Return the next batch, of all that waits and fits into one.

        None after ``timeout_s`` without any, and at once when a rotation was asked for: a stream that is behind is not idle
        for long. Raises what the stream ends with.
        """
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    if self._rotate:
                        return None
                    if (batch := self._next()) is not None:
                        return batch
                    if self._end is not None:
                        raise self._end
                    self._changed.clear()
                    self._asked.set()
                    await self._changed.wait()
        except TimeoutError:
            if (batch := self._next()) is not None:
                return batch
            if self._end is not None:
                raise self._end from None
            return None
        finally:
            self._asked.clear()

    async def wait_asked(self) -> None:
        """Return once the face waits for something to send, or after the time in which new entries are gathered."""
        if not self._asked.is_set():
            try:
                async with asyncio.timeout(self._terms.gather_s):
                    await self._asked.wait()
            except TimeoutError:
                return

    async def wait_room(self) -> bool:
        """Return True once the queue isn't full; False if it is, and nothing was taken for ``backpressure_timeout_s``."""
        while self.is_full:
            self._taken.clear()
            try:
                async with asyncio.timeout(self._terms.backpressure_timeout_s):
                    await self._taken.wait()
            except TimeoutError:
                return False
        return True

    def _next(self) -> Batch | None:
        taken: list[Batch] = []
        entries, size = 0, 0
        while self._waiting:
            batch, walked = self._waiting[0]
            if batch is not None:
                entries, size = entries + batch.entries, size + batch.size
                if taken and (entries > self._batch_entries or size > self._terms.batch_bytes):
                    break
                taken.append(batch)
                self.entries -= batch.entries
                self._size -= batch.size
            self.walked = walked
            self._waiting.popleft()
        self._taken.set()
        return join(taken) if taken else None
