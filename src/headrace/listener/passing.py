"""Moves a bookmark past entries that a filter took away: in time for retention, and seldom enough to cost nothing.

A quiet filtered listener would else keep the place of the last entry that it got: with ``hold`` it would keep retention
back, and without it fall out of the retained range by the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headrace.entries.bookmark import Bookmark

PASSED_S_MIN: Final = 5.0
"""So long is left between two bookmarks that no entry was delivered for. A crash costs a second look at so much, no more."""


class Passing:
    """The place past the last entry that was delivered. ``load`` and ``move`` are the listener's."""

    def __init__(
        self,
        load: Callable[[], Awaitable[Bookmark | None]],
        move: Callable[[Bookmark], Awaitable[None]],
        *,
        seconds_min: float = PASSED_S_MIN,
    ) -> None:
        self._load = load
        self._move = move
        self._seconds_min = seconds_min
        self._given = 0
        self._passed: Bookmark | None = None
        self._settled_at = float("-inf")

    def give(self, sequence_id: int) -> None:
        """The consumer was given all up to here: until it has done with that, the bookmark is not moved past it."""
        self._given, self._passed = sequence_id, None

    def note(self, place: Bookmark) -> None:
        """Everything up to ``place`` was looked at, and nothing of it is for the consumer."""
        self._passed = place

    def due_in_s(self) -> float | None:
        """Return when to :meth:`settle`, in seconds from now; None while there is nothing to be stored."""
        if self._passed is None:
            return None
        return max(0.0, self._settled_at + self._seconds_min - asyncio.get_running_loop().time())

    async def settle(self) -> None:
        """Store what was passed last; if the consumer has not done with what it was given before, it is due again later."""
        place = self._passed
        if place is None:
            return
        # What is stored says it, not what was told: a consumer may move the bookmark in a transaction of its own.
        stored = await self._load()
        self._settled_at = asyncio.get_running_loop().time()
        if stored is None or stored.incarnation != place.incarnation or stored.sequence_id < self._given:
            return
        await self._move(place)
        self._passed = None
