"""Hands changes to a consumer one by one, and carries out what was chosen for those that it refuses: retry, park or stop.

Parking keeps the entry in the bookmark store, in one step with the bookmark behind it, and holds later entries of that key
only, in their order, until it is replayed or dropped. What concerns more than its own key is never parked, and never passes
what is parked: there the listener stops.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from headrace.entries.bookmark import Bookmark
from headrace.errors import EntryRefused, Stopped
from headrace.listener.bookmarks import BookmarkStore
from headrace.listener.change import Change
from headrace.listener.parking import (
    PARKED_BYTES_MAX,
    PARKED_MAX,
    ParkedEntry,
    ParkedMax,
    by_key,
    key_of,
    may_park,
    overtakes,
    parked_of,
)
from headrace.listener.parts import SnapshotEnd, SnapshotPart
from headrace.listener.storing import StoreCalls
from headrace.runtime.backoff import Backoff

ATTEMPTS_MAX: Final = 5
"""How often a consumer is asked to take an entry before it is parked, or stops the listener."""
RETRY_FIRST_S: Final = 0.2
RETRY_S_MAX: Final = 5.0
ALONE_FAILURES_MAX: Final = 6
"""How often a store that is away is tried again where no listener says otherwise: about five seconds."""
NO_MAX: Final = ParkedMax(sys.maxsize, sys.maxsize)


class OnError(StrEnum):
    """What becomes of an entry that the consumer refuses."""

    RETRY = "retry"
    PARK = "park"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Refusals:
    """What was chosen for refused entries.

    ``attempts_max``: with ``retry`` None asks for ever, and a number stops after so many; with ``park`` and ``stop`` None
    means 5. ``parked_max``, ``parked_bytes_max``: so many parked entries, or so many bytes of them, stop the listener.
    """

    on_error: OnError = OnError.STOP
    attempts_max: int | None = None
    parked_max: int = PARKED_MAX
    parked_bytes_max: int = PARKED_BYTES_MAX
    first_s: float = RETRY_FIRST_S
    delay_s_max: float = RETRY_S_MAX

    @property
    def most(self) -> ParkedMax:
        """How much may be parked."""
        return ParkedMax(self.parked_max, self.parked_bytes_max)

    @property
    def tries_max(self) -> int | None:
        """How often an entry is tried; None: for ever."""
        return (
            ATTEMPTS_MAX
            if self.attempts_max is None and self.on_error is not OnError.RETRY
            else self.attempts_max
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """The consumer has refused ``change`` ``attempts`` times, now because of ``reason``."""

    change: Change
    reason: str
    attempts: int


Take = Callable[[Change], Awaitable[None]]
"""The consumer. It refuses by an exception: any but those that stop the process (Stopped, save EntryRefused)."""
OnRefused = Callable[[Refused], None]


class Handover:
    """One consumer of one listener. Await :meth:`begin` first, and :meth:`flush` where the feed pauses.

    ``move`` stores a bookmark; ``moved`` hears of one that was stored with a parked entry. The bookmark is stored after
    ``changes_max`` changes or ``seconds_max``.
    """

    def __init__(
        self,
        store: BookmarkStore,
        place: tuple[str, str],
        take: Take,
        refusals: Refusals,
        *,
        move: Callable[[Bookmark], Awaitable[None]],
        moved: Callable[[Bookmark], None],
        changes_max: int = 1,
        seconds_max: float = 1.0,
        on_refused: OnRefused | None = None,
        calls: StoreCalls | None = None,
    ) -> None:
        self._store = store
        self._call = calls if calls is not None else StoreCalls(ALONE_FAILURES_MAX)
        self._of = place
        self._take = take
        self._refusals = refusals
        self._move = move
        self._moved = moved
        self._changes_max = changes_max
        self._seconds_max = seconds_max
        self._on_refused = on_refused
        self._parked_keys: set[str] = set()
        self._done: Bookmark | None = None
        self._stale = False
        self._count = 0
        self._stored_at = float("-inf")

    async def begin(self) -> None:
        """Claim the bookmark, and hand over what was held and is due now: its predecessors were replayed or dropped."""
        await self._call(self._store.claim, *self._of)
        for group in by_key(await self._parked()):
            if group[0].held:
                await self._replay(group)
        await self._look_again()

    def note(self, part: SnapshotPart) -> None:
        """A part of a snapshot was handed over: its end voids what is parked up to it, once the bookmark has moved."""
        self._stale = self._stale or isinstance(part, SnapshotEnd)

    async def hand_all(
        self,
        changes: Sequence[Change],
        leave_off: Callable[[], bool] | None = None,
        *,
        behind: Bookmark | None = None,
    ) -> None:
        """Hand ``changes`` over one by one, and store the bookmark behind the last one; ``leave_off`` is asked between.

        ``behind``: the place behind all of them, further than the last one where a filter took away what follows.
        """
        if self._stale:
            await self._look_again()
        for change in changes:
            await self.hand(change)
            if leave_off is not None and leave_off():
                break
        else:
            if changes and behind is not None and behind != changes[-1].place:
                self._done = behind
        await self.flush()

    async def _look_again(self) -> None:
        self._parked_keys = {entry.key for entry in await self._parked()}
        self._stale = False

    async def hand(self, change: Change) -> None:
        """Hand ``change`` over; when this returns the consumer has it, or it is parked.

        EntryRefused if it stops the listener, ParkedTooMany, and what the store raises.
        """
        if self._parked_keys and overtakes(change):
            await self.flush()
            raise EntryRefused(
                f"entry {change.sequence_id} ({change.entry.control or change.op}) concerns keys that have parked entries",
                hint="`headrace listen parked replay` or `drop` what is parked first, then start again.",
                sequence_id=change.sequence_id,
            )
        if key_of(change) in self._parked_keys and may_park(change):
            await self._park(parked_of(change, _now()), change.place)
            return
        refused = await self._ask(change)
        if refused is not None:
            await self._park(_parked_again(change, refused), change.place)
            return
        self._done, self._count = change.place, self._count + 1
        late = asyncio.get_running_loop().time() - self._stored_at >= self._seconds_max
        if late or self._count >= self._changes_max:
            await self.flush()

    async def flush(self) -> None:
        """Store the bookmark behind the last change that the consumer has done with."""
        done, self._done = self._done, None
        if done is not None:
            await self._move(done)
        self._count, self._stored_at = 0, asyncio.get_running_loop().time()

    async def replay(self, chosen: Callable[[ParkedEntry], bool]) -> tuple[int, int]:
        """Hand over what is parked of each key of which an entry is ``chosen``: in order, up to one that is refused again.

        Returns how many were taken, and how many are still parked of these keys.
        """
        taken = left = 0
        for group in by_key(await self._parked()):
            if any(map(chosen, group)):
                done = await self._replay(group)
                taken, left = taken + done, left + len(group) - done
        return taken, left

    async def _replay(self, group: list[ParkedEntry]) -> int:
        for number, entry in enumerate(group):
            change = entry.change()
            refused = await self._ask(change)
            if refused is not None:
                await self._call(
                    self._store.park,
                    *self._of,
                    _parked_again(change, refused, entry.attempts),
                    None,
                    NO_MAX,  # it was parked before
                )
                return number
            await self._call(self._store.unpark, *self._of, entry.sequence_id)
        return len(group)

    async def _ask(self, change: Change) -> Refused | None:
        """Ask the consumer, with backoff between tries. Returns the refusal of what is to be parked; else EntryRefused."""
        refusals = self._refusals
        backoff = Backoff(first_s=refusals.first_s, delay_s_max=refusals.delay_s_max)
        attempts = 0
        while True:
            try:
                await self._take(change)
            except EntryRefused as error:
                reason = error.detail
            except Stopped:
                raise
            except Exception as error:  # noqa: BLE001  # the consumer's own code: whatever it raises is its refusal
                reason = f"{type(error).__name__}: {error}"
            else:
                return None
            attempts += 1
            refused = Refused(change, reason, attempts)
            if self._on_refused is not None:
                self._on_refused(refused)
            if refusals.tries_max is not None and attempts >= refusals.tries_max:
                if refusals.on_error is OnError.PARK and may_park(change):
                    return refused
                await self.flush()
                raise EntryRefused(
                    f"{reason} on entry {change.sequence_id}, {attempts} times",
                    sequence_id=change.sequence_id,
                )
            await self.flush()
            await asyncio.sleep(backoff.next_delay())

    async def _park(self, entry: ParkedEntry, place: Bookmark) -> None:
        # Everything before this entry is done or parked, so its own place is the bookmark: both in one step.
        await self._call(self._store.park, *self._of, entry, place, self._refusals.most)
        self._done, self._count = None, 0
        self._parked_keys.add(entry.key)
        self._moved(place)

    async def _parked(self) -> list[ParkedEntry]:
        return await self._call(self._store.parked, *self._of)


def _parked_again(change: Change, refused: Refused, attempts: int = 0) -> ParkedEntry:
    return parked_of(change, _now(), reason=refused.reason, attempts=attempts + refused.attempts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
