"""A reader that stays: it looks at what follows its place, and waits for more. Long polls and streams are both this."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Protocol

from headrace.errors import FeedRecreated
from headrace.log.log import Log
from headrace.log.tail import FeedTail
from headrace.server.reading import STORED_BYTES_MAX, read_piece
from headrace.server.rendering import Form, Portion, Rendered, render
from headrace.server.shared import Shared
from headrace.server.waits import Waits
from headrace.server.workload import run_sized
from headrace.wire.filters import EVERYTHING

FILTERED_ENTRIES_MAX: Final = 10_000
"""Entries looked at for one answer where a filter takes some away: bounds how long one look takes."""

GLANCE_EVERY_S: Final = 0.25
"""Least pause between two looks for somebody who only watches: eyes are not faster."""


class Looks:
    """Reads of a feed, rendered. Equal ones of the same moment are one read and one answer."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._shared: Shared[Rendered] = Shared(lambda rendered: len(rendered.content))

    async def look(self, tail: FeedTail, first: int, last: int, portion: Portion, form: Form) -> Rendered:
        """Return what of ``first`` … ``last`` fits and passes. Raises SequenceNotAvailable, SequenceLost, JournalCorrupt.

        ``tail`` says what the answer tells of the feed's bounds, so it is a part of what makes two looks equal.
        """
        key = (tail.name, tail.incarnation, tail.oldest, tail.head, first, last, portion, form)
        return await self._shared.get(key, partial(self._look, tail, first, last, portion, form))

    async def _look(self, tail: FeedTail, first: int, last: int, portion: Portion, form: Form) -> Rendered:
        looked_at = portion.limit if portion.wanted == EVERYTHING else FILTERED_ENTRIES_MAX
        # JSON is seldom less than half of what is stored, so little more is read than can be answered.
        answerable = 2 * portion.bytes_max if portion.wanted == EVERYTHING else STORED_BYTES_MAX
        stored = min(STORED_BYTES_MAX, answerable)
        piece = await read_piece(self.log, tail, first, last, looked_at, bytes_max=stored)
        entries = min(looked_at, sum(frame.header.count for frame in piece.frames))
        return await run_sized(entries, render, piece, portion, form)


class Gives(Protocol):
    """Is told that a reader begins behind ``place``, or (``begins`` False) that it was given all it wants up to there."""

    def __call__(self, tail: FeedTail, place: int, portion: Portion, *, begins: bool) -> None: ...


class Follower:
    """One reader of one feed. ``after`` is its place: all that it has looked at."""

    __slots__ = ("_form", "_gives", "_looks", "_portion", "_saw", "_waits", "after", "tail")

    def __init__(
        self,
        looks: Looks,
        waits: Waits,
        place: tuple[FeedTail, int],
        portion: tuple[Portion, Form],
        told: tuple[Callable[[], Awaitable[None]], Gives],
    ) -> None:
        """``place``: the feed, and the sequence id after which to begin. ``told``: is told that the reader is still there,
        and how far it was given the feed.
        """
        self.tail, self.after = place
        self._looks = looks
        self._waits = waits
        self._portion, self._form = portion
        self._saw, self._gives = told
        self._gives(self.tail, self.after, self._portion, begins=True)

    def given(self, rendered: Rendered) -> None:
        """Note that the connection has taken this answer."""
        self._gives(self.tail, rendered.last_sequence_id, self._portion, begins=False)

    def is_stopping(self) -> bool:
        """Tell whether the server is about to stop: nothing is waited for any more."""
        return self._waits.stopping

    async def until_some(self, deadline: float) -> Rendered:
        """Return the next entries that pass, or at ``deadline`` (of the loop's clock) an answer without any."""
        while True:
            if not await self._wait_for_more(deadline - asyncio.get_running_loop().time()):
                return await self._look(self.after)
            rendered = await self._look(self.tail.head)
            if rendered.entries or self.is_stopping() or asyncio.get_running_loop().time() >= deadline:
                return rendered

    async def next(self, timeout_s: float) -> Rendered | None:
        """Return what was found by the next look, or None if there was nothing to look at for ``timeout_s`` seconds."""
        await self._saw()
        if not await self._wait_for_more(timeout_s):
            return None
        return await self._look(self.tail.head)

    async def until(self, wait: Callable[[float], Awaitable[bool]], timeout_s: float) -> bool:
        """Return what ``wait`` answers; False after ``timeout_s`` seconds and when the server stops."""
        return await self._waits.until(wait, timeout_s)

    async def _wait_for_more(self, timeout_s: float) -> bool:
        feed, log = self.tail.name, self._looks.log
        if log.tail(feed).head <= self.after:
            await self._waits.until(partial(log.wait_past, feed, self.after), timeout_s)
        tail = log.tail(feed)
        if tail.incarnation != self.tail.incarnation:
            raise FeedRecreated(
                f"the feed {feed} has the incarnation {tail.incarnation} now, not {self.tail.incarnation}",
                incarnation=tail.incarnation,
                head=tail.head,
                oldest=tail.oldest,
            )
        self.tail = tail
        return tail.head > self.after

    async def _look(self, last: int) -> Rendered:
        rendered = await self._looks.look(self.tail, self.after + 1, last, self._portion, self._form)
        self.after = rendered.last_sequence_id
        return rendered


class Watcher(Follower):
    """A reader for eyes: it looks now and then, and passes over what nobody could read at that pace.

    It passes nothing over where a filter may want it.
    """

    __slots__ = ("_due",)

    def __init__(self, looks: Looks, waits: Waits, place: tuple[FeedTail, int], portion: Portion) -> None:
        """``place``: the feed, and the sequence id after which to begin. ``portion``: the most that one look gives."""
        super().__init__(looks, waits, place, (portion, Form.LIST), (_nobody, _nothing))
        self._due = 0.0

    async def next(self, timeout_s: float) -> Rendered | None:
        """Return what was found by the next look, or None if there was nothing to look at for ``timeout_s`` seconds."""
        await asyncio.sleep(max(0.0, self._due - asyncio.get_running_loop().time()))
        if not await self._wait_for_more(timeout_s):
            return None
        self._due = asyncio.get_running_loop().time() + GLANCE_EVERY_S
        if self._portion.wanted == EVERYTHING:
            self.after = max(self.after, self.tail.head - self._portion.limit)
        return await self._look(self.tail.head)


async def _nobody() -> None:
    """Who only watches is not noted as seen."""


def _nothing(tail: FeedTail, place: int, portion: Portion, *, begins: bool) -> None:
    """Nor is it noted what was given to who only watches."""
